"""L1: record batches (magic 2): header views, records, control records, compression. PURE."""
