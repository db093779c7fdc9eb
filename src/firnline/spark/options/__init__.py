"""What a user asks the Spark source for: its options, checked. PURE."""
