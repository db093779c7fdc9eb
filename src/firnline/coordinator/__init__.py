"""L4: groups, offsets and producer ids on internal topics. PURE."""
