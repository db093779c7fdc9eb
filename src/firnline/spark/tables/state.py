"""`topics` and `partitions` as the metadata had them at an offset: a snapshot, and the log after it. WORLD.

Tasks divide the snapshot; each of them reads the log after it, and applies what it says of the partitions in
its part. What a record does to a partition is decided by `metadata/delta.py`, as on a node.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from firnline.base.errors import KafkaError
from firnline.base.ids import MIGRATING_DIRECTORY
from firnline.metadata import records as r
from firnline.metadata.delta import changed_partition
from firnline.metadata.image import PartitionImage
from firnline.spark.tables.columns import METADATA
from firnline.spark.tables.files import SPAN_BYTES, Placed, Span, read_span, reading, refuse, walk
from firnline.spark.tables.metadata import choose_log, newest_snapshot, too_new
from firnline.spark.tables.record_text import id_text
from firnline.spark.tables.replay import applied, messages, messages_of
from firnline.spark.tables.rows import Row
from firnline.spark.tables.snapshots import find_snapshots

Change = r.PartitionRecord | r.PartitionChangeRecord | r.ClearElrRecord
# A task reads the whole log after the snapshot: its part of the snapshot is so many times larger.
_PART_PER_LOG = 4
# From `broker_id` to `leader_epochs`: what only a tier has.
_ONLY_TIER = (None,) * 8


class StateTask(NamedTuple):
    """A part of a snapshot, and the log after it.

    spans         of the snapshot, one after the other; empty if there is no snapshot
    log           spans of the log; what counts of them is in [start_offset, end_offset)
    adds_created  also rows of what was created after the snapshot
    """

    spans: tuple[Span, ...]
    log: tuple[Span, ...]
    start_offset: int
    end_offset: int
    adds_created: bool


def plan_state(table: str, log_dirs: tuple[str, ...], as_of_offset: int | None) -> list[StateTask]:
    """Return the tasks for the state before the record at an offset; None: after the last record.

    Raises ConfigError for an offset outside what there is, StorageError for damage.
    """
    log = choose_log(log_dirs)
    # A node may have fetched a snapshot, and no record after it yet.
    newest = max(log.end_offset, *(place.offset for place in find_snapshots(log.log.path)), 0)
    end = newest if as_of_offset is None else as_of_offset
    if end > newest:
        raise too_new(log, end)
    snapshot = newest_snapshot(log, end)
    start = 0 if snapshot is None else snapshot.place.offset
    spans = () if snapshot is None else snapshot.spans
    after = tuple(s for s in log.spans if s.end_offset > start and s.base_offset < end)
    if table == "topics":  # one task: it counts partitions, which may be in any part
        return [StateTask(spans, after, start, end, adds_created=True)]
    wanted = max(SPAN_BYTES, _PART_PER_LOG * sum(s.end - s.begin for s in after))
    parts: list[list[Span]] = [[]]
    for span in spans:
        if parts[-1] and parts[-1][-1].end - parts[-1][0].begin >= wanted:
            parts.append([])
        parts[-1].append(span)
    return [
        StateTask(tuple(part), after, start, end, adds_created=number == len(parts))
        for number, part in enumerate(parts, 1)
    ]


class _Changes:
    """What the log says of topics and partitions after the snapshot."""

    def __init__(self, task: StateTask) -> None:
        self.created: dict[bytes, str] = {}
        self.removed: set[bytes] = set()
        # By topic id and partition, each with its place among all changes.
        self.partitions: dict[bytes, dict[int, list[tuple[int, Change]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._cleared: list[tuple[int, r.ClearElrRecord]] = []
        for one in applied(task.log, task.start_offset, task.end_offset):
            record = one.record
            if isinstance(record, r.PartitionRecord | r.PartitionChangeRecord):
                changes = self.partitions[record.topic_id][record.partition_id]
                changes.append((one.offset, record))
            elif isinstance(record, r.TopicRecord):
                self.created[record.topic_id] = record.name
            elif isinstance(record, r.RemoveTopicRecord):
                self.removed.add(record.topic_id)
                self.created.pop(record.topic_id, None)
                self.partitions.pop(record.topic_id, None)
            elif isinstance(record, r.ClearElrRecord):
                self._cleared.append((one.offset, record))

    @property
    def has_clears(self) -> bool:
        return bool(self._cleared)

    def after(
        self, name: str, partition: PartitionImage | None, changes: list[tuple[int, Change]]
    ) -> PartitionImage:
        """Return the partition after its changes; None: the first of them creates it."""
        clears = [(at, c) for at, c in self._cleared if c.topic_name in ("", name)]
        for _, change in sorted(chain(changes, clears), key=lambda one: one[0]):
            if isinstance(change, r.PartitionRecord):
                partition = image_of(change)
            elif isinstance(change, r.PartitionChangeRecord):
                assert partition is not None, "the first change of a partition creates it"
                partition = changed_partition(partition, change)
            elif partition is not None and (partition.elr or partition.last_known_elr):
                partition = partition._replace(
                    elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                )
        assert partition is not None
        return partition

    def creates(self, changes: list[tuple[int, Change]]) -> bool:
        return isinstance(changes[0][1], r.PartitionRecord)


def image_of(record: r.PartitionRecord) -> PartitionImage:
    """Return the partition that a record creates."""
    replicas = tuple(record.replicas)
    return PartitionImage(
        replicas=replicas,
        directories=tuple(record.directories) or (MIGRATING_DIRECTORY,) * len(replicas),
        isr=tuple(record.isr),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        removing_replicas=tuple(record.removing_replicas),
        adding_replicas=tuple(record.adding_replicas),
        leader_recovery_state=record.leader_recovery_state,
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
    )


def topic_rows(task: StateTask) -> Iterator[Row]:
    """Yield a row for each topic that there was."""
    changes = _Changes(task)
    names: dict[bytes, str] = {}
    counts: Counter[bytes] = Counter()
    of_snapshot: dict[bytes, set[int]] = {}  # the partitions of those that the log changes
    for span in task.spans:
        for _, record in messages(span):
            if isinstance(record, r.PartitionRecord):
                counts[record.topic_id] += 1
                if record.topic_id in changes.partitions:
                    of_snapshot.setdefault(record.topic_id, set()).add(record.partition_id)
            elif isinstance(record, r.TopicRecord):
                names[record.topic_id] = record.name
    for topic_id, partitions in changes.partitions.items():
        counts[topic_id] += len(set(partitions) - of_snapshot.get(topic_id, set()))
    for topic_id, name in chain(names.items(), changes.created.items()):
        if topic_id not in changes.removed:
            yield name, id_text(topic_id), False, None, counts[topic_id], METADATA


def partition_rows(task: StateTask) -> Iterator[Row]:
    """Yield a row for each partition that there was, of those in the task's part."""
    changes = _Changes(task)
    names: dict[bytes, str] = {}
    for span in task.spans:
        for found in read_span(span):
            for _, record in messages_of(span.path, found):
                if isinstance(record, r.TopicRecord):
                    names[record.topic_id] = record.name
                elif isinstance(record, r.PartitionRecord):
                    topic_id = record.topic_id
                    name = names.get(topic_id)
                    if name is None:
                        name = names[topic_id] = _name_before(task.spans[0], found, topic_id)
                    yield from _row_after(changes, name, record)
    if not task.adds_created:
        return
    for topic_id, partitions in changes.partitions.items():
        for number, of_one in partitions.items():
            if changes.creates(of_one):
                known = changes.created.get(topic_id) or names.get(topic_id)
                name = known or _name_in_snapshot(task, topic_id)
                yield row_of(name, topic_id, number, changes.after(name, None, of_one))


def _row_after(changes: _Changes, name: str, record: r.PartitionRecord) -> Iterator[Row]:
    """Yield the row of a partition of the snapshot, unless its topic is gone or the log creates it again."""
    topic_id, number = record.topic_id, record.partition_id
    if topic_id in changes.removed:
        return
    of_topic = changes.partitions.get(topic_id)
    of_one = None if of_topic is None else of_topic.get(number)
    if of_one is not None and changes.creates(of_one):
        return
    partition = image_of(record)
    if of_one is not None or changes.has_clears:
        partition = changes.after(name, partition, of_one or [])
    yield row_of(name, topic_id, number, partition)


def row_of(name: str, topic_id: bytes, number: int, partition: PartitionImage) -> Row:
    """Return the row of `partitions` for a partition as the metadata has it."""
    return (
        name, id_text(topic_id), number, False, partition.leader, partition.leader_epoch,
        partition.partition_epoch, partition.replicas, partition.isr, partition.removing_replicas,
        partition.adding_replicas, partition.elr, partition.last_known_elr,
        partition.leader_recovery_state, [id_text(d) for d in partition.directories], *_ONLY_TIER,
        METADATA,
    )  # fmt: skip


def _name_in_snapshot(task: StateTask, topic_id: bytes) -> str:
    """Return the name of a topic of which only the log has something in this task."""
    last = task.spans[-1]
    with reading(last.path) as fd:
        end = os.fstat(fd).st_size
    return _name_in(last.path, end, end, topic_id)


def _name_before(first: Span, found: Placed, topic_id: bytes) -> str:
    """Return the name of a topic whose record is in an earlier part of the snapshot than its partition."""
    return _name_in(first.path, first.begin, found.position, topic_id)


def _name_in(path: str, end: int, position: int, topic_id: bytes) -> str:
    """Look for a topic in the batches before `end`, the last one first: partitions follow their topic."""
    name = next(_names_before(path, end, topic_id), None)
    if name is None:
        refuse(path, position, "a partition of an unknown topic", id=topic_id.hex())
    return name


def _names_before(path: str, end: int, topic_id: bytes) -> Iterator[str]:
    with reading(path) as fd:
        try:
            batches = [(b.position, b.header.size_bytes) for b in walk(fd, 0, end)]
            for at, size in reversed(batches):
                for found in walk(fd, at, at + size):
                    for _, record in messages_of(path, found):
                        if isinstance(record, r.TopicRecord) and record.topic_id == topic_id:
                            yield record.name
        except KafkaError as problem:
            refuse(path, end, str(problem))
