"""Threads for what must not run on the event loop: syncs, reads from disk, and long computations."""
