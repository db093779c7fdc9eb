"""Committed offsets of one partition of `__consumer_offsets`, and when they expire. PURE.

A commit is visible once its record is committed; until then it only counts as pending. Results may come in
any order: the record with the higher offset wins, as on replay (rel-C5). Source: KIP-211 (expiry), KIP-496;
spec C15.
"""

from collections.abc import Collection, Iterable, Iterator

from firnline.base.ids import NO_OFFSET, TopicPartition
from firnline.coordinator.commits import NO_EXPIRY, CommittedOffset, read_commit

# A loaded commit is the value of its record; a later one is decoded.
Known = CommittedOffset | bytes
# Group, partition, None for a tombstone.
Commit = tuple[str, TopicPartition, Known | None]


class Offsets:
    """Offsets by group and partition, with pending writes.

    by_group       contains no empty group; loading and closing a shard change it directly
    newest_offset  the greatest record offset of the commits that were made since the load. It never falls:
                   topics that are deleted forget the commits up to it, and keep later ones
    _under_way     commits that are being written, counted by partition, at least one each; no empty group.
                   What is under way may not expire: its record comes after the tombstone
    _unstable      by producer id: the commits of an open transaction, in log order, until its marker
    """

    __slots__ = ("_under_way", "_unstable", "by_group", "newest_offset")

    def __init__(self) -> None:
        self.by_group: dict[str, dict[TopicPartition, Known]] = {}
        self.newest_offset = NO_OFFSET
        self._under_way: dict[str, dict[TopicPartition, int]] = {}
        self._unstable: dict[int, list[Commit]] = {}

    def partitions(self, group_id: str) -> Collection[TopicPartition]:
        """Return the partitions for which a group has committed offsets; may be empty."""
        return self.by_group.get(group_id, {}).keys()

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """Return what a group has committed for a partition."""
        known = self.by_group.get(group_id, {}).get(partition)
        return read_commit(known) if type(known) is bytes else known  # type: ignore[return-value]

    def of(self, group_id: str) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """Iterate over all commits of a group, which must not change meanwhile."""
        for partition, known in self.by_group.get(group_id, {}).items():
            yield partition, read_commit(known) if type(known) is bytes else known  # type: ignore[misc]

    def record_offset(self, group_id: str, partition: TopicPartition) -> int:
        """The offset of a commit's record; NO_OFFSET for a loaded commit, or if there is none."""
        return _record_offset(self.by_group.get(group_id, {}).get(partition))

    # ---------------------------------------------------------------------------------- writing

    def begin(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Note that commits are being written."""
        counts = self._under_way.setdefault(group_id, {})
        for partition in partitions:
            counts[partition] = counts.get(partition, 0) + 1

    def end(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Note that such a write is over, successful or not."""
        counts = self._under_way[group_id]
        for partition in partitions:
            assert counts[partition] > 0, "a write ends once"
            counts[partition] -= 1
            if not counts[partition]:
                del counts[partition]
        if not counts:
            del self._under_way[group_id]

    def under_way(self, group_id: str) -> Iterable[TopicPartition]:
        return self._under_way.get(group_id, {}).keys()

    def put(self, group_id: str, partition: TopicPartition, commit: CommittedOffset) -> None:
        """Apply a committed commit, unless a later one is known."""
        assert commit.record_offset != NO_OFFSET, "its record says which commit is later (rel-C5)"
        of_group = self.by_group.setdefault(group_id, {})
        if _record_offset(of_group.get(partition)) <= commit.record_offset:
            of_group[partition] = commit
        self.newest_offset = max(self.newest_offset, commit.record_offset)

    def drop(self, group_id: str, partition: TopicPartition, record_offset: int) -> None:
        """Apply a committed tombstone at `record_offset`; a later commit stays."""
        of_group = self.by_group.get(group_id, {})
        assert of_group or group_id not in self.by_group, "no group without offsets is kept here"
        if partition in of_group and _record_offset(of_group[partition]) <= record_offset:
            del of_group[partition]
            if not of_group:
                del self.by_group[group_id]

    # ----------------------------------------------------------------------------- transactions

    def hold(self, producer_id: int, commit: Commit) -> None:
        """Keep a transactional commit until its marker."""
        self._unstable.setdefault(producer_id, []).append(commit)

    def decide(self, producer_id: int, *, is_committed: bool) -> list[Commit]:
        """Return the commits of a committed transaction, in log order; none for an aborted one."""
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


def _record_offset(known: Known | None) -> int:
    return known.record_offset if isinstance(known, CommittedOffset) else NO_OFFSET


def is_expired(
    commit: CommittedOffset, *, since_ms: int | None, now_ms: int, retention_ms: int
) -> bool:
    """Return whether a commit has outlived its retention.

    A commit from an old version of Kafka states its expiry time. Others live for `retention_ms` after
    `since_ms`, the moment their group became empty; or after the commit, if that is None.
    """
    if commit.expire_timestamp_ms != NO_EXPIRY:
        return now_ms >= commit.expire_timestamp_ms
    start_ms = commit.commit_timestamp_ms if since_ms is None else since_ms
    return now_ms - start_ms >= retention_ms
