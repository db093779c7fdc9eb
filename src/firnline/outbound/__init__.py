"""L6: what this node asks of other nodes: domain call <-> wire shape. PURE."""
