"""L6: wire shape <-> domain call, by API key. PURE."""
