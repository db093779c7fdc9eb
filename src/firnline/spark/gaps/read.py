"""Executor side of the table `gaps`: what the tasks of a read do not give, as rows. SPARK, without Spark.

The tasks are those of a read of the same offsets, with the same checks and errors: a batch's CRC covers the
fields of its header that explain gaps. Only batches with fewer records than offsets are decompressed.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from firnline.base.errors import StorageError
from firnline.base.ids import Uuid, uuid_text
from firnline.spark.brokers.fetch import Gone, answers
from firnline.spark.frames import check_crcs
from firnline.spark.gaps.causes import LeftOut, Missing, is_loss
from firnline.spark.gaps.expired import ExpiredTask, explain_expired
from firnline.spark.gaps.holes import Account, hole_at_leader, hole_in, merged
from firnline.spark.options.brokers import BrokerSettings
from firnline.spark.planning.catalogs import has_segment
from firnline.spark.planning.plan import Piece, TailTask, Task
from firnline.spark.read import cause_of_removal, checked_windows, located, rest_at_leader
from firnline.spark.schema import BROKER, CorruptSegment, ReadSettings, Wanted
from firnline.spark.tables.columns import GAPS, TABLES
from firnline.spark.tables.rows import Row, record_batches
from firnline.stores.port import ObjectMissing, ObjectStore

# A Spark partition gives what the plan left out of so many partitions.
LEFT_OUT_PER_TASK = 1000
Work = Task | TailTask | LeftOut | ExpiredTask


def read_gaps(
    store: ObjectStore | None,
    works: Iterable[Work],
    how: ReadSettings,
    brokers: BrokerSettings | None,
    columns: tuple[str, ...],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some tasks and of what the plan left out, with these columns of the table.

    store  None if no task reads the tier; `brokers` as in `read_task`
    """
    yield from record_batches(TABLES[GAPS], _rows(store, works, how, brokers), columns)


def _rows(
    store: ObjectStore | None,
    works: Iterable[Work],
    how: ReadSettings,
    brokers: BrokerSettings | None,
) -> Iterator[Row]:
    for work in works:
        if isinstance(work, ExpiredTask):
            assert brokers is not None
            yield from _rows(store, explain_expired(work, how, brokers), how, brokers)
            continue
        for each in merged(missing_of(store, work, how, brokers)):
            yield row_of(work.topic, work.topic_id, work.partition, each)


def row_of(topic: str, topic_id: Uuid, partition: int, one: Missing) -> Row:
    """Return the row of a gap."""
    return (
        topic, uuid_text(topic_id), partition, one.start_offset, one.end_offset,
        one.end_offset - one.start_offset, one.cause, is_loss(one.cause), one.segment_id,
        one.leader_epoch, one.producer_id, one.detail,
    )  # fmt: skip


def missing_of(
    store: ObjectStore | None,
    work: Task | TailTask | LeftOut,
    how: ReadSettings,
    brokers: BrokerSettings | None,
) -> Iterator[Missing]:
    """Yield what a task does not give, in the order of offsets."""
    if isinstance(work, LeftOut):
        yield from work.missing
    elif isinstance(work, TailTask):
        assert brokers is not None
        yield from _missing_at_leader(work, how, brokers)
    else:
        assert store is not None
        for piece in work.pieces:
            yield from _missing_in_piece(store, work, piece, how, brokers)


def _missing_in_piece(
    store: ObjectStore, task: Task, piece: Piece, how: ReadSettings, brokers: BrokerSettings | None
) -> Iterator[Missing]:
    """Yield what a piece does not give. If its object is gone, the catalog is read again, as for records."""
    account = Account(_wanted(task, piece, how), hole_in(piece.segment))
    try:
        yield from _missing_in_object(store, task, piece, how, account)
        return
    except ObjectMissing:
        pass
    rest = piece._replace(start_offset=account.at)
    if has_segment(store, task.topic_id, task.partition, piece.segment):
        try:
            account = Account(_wanted(task, rest, how), hole_in(piece.segment))
            yield from _missing_in_object(store, task, rest, how, account)
            return
        except ObjectMissing as again:
            raise StorageError(
                "an object that the catalog names is not in the tier",
                topic=task.topic, partition=task.partition, segment=piece.key,
            ) from again  # fmt: skip
    if brokers is not None:
        tail = rest_at_leader(task, piece, rest.start_offset)
        yield from _missing_at_leader(tail, how, brokers)
        return
    cause, detail = cause_of_removal(store, task, piece)
    its = uuid_text(piece.segment.segment_id)
    if rest.start_offset < rest.end_offset:
        yield Missing(rest.start_offset, rest.end_offset, cause, detail, its)


def _missing_in_object(
    store: ObjectStore, task: Task, piece: Piece, how: ReadSettings, account: Account
) -> Iterator[Missing]:
    wanted = _wanted(task, piece, how)
    try:
        for window in checked_windows(store, piece, how, wanted):
            yield from account.note(window.data, window.frames)
    except CorruptSegment as problem:
        raise located(problem, task.topic, task.partition) from None
    yield from account.finish()


def _wanted(task: Task, piece: Piece, how: ReadSettings) -> Wanted:
    return Wanted(
        task.topic,
        task.partition,
        ("offset",),
        start_offset=piece.start_offset,
        end_offset=piece.end_offset,
        aborted=task.aborted,
        verify_crc=False,  # done for every batch
        chunk_bytes=how.chunk_bytes,
        source=piece.key,
        segment_id=uuid_text(piece.segment.segment_id),
        keeps_aborted=how.keeps_aborted,
    )


def _missing_at_leader(
    task: TailTask, how: ReadSettings, settings: BrokerSettings
) -> Iterator[Missing]:
    wanted = Wanted(
        task.topic,
        task.partition,
        ("offset",),
        start_offset=task.start_offset,
        end_offset=task.end_offset,
        verify_crc=False,
        chunk_bytes=how.chunk_bytes,
        source=task.source,
        segment_id=None,
        keeps_aborted=how.keeps_aborted,
        read_from=BROKER,
    )
    account = Account(wanted, hole_at_leader(task))
    for answer in answers(task, how, settings, task.start_offset):
        if isinstance(answer, Gone):
            yield Missing(answer.start_offset, answer.end_offset, answer.cause, answer.detail)
            account.at = answer.end_offset
            continue
        if how.verify_crc:
            check_crcs(answer.data, answer.frames, wanted)
        its = wanted._replace(aborted=answer.aborted)
        yield from account.note(answer.data, answer.frames, its)
    yield from account.finish()
