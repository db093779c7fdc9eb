"""L3: metadata records, the immutable cluster image, the log it comes from. PURE and STORE."""
