"""Logging: how lines are written, to where, how many of them, and at which levels."""
