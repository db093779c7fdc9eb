"""Producer state of a partition: last batches, open transactions, and the snapshot file of both. STORE.

The log calls `check` before an append, and `note_batch` or `note_marker` after it. Replaying the batches of a
log through the latter two gives the same state; a snapshot makes the replay shorter. Kept for each producer:
its epoch, its last five batches (a duplicate gets the offsets of the first copy, spec C13), and the first
offset of its open transaction. The last stable offset follows from the open transactions, and from those
whose marker is not below the high watermark yet. Source: KIP-98, KIP-360, KIP-890.

The layout of the file: `formats/producer_snapshot`. Only the functions at the end use `Fs`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from weakref import WeakSet, ref

from firnline.base.counting.aging import NOT_DOUBTED
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.limits import PARTITION_PRODUCERS_MAX
from firnline.base.ports import Buffer, File, Fs
from firnline.base.units import DAY_MS
from firnline.formats import names
from firnline.formats.producer_snapshot import (
    ENTRY,
    SnapshotEntry,
    encode_packed,
    encode_snapshot,
    snapshot_entries,
)
from firnline.formats.transaction_index import AbortedTxn
from firnline.log.checkpoint import read_file
from firnline.records.batch import BatchHeader
from firnline.records.record import records

_new_tuple = tuple.__new__  # takes half the time of the class's own constructor
BATCHES_KEPT = 5
_PRODUCERS_PER_STEP = 500
# The most entries that a snapshot still has to pack, in 1 ms, while the append that rolls the log waits.
_UNPACKED_MAX = 500
_COUNTED_AFTER = 10_000  # new producers between two counts; to count 20,000 partitions takes 3 ms
_LOOKED_AT = 16
SEQUENCE_MASK = 0x7FFFFFFF
ABORT, COMMIT = 0, 1
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")


class BatchMark(NamedTuple):
    """One batch of a producer: sequence and offset of its last record, and the last offset delta."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK


class EndMarker(NamedTuple):
    """The control record that ends a transaction."""

    is_commit: bool
    coordinator_epoch: int


class CompletedTxn(NamedTuple):
    """A transaction that has ended; offsets are inclusive, the last one is that of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Producer:
    """The state of one producer id in this partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_time_ms",
        "packed",
        "producer_epoch",
        "producer_id",
        "txn_first_offset",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = -1
        self.coordinator_epoch = -1
        self.last_time_ms = -1
        self.txn_first_offset = -1
        self.packed = b""  # its encoded snapshot entry; empty after a change
        self.batches: deque[BatchMark] = deque(maxlen=BATCHES_KEPT)

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record in the current epoch, -1 without one."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        """The offset of its last record, -1 without one."""
        return self.batches[-1].last_offset if self.batches else -1

    def entry(self) -> SnapshotEntry:
        """Return its snapshot entry."""
        last = self.batches[-1] if self.batches else BatchMark(-1, -1, 0, -1)
        return SnapshotEntry(
            self.producer_id,
            self.producer_epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.last_time_ms,
            self.coordinator_epoch,
            self.txn_first_offset,
        )

    def pack(self) -> bytes:
        """Encode its snapshot entry and keep it until the next change; return it."""
        self.packed = ENTRY.pack(*self.entry())
        return self.packed


class ProducerTable:
    """Bounds the producers that all partitions of a node remember together: `producers_max`.

    At the bound, each new producer makes the partition with the most producers forget one. Between two counts
    over all partitions the total is an estimate: producers of a deleted log leave it with the next count.

    expiration_ms  opening a log drops producers that were silent for so long
    aging          by which time they were silent
    """

    def __init__(self, producers_max: int, expiration_ms: int = DAY_MS) -> None:
        self.producers_max = producers_max
        self.expiration_ms = expiration_ms
        self.aging = NOT_DOUBTED
        self.forgotten = 0  # how many were dropped before they expired, since the start
        self._partitions: WeakSet[ProducerStates] = WeakSet()
        self._largest: Callable[[], ProducerStates | None] = lambda: None  # at the last count
        self._total = 0
        self._taken = 0  # since the last count

    def add(self, partition: "ProducerStates") -> None:
        """Include a partition in the count for as long as the object lives."""
        self._partitions.add(partition)

    def make_room(self, partition: "ProducerStates") -> None:
        """Count a new producer of `partition`; at the bound drop another one."""
        self._total += 1
        self._taken += 1
        if self._total <= self.producers_max:
            return
        largest = self._largest()
        if largest is None or self._taken >= _COUNTED_AFTER:
            largest = self.count(partition)
            self._total += 1
        if len(largest) <= len(partition):
            largest = partition
        if self._total > self.producers_max and largest.forget_one():
            self._total -= 1

    def left(self, count: int) -> None:
        """A partition has dropped `count` producers."""
        self._total -= count

    def count(self, one: "ProducerStates") -> "ProducerStates":
        """Count all producers; return the partition with the most, `one` where there is no other."""
        self._taken = 0
        self._total = sum(map(len, self._partitions))
        largest = max(self._partitions, key=len, default=one)
        self._largest = ref(largest)
        return largest


class ProducerStates:
    """All producers of one partition; `table` bounds them and those of the node's other partitions.

    Invariants: `_open` holds exactly the producers with a `txn_first_offset`, in ascending order of it;
    all batches below `end_offset` are applied; `_unpacked` holds every producer without a packed entry.
    """

    __slots__ = (
        "__weakref__",
        "_ended",
        "_open",
        "_producers",
        "_unpacked",
        "end_offset",
        "table",
    )

    def __init__(self, table: ProducerTable | None = None) -> None:
        self.table = table
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}  # producer id -> first offset, oldest transaction first
        self._ended: list[CompletedTxn] = []  # the marker is not below the high watermark yet
        self._unpacked: dict[
            int, None
        ] = {}  # in the order of their first change; some may be dropped already
        self.end_offset = 0
        if table is not None:
            table.add(self)

    def __len__(self) -> int:
        return len(self._producers)

    def all(self) -> Iterable[Producer]:
        """Return every producer, ordered by id, for DescribeProducers."""
        return [self._producers[key] for key in sorted(self._producers)]

    def known(self) -> list[Producer]:
        """Return every present producer, in any order, for an iteration in slices."""
        return list(self._producers.values())

    def get(self, producer_id: int) -> Producer | None:
        """Return one producer, or None when this partition does not know it."""
        return self._producers.get(producer_id)

    def check(self, header: BatchHeader, *, is_client: bool) -> BatchMark | KafkaError | None:
        """Validate a data batch before a leader appends it.

        Returns None when it may be appended, the mark of the first copy when it is a duplicate, else
        KafkaError INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE. Sequences are
        checked for clients only. A producer unknown to this partition may begin with any sequence.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        epoch = header.producer_epoch
        if epoch == producer.producer_epoch:
            first, batches = header.base_sequence, producer.batches
            if is_client and not (
                batches and first == (batches[-1].last_sequence + 1) & SEQUENCE_MASK
            ):
                last = header.last_sequence
                for mark in batches:
                    if mark.last_sequence == last and mark.first_sequence == first:
                        return mark
        elif epoch < producer.producer_epoch:
            return KafkaError(
                Code.INVALID_PRODUCER_EPOCH,
                "the producer epoch is older than the last one seen",
                producer_id=header.producer_id,
                epoch=epoch,
                last_epoch=producer.producer_epoch,
            )
        if is_client and not self._is_in_sequence(producer, header):
            return KafkaError(
                Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
                "the batch does not follow the producer's last one",
                producer_id=header.producer_id,
                sequence=header.base_sequence,
                last_sequence=producer.last_sequence,
            )
        if producer.txn_first_offset >= 0 and not header.is_transactional:
            return KafkaError(
                Code.INVALID_TXN_STATE,
                "a batch outside the producer's open transaction",
                producer_id=header.producer_id,
            )
        return None

    @staticmethod
    def _is_in_sequence(producer: Producer, header: BatchHeader) -> bool:
        if producer.producer_epoch < 0:  # no batch of it was seen
            return True
        if header.producer_epoch != producer.producer_epoch:
            return header.base_sequence == 0
        return header.base_sequence == (producer.last_sequence + 1) & SEQUENCE_MASK

    def check_own(self, data: Buffer, header: BatchHeader) -> KafkaError | None:
        """Validate a batch of one of our coordinators: a data batch or a transaction marker."""
        if header.producer_id < 0:
            return None
        if header.is_control:
            marker = read_marker(data, header)
            return None if marker is None else self.check_marker(header, marker)
        verdict = self.check(header, is_client=False)
        assert not isinstance(verdict, BatchMark), "only clients' batches can be duplicates"
        return verdict

    def check_marker(self, header: BatchHeader, marker: EndMarker) -> KafkaError | None:
        """Validate a transaction marker before a leader appends it."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch < producer.producer_epoch:
            return KafkaError(
                Code.INVALID_PRODUCER_EPOCH,
                "the marker's producer epoch is older than the last one seen",
                producer_id=header.producer_id,
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            return KafkaError(
                Code.TRANSACTION_COORDINATOR_FENCED,
                "a marker of an older coordinator",
                coordinator_epoch=marker.coordinator_epoch,
                last_coordinator_epoch=producer.coordinator_epoch,
            )
        return None

    def note_batch(self, header: BatchHeader, base_offset: int, max_time_ms: int) -> None:
        """Apply a data batch with a producer id that was appended at `base_offset`."""
        producer = self._of(header.producer_id, header.producer_epoch)
        delta = header.last_offset_delta
        producer.batches.append(
            _new_tuple(BatchMark, (header.last_sequence, base_offset + delta, delta, max_time_ms))
        )
        producer.last_time_ms = max_time_ms
        if producer.txn_first_offset < 0 and header.is_transactional:
            producer.txn_first_offset = base_offset
            self._open[producer.producer_id] = base_offset

    def note_marker(
        self, header: BatchHeader, marker: EndMarker, marker_offset: int
    ) -> CompletedTxn | None:
        """Apply a transaction marker; return the transaction that it ended, None when none was open.

        The transaction holds the last stable offset back until the high watermark passes its marker.
        """
        producer = self._of(header.producer_id, header.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_time_ms = header.max_timestamp
        if producer.txn_first_offset < 0:
            return None
        done = CompletedTxn(
            producer.producer_id, producer.txn_first_offset, marker_offset, not marker.is_commit
        )
        producer.txn_first_offset = -1
        del self._open[producer.producer_id]
        self._ended.append(done)
        return done

    def aborted(self, done: CompletedTxn) -> AbortedTxn:
        """Return the index entry of a transaction that has just been aborted."""
        stable = min(self._open.values(), default=done.last_offset + 1)
        return AbortedTxn(done.producer_id, done.first_offset, done.last_offset, stable)

    def _of(self, producer_id: int, epoch: int) -> Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            if len(self._producers) >= PARTITION_PRODUCERS_MAX:
                self.forget_one()
                # None could be dropped, now or at an earlier append.
                if len(self._producers) >= PARTITION_PRODUCERS_MAX:
                    self.forget_one()
            elif self.table is not None:
                self.table.make_room(self)
            producer = self._producers[producer_id] = Producer(producer_id)
            self._is_unpacked(producer_id)
        elif producer.packed:
            producer.packed = b""
            self._is_unpacked(producer_id)
        if producer.producer_epoch != epoch:
            producer.producer_epoch = epoch
            producer.batches.clear()
        return producer

    def _is_unpacked(self, producer_id: int) -> None:
        """Note a producer without a packed entry; where there are many, pack the oldest of them."""
        unpacked = self._unpacked
        unpacked[producer_id] = None
        if len(unpacked) > _UNPACKED_MAX:
            first = next(iter(unpacked))
            del unpacked[first]
            producer = self._producers.get(first)
            if producer is not None:
                producer.pack()

    def forget_one(self) -> bool:
        """Drop the least recent of the next _LOOKED_AT producers; each call looks at others, in turn.

        Its next batch is accepted with any sequence, and a duplicate of an earlier one is not detected.
        Returns False where all of them have an open transaction: these stay.
        """
        looked_at = [self._producers[key] for key in islice(self._producers, _LOOKED_AT)]
        idle = [producer for producer in looked_at if producer.txn_first_offset < 0]
        for producer in looked_at:
            self._producers[producer.producer_id] = self._producers.pop(producer.producer_id)
        if not idle:
            return False
        del self._producers[min(idle, key=lambda producer: producer.last_offset).producer_id]
        if self.table is not None:
            self.table.forgotten += 1
        return True

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open, or whose marker is not committed yet."""
        if not self._open and not self._ended:
            return None
        first_open = next(iter(self._open.values()), None)
        first_ended = min((done.first_offset for done in self._ended), default=None)
        if first_open is None or first_ended is None:
            return first_ended if first_open is None else first_open
        return min(first_open, first_ended)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Drop the ended transactions whose marker is below the high watermark."""
        if self._ended:
            self._ended = [done for done in self._ended if done.last_offset >= high_watermark]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Drop producers idle for `expiration_ms` without an open transaction; return how many."""
        gone = [
            key
            for key, producer in self._producers.items()
            if producer.txn_first_offset < 0 and now_ms - producer.last_time_ms >= expiration_ms
        ]
        for key in gone:
            del self._producers[key]
        if gone and self.table is not None:
            self.table.left(len(gone))
        return len(gone)

    def entries(self) -> list[SnapshotEntry]:
        """Return the entries of a snapshot at `end_offset`, by producer id."""
        return [producer.entry() for producer in self.all()]

    def snapshot(self) -> bytes:
        """Return the bytes of a snapshot; only producers that have changed are packed again."""
        rows = [producer.packed or producer.pack() for producer in self.all()]
        self._unpacked.clear()
        return encode_packed(rows)

    def load(self, entries: Iterable[SnapshotEntry], end_offset: int) -> None:
        """Replace the state by a snapshot."""
        for _ in self.load_steps(entries, end_offset):
            pass

    def load_steps(self, entries: Iterable[SnapshotEntry], end_offset: int) -> Iterator[None]:
        """Like `load`; yields after slices of about 2 ms."""
        self.clear(end_offset)
        for count, entry in enumerate(entries, 1):
            if count % _PRODUCERS_PER_STEP == 0:
                yield
            producer = Producer(entry.producer_id)
            producer.producer_epoch = entry.producer_epoch
            producer.coordinator_epoch = entry.coordinator_epoch
            producer.last_time_ms = entry.timestamp_ms
            producer.txn_first_offset = entry.txn_first_offset
            if entry.last_offset >= 0:
                producer.batches.append(
                    BatchMark(
                        entry.last_sequence,
                        entry.last_offset,
                        entry.offset_delta,
                        entry.timestamp_ms,
                    )
                )
            producer.pack()
            if self.table is not None:
                self.table.make_room(self)
            self._producers[entry.producer_id] = producer
        still_open = [p for p in self._producers.values() if p.txn_first_offset >= 0]
        still_open.sort(key=lambda producer: producer.txn_first_offset)
        self._open = {producer.producer_id: producer.txn_first_offset for producer in still_open}

    def clear(self, end_offset: int) -> None:
        """Drop everything; the next batch begins at `end_offset`."""
        self._producers.clear()
        self._open.clear()
        self._ended.clear()
        self._unpacked.clear()
        self.end_offset = end_offset


def read_marker(data: Buffer, header: BatchHeader) -> EndMarker | None:
    """Return the transaction marker of a control batch; None when it holds another control record.

    Also None for the empty control batch that compaction may leave. Raises KafkaError CORRUPT_MESSAGE when
    the record is damaged.
    """
    for record in records(data, header):
        try:
            _, kind = _MARKER_KEY.unpack_from(record.key or b"")
            if kind not in (ABORT, COMMIT):
                return None
            _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
        except StructError:
            raise KafkaError(
                Code.CORRUPT_MESSAGE, "a damaged control record", offset=record.offset
            ) from None
        return EndMarker(kind == COMMIT, coordinator_epoch)
    return None


def snapshot_path(directory: str, offset: int) -> str:
    """Return the path of the snapshot of all batches below `offset`."""
    return f"{directory}/{names.stem(offset)}{names.SNAPSHOT}"


def write_snapshot(fs: Fs, directory: str, offset: int, entries: Iterable[SnapshotEntry]) -> File:
    """Write the snapshot at `offset`; return its file, which the caller syncs and closes."""
    return write_snapshot_file(fs, directory, offset, encode_snapshot(entries))


def write_snapshot_file(fs: Fs, directory: str, offset: int, data: bytes) -> File:
    """Like `write_snapshot`, for the bytes that `ProducerStates.snapshot` returned."""
    file = fs.open(snapshot_path(directory, offset), create=True)
    if file.size():
        file.truncate(0)
    file.append(data)
    return file


def snapshot_offsets(fs: Fs, directory: str) -> list[int]:
    """Return the offsets of all snapshots in the directory, ascending."""
    listed = [name for name in fs.list_dir(directory) if name.endswith(names.SNAPSHOT)]
    return sorted(pair[0] for pair in map(names.parse_segment_file, listed) if pair)


def remove_snapshots_after(fs: Fs, directory: str, offset: int) -> bool:
    """Remove the snapshots above `offset`; True when there were any."""
    gone = [found for found in snapshot_offsets(fs, directory) if found > offset]
    for found in gone:
        fs.remove(snapshot_path(directory, found))
    return bool(gone)


def latest_snapshot(
    fs: Fs, directory: str, offsets: Iterable[int], *, upto_offset: int
) -> tuple[int, Iterator[SnapshotEntry]] | None:
    """Return (offset, entries) of the newest undamaged snapshot at or below `upto_offset`.

    The entries are decoded one at a time. `offsets` are those of the existing snapshots. A damaged snapshot
    is removed and the one before it is used: its state is in the log, too.
    """
    for offset in sorted((each for each in offsets if each <= upto_offset), reverse=True):
        path = snapshot_path(directory, offset)
        try:
            return offset, snapshot_entries(read_file(fs, path) or b"", path=path)
        except StorageError as problem:
            if not problem.has_lost_nothing:  # else the file may be undamaged: keep it
                fs.remove(path)
    return None
