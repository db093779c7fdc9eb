"""Consumer groups and committed offsets. PURE. Names, types, defaults and ranges are Kafka 4.3.1's."""

from dataclasses import dataclass

from firnline.config.define import key


@dataclass(frozen=True, kw_only=True)
class GroupKeys:
    """Limits of the group coordinator, and how long it keeps offsets."""

    firnline_groups_max: int = key(
        "INT",
        200000,
        "Groups that this node coordinates. New groups above the limit, or above a client address's share,"
        " are refused with COORDINATOR_NOT_AVAILABLE.",
        valid="[1,...]",
    )
    group_initial_rebalance_delay_ms: int = key(
        "INT",
        3000,
        "How long an empty group waits for more members before its first assignment.",
        source="KIP-134",
    )
    group_max_session_timeout_ms: int = key(
        "INT", 1800000, "Longest session timeout a member may ask for."
    )
    group_max_size: int = key(
        "INT", 2147483647, "Members of one group.", valid="[1,...]", source="KIP-389"
    )
    group_min_session_timeout_ms: int = key(
        "INT", 6000, "Shortest session timeout a member may ask for."
    )
    offset_metadata_max_bytes: int = key(
        "INT", 4096, "Longest text that may go with a committed offset.", importance="HIGH"
    )
    offsets_commit_timeout_ms: int = key(
        "INT",
        5000,
        "How long a commit waits for its replicas.",
        valid="[1,...]",
        importance="HIGH",
        kind="inert",
    )
    offsets_load_buffer_size: int = key(
        "INT",
        5242880,
        "Bytes read at a time when a coordinator loads a partition.",
        valid="[1,...]",
        importance="HIGH",
        kind="inert",
    )
    offsets_retention_check_interval_ms: int = key(
        "LONG",
        600000,
        "Time between two checks for expired offsets.",
        valid="[1,...]",
        importance="HIGH",
    )
    offsets_retention_minutes: int = key(
        "INT",
        10080,
        "How long an offset is kept after its group has become empty.",
        valid="[1,...]",
        importance="HIGH",
        source="KIP-211",
    )
    offsets_topic_compression_codec: int = key(
        "INT",
        0,
        "Codec of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        importance="HIGH",
    )
    offsets_topic_num_partitions: int = key(
        "INT", 50, "Partitions of __consumer_offsets.", valid="[1,...]", importance="HIGH"
    )
    offsets_topic_replication_factor: int = key(
        "SHORT", 3, "Replicas of __consumer_offsets.", valid="[1,...]", importance="HIGH"
    )
    offsets_topic_segment_bytes: int = key(
        "INT", 104857600, "segment.bytes of __consumer_offsets.", valid="[1,...]", importance="HIGH"
    )
