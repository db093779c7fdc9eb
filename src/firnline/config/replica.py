"""How replicas follow their leaders. PURE. Names, types, defaults and ranges are Kafka 4.3.1's."""

from dataclasses import dataclass

from firnline.config.define import key


@dataclass(frozen=True, kw_only=True)
class ReplicaKeys:
    """What a follower asks for, and how long it may be behind."""

    inter_broker_listener_name: str | None = key(
        "STRING",
        None,
        "Name of the listener that brokers use among themselves; PLAINTEXT where not said.",
    )
    replica_fetch_backoff_ms: int = key(
        "INT",
        1000,
        "Pause before a partition that could not be fetched is asked for again.",
        valid="[0,...]",
    )
    replica_fetch_max_bytes: int = key(
        "INT",
        1048576,
        "Bytes that a follower asks for of one partition; a larger first batch comes whole.",
        valid="[0,...]",
        source="KIP-74",
    )
    replica_fetch_min_bytes: int = key(
        "INT",
        1,
        "Bytes worth an answer to a follower; with fewer the leader waits.",
        importance="HIGH",
    )
    replica_fetch_response_max_bytes: int = key(
        "INT",
        10485760,
        "Bytes that a follower asks for in one answer; one whole batch comes anyway.",
        valid="[0,...]",
        source="KIP-74",
    )
    replica_fetch_wait_max_ms: int = key(
        "INT",
        500,
        "Longest wait of a leader for records that a follower asks for.",
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
        "Whom consumers read from: the leader where not said; Kafka's RackAwareReplicaSelector: an in-sync"
        " replica of their rack.",
        source="KIP-392",
    )
