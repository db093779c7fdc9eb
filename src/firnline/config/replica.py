"""How replicas follow their leaders. PURE. Names, types, defaults and ranges are Kafka 4.3.1's."""

from dataclasses import dataclass

from firnline.config.define import key


@dataclass(frozen=True, kw_only=True)
class ReplicaKeys:
    """What followers fetch, and how far they may lag."""

    follower_fetch_last_tiered_offset_enable: bool = key(
        "BOOLEAN",
        False,
        "An empty replica whose first records only the tier has begins after the last offset in the tier,"
        " instead of at the leader's first local record.",
        source="KIP-1023",
        dynamic=True,
    )
    inter_broker_listener_name: str | None = key(
        "STRING",
        None,
        "Name of the listener for other brokers; if not set, PLAINTEXT.",
    )
    replica_fetch_backoff_ms: int = key(
        "INT",
        1000,
        "Backoff before a failed partition is fetched again.",
        valid="[0,...]",
    )
    replica_fetch_max_bytes: int = key(
        "INT",
        1048576,
        "Bytes that a follower fetches of one partition; a first batch is sent even if it is larger.",
        valid="[0,...]",
        source="KIP-74",
    )
    replica_fetch_min_bytes: int = key(
        "INT",
        1,
        "Bytes for which the leader answers a follower at once; with fewer it waits.",
        importance="HIGH",
    )
    replica_fetch_response_max_bytes: int = key(
        "INT",
        10485760,
        "Largest Fetch response to a follower; a first batch is sent even if it is larger.",
        valid="[0,...]",
        source="KIP-74",
    )
    replica_fetch_wait_max_ms: int = key(
        "INT",
        500,
        "Longest time a leader waits for new records before it answers a follower.",
        importance="HIGH",
    )
    replica_lag_time_max_ms: int = key(
        "LONG",
        30000,
        "A replica that has not caught up for so long leaves the ISR.",
        importance="HIGH",
    )
    replica_selector_class: str | None = key(
        "STRING",
        None,
        "Chooses the replica for consumers. Not set: the leader. RackAwareReplicaSelector: an in-sync"
        " replica in their rack.",
        source="KIP-392",
    )
