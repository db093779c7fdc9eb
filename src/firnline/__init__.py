"""Firnline: a Kafka-compatible event log in Python whose whole history is a table in Spark."""

__version__ = "0.1.0"
