"""Kafka's messages, one API key per file: request and response, all versions, our own words. PURE."""
