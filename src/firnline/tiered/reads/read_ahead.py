"""Reads ahead of consumers that read a segment in sequence: one request has what the next Fetches want. PURE.

Each request to a distant store takes some ten milliseconds, whatever its size. A Fetch that begins where an
earlier one of the partition ended is one of a sequence: then the next range is read before it is asked for,
twice as many bytes as were read in sequence, at most RANGE_BYTES. It is cut into pieces of the size of a
Fetch. The next range is begun once less than RANGES_AHEAD are left; behind the end of a segment that is the
start of the next one. The bytes are checked by `read_pieces`, as those of any read.

All pieces of the node share a budget, `firnline.remote.read.ahead.max.bytes`. What was asked for may be
wanted by other consumers of the partition: it stays until its room is needed. What was not asked for yet
gives way to nobody, so where the budget is full nothing is read ahead, and is dropped after KEPT_MS.

Reads that a Fetch waits for come first: these ranges have threads of their own, and none is begun while as
many reads as there are threads are in progress, while the store fails, or above the quota. One that fails is
forgotten, and the read of the Fetch reports what is wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import FirnlineError, KafkaError, WorkTimedOut
from firnline.base.ids import NO_OFFSET, TopicIdPartition
from firnline.base.units import KIB, MIB, SECOND_MS
from firnline.tiered.hosted import Hosted, Services
from firnline.tiered.lineage import shared_end
from firnline.tiered.objects.batches import SLACK_BYTES, Batches, read_pieces
from firnline.tiered.reads.index_cache import IndexCache
from firnline.tiered.reads.indexes import SegmentIndexes
from firnline.tiered.reads.read_ends import ReadEnds
from firnline.tiered.reads.shared_reads import RangeKey, SharedReads, within
from firnline.tiered.settings import store_timeout_ms
from firnline.tiered.spi import RemoteSegment, SegmentState

RANGE_BYTES = 4 * MIB
# So many ranges are there before a Fetch asks for them, and one is being read; and so many ranges before the
# end of a segment the indexes of the next one are loaded.
RANGES_AHEAD = 2
INDEXES_AHEAD = 4
# Of a Fetch with a lower limit a piece holds several: otherwise each batch would be one.
PIECE_BYTES_MIN = 64 * KIB
KEPT_MS = 30 * SECOND_MS
# A consumer that takes longer between two Fetches than this does not wait for the store most of the time.
SEQUENCE_MS = 10 * SECOND_MS
_TIMER = ("tier", "read ahead")

# The batches; None: they have to be read now, because reading ahead failed; the error of a store that hangs.
AheadCallback = Callable[[Batches | FirnlineError | None, int], Effects]


class _Piece(NamedTuple):
    """What one Fetch gets."""

    where: TopicIdPartition
    until_ms: int
    batches: Batches


@dataclass(slots=True, eq=False)
class _Sequence:
    """Reads of a partition, each from the end of the one before. It is forgotten in time.

    next_offset     where the next Fetch begins
    size_bytes      of all reads
    refused_offset  the range there could not be read ahead, or kept: that is left to the Fetch
    """

    next_offset: int = 0
    refused_offset: int = NO_OFFSET
    size_bytes: int = 0
    until_ms: int = 0


@dataclass(slots=True, eq=False)
class _Range:
    """A range that is being read.

    held_bytes  of the budget: the range while it is checked, and its pieces
    waiting     the Fetches that have come for its first piece, and the limit of each
    """

    hosted: Hosted
    sequence: _Sequence
    segment: RemoteSegment
    key: RangeKey
    piece_bytes: int
    pieces: int
    held_bytes: int
    began_ms: int
    waiting: dict[AheadCallback, int] = field(default_factory=dict)


class ReadAhead:
    """The ranges of a node that are read ahead, and what was read. `is_distant`: whether the store is."""

    def __init__(
        self,
        services: Services,
        indexes: IndexCache,
        shared: SharedReads,
        ends: ReadEnds,
        *,
        is_distant: bool,
    ) -> None:
        self._services = services
        self._indexes = indexes
        self._shared = shared
        self._ends = ends
        self._is_distant = is_distant
        # Where the next Fetch of each sequence begins; the one that ended its last read first comes first.
        self._sequences: dict[tuple[TopicIdPartition, int], _Sequence] = {}
        self._reading: dict[RangeKey, _Range] = {}
        self._pieces: dict[RangeKey, _Piece] = {}  # oldest first
        self._of: dict[TopicIdPartition, dict[RangeKey, None]] = {}  # the pieces of each partition
        self._served: dict[RangeKey, int] = {}  # bytes of those asked for, least recently first
        self._served_bytes = 0
        self.held_bytes = 0  # by pieces, and by ranges that are being read

    # ------------------------------------------------------------------------------- what a Fetch gets

    def take(self, topic: str, key: RangeKey, max_bytes: int) -> Batches | None:
        """Return about `max_bytes` of batches from the start of the range on, if they were read ahead."""
        piece = self._pieces.get(key)
        if piece is None:
            return None
        found = within(piece.batches, max_bytes)
        self._services.counters.add(topic, "read_ahead_hits")
        self._services.counters.add(topic, "read_ahead_hit_bytes", len(found.data))
        taken_bytes, rest = len(found.data), piece.batches.data[len(found.data) :]
        if rest:
            self._pieces[key] = piece._replace(batches=found)
            self.held_bytes -= len(rest)
            after = key._replace(offset=found.end_offset)
            self._keep(after, piece._replace(batches=piece.batches._replace(data=rest)))
        self._served_bytes += taken_bytes - self._served.pop(key, 0)
        self._served[key] = taken_bytes
        return found

    def join(self, key: RangeKey, then: AheadCallback, max_bytes: int) -> bool:
        """Call back with the range if it is being read now. False: it is not."""
        reading = self._reading.get(key)
        if reading is None:
            return False
        reading.waiting[then] = max_bytes
        return True

    def leave(self, key: RangeKey, then: AheadCallback) -> None:
        """The caller with this callback does not wait any more."""
        reading = self._reading.get(key)
        if reading is not None:
            reading.waiting.pop(then, None)

    # ------------------------------------------------------------------------------- what is read ahead

    def answered(
        self,
        hosted: Hosted,
        offset: int,
        batches: Batches,
        max_bytes: int,
        now_ms: int,
    ) -> Effects:
        """A Fetch at `offset` gets these batches: read ahead if that goes on with an earlier one."""
        if not self._budget_bytes:
            return []
        data, end_offset, _ = batches
        self._forget_sequences(now_ms)
        before = self._sequences.pop((hosted.where, offset), None)
        sequence = _Sequence() if before is None else before
        sequence.size_bytes += len(data)
        sequence.next_offset = end_offset
        sequence.until_ms = now_ms + SEQUENCE_MS
        place = hosted.where, end_offset
        other = self._sequences.pop(place, None)  # of another consumer, which is as far now
        sequence.size_bytes = max(sequence.size_bytes, other.size_bytes if other else 0)
        self._sequences[place] = sequence
        if before is None:
            return []
        # No less than this Fetch: smaller ranges would be more requests than without reading ahead.
        range_bytes = max(min(2 * sequence.size_bytes, RANGE_BYTES), len(data), PIECE_BYTES_MIN)
        piece_bytes = min(max(max_bytes, PIECE_BYTES_MIN), range_bytes)
        return self._read_on(hosted, sequence, piece_bytes, range_bytes // piece_bytes, now_ms)

    @property
    def _budget_bytes(self) -> int:
        return self._services.settings.read_ahead_bytes if self._is_distant else 0

    def _may_begin(self, now_ms: int) -> bool:
        """Whether the store has time for what nobody waits for."""
        services = self._services
        threads = services.settings.reader_threads
        return (
            len(self._reading) < threads
            and self._shared.in_progress < threads
            and not services.circuits.is_open("read")
            and not services.fetch_rate.throttle_ms(now_ms)
        )

    def _read_on(
        self, hosted: Hosted, sequence: _Sequence, piece_bytes: int, pieces: int, now_ms: int
    ) -> Effects:
        """Begin the first range of what follows that is not here, unless enough is here."""
        if not self._may_begin(now_ms):
            return []
        wanted_bytes = pieces * piece_bytes
        place = self._first_missing(hosted, sequence.next_offset, RANGES_AHEAD * wanted_bytes)
        if place is None or place[1] in self._reading or self._shared.has(place[1]):
            return []
        segment, key = place
        if key.offset == sequence.refused_offset:
            return []
        # Both what is fetched and the pieces that are cut from it are in memory for a moment.
        room_bytes = self._budget_bytes - self.held_bytes + self._served_bytes
        pieces = min(pieces, (room_bytes - SLACK_BYTES) // (2 * piece_bytes))
        held_bytes = 2 * pieces * piece_bytes + SLACK_BYTES
        if pieces < 1 or not self._make_room(held_bytes):
            return []
        reading = _Range(hosted, sequence, segment, key, piece_bytes, pieces, held_bytes, now_ms)
        self._reading[key] = reading
        self.held_bytes += held_bytes
        return self._indexes.load(segment, partial(self._indexed, reading), now_ms)

    def _first_missing(
        self, hosted: Hosted, offset: int, wanted_bytes: int
    ) -> tuple[RemoteSegment, RangeKey] | None:
        """Return the first range from `offset` on that is not here; None: none, or enough is here."""
        ahead_bytes = 0
        place = self.place(hosted, offset)
        while place is not None:
            segment, key = place
            piece = self._pieces.get(key)
            if piece is None:
                return place
            data, offset, _ = piece.batches
            ahead_bytes += len(data)
            if ahead_bytes >= wanted_bytes:
                return None
            if not data:
                offset = key.upto_offset  # nothing of the segment is left
            is_inside = offset < key.upto_offset
            place = (
                (segment, key._replace(offset=offset)) if is_inside else self.place(hosted, offset)
            )
        return None

    def place(self, hosted: Hosted, offset: int) -> tuple[RemoteSegment, RangeKey] | None:
        """Return the segment with an offset that only the tier has, and its range; None: there is none."""
        log = hosted.log
        if hosted.is_over or offset >= log.local_log_start_offset:
            return None
        epoch = log.epochs.epoch_at(offset)
        if epoch is None:
            return None
        segment = self._services.metadata.lookup(hosted.where, epoch=epoch, offset=offset)
        if segment is None or isinstance(segment, KafkaError):
            return None
        upto_offset = shared_end(segment, log.epochs.entries(), offset)
        if upto_offset <= offset:
            return None
        return segment, RangeKey(segment.segment_id, offset, upto_offset)

    def _indexed(
        self, reading: _Range, result: SegmentIndexes | FirnlineError, now_ms: int
    ) -> Effects:
        if isinstance(result, FirnlineError):
            return self._came(reading, result, now_ms)
        services, segment, key = self._services, reading.segment, reading.key
        wanted_bytes = reading.pieces * reading.piece_bytes
        start = self._ends.start_for(key.segment_id, key.offset, result)
        effects = services.circuits.submit(
            "read",
            now_ms,
            name=f"read ahead at {key.offset}",
            pool="ahead",
            work=partial(
                read_pieces,
                services.storage,
                segment,
                start=start,
                offset=key.offset,
                upto_offset=key.upto_offset,
                piece_bytes=reading.piece_bytes,
                pieces=reading.pieces,
            ),
            then=partial(self._came, reading),
            run_timeout_ms=store_timeout_ms(wanted_bytes),
        )
        if segment.size_bytes - start.position <= INDEXES_AHEAD * wanted_bytes:
            # The next segment comes soon, and its indexes are several requests, one after the other.
            after = self.place(reading.hosted, key.upto_offset)
            if after is not None:
                effects += self._indexes.load(after[0], _ignore, now_ms)
        return effects

    def _came(self, reading: _Range, result: list[Batches] | Exception, now_ms: int) -> Effects:
        key, services, topic = reading.key, self._services, reading.segment.topic
        del self._reading[key]
        self.held_bytes -= reading.held_bytes
        if isinstance(result, Exception):
            services.counters.add(topic, "read_ahead_errors")
            reading.sequence.refused_offset = key.offset
            # A Fetch has waited for a store that hangs; another read of it would hang as long again.
            found = result if isinstance(result, WorkTimedOut) else None
            return [e for then in reading.waiting for e in then(found, now_ms)]
        size_bytes = sum(len(each.data) for each in result)
        services.counters.add(topic, "fetch_bytes", size_bytes)
        services.counters.add(topic, "read_ahead_bytes", size_bytes)
        services.fetch_times.note(now_ms - reading.began_ms, now_ms)
        services.fetch_rate.note(size_bytes, now_ms)
        was_empty = not self._pieces
        if self.place(reading.hosted, key.offset) == (reading.segment, key):
            self._keep_all(reading, result, now_ms)
        effects: Effects = []
        if was_empty and self._pieces:
            effects.append(self._timer(now_ms + KEPT_MS))
        for then, max_bytes in reading.waiting.items():
            batches = self.take(topic, key, max_bytes)
            effects += then(within(result[0], max_bytes) if batches is None else batches, now_ms)
        self._forget_sequences(now_ms)
        place = reading.hosted.where, reading.sequence.next_offset
        if self._sequences.get(place) is reading.sequence:
            again = self._read_on(
                reading.hosted, reading.sequence, reading.piece_bytes, reading.pieces, now_ms
            )
            effects += again
        return effects

    def _keep_all(self, reading: _Range, found: list[Batches], now_ms: int) -> None:
        key = reading.key
        for batches in found:
            # A batch may be larger than the range that was to be read.
            if not self._make_room(len(batches.data)):
                reading.sequence.refused_offset = key.offset
                return
            self._keep(key, _Piece(reading.hosted.where, now_ms + KEPT_MS, batches))
            self._ends.note(key.segment_id, batches)
            key = key._replace(offset=batches.end_offset)

    # ------------------------------------------------------------------------------- memory

    def _make_room(self, size_bytes: int) -> bool:
        """Drop what was asked for, until so much more is within the budget. False: it is too little."""
        while self.held_bytes + size_bytes > self._budget_bytes and self._served:
            self._drop(next(iter(self._served)))
        return self.held_bytes + size_bytes <= self._budget_bytes

    def _keep(self, key: RangeKey, piece: _Piece) -> None:
        self._drop(key)
        self._pieces[key] = piece
        self._of.setdefault(piece.where, {})[key] = None
        self.held_bytes += len(piece.batches.data)

    def _drop(self, key: RangeKey) -> None:
        piece = self._pieces.pop(key, None)
        if piece is None:
            return
        self.held_bytes -= len(piece.batches.data)
        self._served_bytes -= self._served.pop(key, 0)
        of_partition = self._of[piece.where]
        del of_partition[key]
        if not of_partition:
            del self._of[piece.where]

    def forget(self, where: TopicIdPartition) -> None:
        """This node does not serve the partition any more, or in another role: drop what was read ahead."""
        for key in list(self._of.get(where, ())):
            self._drop(key)

    def metadata_changed(self, hosted: Hosted) -> None:
        """Segments of the partition may be deleted: drop what was read ahead of them."""
        keys = list(self._of.get(hosted.where, ()))
        metadata = self._services.metadata
        for segment_id in dict.fromkeys(key.segment_id for key in keys):
            segment = metadata.get(hosted.where, segment_id)
            if segment is None or segment.state != SegmentState.COPY_FINISHED:
                for key in keys:
                    if key.segment_id == segment_id:
                        self._drop(key)

    def shrink(self) -> None:
        """The budget may be smaller now: drop the oldest pieces above it."""
        while self._pieces and not self._make_room(0):
            self._drop(next(iter(self._pieces)))

    def _timer(self, at_ms: int) -> SetTimer:
        return SetTimer(key=_TIMER, at_ms=at_ms, then=self._forget_old)

    def _forget_old(self, now_ms: int) -> Effects:
        for key, piece in list(self._pieces.items()):
            if piece.until_ms > now_ms:
                return [self._timer(piece.until_ms)]
            self._drop(key)
        return []

    def _forget_sequences(self, now_ms: int) -> None:
        while self._sequences:
            place, sequence = next(iter(self._sequences.items()))
            if sequence.until_ms > now_ms:
                return
            del self._sequences[place]


def _ignore(_result: SegmentIndexes | FirnlineError, _now_ms: int) -> Effects:
    return []
