"""`isr`: each record that made or changed a partition, and the ISR after it with its brokers' epochs. WORLD.

The epoch of a broker is that of its registration when the record was written: since KIP-903 a controller
takes a replica into an ISR only under its present registration. The history begins with the oldest record
that the log has. Where it does not begin at offset 0, the oldest snapshot says what had been before: its
partitions are rows, too, in the place of its offset. Records below the snapshot change what no file has any
more; what they do not say themselves is null. Source: KIP-903, KIP-497; `metadata/delta.py`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from firnline.base.errors import ConfigError, StorageError
from firnline.metadata import records as r
from firnline.spark.tables.columns import LOG, SNAPSHOT
from firnline.spark.tables.files import Span
from firnline.spark.tables.metadata import choose_log, too_new
from firnline.spark.tables.record_text import id_text
from firnline.spark.tables.replay import Applied, applied, messages
from firnline.spark.tables.rows import Row, micros
from firnline.spark.tables.snapshots import check_snapshot_file, find_snapshots

_LEADER_UNCHANGED = -2


class IsrTask(NamedTuple):
    """The log in [start_offset, end_offset), and the snapshot that says what was before.

    snapshot         its spans; empty if the log begins at 0
    snapshot_offset  exclusive, as in the name of the snapshot
    """

    log: tuple[Span, ...]
    start_offset: int
    end_offset: int
    snapshot: tuple[Span, ...] = ()
    snapshot_offset: int = 0


class _Partition(NamedTuple):
    """What is known of a partition; None: no record that is retained says it."""

    isr: tuple[int, ...] | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    has_elr: bool | None = None  # eligible leader replicas
    has_last_known: bool | None = None


def plan_isr(log_dirs: tuple[str, ...], as_of_offset: int | None) -> list[IsrTask]:
    """Return the one task: each row needs those before it. Errors as for `metadata`."""
    log = choose_log(log_dirs)
    found = find_snapshots(log.log.path)
    newest = max(log.end_offset, *(place.offset for place in found), 0)
    end = newest if as_of_offset is None else as_of_offset
    if end > newest:
        raise too_new(log, end)
    start = log.start_offset
    if not log.spans and found:  # a snapshot that was fetched, before the first record after it
        start = max(start, newest)
    if end < start:
        raise ConfigError(
            "the metadata does not go back to asOfOffset",
            given=end,
            oldest=start,
            path=log.log.path,
        )
    task = IsrTask(log.spans, start, end)
    if start == 0:
        return [task]
    later = [place for place in found if place.offset >= start]
    if not later:
        raise StorageError(
            "the metadata log begins after the newest snapshot: what is between them is lost",
            path=log.log.path, log_start_offset=start,
        )  # fmt: skip
    oldest = min(later)
    spans = check_snapshot_file(found[oldest], oldest).spans
    return [task._replace(snapshot=spans, snapshot_offset=oldest.offset)]


def isr_rows(task: IsrTask) -> Iterator[Row]:
    """Yield the rows in the order of offsets; those of the snapshot before the record with its offset."""
    history = _History()
    if task.snapshot and task.start_offset < task.snapshot_offset:
        history.look_ahead(task)
    waiting = bool(task.snapshot) and task.snapshot_offset <= task.end_offset
    for one in applied(task.log, task.start_offset, task.end_offset, may_begin_inside=True):
        if waiting and one.offset >= task.snapshot_offset:
            waiting = False
            yield from history.restart(task)
        yield from history.rows_of(one)
    if waiting:
        yield from history.restart(task)


class _History:
    """The partitions, topics and brokers as far as the records so far say."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self._epochs: dict[int, int] = {}
        self._partitions: dict[bytes, dict[int, _Partition]] = {}

    def look_ahead(self, task: IsrTask) -> None:
        """Take from a snapshot what was true at the start already: names, and earlier registrations."""
        for span in task.snapshot:
            for _, record in messages(span):
                if isinstance(record, r.TopicRecord):
                    self._names[record.topic_id] = record.name
                elif (
                    isinstance(record, r.RegisterBrokerRecord)
                    # A broker's epoch is the offset of the record that registered it.
                    and record.broker_epoch < task.start_offset
                ):
                    self._epochs[record.broker_id] = record.broker_epoch

    def restart(self, task: IsrTask) -> Iterator[Row]:
        """Replace all that is known by a snapshot; yield its partitions."""
        self._partitions.clear()
        self._epochs = {
            record.broker_id: record.broker_epoch
            for span in task.snapshot
            for _, record in messages(span)
            if isinstance(record, r.RegisterBrokerRecord)
        }
        for span in task.snapshot:
            for _, record in messages(span):
                if isinstance(record, r.TopicRecord):
                    self._names[record.topic_id] = record.name
                elif isinstance(record, r.PartitionRecord):
                    self._created(record)
                    yield self._row(task.snapshot_offset, None, record, SNAPSHOT)

    def rows_of(self, one: Applied) -> Iterator[Row]:
        """Apply a record of the log; yield its row if it concerns a partition, or removes a topic."""
        record = one.record
        if isinstance(record, r.PartitionRecord):
            self._created(record)
        elif isinstance(record, r.PartitionChangeRecord):
            of_topic = self._partitions.setdefault(record.topic_id, {})
            before = of_topic.get(record.partition_id, _Partition())
            of_topic[record.partition_id] = _changed(before, record)
        elif isinstance(record, r.RemoveTopicRecord):
            self._partitions.pop(record.topic_id, None)
            yield self._removed(one, record)
            return
        else:
            self._note(record)
            return
        yield self._row(one.offset, one.timestamp_ms, record, LOG)

    def _note(self, record: object) -> None:
        if isinstance(record, r.TopicRecord):
            self._names[record.topic_id] = record.name
        elif isinstance(record, r.RegisterBrokerRecord):
            self._epochs[record.broker_id] = record.broker_epoch
        elif isinstance(record, r.UnregisterBrokerRecord):
            self._epochs.pop(record.broker_id, None)
        elif isinstance(record, r.ClearElrRecord):
            for topic_id, of_topic in self._partitions.items():
                if record.topic_name in ("", self._names.get(topic_id)):
                    for number, partition in of_topic.items():
                        of_topic[number] = _cleared(partition)

    def _created(self, record: r.PartitionRecord) -> None:
        self._partitions.setdefault(record.topic_id, {})[record.partition_id] = _Partition(
            tuple(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            bool(record.eligible_leader_replicas),
            bool(record.last_known_elr),
        )

    def _row(
        self,
        offset: int,
        timestamp_ms: int | None,
        record: r.PartitionRecord | r.PartitionChangeRecord,
        source: str,
    ) -> Row:
        topic_id, number = record.topic_id, record.partition_id
        now = self._partitions[topic_id][number]
        isr = (
            None if now.isr is None else [(member, self._epochs.get(member)) for member in now.isr]
        )
        return (
            offset, micros(timestamp_ms), type(record).__name__, self._names.get(topic_id),
            id_text(topic_id), number, now.leader, now.leader_epoch, now.partition_epoch, isr, source,
        )  # fmt: skip

    def _removed(self, one: Applied, record: r.RemoveTopicRecord) -> Row:
        return (
            one.offset, micros(one.timestamp_ms), type(record).__name__,
            self._names.pop(record.topic_id, None), id_text(record.topic_id), *(None,) * 5, LOG,
        )  # fmt: skip


def _changed(before: _Partition, record: r.PartitionChangeRecord) -> _Partition:
    """As `delta.changed_partition`, of a partition of which something may be unknown."""
    leader, leader_epoch = before.leader, before.leader_epoch
    if record.leader != _LEADER_UNCHANGED:
        leader, leader_epoch = record.leader, _one_more(leader_epoch)
    elr, last_known = record.eligible_leader_replicas, record.last_known_elr
    return _Partition(
        before.isr if record.isr is None else tuple(record.isr),
        leader,
        leader_epoch,
        _one_more(before.partition_epoch),
        before.has_elr if elr is None else bool(elr),
        before.has_last_known if last_known is None else bool(last_known),
    )


def _cleared(partition: _Partition) -> _Partition:
    """The epoch rises only if there was something to clear, which may be unknown."""
    epoch, known = partition.partition_epoch, (partition.has_elr, partition.has_last_known)
    if True in known:
        epoch = _one_more(epoch)
    elif None in known:
        epoch = None
    return partition._replace(partition_epoch=epoch, has_elr=False, has_last_known=False)


def _one_more(epoch: int | None) -> int | None:
    return None if epoch is None else epoch + 1
