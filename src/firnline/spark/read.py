"""Executor side: byte ranges of segments -> RecordBatches, window by window. SPARK.

What a broker has to give comes from `brokers.fetch`, also if a segment leaves the tier while it is read.

A window may end inside a batch; the next one then begins with that batch, so nothing is carried over. A batch
that is larger than a window is read completely. Source: spark section 4 'Reader loop'.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from firnline.base.errors import StorageError
from firnline.base.ids import NO_EPOCH, uuid_text
from firnline.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, OFFSET_AND_LENGTH, parse_header
from firnline.spark.access.read_ahead import Range, Source, reading_ahead
from firnline.spark.brokers.fetch import read_tail
from firnline.spark.decode import decode_frames
from firnline.spark.frames import Frames, check_crcs, find_frames
from firnline.spark.gaps.causes import (
    EXPIRED_OR_DELETED,
    FAIL,
    LOST,
    TOPIC_DELETED,
    is_refused,
    is_reported,
)
from firnline.spark.gaps.holes import Account, Refusal, hole_in
from firnline.spark.integrity import Continuity
from firnline.spark.log_lines import warn
from firnline.spark.options.brokers import BrokerSettings
from firnline.spark.planning.catalogs import has_segment
from firnline.spark.planning.plan import Piece, TailTask, Task
from firnline.spark.schema import CorruptSegment, DataLoss, ReadSettings, Wanted
from firnline.stores.port import ObjectMissing, ObjectStore
from firnline.tiered.objects.catalog_reader import newest_head

_log = logging.getLogger(__name__)


class Window(NamedTuple):
    """Some complete batches: the bytes, their position in the segment, and their headers."""

    data: bytes
    position: int
    frames: Frames


def windows(
    store: Source, key: str, *, begin: int, end: int, window_bytes: int
) -> Iterator[Window]:
    """Read the batches of `key` from byte `begin` to `end`, exclusive.

    Raises CorruptSegment if a batch crosses `end` or the object ends early.
    """
    at, size = begin, window_bytes
    while at < end:
        asked = min(size, end - at)
        data = store.get(key, at, asked)
        if len(data) < asked:
            raise CorruptSegment(
                "a segment is shorter than its catalog says",
                segment=key,
                size_bytes=at + len(data),
                expected=end,
            )
        frames = find_frames(data, source=key, position=at)
        if len(frames.begins):
            yield Window(data, at, frames)
            at += int(frames.ends[-1])
            size = window_bytes
            continue
        size = _size_of_first(data, key, at, end)


def _size_of_first(data: bytes, key: str, at: int, end: int) -> int:
    """Return the size of a batch of which `data` is only the beginning."""
    if len(data) < HEADER_BYTES:
        if at + len(data) < end:
            return HEADER_BYTES
        raise CorruptSegment("a byte range ends inside a batch", segment=key, position=at)
    offset, length = OFFSET_AND_LENGTH.unpack_from(data)
    size: int = length + LOG_OVERHEAD_BYTES
    if at + size > end:
        raise CorruptSegment(
            "a byte range ends inside a batch", segment=key, position=at, offset=offset, size=size
        )
    return size


def read_task(
    store: ObjectStore, task: Task, how: ReadSettings, brokers: BrokerSettings | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task in offset order; see `read_tasks`."""
    return read_tasks(store, (task,), how, brokers)


def read_tasks(
    store: ObjectStore | None,
    tasks: Sequence[Task | TailTask],
    how: ReadSettings,
    brokers: BrokerSettings | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of tasks, one after the other, each in offset order.

    If a segment's object is gone, the catalog is read again. A segment that is still in it is retried. One
    that is not was removed meanwhile: then the partition's leader is asked, if there are brokers to ask. Else
    that is data loss.
    """
    if store is None:
        for task in tasks:
            assert isinstance(task, TailTask), "segments are in a store"
            yield from _read_tail(task, how, brokers)
        return
    pieces = [piece for task in tasks if isinstance(task, Task) for piece in task.pieces]
    ranges = [each for piece in pieces for each in _ranges(piece)]
    with reading_ahead(store, ranges, how.window_bytes) as source:
        for task in tasks:
            if isinstance(task, TailTask):
                yield from _read_tail(task, how, brokers)
            else:
                yield from _read_segments(store, source, task, how, brokers)


def _read_tail(
    task: TailTask, how: ReadSettings, brokers: BrokerSettings | None
) -> Iterator[pa.RecordBatch]:
    assert brokers is not None, "a plan with a tail names brokers"
    return read_tail(task, how, brokers)


def _read_segments(
    store: ObjectStore,
    source: Source,
    task: Task,
    how: ReadSettings,
    brokers: BrokerSettings | None,
) -> Iterator[pa.RecordBatch]:
    for piece in task.pieces:
        progress = _Progress(piece.start_offset)
        try:
            yield from _read_piece(source, task, piece, how, progress)
        except ObjectMissing as problem:
            yield from _look_again(store, task, piece, how, brokers, progress, problem)


def _ranges(piece: Piece) -> list[Range]:
    """Return what is read of a piece, in this order: see `_read_checked`."""
    body = Range(piece.key, piece.begin_position, piece.end_position)
    return [Range(piece.key, 0, HEADER_BYTES), body] if _has_identity(piece) else [body]


class _Progress:
    """How far a piece was read: `batches` were delivered, all rows below `next_offset` among them."""

    def __init__(self, next_offset: int) -> None:
        self.next_offset, self.batches = next_offset, 0


def _read_piece(
    store: Source, task: Task, piece: Piece, how: ReadSettings, progress: _Progress
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a piece that were not delivered yet."""
    skipped = progress.batches
    try:
        for batch in _read_checked(store, task, piece, how, progress):
            if skipped:
                skipped -= 1
                continue
            yield batch
            progress.batches += 1
    except CorruptSegment as problem:
        raise located(problem, task.topic, task.partition) from None


def _read_checked(
    store: Source, task: Task, piece: Piece, how: ReadSettings, progress: _Progress
) -> Iterator[pa.RecordBatch]:
    wanted = Wanted(
        task.topic,
        task.partition,
        how.columns,
        start_offset=piece.start_offset,
        end_offset=piece.end_offset,
        aborted=task.aborted,
        verify_crc=False,  # done for every batch, below
        chunk_bytes=how.chunk_bytes,
        source=piece.key,
        segment_id=uuid_text(piece.segment.segment_id),
        unfinished=task.unfinished,
        keeps_aborted=how.keeps_aborted,
        decoder=how.decoder,
    )
    account = _account(piece, how, wanted)
    refusal = Refusal(how, task.topic, task.partition)
    for window in checked_windows(store, piece, how, wanted):
        if account is not None:
            refusal.note(account.note(window.data, window.frames))
        yield from decode_frames(window.data, window.frames, wanted)
        heads = window.frames.heads
        after = int(heads["base_offset"][-1] + heads["last_offset_delta"][-1]) + 1
        progress.next_offset = max(progress.next_offset, min(after, piece.end_offset))
    if account is not None:
        refusal.note(account.finish())
    refusal.report()


def checked_windows(
    store: Source, piece: Piece, how: ReadSettings, wanted: Wanted
) -> Iterator[Window]:
    """Yield the batches of a piece, as far as they are needed, when all that can be told of them is checked.

    Raises CorruptSegment for what is not what the catalog says; after the last window, for what is missing.
    """
    check_identity(store, piece)
    continuity = Continuity(piece)
    begin, end = piece.begin_position, piece.end_position
    for window in windows(store, piece.key, begin=begin, end=end, window_bytes=how.window_bytes):
        continuity.note(window.frames)
        if how.verify_crc:
            # Also for batches that are not delivered: a flipped attribute turns any batch into a control
            # batch.
            check_crcs(window.data, window.frames, wanted)
        yield window
        is_past = window.frames.heads["base_offset"][-1] >= piece.end_offset
        if is_past and not continuity.needs_all:
            return
    continuity.finish()


def _account(piece: Piece, how: ReadSettings, wanted: Wanted) -> Account | None:
    """Return the account of a piece; None if nothing in it can be missing that matters.

    What compaction removed from a segment before its copy matters only to a read that fails for each gap.
    """
    known = piece.segment.fingerprint
    if how.on_gap is None or (known is not None and not known.may_have_gaps):
        return None
    return Account(wanted, hole_in(piece.segment)) if known is None or how.on_gap == FAIL else None


def located(problem: CorruptSegment, topic: str, partition: int) -> CorruptSegment:
    """Return the error with the partition that it concerns."""
    facts = {"topic": topic, "partition": partition, **problem.facts}
    return CorruptSegment(problem.why, **facts)


def _has_identity(piece: Piece) -> bool:
    """Whether a piece begins inside an object whose first batch is known."""
    return piece.segment.fingerprint is not None and piece.begin_position != 0


def check_identity(store: Source, piece: Piece) -> None:
    """Check the first batch of a piece that begins inside an object: is it the right object?"""
    known = piece.segment.fingerprint
    if known is None or not _has_identity(piece):
        return
    head = store.get(piece.key, 0, HEADER_BYTES)
    if len(head) < HEADER_BYTES or parse_header(head).crc != known.first_crc:
        raise CorruptSegment(
            "the object belongs to another segment",
            segment=piece.key,
            offset=piece.segment.base_offset,
        )


def _look_again(
    store: ObjectStore,
    task: Task,
    piece: Piece,
    how: ReadSettings,
    brokers: BrokerSettings | None,
    progress: _Progress,
    problem: ObjectMissing,
) -> Iterator[pa.RecordBatch]:
    if has_segment(store, task.topic_id, task.partition, piece.segment):
        try:
            yield from _read_piece(store, task, piece, how, progress)
        except ObjectMissing as again:
            raise StorageError(
                "an object that the catalog names is not in the tier",
                topic=task.topic,
                partition=task.partition,
                segment=piece.key,
            ) from again
        return
    if brokers is not None:
        yield from read_tail(rest_at_leader(task, piece, progress.next_offset), how, brokers)
        return
    cause, detail = LOST, ""
    if how.on_gap is not None:
        cause, detail = cause_of_removal(store, task, piece)
    loss = DataLoss(
        "a segment was removed from the tier while it was read",
        topic=task.topic,
        partition=task.partition,
        from_offset=progress.next_offset,
        to_offset=piece.end_offset,
        segment=piece.key,
        **{} if how.on_gap is None else {"cause": cause, "detail": detail, "onGap": how.on_gap},
    )
    if is_refused(how.on_gap, fail_on_data_loss=how.fail_on_data_loss, cause=cause):
        raise loss from problem
    if is_reported(how.on_gap, cause):
        warn(_log, "skipped a segment that was removed from the tier", key=piece.key)


def rest_at_leader(task: Task, piece: Piece, start_offset: int) -> TailTask:
    """Return what reads the rest of a piece from the leader: it knows of another copy of the segment, if any.

    Raises StorageError where the offsets of the piece are not its own alone: neighbours would come twice.
    """
    if piece.has_loose_offsets:
        raise StorageError(
            "a segment that an index had divided left the tier while it was read, and only its bytes tell"
            " which offsets are in which part",
            topic=task.topic, partition=task.partition, segment=piece.key, remedy="run the query again",
        )  # fmt: skip
    epochs = piece.segment.epochs
    return TailTask(
        task.topic, task.topic_id, task.partition, start_offset, piece.end_offset,
        epochs[-1][0] if epochs else NO_EPOCH,
    )  # fmt: skip


def cause_of_removal(store: ObjectStore, task: Task, piece: Piece) -> tuple[str, str]:
    """Return why a segment is in the catalog no more, and the evidence."""
    head = newest_head(store, task.topic_id, task.partition)
    if head is None:
        return TOPIC_DELETED, "the partition was removed from the tier while it was read"
    start = head.log_start_offset
    if piece.end_offset <= start:
        return EXPIRED_OR_DELETED, f"the log start moved to {start} while the segment was read"
    return LOST, f"the tier removed the segment while it was read, and the log start is {start}"
