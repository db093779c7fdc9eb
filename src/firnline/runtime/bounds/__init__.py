"""Bounds on the memory of requests and responses, and on connections; fair between clients."""
