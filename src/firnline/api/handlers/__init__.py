"""One module per API key, named by its number: the listing is the table of the protocol. PURE."""
