"""L2: a sans-I/O client for the command line, Spark executors and other brokers. PURE."""
