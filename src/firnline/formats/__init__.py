"""L1: codecs of the files that Kafka keeps beside batches: layout, encode, decode, checks. PURE."""
