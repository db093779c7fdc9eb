"""L1: configuration keys, one declaration each, and the layers that override each other. PURE."""
