"""L1: Kafka's wire protocol: messages of all versions, frames, one connection as a machine. PURE."""
