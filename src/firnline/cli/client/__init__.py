"""`firnline produce` and `firnline consume`: the commands, and what they do with librdkafka. WORLD."""
