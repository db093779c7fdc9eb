"""L2: Kafka's log directory: segments, indexes, epochs, recovery. STORE: bytes go through `Fs`."""
