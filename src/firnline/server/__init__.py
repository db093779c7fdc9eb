"""L8: load the configuration, check storage, start the loop. WORLD."""
