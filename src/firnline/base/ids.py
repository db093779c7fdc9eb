"""Names and numbers that identify things. PURE.

Conventions of the whole code base: an `_offset` counts records and is inclusive; an `_end_offset` is
exclusive; a `position` counts bytes; an `index` is neither. A topic id is 16 raw bytes, as on the
wire, because a `uuid.UUID` costs thirty times as much to make and compare.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
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
# What Kafka calls internal: coordinators alone write there.
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_GROUP_TOPIC})
# What the system believes: these, and what brokers alone write.
SYSTEM_TOPICS = INTERNAL_TOPICS | {REMOTE_LOG_METADATA_TOPIC}

# Where a replica is, when no directory is named; ids below the limit are reserved. As Apache Kafka 4.3.1
# counts them, which is not the order of KIP-858's text.
MIGRATING_DIRECTORY: Uuid = ZERO_UUID  # in one of its broker's, nobody said which
UNASSIGNED_DIRECTORY: Uuid = bytes(15) + b"\x01"  # new: its broker chooses
LOST_DIRECTORY: Uuid = bytes(15) + b"\x02"  # in none that is in use
RESERVED_DIRECTORIES = 100

NO_EPOCH = -1
NO_OFFSET = -1
# A broker epoch that nobody told: the controller does not check it then (I10, I17).
NO_BROKER_EPOCH = -1


class TopicPartition(NamedTuple):
    """One partition by topic name. Prints as Kafka names its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """One partition by topic id: survives deletion and re-creation under the same name."""

    topic_id: Uuid
    partition: int


PartitionKey = tuple[Uuid, int]  # topic id and partition number: the key of a dictionary


class OffsetAndEpoch(NamedTuple):
    """A place in a log. As a snapshot id `offset` is exclusive (spec Q3). Ordered by epoch first."""

    offset: int
    epoch: int


def uuid_text(value: Uuid) -> str:
    """Return Kafka's spelling: 22 characters of URL-safe base64 without padding."""
    assert len(value) == 16
    return urlsafe_b64encode(value).decode().rstrip("=")


def uuid_from_text(text: str) -> Uuid:
    """Parse Kafka's spelling of a UUID; raises ValueError for anything that is not 16 bytes."""
    value = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(value) != 16:
        raise ValueError(f"{text!r} is not a UUID of 16 bytes in URL-safe base64")
    return value
