"""L4: tiered storage (KIP-405): copy, expire, read and remove remote segments. PURE; `objects/` is STORE."""
