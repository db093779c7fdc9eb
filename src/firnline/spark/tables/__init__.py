"""System tables: what a tier, and the files of a node, say of topics, metadata and groups. SPARK."""
