"""What a seed of a whole cluster has beyond a quorum: brokers, topics, clients. SIM.

Source: reliability (c), 'Swarm'.
"""

from typing import NamedTuple

from firnline.metadata.features import METADATA_VERSION_DEFAULT

# When a leader may be elected from outside the ISR: by the topic's setting, or if an administrator asks.
UNCLEAN_KEY = "unclean.leader.election.enable"
BAD_DIRECTORY = "bad-directory"
NEVER, ALWAYS, IF_ASKED = "never", "always", "if asked"


class TopicShape(NamedTuple):
    """A topic that exists from the start."""

    name: str
    partitions: int
    replication_factor: int
    min_isr: int
    unclean: str = NEVER
    is_compacted: bool = False
    is_tiered: bool = False
    retention_bytes: int = -1


class TierShape(NamedTuple):
    """The tier of a cluster. Times in milliseconds."""

    metadata_partitions: int
    task_interval_ms: int
    remover_interval_ms: int
    local_retention_bytes: int
    metadata_replicas: int = 3  # at most
    delete_delay_ms: int = 0  # `file.delete.delay.ms`
    roll_idle_ms: int = 0  # `firnline.remote.log.roll.idle.ms`
    restart_gap_ms: int = 6_000  # between two restarts of a reader from the start, on average


class Shape(NamedTuple):
    """Drawn once per seed, together with `Options`. Times in milliseconds."""

    is_combined: bool  # every voter is a broker too
    topics: tuple[TopicShape, ...]
    segment_bytes: int
    session_timeout_ms: int
    heartbeat_ms: int
    lag_max_ms: int
    fetch_wait_ms: int
    backoff_ms: int
    partition_fetch_bytes: int
    flush_checkpoint_ms: int
    is_balanced: bool
    # Clients.
    producers: int
    batch_records: int
    batch_gap_ms: int  # of one producer, on average
    plain_percent: int  # of the partitions of producers that are not idempotent
    acks_one_percent: int  # of these
    is_even: (
        bool  # all batches have the same size, so that one fits exactly in the place of another
    )
    in_flight: int  # batches of an idempotent producer that are in flight at once, at most
    consumers: int
    admin_gap_ms: int
    members: int  # of a consumer group
    commit_gap_ms: int
    commit_bytes: int  # kept with each committed offset, at least
    min_isr: int  # of topics without an override
    # Levels of metadata.version: the one that the cluster is formatted at, and those it is raised to.
    levels: tuple[int, ...] = (METADATA_VERSION_DEFAULT,)
    directories: int = 1  # of partition logs, on each broker
    tier: TierShape | None = None
