"""Per-topic settings, resolved. PURE. Attribute = Kafka's key with underscores; defaults are 4.3.1's.
`firnline.*` are our own.

The keyword constructor checks nothing, so tests may use segments of 200 bytes. Settings from outside go
through `config/layers.py`, which checks each key and the rules between keys.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from firnline.base.units import DAY_MS
from firnline.config.define import ConfigKey, declared_keys, key

LONG_MAX = 9223372036854775807
LEASES = "firnline.retention.leases"
# The longest lease that a reader may ask for.
LEASE_MAX_MS = 7 * DAY_MS
# A lease that ends later than this from now does not run yet: so it is bounded, whatever its end. A day more
# than may be asked for, because clocks differ.
_RUNS_MAX_MS = LEASE_MAX_MS + DAY_MS
# Of a topic. Ended ones count, too, until somebody removes them: who asks for a lease does.
LEASES_MAX = 100
_TEXT = re.compile(r"([A-Za-z0-9._-]{1,64}):([0-9]{1,18})")


@dataclass(frozen=True, kw_only=True)
class TopicConfig:
    """The settings of one topic, after all layers are applied."""

    cleanup_policy: tuple[str, ...] = key(
        "LIST",
        ("delete",),
        "What happens to old segments: delete by age and size, compact by key, both, or with an"
        " empty list nothing.",
        valid="[compact, delete]",
        synonym="log.cleanup.policy",
        source="KIP-1161",
    )
    compression_gzip_level: int = key(
        "INT",
        -1,
        "Level for gzip where the broker compresses; -1 is the library's default.",
        valid="[1,...,9] or -1",
        synonym="compression.gzip.level",
        source="KIP-390",
    )
    compression_lz4_level: int = key(
        "INT",
        9,
        "Level for lz4 where the broker compresses.",
        valid="[1,...,17]",
        synonym="compression.lz4.level",
        source="KIP-390",
    )
    compression_type: str = key(
        "STRING",
        "producer",
        "Codec of stored batches; `producer` keeps the producer's codec.",
        valid="[uncompressed, zstd, lz4, snappy, gzip, producer]",
        synonym="compression.type",
    )
    compression_zstd_level: int = key(
        "INT",
        3,
        "Level for zstd where the broker compresses.",
        valid="[-131072,...,22]",
        synonym="compression.zstd.level",
        source="KIP-390",
    )
    delete_retention_ms: int = key(
        "LONG",
        86400000,
        "How long a compacted topic keeps the markers of deleted keys.",
        valid="[0,...]",
        synonym="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = key(
        "LONG",
        60000,
        "Time from removing a segment from the log to deleting its files; from removing it from the catalog"
        " of the tier to deleting its objects.",
        valid="[0,...]",
        synonym="log.segment.delete.delay.ms",
    )
    firnline_retention_leases: tuple[str, ...] = key(
        "LIST",
        (),
        "Readers for which retention and compaction remove nothing, as name:ms since 1970, until then. A"
        " lease that ends more than 8 days from now does not count yet.",
        valid="[name]:[ms],[name]:[ms],...",
    )
    flush_messages: int = key(
        "LONG",
        LONG_MAX,
        "Sync to disk after so many records.",
        valid="[1,...]",
        synonym="log.flush.interval.messages",
    )
    flush_ms: int = key(
        "LONG",
        LONG_MAX,
        "Sync to disk after a record has waited so long.",
        valid="[0,...]",
        synonym="log.flush.interval.ms",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = key(
        "LIST",
        (),
        "Replicas whose copying is slowed on the follower's side: partition:broker pairs, or *.",
        valid="[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        kind="inert",
    )
    index_interval_bytes: int = key(
        "INT",
        4096,
        "Bytes of log between two entries of the offset index.",
        valid="[0,...]",
        synonym="log.index.interval.bytes",
    )
    internal_segment_bytes: int | None = key(
        "INT",
        None,
        "Segment size for tests, without the lower bound of segment.bytes, which it overrides.",
        internal=True,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = key(
        "LIST",
        (),
        "Replicas whose copying is slowed on the leader's side: partition:broker pairs, or *.",
        valid="[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        kind="inert",
    )
    local_retention_bytes: int = key(
        "LONG",
        -2,
        "Size limit of the local tier of one partition. -2: same as retention.bytes. -1: no limit.",
        valid="[-2,...]",
        synonym="log.local.retention.bytes",
        source="KIP-405 Configs; T13-T16",
    )
    local_retention_ms: int = key(
        "LONG",
        -2,
        "Age limit of the local tier. -2: same as retention.ms. -1: no limit.",
        valid="[-2,...]",
        synonym="log.local.retention.ms",
        source="KIP-405 Configs; T13-T16",
    )
    max_compaction_lag_ms: int = key(
        "LONG",
        LONG_MAX,
        "Longest time a record of a compacted topic may wait for compaction.",
        valid="[1,...]",
        synonym="log.cleaner.max.compaction.lag.ms",
        source="KIP-354",
    )
    max_message_bytes: int = key(
        "INT",
        1048588,
        "Largest batch that the topic accepts, compressed, with its header.",
        valid="[0,...]",
        synonym="message.max.bytes",
    )
    message_timestamp_after_max_ms: int = key(
        "LONG",
        3600000,
        "How far a record's timestamp may be in the future when it arrives.",
        valid="[0,...]",
        synonym="log.message.timestamp.after.max.ms",
        source="KIP-937",
    )
    message_timestamp_before_max_ms: int = key(
        "LONG",
        LONG_MAX,
        "How far a record's timestamp may be in the past when it arrives.",
        valid="[0,...]",
        synonym="log.message.timestamp.before.max.ms",
        source="KIP-937",
    )
    message_timestamp_type: str = key(
        "STRING",
        "CreateTime",
        "The timestamp of a record: the producer's, or the time of the append.",
        valid="[CreateTime, LogAppendTime]",
        synonym="log.message.timestamp.type",
        source="KIP-32",
    )
    min_cleanable_dirty_ratio: float = key(
        "DOUBLE",
        0.5,
        "Dirty part of a compacted log above which it is compacted.",
        valid="[0,...,1]",
        synonym="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = key(
        "LONG",
        0,
        "Time for which a record of a compacted topic is kept, even if a newer one has its key.",
        valid="[0,...]",
        synonym="log.cleaner.min.compaction.lag.ms",
        source="KIP-58",
    )
    min_insync_replicas: int = key(
        "INT",
        1,
        "Replicas that must have a record before a producer with acks=all is answered.",
        valid="[1,...]",
        synonym="min.insync.replicas",
    )
    preallocate: bool = key(
        "BOOLEAN",
        False,
        "Reserve the space of a segment when it is created.",
        synonym="log.preallocate",
        kind="inert",
    )
    remote_log_copy_disable: bool = key(
        "BOOLEAN",
        False,
        "Copy nothing more to the remote tier; what is in it stays readable.",
        source="KIP-950",
    )
    remote_log_delete_on_disable: bool = key(
        "BOOLEAN",
        False,
        "Delete what is in the remote tier when remote.storage.enable is set back to false.",
        source="KIP-950",
    )
    remote_storage_enable: bool = key(
        "BOOLEAN",
        False,
        "Copy closed segments to the remote tier and read them from there.",
        source="KIP-405 Configs",
    )
    retention_bytes: int = key(
        "LONG",
        -1,
        "Size limit of one partition over both tiers; -1 is no limit.",
        synonym="log.retention.bytes",
    )
    retention_ms: int = key(
        "LONG",
        604800000,
        "Age limit over both tiers; -1 is no limit.",
        valid="[-1,...]",
        synonym="log.retention.ms",
    )
    segment_bytes: int = key(
        "INT",
        1073741824,
        "Size at which a segment is closed and a new one begun.",
        valid="[1048576,...]",
        synonym="log.segment.bytes",
    )
    segment_index_bytes: int = key(
        "INT",
        10485760,
        "Largest size of an index file; a segment whose index is full is closed.",
        valid="[4,...]",
        synonym="log.index.size.max.bytes",
    )
    segment_jitter_ms: int = key(
        "LONG",
        0,
        "Random time that is subtracted from segment.ms, so that partitions do not all roll at once.",
        valid="[0,...]",
        synonym="log.roll.jitter.ms",
    )
    segment_ms: int = key(
        "LONG",
        604800000,
        "Age at which a segment is closed even if it is small.",
        valid="[1,...]",
        synonym="log.roll.ms",
    )
    unclean_leader_election_enable: bool = key(
        "BOOLEAN",
        False,
        "Allow electing a leader from outside the ISR when no other replica is left; may lose records.",
        synonym="unclean.leader.election.enable",
    )


def topic_keys() -> Mapping[str, ConfigKey]:
    """Return every topic key by name: those of Kafka 4.3.1, and `firnline.*`."""
    return declared_keys(TopicConfig, "topic")


# ------------------------------------------------------------------------------------ leases


class Lease(NamedTuple):
    """One lease on the records of a topic: while it runs, retention and compaction remove none of them.

    A reader that has fixed what it will read asks for one (`firnline.spark.cuts.pin`). As a setting of the
    topic each leader has it, also the next one. It ends by itself, and does not hold up who deletes records
    or the topic by request. Its text is `NAME:MS`; the time is in ms since 1970.
    """

    name: str
    until_ms: int

    def __str__(self) -> str:
        return f"{self.name}:{self.until_ms}"


def parse_lease(text: str) -> Lease | None:
    """Parse the text of a lease; None if it is none."""
    found = _TEXT.fullmatch(text)
    return None if found is None else Lease(found[1], int(found[2]))


def is_leased(config: TopicConfig, now_ms: int) -> bool:
    """Whether a lease runs."""
    leases = (parse_lease(text) for text in config.firnline_retention_leases)
    return any(each and now_ms < each.until_ms <= now_ms + _RUNS_MAX_MS for each in leases)
