"""L0: ids, errors, events, ports and limits. PURE. Everything may import it; it imports nothing of ours."""
