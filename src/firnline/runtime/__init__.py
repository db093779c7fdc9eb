"""L7: asyncio, sockets, disks, threads; the only caller of `BrokerNode.step` in production. WORLD."""
