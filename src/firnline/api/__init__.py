"""L6: what other nodes and clients ask of this one: wire shape <-> domain call, by API key. PURE."""
