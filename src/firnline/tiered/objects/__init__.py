"""What waits for a store or for files, in worker threads; and keys and checksums of the objects. STORE."""
