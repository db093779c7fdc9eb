"""The story of the cluster in a node's log: what each change of the metadata means to an operator."""
