"""L1: Kafka's wire protocol: messages of all versions, frames, headers. PURE."""
