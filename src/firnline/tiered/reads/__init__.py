"""Reads of the tier: records, offsets by timestamp, indexes and their cache, state of new followers."""
