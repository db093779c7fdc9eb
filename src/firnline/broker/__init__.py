"""L5: composition: one `BrokerNode.step(event, now) -> effects` over all parts. PURE."""
