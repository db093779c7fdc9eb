"""Reads a topic as a stream of micro-batches. SPARK."""
