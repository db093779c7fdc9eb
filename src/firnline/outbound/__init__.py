"""L6: the requests of this node to other nodes: from calls to the wire, and back. PURE."""
