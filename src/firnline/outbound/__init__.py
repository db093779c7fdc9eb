"""L6: requests to other nodes: converts calls to wire messages, and responses to results. PURE."""
