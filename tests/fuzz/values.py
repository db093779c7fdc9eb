"""What the fields of fuzzed requests say: by name, what exists, and of any kind what nobody would say."""

import struct
from collections.abc import Iterable

from tests.fuzz.known import GROUPS, OTHER_NODE_ID, PLAIN, SYSTEM_TOPICS, TOPICS, TRANSACTIONAL_IDS

INTS = (0, 1, -1, 2, 7, 127, 128, 255, 1 << 15, (1 << 16) - 1, 1 << 20, (1 << 31) - 1, -(1 << 31))
LONGS = (*INTS, 1 << 31, (1 << 32) - 1, 1 << 53, (1 << 63) - 1, -(1 << 63), -2, -3, -4, -5, -6)
TEXTS = (
    "",
    "x",
    ".",
    "..",
    "x" * 249,
    "x" * 250,
    "a/b",
    "\0",
    "é中😀",
    "-",
    "0",
    "x" * 32_767,
    "__x",
)
CONFIG_KEYS = (
    *("retention.ms", "retention.bytes", "segment.bytes", "cleanup.policy", "compression.type"),
    *("max.message.bytes", "min.insync.replicas", "remote.storage.enable", "local.retention.ms"),
    *("local.retention.bytes", "internal.segment.bytes", "flush.ms", "segment.ms", "no.such.key"),
    *("message.timestamp.type", "unclean.leader.election.enable", "delete.retention.ms"),
    *("log.retention.ms", "log.cleaner.threads", "num.io.threads", "consumer.session.timeout.ms"),
    *(
        "remote.log.delete.on.disable",
        "remote.copy.disable",
        "min.cleanable.dirty.ratio",
        "node.id",
    ),
)
CONFIG_VALUES = (
    *("", "0", "1", "-1", "-2", "100", "16384", "1048588", "true", "false", "delete", "compact"),
    *("compact,delete", "zstd", "gzip", "producer", "LogAppendTime", "0.5", "9223372036854775807"),
    *("9223372036854775808", "x", "1e3", " 1 ", "*"),
)
# What a topic takes. Segments are small, so that there are many.
CONFIGS = (
    *(("internal.segment.bytes", "16384"), ("retention.ms", "60000"), ("retention.ms", "-1")),
    *(("retention.bytes", "20000"), ("cleanup.policy", "compact"), ("cleanup.policy", "delete")),
    *(("remote.storage.enable", "true"), ("local.retention.bytes", "16384"), ("flush.ms", "10")),
    *(("compression.type", "zstd"), ("compression.type", "gzip"), ("segment.ms", "100")),
    *(("compression.type", "producer"), ("min.insync.replicas", "1"), ("flush.messages", "1")),
    *(("message.timestamp.type", "LogAppendTime"), ("min.cleanable.dirty.ratio", "0")),
    *(("index.interval.bytes", "0"), ("max.message.bytes", "2000"), ("min.compaction.lag.ms", "0")),
)
RESOURCES = {2: (*TOPICS, *SYSTEM_TOPICS), 4: ("1", ""), 8: ("1",), 32: GROUPS}
# Of these either the name or the id is stated.
BY_NAME_OR_ID = {"DeleteTopicState", "MetadataRequestTopic"}
# How a value is made from a field's name alone.
TEXT_FIELDS: dict[str, tuple[str | None, ...]] = {
    "group_id": GROUPS,
    "groups": GROUPS,
    "groups_names": GROUPS,
    "coordinator_key": GROUPS,
    "coordinator_keys": GROUPS,
    "member_id": ("", "", "", "no-such-member"),
    "group_instance_id": (None, None, None, "i-a", "i-b"),
    "protocol_type": ("consumer",),
    "protocol_name": ("range",),
    "transactional_id": (None, None, *TRANSACTIONAL_IDS),
    "feature": ("metadata.version", "kraft.version", "group.version", "transaction.version", "x"),
    "configuration_keys": CONFIG_KEYS,
    "states_filter": ("Stable", "Empty", "Dead", "", "x"),
    "types_filter": ("classic", "consumer", "x"),
    "rack_id": ("", "r"),
    "reason": (None, "why"),
    "client_software_name": ("fuzz",),
    "client_software_version": ("1",),
    "committed_metadata": ("", None, "m"),
    "value": CONFIG_VALUES,
}
NUMBER_FIELDS: dict[str, tuple[int, ...]] = {
    "acks": (-1, -1, 1, 0),
    "replication_factor": (1, -1),
    "broker_id": (OTHER_NODE_ID,),
    "broker_ids": (1,),
    "replicas": (1,),
    "count": (1, 2, 3, 4),
    "num_partitions": (1, 2, 3, -1),
    "partition": (0, 0, 0, 1),
    "index": (0, 0, 0, 1),
    "partition_index": (0, 0, 0, 1),
    "partition_indexes": (0, 0, 1),
    "partitions": (0, 0, 1),
    "replica_id": (-1, -1, -1, -2, 1),
    "replica_epoch": (-1,),
    "min_bytes": (0, 1, 1),
    "max_bytes": (1 << 20, 1 << 16, 1),
    "partition_max_bytes": (1 << 20, 1 << 16, 1),
    "config_operation": (0, 0, 1, 2, 3),
    "resource_type": (2, 2, 4, 8, 32),
    "election_type": (0, 1),
    "endpoint_type": (1, 2),
    "isolation_level": (0, 1),
    "key_type": (0, 0, 1, 2),
    "upgrade_type": (1, 2, 3),
    "max_version_level": (0, 1, 25, 29),
    "timestamp": (-1, -2, -3, -4, -5, 0, 1_700_000_000_000),
    "retention_time_ms": (-1,),
    "member_epoch": (-1, 0),
    "session_timeout_ms": (6_000, 10_000),
    "rebalance_timeout_ms": (1, 50),
    "transaction_timeout_ms": (1_000,),
    "max_wait_ms": (0, 0, 1, 20),
    "timeout_ms": (1, 20, 1_000),
    "producer_epoch": (-1,),
    "producer_id": (-1,),
    "session_id": (0,),
    "session_epoch": (0, -1),
}
OFFSET_FIELDS = {"fetch_offset", "log_start_offset", "offset", "committed_offset"}
EPOCH_FIELDS = {
    "current_leader_epoch",
    "last_fetched_epoch",
    "committed_leader_epoch",
    "leader_epoch",
}
SUBSCRIPTION = struct.pack(">hih", 0, 1, len(PLAIN)) + PLAIN.encode() + struct.pack(">i", -1)
ASSIGNMENT = struct.pack(">hih", 0, 1, len(PLAIN)) + PLAIN.encode() + struct.pack(">iii", 1, 0, -1)


# What siblings of a request say in place of a text.
SHORT_TEXTS = ("", "x", ".", "plain", "g-a", "a/b", "é中😀", "x" * 249, "x" * 300, "__x", "0", "-1")


def packed(letter: str, size: int, numbers: Iterable[int]) -> tuple[bytes, ...]:
    """Return numbers in the bytes of a kind, cut to what it holds; each once."""
    if letter == "?":
        return (b"\0", b"\1", b"\xff")
    if letter == "16s":
        return (bytes(16), bytes(15) + b"\1", b"\xff" * 16)
    if letter == "d":
        return tuple(struct.pack(">d", number) for number in (0.0, -1.0, 0.5, float("nan"), 1e308))
    bits = size * 8 - letter.islower()
    low = -(1 << bits) if letter.islower() else 0
    cut = dict.fromkeys(max(low, min(number, (1 << bits) - 1)) for number in numbers)
    return tuple(struct.pack(">" + letter, number) for number in cut)
