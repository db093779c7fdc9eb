"""What must not run on the loop: syncs, reads of what is not in memory, long work."""
