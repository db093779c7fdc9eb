"""L6: the requests of clients and of other nodes, by API key: from the wire to a call, and back. PURE."""
