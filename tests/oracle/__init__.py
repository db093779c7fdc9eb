"""Kafka's own classes as the judge of every byte we write or read."""
