"""What `firnline produce` and `firnline consume` share: formats, positions, and librdkafka. PURE."""
