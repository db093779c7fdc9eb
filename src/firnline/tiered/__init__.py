"""L4: KIP-405: copy, expire, read and remove remote segments. PURE, but for `tiered/objects`."""
