"""L7: the loop, sockets, disks, threads: the only caller of a node in production. WORLD."""
