"""Identifiers of topics, partitions, directories and offsets. PURE.

Conventions of the whole code base: an `_offset` counts records and is inclusive; an `_end_offset` is
exclusive; a `position` counts bytes; an `index` is neither. A topic id is 16 raw bytes, as on the
wire: a `uuid.UUID` costs thirty times as much to create and compare.
"""

from base64 import urlsafe_b64encode
from binascii import a2b_base64
from typing import NamedTuple

Uuid = bytes

ZERO_UUID: Uuid = bytes(16)
# Topic id of `__cluster_metadata`: high half 0, low half 1. Source: spec Q1.
METADATA_TOPIC_ID: Uuid = bytes(15) + b"\x01"
METADATA_TOPIC = "__cluster_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_GROUP_TOPIC = "__share_group_state"
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
# Kafka's internal topics: only coordinators write to them.
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_GROUP_TOPIC})
# The topics that clients must not write to: these, and the one that only brokers write to.
SYSTEM_TOPICS = INTERNAL_TOPICS | {REMOTE_LOG_METADATA_TOPIC}

# Reserved directory ids; all below RESERVED_DIRECTORIES are reserved. The numbers are those of Apache Kafka
# 4.3.1, not those of KIP-858's text.
MIGRATING_DIRECTORY: Uuid = ZERO_UUID  # in some directory of the broker; which one is not known
UNASSIGNED_DIRECTORY: Uuid = bytes(15) + b"\x01"  # a new replica: its broker chooses
LOST_DIRECTORY: Uuid = bytes(15) + b"\x02"  # in no directory that is in use
RESERVED_DIRECTORIES = 100

NO_EPOCH = -1
NO_OFFSET = -1
# An unknown broker epoch: the controller does not check it (I10, I17).
NO_BROKER_EPOCH = -1


class TopicPartition(NamedTuple):
    """One partition by topic name. Its text is the name of its directory, as in Kafka."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """One partition by topic id, which a new topic of the same name does not share."""

    topic_id: Uuid
    partition: int


PartitionKey = tuple[Uuid, int]  # topic id and partition number: the key of a dictionary


class OffsetAndEpoch(NamedTuple):
    """An offset and the leader epoch there. In a snapshot id `offset` is exclusive (spec Q3)."""

    offset: int
    epoch: int


class ProducerIdBlock(NamedTuple):
    """The producer ids from `first_id`, `size` of them."""

    first_id: int
    size: int


def uuid_text(value: Uuid) -> str:
    """Return Kafka's text form: 22 characters of URL-safe base64 without padding."""
    assert len(value) == 16
    return urlsafe_b64encode(value).decode().rstrip("=")


def uuid_from_text(text: str) -> Uuid:
    """Parse Kafka's text form of a UUID; raises ValueError for anything that is not 16 bytes."""
    # Half the time of `urlsafe_b64decode`: a plan of a large topic parses one for each segment.
    value = a2b_base64(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4))
    if len(value) != 16:
        raise ValueError(f"{text!r} is not a UUID of 16 bytes in URL-safe base64")
    return value
