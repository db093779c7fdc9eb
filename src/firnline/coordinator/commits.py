"""A committed offset, and how it is read from its record. PURE.

A partition of `__consumer_offsets` holds millions of commits, and clients ask for few of them. So a loaded
commit stays in the bytes of its record and is decoded when somebody asks for it. That takes a tenth of the
memory, and the garbage collector does not look at bytes. The versions that 4.3.1 writes are decoded here by
byte position; all others by their schema in `coordinator/records.py`.
"""

import struct
from typing import NamedTuple

from firnline.base.errors import ProtocolError
from firnline.base.ids import NO_OFFSET, ZERO_UUID, TopicPartition, Uuid
from firnline.coordinator.records import (
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
)

NO_EXPIRY = -1
_KEY = OffsetCommitKey(group="", topic="", partition=0)
_KEY_TYPES = (b"\0\0", b"\0\1")  # before 0.9 and today: the same fields
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_FRONT_3 = struct.Struct(">qih")  # offset, leader epoch, length of the metadata
_FRONT_4 = struct.Struct(">qiB")  # the same; then the length plus one, if it is below 128
_ONE_TAG = b"\1\0\x10"  # a tagged section with only the topic id
_UUID_BYTES = 16


class CommittedOffset(NamedTuple):
    """One commit. Timestamps are ms since 1970; `record_offset` is the offset of its record in the log.

    `record_offset` is NO_OFFSET for a loaded commit: it is older than any commit that is written afterwards.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    topic_id: Uuid = ZERO_UUID
    record_offset: int = NO_OFFSET


def read_commit(value: bytes) -> CommittedOffset:
    """Decode the value of a commit record; ProtocolError for other bytes."""
    try:
        found = _read_3(value) if value[:2] == b"\0\3" else _read_4(value)
    except (struct.error, IndexError, UnicodeDecodeError):
        found = None
    if found is not None:
        return found
    row = decode_value(_KEY, value)
    assert isinstance(row, OffsetCommitValue)
    return CommittedOffset(
        row.offset,
        row.leader_epoch,
        row.metadata,
        row.commit_timestamp,
        row.expire_timestamp,
        bytes(row.topic_id),
    )


def _read_3(value: bytes) -> CommittedOffset | None:
    offset, epoch, size = _FRONT_3.unpack_from(value, 2)
    end = 16 + size
    if size < 0 or len(value) != end + 8:
        return None
    (at_ms,) = _INT64.unpack_from(value, end)
    return CommittedOffset(offset, epoch, value[16:end].decode() if size else "", at_ms)


def _read_4(value: bytes) -> CommittedOffset | None:
    if value[:2] != b"\0\4":
        return None
    offset, epoch, size = _FRONT_4.unpack_from(value, 2)
    end = 14 + size
    if not 0 < size < 128:
        return None
    (at_ms,) = _INT64.unpack_from(value, end)
    tags = value[end + 8 :]
    topic_id = ZERO_UUID
    if len(tags) == len(_ONE_TAG) + _UUID_BYTES and tags.startswith(_ONE_TAG):
        topic_id = tags[len(_ONE_TAG) :]
    elif tags != b"\0":
        return None
    metadata = value[15:end].decode() if size > 1 else ""
    return CommittedOffset(offset, epoch, metadata, at_ms, NO_EXPIRY, topic_id)


def legacy_commit(value: LegacyOffsetCommitValue) -> CommittedOffset:
    """Convert a commit record from before Kafka 0.9."""
    return CommittedOffset(value.offset, -1, value.metadata, value.commit_timestamp)


def read_commit_key(key: bytes) -> tuple[str, TopicPartition] | None:
    """Return group and partition from the key of a commit record; None for a key of another type.

    ProtocolError for bytes that are not a key.
    """
    if key[:2] not in _KEY_TYPES:
        return None
    try:
        group_end = 4 + int.from_bytes(key[2:4], "big")
        topic_end = group_end + 2 + int.from_bytes(key[group_end : group_end + 2], "big")
        (partition,) = _INT32.unpack_from(key, topic_end)
        if len(key) == topic_end + 4:
            topic = key[group_end + 2 : topic_end].decode()
            return key[4:group_end].decode(), TopicPartition(topic, partition)
    except (struct.error, UnicodeDecodeError):
        pass
    decode_key(key)  # raises for most malformed keys
    raise ProtocolError("not the key of a commit record", size=len(key))
