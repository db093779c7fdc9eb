"""L1: the files that Kafka keeps beside batches, one codec each: layout, encode, decode, checks. PURE."""
