"""Commands for operators: what Kafka's scripts do with offsets, settings, replicas and brokers. WORLD."""
