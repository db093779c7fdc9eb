"""Roles, the metadata quorum and its log. PURE. Names, types, defaults and ranges are Kafka 4.3.1's."""

from dataclasses import dataclass

from firnline.config.define import key


@dataclass(frozen=True, kw_only=True)
class QuorumKeys:
    """Identity and roles of this node, the voters, and the metadata log."""

    auto_leader_rebalance_enable: bool = key(
        "BOOLEAN",
        True,
        "The active controller returns leadership to preferred replicas that are in sync.",
        importance="HIGH",
    )
    broker_heartbeat_interval_ms: int = key(
        "INT", 2000, "Time between two heartbeats of a broker to the controller.", source="KIP-631"
    )
    broker_id: int = key("INT", -1, "The older name of node.id.", importance="HIGH")
    broker_rack: str | None = key("STRING", None, "Rack of this node.", source="KIP-36")
    broker_session_timeout_ms: int = key(
        "INT", 9000, "A broker is fenced after so long without a heartbeat.", source="KIP-631"
    )
    controller_listener_names: tuple[str, ...] = key(
        "LIST",
        ("CONTROLLER",),
        "Names of the controllers' listeners. Only nodes of the cluster should reach them.",
        importance="HIGH",
        source="KIP-631",
        required=True,
    )
    controller_quorum_append_linger_ms: int = key(
        "INT",
        25,
        "How long the leader collects records before it writes them.",
        valid="[0,...]",
        source="KIP-595",
        kind="inert",
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = key(
        "LIST",
        (),
        "Addresses of the quorum, as host:port, separated by commas.",
        valid="non-empty list",
        importance="HIGH",
        source="KIP-853",
    )
    controller_quorum_election_backoff_max_ms: int = key(
        "INT",
        1000,
        "Longest backoff after an election without a winner.",
        valid="[0,...]",
        importance="HIGH",
        source="KIP-595",
    )
    controller_quorum_election_timeout_ms: int = key(
        "INT",
        1000,
        "A voter starts an election after so long without a leader.",
        valid="[0,...]",
        importance="HIGH",
        source="KIP-595",
    )
    controller_quorum_fetch_max_bytes: int = key(
        "INT",
        1048576,
        "Largest Fetch response of the metadata log.",
        valid="[1,...]",
        importance="LOW",
    )
    controller_quorum_fetch_snapshot_max_bytes: int = key(
        "INT",
        1048576,
        "Largest FetchSnapshot response.",
        valid="[1,...]",
        importance="LOW",
        source="KIP-630",
    )
    controller_quorum_fetch_timeout_ms: int = key(
        "INT",
        2000,
        "A leader resigns after so long without fetches from a majority.",
        valid="[0,...]",
        importance="HIGH",
        source="KIP-595",
    )
    controller_quorum_request_timeout_ms: int = key(
        "INT",
        2000,
        "How long a voter waits for a response.",
        valid="[0,...]",
        source="KIP-595",
    )
    controller_quorum_retry_backoff_ms: int = key(
        "INT",
        20,
        "Backoff before a failed request is retried.",
        valid="[0,...]",
        importance="LOW",
        source="KIP-595",
    )
    controller_quorum_voters: tuple[str, ...] = key(
        "LIST",
        (),
        "The voters as id@host:port, separated by commas.",
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
        "Time from removing a metadata segment from the log to deleting its files.",
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
        "Time between two rounds of preferred leader elections.",
        valid="[1,...]",
        importance="HIGH",
    )
    metadata_log_dir: str | None = key(
        "STRING",
        None,
        "Directory of the metadata log; if not set, the first log directory.",
        importance="HIGH",
        source="KIP-631",
    )
    metadata_log_max_record_bytes_between_snapshots: int = key(
        "LONG",
        20971520,
        "Take a snapshot after so many bytes of new records.",
        valid="[1,...]",
        importance="HIGH",
        source="KIP-630 Configuration",
    )
    metadata_log_max_snapshot_interval_ms: int = key(
        "LONG",
        3600000,
        "Take a snapshot when the last one is this old; 0: never.",
        valid="[0,...]",
        importance="HIGH",
        source="KIP-876",
    )
    metadata_log_segment_bytes: int = key(
        "INT",
        1073741824,
        "Size at which a segment of the metadata log is closed.",
        valid="[8388608,...]",
        importance="HIGH",
        source="KIP-630",
    )
    metadata_log_segment_ms: int = key(
        "LONG",
        604800000,
        "Age at which a segment of the metadata log is closed.",
        importance="HIGH",
        source="KIP-630",
    )
    metadata_max_idle_interval_ms: int = key(
        "INT",
        500,
        "Time between no-op records of the active controller; 0: none.",
        valid="[0,...]",
        importance="LOW",
        source="KIP-835",
    )
    metadata_max_retention_bytes: int = key(
        "LONG",
        104857600,
        "Size of log and snapshots above which old ones are deleted.",
        importance="HIGH",
        source="KIP-630",
    )
    metadata_max_retention_ms: int = key(
        "LONG",
        604800000,
        "Age above which metadata segments and snapshots are deleted.",
        importance="HIGH",
        source="KIP-630",
    )
    metadata_snapshot_min_changed_records_ratio: float = key(
        "DOUBLE",
        0.0,
        "Part of the last snapshot's records that must have changed before a snapshot is taken for its bytes;"
        " 0: none. Kafka has no such key.",
        valid="[0,...,1]",
        importance="LOW",
        source="KIP-630 When to Snapshot",
        name="metadata.snapshot.min.changed_records.ratio",
    )
    metadata_start_offset_lag_time_max_ms: int = key(
        "LONG",
        0,
        "Longest time the leader waits for live replicas before it moves its log start to a newer snapshot;"
        " 0: each node cleans up on its own, by metadata.max.retention. Kafka has no such key.",
        valid="[0,...]",
        importance="LOW",
        source="KIP-630 When to Increase the LogStartOffset",
    )
    node_id: int = key(
        "INT",
        1,
        "Id of this node, unique in the cluster.",
        valid="[0,...]",
        importance="HIGH",
        source="KIP-631",
        required=True,
    )
    process_roles: tuple[str, ...] = key(
        "LIST",
        ("broker", "controller"),
        "Roles of this node: broker, controller, or both.",
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
