"""L9: the `firnline` command. WORLD."""
