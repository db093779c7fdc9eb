"""Commits and groups as records of `__consumer_offsets`. PURE. Source: KIP-915; spec C15."""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from firnline.base.ids import ZERO_UUID, TopicPartition
from firnline.coordinator.commits import NO_EXPIRY, CommittedOffset
from firnline.coordinator.generation import (
    generation_value,
    generation_value_in_slices,
    value_front,
)
from firnline.coordinator.group import Group
from firnline.coordinator.membership import Member
from firnline.coordinator.policy import TOMBSTONES_BYTES_MAX
from firnline.coordinator.records import (
    OFFSET_COMMIT_VALUE_VERSION,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from firnline.records.build import NewRecord, build_batch, build_record_in_slices
from firnline.records.compression import NONE

# The only version with an expiry time, and the first with a topic id.
_VERSION_WITH_EXPIRY = 1
_VERSION_WITH_TOPIC_ID = 4
T = TypeVar("T")


def commit_row(
    group_id: str, tp: TopicPartition, commit: CommittedOffset, now_ms: int
) -> NewRecord:
    """Return the record of a commit, in the version that 4.3.1 uses for its fields."""
    version = OFFSET_COMMIT_VALUE_VERSION
    if commit.expire_timestamp_ms != NO_EXPIRY:
        version = _VERSION_WITH_EXPIRY
    elif commit.topic_id != ZERO_UUID:
        version = _VERSION_WITH_TOPIC_ID
    value = OffsetCommitValue(
        offset=commit.offset,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        commit_timestamp=commit.commit_timestamp_ms,
        expire_timestamp=commit.expire_timestamp_ms,
        topic_id=commit.topic_id,
    )
    key = OffsetCommitKey(group=group_id, topic=tp.topic, partition=tp.partition)
    return NewRecord(encode_key(key), encode_value(value, version), now_ms)


def group_row(group: Group, assignments: Mapping[str, bytes], now_ms: int) -> NewRecord:
    """Return the record of a group's generation, with the members in `assignments`."""
    members = [
        (member, assignments[member.member_id])
        for member in group.members.by_id.values()
        if member.member_id in assignments
    ]
    value = generation_value(
        generation=group.generation,
        protocol_type=group.protocol_type or "",
        protocol_name=group.protocol_name,
        leader=group.members.leader if members else None,
        state_since_ms=group.state_since_ms,
        members=members,
    )
    key = encode_key(GroupMetadataKey(group=group.group_id))
    return NewRecord(key, value, now_ms)


def group_batch_in_slices(
    group: Group, members: Iterable[Member], codec: int, now_ms: int
) -> Generator[None, None, bytearray]:
    """Return the batch of `group_row`, with all present members; the generator yields after some of them.

    members  yields each member with its assignment, in the slice that encodes it

    The batch is compressed in one step.
    """
    front = value_front(
        group.generation,
        group.protocol_type or "",
        group.protocol_name,
        group.members.leader,
        group.state_since_ms,
    )
    # Copy everything but the members now: a static member may be replaced before the first slice.
    count = len(group.members.by_id)
    value = generation_value_in_slices(front, group.protocol_name, count, members)
    key = encode_key(GroupMetadataKey(group=group.group_id))
    return _batch_in_slices(key, value, codec, now_ms)


def _batch_in_slices(
    key: bytes, parts: Generator[None, None, deque[bytes]], codec: int, now_ms: int
) -> Generator[None, None, bytearray]:
    value = yield from parts
    if codec != NONE:
        return build_batch([NewRecord(key, b"".join(value), now_ms)], codec=codec)
    return (yield from build_record_in_slices(key, value, now_ms))


def tombstone(group_id: str, tp: TopicPartition | None, now_ms: int) -> NewRecord:
    """Return the record that deletes one offset; with None, the group itself."""
    if tp is None:
        return NewRecord(encode_key(GroupMetadataKey(group=group_id)), None, now_ms)
    key = OffsetCommitKey(group=group_id, topic=tp.topic, partition=tp.partition)
    return NewRecord(encode_key(key), None, now_ms)


def in_batches(rows: Sequence[tuple[T, NewRecord]]) -> Iterator[list[tuple[T, NewRecord]]]:
    """Split rows into lists that each make a batch of moderate size."""
    part: list[tuple[T, NewRecord]] = []
    size_bytes = 0
    for item in rows:
        part.append(item)
        size_bytes += len(item[1].key or b"") + len(item[1].value or b"")
        if size_bytes >= TOMBSTONES_BYTES_MAX:
            yield part
            part, size_bytes = [], 0
    if part:
        yield part
