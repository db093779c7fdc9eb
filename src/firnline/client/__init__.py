"""L2: a small synchronous client for the command line, Spark executors and tests. PURE, except for
sockets.
"""
