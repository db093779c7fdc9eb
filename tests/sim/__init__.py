"""The simulated world itself, seeds that once failed, and fresh ones."""
