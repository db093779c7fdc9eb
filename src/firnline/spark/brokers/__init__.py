"""What the brokers of a cluster have of a topic: for records that are in no tier yet. SPARK."""
