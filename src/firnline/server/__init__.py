"""L8: load the configuration, check the storage, start the loop. WORLD."""
