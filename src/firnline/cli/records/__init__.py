"""Records as text: the formats of `firnline produce` and `firnline consume`, and places to begin. PURE."""
