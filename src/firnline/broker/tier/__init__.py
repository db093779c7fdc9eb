"""Connects a broker to the tier: events, reads, the tier's metadata; and brokers without one. PURE."""
