"""Roles, the metadata quorum and its log. PURE. Names, types, defaults and ranges are Kafka 4.3.1's."""

from dataclasses import dataclass

from firnline.config.define import key


@dataclass(frozen=True, kw_only=True)
class QuorumKeys:
    """Who this node is, who votes, and how the metadata log is kept."""

    auto_leader_rebalance_enable: bool = key(
        "BOOLEAN",
        True,
        "The active controller gives leadership back to preferred replicas that are in sync.",
        importance="HIGH",
    )
    broker_heartbeat_interval_ms: int = key(
        "INT", 2000, "Time between two heartbeats of a broker to the controller.", source="KIP-631"
    )
    broker_id: int = key("INT", -1, "The older name of node.id.", importance="HIGH")
    broker_rack: str | None = key(
        "STRING", None, "Rack of this node, told to clients.", source="KIP-36"
    )
    broker_session_timeout_ms: int = key(
        "INT", 9000, "A broker silent for so long is fenced.", source="KIP-631"
    )
    controller_listener_names: tuple[str, ...] = key(
        "LIST",
        ("CONTROLLER",),
        "Names of the listeners that controllers use. Nobody but nodes should reach them.",
        importance="HIGH",
        source="KIP-631",
        required=True,
    )
    controller_quorum_append_linger_ms: int = key(
        "INT",
        25,
        "How long the leader gathers records before it writes them.",
        valid="[0,...]",
        source="KIP-595",
        kind="inert",
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = key(
        "LIST",
        (),
        "Where to find the quorum, as host:port by comma.",
        valid="non-empty list",
        importance="HIGH",
        source="KIP-853",
    )
    controller_quorum_election_backoff_max_ms: int = key(
        "INT",
        1000,
        "Longest wait after an election that nobody won.",
        valid="[0,...]",
        importance="HIGH",
        source="KIP-595",
    )
    controller_quorum_election_timeout_ms: int = key(
        "INT",
        1000,
        "A voter that hears of no leader for so long asks for votes.",
        valid="[0,...]",
        importance="HIGH",
        source="KIP-595",
    )
    controller_quorum_fetch_max_bytes: int = key(
        "INT",
        1048576,
        "Largest answer to a fetch of the metadata log.",
        valid="[1,...]",
        importance="LOW",
    )
    controller_quorum_fetch_snapshot_max_bytes: int = key(
        "INT",
        1048576,
        "Largest slice of a snapshot in one answer.",
        valid="[1,...]",
        importance="LOW",
        source="KIP-630",
    )
    controller_quorum_fetch_timeout_ms: int = key(
        "INT",
        2000,
        "A leader that a majority has not fetched from for so long resigns.",
        valid="[0,...]",
        importance="HIGH",
        source="KIP-595",
    )
    controller_quorum_request_timeout_ms: int = key(
        "INT",
        2000,
        "How long a voter waits for an answer.",
        valid="[0,...]",
        source="KIP-595",
    )
    controller_quorum_retry_backoff_ms: int = key(
        "INT",
        20,
        "Wait before a failed request is sent again.",
        valid="[0,...]",
        importance="LOW",
        source="KIP-595",
    )
    controller_quorum_voters: tuple[str, ...] = key(
        "LIST",
        (),
        "The voters as id@host:port, by comma.",
        valid="non-empty list",
        importance="HIGH",
        source="KIP-595",
    )
    initial_broker_registration_timeout_ms: int = key(
        "INT",
        60000,
        "How long a starting broker tries to register.",
        source="KIP-631",
    )
    internal_metadata_delete_delay_millis: int = key(
        "LONG",
        60000,
        "Time between a metadata segment leaving the log and its files leaving the disk.",
        importance="LOW",
        internal=True,
    )
    internal_metadata_log_segment_bytes: int | None = key(
        "INT",
        None,
        "Segment size of the metadata log for tests, without the lower bound.",
        importance="LOW",
        internal=True,
    )
    internal_metadata_max_batch_size_in_bytes: int = key(
        "INT", 8388608, "Largest batch of the metadata log.", importance="LOW", internal=True
    )
    leader_imbalance_check_interval_seconds: int = key(
        "LONG",
        300,
        "Time between two rounds of giving leadership back to preferred replicas.",
        valid="[1,...]",
        importance="HIGH",
    )
    metadata_log_dir: str | None = key(
        "STRING",
        None,
        "Directory of the metadata log; the first log directory where not set.",
        importance="HIGH",
        source="KIP-631",
    )
    metadata_log_max_record_bytes_between_snapshots: int = key(
        "LONG",
        20971520,
        "Bytes of new records that make a snapshot due.",
        valid="[1,...]",
        importance="HIGH",
        source="KIP-630 Configuration",
    )
    metadata_log_max_snapshot_interval_ms: int = key(
        "LONG",
        3600000,
        "Age of the last snapshot that makes a new one due; 0 never.",
        valid="[0,...]",
        importance="HIGH",
        source="KIP-876",
    )
    metadata_log_segment_bytes: int = key(
        "INT",
        1073741824,
        "Size at which a segment of the metadata log is finished.",
        valid="[8388608,...]",
        importance="HIGH",
        source="KIP-630",
    )
    metadata_log_segment_ms: int = key(
        "LONG",
        604800000,
        "Age at which a segment of the metadata log is finished.",
        importance="HIGH",
        source="KIP-630",
    )
    metadata_max_idle_interval_ms: int = key(
        "INT",
        500,
        "Time between no-op records that show the quorum is alive; 0 never.",
        valid="[0,...]",
        importance="LOW",
        source="KIP-835",
    )
    metadata_max_retention_bytes: int = key(
        "LONG",
        104857600,
        "Size of log and snapshots above which old ones go.",
        importance="HIGH",
        source="KIP-630",
    )
    metadata_max_retention_ms: int = key(
        "LONG",
        604800000,
        "Age above which old metadata segments and snapshots go.",
        importance="HIGH",
        source="KIP-630",
    )
    metadata_snapshot_min_changed_records_ratio: float = key(
        "DOUBLE",
        0.0,
        "Share of the last snapshot's records that must have changed before new bytes make another due;"
        " 0: bytes alone do. Kafka has no such key.",
        valid="[0,...,1]",
        importance="LOW",
        source="KIP-630 When to Snapshot",
        name="metadata.snapshot.min.changed_records.ratio",
    )
    metadata_start_offset_lag_time_max_ms: int = key(
        "LONG",
        0,
        "Longest wait of the leader for live replicas before its log begins at a newer snapshot;"
        " 0: each node cleans up on its own, by metadata.max.retention. Kafka has no such key.",
        valid="[0,...]",
        importance="LOW",
        source="KIP-630 When to Increase the LogStartOffset",
    )
    node_id: int = key(
        "INT",
        1,
        "Number of this node, unique in the cluster.",
        valid="[0,...]",
        importance="HIGH",
        source="KIP-631",
        required=True,
    )
    process_roles: tuple[str, ...] = key(
        "LIST",
        ("broker", "controller"),
        "What this node is: broker, controller, or both.",
        valid="[broker, controller]",
        importance="HIGH",
        source="KIP-500",
        required=True,
    )
    unclean_leader_election_interval_ms: int = key(
        "LONG",
        300000,
        "Time between two rounds of unclean elections, for partitions whose settings allow them.",
        valid="[1,...]",
        internal=True,
    )
