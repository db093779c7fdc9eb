"""Verifies a local segment before its copy, and makes its remote objects. STORE.

After the copy the other replicas delete the segment, so everything is verified before: every batch, by its
CRC and its neighbours; both indexes and the aborted transactions, by their batches. Files that can be rebuilt
from the batches are rebuilt for the copy. Damaged batches cannot: then the segment is not copied. Source:
decision 0023.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from crc32c import crc32c

from firnline.base.errors import StorageError
from firnline.base.ids import TopicPartition
from firnline.base.ports import Buffer, Fs
from firnline.base.units import MIB
from firnline.formats import transaction_index
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.formats.producer_snapshot import decode_snapshot, encode_snapshot
from firnline.formats.transaction_index import AbortedTxn
from firnline.log.checkpoint import read_file
from firnline.log.indexes import OffsetIndex, TimeIndex
from firnline.log.producer_state import ProducerStates, read_marker, snapshot_offsets, snapshot_path
from firnline.log.segments import ClosedSegment
from firnline.records.batch import HEADER_BYTES, parse_header
from firnline.records.file_scan import FoundBatch, good_batches
from firnline.records.walk import WHY, BatchWalk, Slot
from firnline.tiered.catalog.format import SPLIT_BYTES, Details, Split
from firnline.tiered.objects import layout
from firnline.tiered.objects.fingerprint import Fingerprint, ObjectSum, encode_fingerprint
from firnline.tiered.spi import DamagedSegment, SegmentData, Source, bytes_source

CHUNK_BYTES = MIB


class ToCopy(NamedTuple):
    """A segment that is due for its copy, and the facts that the leader knows about it.

    before           the earlier closed segments that are still local, oldest first
    epochs           leader epochs of the segment; `lineage` has those of the partition up to its end, as a
                     checkpoint
    may_have_gaps    the log, or that of a leader it followed, has been compacted
    """

    partition: TopicPartition
    directory: str
    segment: ClosedSegment
    before: Sequence[ClosedSegment]
    epochs: Epochs
    lineage: bytes
    index_interval_bytes: int
    may_have_gaps: bool


class VerifiedSegment(NamedTuple):
    """The bytes to copy and their fingerprint; `rebuilt` names the files that were damaged.

    details  for the catalog, whose rows have more than the metadata of the tier
    """

    data: SegmentData
    rebuilt: tuple[str, ...]
    details: Details


def read_verified(fs: Fs, due: ToCopy) -> VerifiedSegment:
    """Read every byte of the segment; return the bytes to copy.

    Raises DamagedSegment, with the partition, the file and the offset; errors of the disk are passed on.
    """
    segment = due.segment
    found = {suffix: _read_file(fs, segment.stem_path + suffix) for suffix in _INDEXES}
    rebuilt = []
    walk, log_crc, splits = _walk(fs, due, found[layout.OFFSET_INDEX], found[layout.TIME_INDEX])
    if not (walk.offset_index_fits and walk.time_index_fits):
        rebuilt += [layout.OFFSET_INDEX, layout.TIME_INDEX]
        built = _build_indexes(fs, due)
        found[layout.OFFSET_INDEX], found[layout.TIME_INDEX] = built
    if walk.state[Slot.ABORTS] or found[layout.TXN_INDEX]:
        txns = _txn_index(fs, due, found[layout.TXN_INDEX])
        if txns != found[layout.TXN_INDEX]:
            rebuilt.append(layout.TXN_INDEX)
        found[layout.TXN_INDEX] = txns
    snapshot, is_as_on_disk = _producer_snapshot(fs, due)
    if not is_as_on_disk:
        rebuilt.append(layout.PRODUCER_SNAPSHOT)
    small = {
        layout.OFFSET_INDEX: found[layout.OFFSET_INDEX],
        layout.TIME_INDEX: found[layout.TIME_INDEX],
        layout.TXN_INDEX: found[layout.TXN_INDEX],
        layout.PRODUCER_SNAPSHOT: snapshot,
        layout.LEADER_EPOCHS: due.lineage,
    }
    kept = {s: body for s, body in small.items() if body or s != layout.TXN_INDEX}
    sums = [(suffix, ObjectSum(len(body), crc32c(body))) for suffix, body in kept.items()]
    known = Fingerprint(
        may_have_gaps=walk.has_gaps,
        first_crc=walk.state[Slot.FIRST_CRC],
        heads_crc=walk.state[Slot.HEADS_CRC],
        sums=(*sums, (layout.LOG, ObjectSum(segment.size_bytes, log_crc))),
    )
    txn_index = kept.get(layout.TXN_INDEX)
    return VerifiedSegment(
        SegmentData(
            log=_log_source(fs, due, log_crc),
            offset_index=bytes_source(kept[layout.OFFSET_INDEX]),
            time_index=bytes_source(kept[layout.TIME_INDEX]),
            producer_snapshot=bytes_source(snapshot),
            leader_epochs=bytes_source(due.lineage),
            txn_index=None if txn_index is None else bytes_source(txn_index),
            fingerprint=encode_fingerprint(known),
        ),
        tuple(rebuilt),
        Details(walk.min_timestamp_ms, splits),
    )


_INDEXES = (layout.OFFSET_INDEX, layout.TIME_INDEX, layout.TXN_INDEX)


def _read_file(fs: Fs, path: str) -> bytes:
    return read_file(fs, path) or b""


def _walk(
    fs: Fs, due: ToCopy, offsets: bytes, times: bytes
) -> tuple[BatchWalk, int, tuple[Split, ...]]:
    """Walk over every batch; return the walk, the CRC of the file, and the splits.

    The walk stops between two batches at each place where a split may be: pieces end there.
    """
    segment = due.segment
    walk = BatchWalk(
        segment.base_offset, segment.end_offset, due.epochs, offsets=offsets, times=times
    )
    crc, splits, next_split = 0, list[Split](), SPLIT_BYTES
    file = fs.open(segment.stem_path + layout.LOG)
    try:
        while walk.position < segment.size_bytes:
            left = segment.size_bytes - walk.position
            to_split = max(next_split - walk.position, HEADER_BYTES)
            data = file.read(walk.position, min(CHUNK_BYTES, left, to_split))
            if walk.position >= next_split:
                base_offset = parse_header(data).base_offset if len(data) >= HEADER_BYTES else -1
                splits.append(Split(base_offset, walk.position, walk.state[Slot.MAX_TIMESTAMP]))
                next_split = (walk.position // SPLIT_BYTES + 1) * SPLIT_BYTES
            passed = walk.feed(data)
            if not passed and not walk.problem:
                data = file.read(walk.position, min(_size_of_first(data), left))
                passed = walk.feed(data)
            if walk.problem or not passed:
                why = WHY.get(walk.problem, "a batch is cut off")
                raise _damaged(due, why, walk.state[Slot.NEXT_OFFSET], position=walk.position)
            crc = crc32c(memoryview(data)[:passed], crc)
    finally:
        file.close()
    if walk.has_gaps and not due.may_have_gaps:
        raise _damaged(
            due, "records are missing, and the log was never compacted", segment.base_offset
        )
    return walk, crc, tuple(splits)


def _size_of_first(data: Buffer) -> int:
    """Return the size of a batch that is larger than its piece; `data` is its start."""
    return parse_header(data).size_bytes if len(data) >= HEADER_BYTES else len(data)


def _damaged(due: ToCopy, why: str, offset: int, /, **facts: object) -> DamagedSegment:
    return DamagedSegment(
        why,
        partition=f"{due.partition.topic}-{due.partition.partition}",
        path=due.segment.stem_path + layout.LOG,
        offset=offset,
        **facts,
    )


# --------------------------------------------------------------------------- what is made of batches


def _batches(fs: Fs, due: ToCopy, segment: ClosedSegment) -> Iterator[FoundBatch]:
    """Iterate over all batches of a segment."""
    file = fs.open(segment.stem_path + layout.LOG)
    end = 0
    try:
        for found in good_batches(file, segment.base_offset):
            if found.position >= segment.size_bytes:
                break
            end = found.position + found.header.size_bytes
            yield found
    finally:
        file.close()
    if end < segment.size_bytes:
        path = segment.stem_path + layout.LOG
        raise _damaged(due, "an earlier segment is damaged", segment.base_offset, damaged=path)


def _build_indexes(fs: Fs, due: ToCopy) -> tuple[bytes, bytes]:
    """Index the segment again, as the log does."""
    base_offset = due.segment.base_offset
    offsets = OffsetIndex(fs, "", base_offset)
    times = TimeIndex(fs, "", base_offset)
    since, newest, newest_offset = 0, -1, base_offset
    for found in _batches(fs, due, due.segment):
        header = found.header
        if header.max_timestamp > newest:
            newest, newest_offset = header.max_timestamp, header.last_offset
        if since > due.index_interval_bytes:
            offsets.add(header.last_offset, found.position)
            times.maybe_add(newest, newest_offset)
            since = 0
        since += header.size_bytes
    times.maybe_add(newest, newest_offset)
    return offsets.encoded(), times.encoded()


def _txn_index(fs: Fs, due: ToCopy, on_disk: bytes) -> bytes:
    """Index the transactions whose abort markers are in the segment, from its batches.

    If the producers before the segment are unknown, the batches do not show where each transaction began.
    Then the file is used, which must be complete and match the batches.
    """
    producers, is_known = _producers_before(fs, due)
    found: list[AbortedTxn] = []
    for one in _batches(fs, due, due.segment):
        found += _note(producers, one)
    if is_known:
        return transaction_index.encode(found)
    segment = due.segment
    stated = transaction_index.decode_strict(on_disk, segment.base_offset, segment.end_offset)
    lasts = {txn.last_offset for txn in stated or ()}
    if stated is None or not lasts.issuperset(txn.last_offset for txn in found):
        raise _damaged(
            due,
            "its index of aborted transactions is damaged, and the producers before it are not known",
            segment.base_offset,
        )
    return on_disk


def _producer_snapshot(fs: Fs, due: ToCopy) -> tuple[bytes, bool]:
    """Return the producer snapshot at the end of the segment, and whether its file is intact.

    If it is not, the snapshot is rebuilt (T60).
    """
    path = snapshot_path(due.directory, due.segment.end_offset + 1)
    data = read_file(fs, path)
    if data is not None:
        try:
            decode_snapshot(data, path=path)
            return data, True
        except StorageError:
            pass
    producers, _ = _producers_before(fs, due)
    for one in _batches(fs, due, due.segment):
        _note(producers, one)
    return encode_snapshot(producers.entries()), data is None


def _producers_before(fs: Fs, due: ToCopy) -> tuple[ProducerStates, bool]:
    """Return the producer state before the segment, and whether it is complete.

    It is made of the newest intact snapshot and the batches after it; without one, of the local batches.
    """
    base_offset = due.segment.base_offset
    producers = ProducerStates()
    at = (*due.before[:1], due.segment)[0].base_offset
    is_known = at == 0
    for offset in reversed(snapshot_offsets(fs, due.directory)):
        if not at <= offset <= base_offset:
            continue
        path = snapshot_path(due.directory, offset)
        try:
            entries = decode_snapshot(read_file(fs, path) or b"", path=path)
        except StorageError:
            continue
        producers.load(entries, offset)
        at, is_known = offset, True
        break
    later = bisect_left(due.before, at, key=attrgetter("end_offset"))
    for segment in due.before[later:]:
        for one in _batches(fs, due, segment):
            if one.header.base_offset >= at:
                _note(producers, one)
    return producers, is_known


def _note(producers: ProducerStates, one: FoundBatch) -> list[AbortedTxn]:
    header = one.header
    if header.producer_id < 0:
        return []
    if not header.is_control:
        producers.note_batch(header, header.base_offset, header.max_timestamp)
        return []
    marker = read_marker(one.data, header)
    done = None if marker is None else producers.note_marker(header, marker, header.base_offset)
    return [producers.aborted(done)] if done is not None and done.is_aborted else []


# --------------------------------------------------------------------------------------- its bytes


def _log_source(fs: Fs, due: ToCopy, crc: int) -> Source:
    """Return the log's bytes, read again and checked: the verified bytes are those that are copied.

    A store that has the kernel copy the file does not see them; `crc` is in the fingerprint, too.
    """
    open_file = partial(fs.open, due.segment.stem_path + layout.LOG)
    return Source(due.segment.size_bytes, partial(_log_chunks, fs, due, crc), open_file)


def _log_chunks(fs: Fs, due: ToCopy, crc: int) -> Iterator[bytes]:
    size, seen = due.segment.size_bytes, 0
    file = fs.open(due.segment.stem_path + layout.LOG)
    try:
        position = 0
        while position < size:
            chunk = file.read(position, min(CHUNK_BYTES, size - position))
            if not chunk:
                break
            position += len(chunk)
            seen = crc32c(chunk, seen)
            if position == size and seen != crc:
                raise _damaged(due, "the file changed while it was copied", due.segment.base_offset)
            yield chunk
    finally:
        file.close()
