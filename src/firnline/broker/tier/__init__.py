"""What a broker does for the tier: tells it of partitions, reads its metadata, does without it. PURE."""
