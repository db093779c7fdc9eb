"""Committed offsets of one partition of `__consumer_offsets`, and when they expire. PURE.

A commit counts once its record is committed; until then it is only known to be under way. Whatever
order answers come in, the record with the higher offset wins, as it does on replay (rel-C5).
Source: KIP-211 (expiry), KIP-496; spec C15.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from firnline.base.ids import NO_OFFSET, ZERO_UUID, TopicPartition, Uuid

NO_EXPIRY = -1


class CommittedOffset(NamedTuple):
    """One commit. Times are ms since 1970; `record_offset` is where its record is in the log."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    topic_id: Uuid = ZERO_UUID
    record_offset: int = NO_OFFSET


Commit = tuple[
    str, TopicPartition, CommittedOffset | None
]  # group, partition, None for a tombstone


class Offsets:
    """Offsets by group and partition, with the writes that are under way."""

    __slots__ = ("_by_group", "_under_way", "_unstable")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._under_way: dict[str, dict[TopicPartition, int]] = {}
        self._unstable: dict[int, list[Commit]] = {}  # by producer: commits of an open transaction

    def of(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group; empty for none. Not to be changed."""
        return self._by_group.get(group_id, {})

    def groups(self) -> Iterator[str]:
        return iter(self._by_group)

    # ---------------------------------------------------------------------------------- writing

    def begin(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Note that commits are being written."""
        counts = self._under_way.setdefault(group_id, {})
        for partition in partitions:
            counts[partition] = counts.get(partition, 0) + 1

    def end(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Note that a write begun before is over, well or not."""
        counts = self._under_way[group_id]
        for partition in partitions:
            counts[partition] -= 1
            if not counts[partition]:
                del counts[partition]
        if not counts:
            del self._under_way[group_id]

    def under_way(self, group_id: str) -> Iterable[TopicPartition]:
        return self._under_way.get(group_id, {}).keys()

    def put(self, group_id: str, partition: TopicPartition, commit: CommittedOffset) -> None:
        """Take a committed commit, unless a later one is known."""
        of_group = self._by_group.setdefault(group_id, {})
        known = of_group.get(partition)
        if known is None or known.record_offset <= commit.record_offset:
            of_group[partition] = commit

    def drop(self, group_id: str, partition: TopicPartition, record_offset: int) -> None:
        """Take a committed tombstone at `record_offset`; a later commit stays."""
        of_group = self._by_group.get(group_id, {})
        known = of_group.get(partition)
        if known is not None and known.record_offset <= record_offset:
            del of_group[partition]
            if not of_group:
                del self._by_group[group_id]

    # ----------------------------------------------------------------------------- transactions

    def hold(self, producer_id: int, commit: Commit) -> None:
        """Keep a transaction's commit until its marker is read."""
        self._unstable.setdefault(producer_id, []).append(commit)

    def decide(self, producer_id: int, *, is_committed: bool) -> list[Commit]:
        """Return what a marker lets in, in log order: nothing for an abort."""
        held = self._unstable.pop(producer_id, [])
        return held if is_committed else []

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction has a commit for the partition (KIP-447)."""
        return any(
            (group_id, partition) == (group, tp)
            for held in self._unstable.values()
            for group, tp, _ in held
        )

    def has_unstable(self, group_id: str) -> bool:
        return any(group_id == c[0] for held in self._unstable.values() for c in held)


def is_expired(
    commit: CommittedOffset, *, since_ms: int | None, now_ms: int, retention_ms: int
) -> bool:
    """Return whether a commit has outlived its retention.

    A commit of Kafka's older versions states its own end. Others live `retention_ms` from
    `since_ms`, the moment their group became empty, or from the commit itself where it is None.
    """
    if commit.expire_timestamp_ms != NO_EXPIRY:
        return now_ms >= commit.expire_timestamp_ms
    start_ms = commit.commit_timestamp_ms if since_ms is None else since_ms
    return now_ms - start_ms >= retention_ms
