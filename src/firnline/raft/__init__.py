"""L2: the metadata quorum as a machine (KIP-595, KIP-630). PURE."""
