"""L5: composition: the node, and what connects its parts: `broker/node.py` and `broker/wiring.py`. PURE."""
