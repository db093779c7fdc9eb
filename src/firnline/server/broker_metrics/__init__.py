"""Metrics with the names that dashboards for Kafka draw most: requests, topics, the broker itself."""
