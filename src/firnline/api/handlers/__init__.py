"""One file per API key, named by number: the listing is the protocol table. PURE."""
