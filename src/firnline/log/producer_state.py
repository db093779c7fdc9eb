"""What each producer last wrote, which transactions are open, and the snapshot file of it. STORE.

The log asks `check` before an append and tells `note_batch` or `note_marker` after it; replaying the batches
of a log through the same two gives the same state, which a snapshot cuts short. Kept per producer: epoch, the
last five batches (so that a retry is answered with its first offsets, spec C13), the first offset of its open
transaction. The last stable offset follows from the open transactions and from those whose marker is not
below the high watermark yet. Source: KIP-98, KIP-360, KIP-890.

The file is that of `formats/producer_snapshot`. Only the file functions at the end touch `Fs`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from weakref import WeakSet, ref

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
from firnline.log.checkpoint import read_whole
from firnline.records.batch import BatchHeader
from firnline.records.record import records

_new_tuple = tuple.__new__  # half the price of the class's own constructor
BATCHES_KEPT = 5
_PRODUCERS_PER_STEP = 500
# So many entries at most are packed when a snapshot is taken, which the append that rolls waits for: 1 ms.
_UNPACKED_MAX = 500
_COUNTED_AFTER = 10_000  # new producers; a count of 20,000 partitions takes 3 ms
_LOOKED_AT = 16
SEQUENCE_MASK = 0x7FFFFFFF
ABORT, COMMIT = 0, 1
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")


class BatchMark(NamedTuple):
    """One batch a producer wrote: the sequences and offsets of its last record, and its extent."""

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
    """A transaction that has ended; offsets inclusive, the last is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Producer:
    """One producer id, as this partition knows it."""

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
        self.packed = b""  # its entry as it lies in a snapshot; empty since anything was noted
        self.batches: deque[BatchMark] = deque(maxlen=BATCHES_KEPT)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record written in the current epoch, -1 without one."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        """Offset of the last record it wrote here, -1 without one."""
        return self.batches[-1].last_offset if self.batches else -1

    def entry(self) -> SnapshotEntry:
        """Return what a snapshot keeps of it."""
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
        """Pack its entry, until anything is noted; return it."""
        self.packed = ENTRY.pack(*self.entry())
        return self.packed


class ProducerTable:
    """How many producers the partitions of a node remember, all together: `producers_max`.

    At the bound the partition that has most forgets one for each that is new. How many there are is an
    estimate between two counts, which look at every partition: what goes with a log that is dropped makes
    room by the next one.

    expiration_ms  a producer that was silent for so long is not remembered when a log is opened
    """

    def __init__(self, producers_max: int, expiration_ms: int = DAY_MS) -> None:
        self.producers_max = producers_max
        self.expiration_ms = expiration_ms
        self.forgotten = 0  # before their time, since the start
        self._partitions: WeakSet[ProducerStates] = WeakSet()
        self._largest: Callable[[], ProducerStates | None] = lambda: None  # at the last count
        self._total = 0
        self._taken = 0  # since the last count

    def add(self, partition: "ProducerStates") -> None:
        """Count the producers that a partition will have for as long as somebody holds it."""
        self._partitions.add(partition)

    def make_room(self, partition: "ProducerStates") -> None:
        """A partition takes one that it does not know."""
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
        """So many producers of a partition are known no more."""
        self._total -= count

    def count(self, one: "ProducerStates") -> "ProducerStates":
        """Find out how many there are; return the partition that has most, `one` where there is no other."""
        self._taken = 0
        self._total = sum(map(len, self._partitions))
        largest = max(self._partitions, key=len, default=one)
        self._largest = ref(largest)
        return largest


class ProducerStates:
    """All producers of one partition; `table` bounds them and those of the node's other partitions.

    Invariants: `_open` holds exactly the producers with a `txn_first_offset`, in ascending order of it;
    `end_offset` is the end of what has been noted; whose entry is not packed is in `_unpacked`.
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
        self._ended: list[CompletedTxn] = []  # marker not below the high watermark yet
        self._unpacked: dict[
            int, None
        ] = {}  # the one that wrote first is first; some are known no more
        self.end_offset = 0
        if table is not None:
            table.add(self)

    def __len__(self) -> int:
        return len(self._producers)

    def all(self) -> Iterable[Producer]:
        """Return every producer, by id: what DescribeProducers shows."""
        return [self._producers[key] for key in sorted(self._producers)]

    def known(self) -> list[Producer]:
        """Return every producer of now, in any order, for whoever looks at them in slices."""
        return list(self._producers.values())

    def get(self, producer_id: int) -> Producer | None:
        """Return one producer, or None when this partition does not know it."""
        return self._producers.get(producer_id)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """True when that producer has records here in a transaction of this epoch that has not ended."""
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.txn_first_offset >= 0
            and producer.producer_epoch == producer_epoch
        )

    def check(self, header: BatchHeader, *, is_client: bool) -> BatchMark | KafkaError | None:
        """Judge a data batch before it is appended by a leader.

        Returns None when it may be appended, the mark of the first copy when it is a repeat, KafkaError
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE otherwise. Sequences are
        asked of clients only. A producer this partition does not know may begin with any sequence.
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
        if producer.producer_epoch < 0:  # known by a marker's coordinator only
            return True
        if header.producer_epoch != producer.producer_epoch:
            return header.base_sequence == 0
        return header.base_sequence == (producer.last_sequence + 1) & SEQUENCE_MASK

    def check_own(self, data: Buffer, header: BatchHeader) -> KafkaError | None:
        """Judge a batch of a coordinator of ours: its sequence, or the transaction that it ends."""
        if header.producer_id < 0:
            return None
        if header.is_control:
            marker = read_marker(data, header)
            return None if marker is None else self.check_marker(header, marker)
        verdict = self.check(header, is_client=False)
        assert not isinstance(verdict, BatchMark), "repeats are looked for in clients' batches only"
        return verdict

    def check_marker(self, header: BatchHeader, marker: EndMarker) -> KafkaError | None:
        """Judge an end of transaction before it is appended by a leader."""
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
        """Take note of a data batch with a producer id that was appended at `base_offset`."""
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
        """Take note of an end of transaction; return what it ended, None when nothing was open.

        The transaction still holds the last stable offset until the high watermark passes its marker.
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
                # None could be forgotten, now or before.
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
        """Note whose entry is not packed. Where those are many pack one of them, which may change again."""
        unpacked = self._unpacked
        unpacked[producer_id] = None
        if len(unpacked) > _UNPACKED_MAX:
            first = next(iter(unpacked))
            del unpacked[first]
            producer = self._producers.get(first)
            if producer is not None:
                producer.pack()

    def forget_one(self) -> bool:
        """Forget one that wrote longest ago, of those looked at: each time others are, in turn.

        Its next batch is taken, whatever its sequence; a retry of one from before is not seen as such.
        Returns False where all that were looked at have an open transaction: they stay.
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
        """First offset of the oldest transaction that is open, or ended above the high watermark."""
        if not self._open and not self._ended:
            return None
        first_open = next(iter(self._open.values()), None)
        first_ended = min((done.first_offset for done in self._ended), default=None)
        if first_open is None or first_ended is None:
            return first_ended if first_open is None else first_open
        return min(first_open, first_ended)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Let go of the ended transactions whose marker is below it."""
        if self._ended:
            self._ended = [done for done in self._ended if done.last_offset >= high_watermark]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers idle for `expiration_ms` without an open transaction; return how many."""
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
        """Return what a snapshot at `end_offset` holds, by producer id."""
        return [producer.entry() for producer in self.all()]

    def snapshot(self) -> bytes:
        """Return the file of `entries`; those that wrote nothing since the last one are not packed again."""
        rows = [producer.packed or producer.pack() for producer in self.all()]
        self._unpacked.clear()
        return encode_packed(rows)

    def load(self, entries: Iterable[SnapshotEntry], end_offset: int) -> None:
        """Start again from a snapshot."""
        for _ in self.load_steps(entries, end_offset):
            pass

    def load_steps(self, entries: Iterable[SnapshotEntry], end_offset: int) -> Iterator[None]:
        """As `load`; yields after some producers at a time, about 2 ms of the loop."""
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
        """Forget everything; what is noted from now on begins at `end_offset`."""
        self._producers.clear()
        self._open.clear()
        self._ended.clear()
        self._unpacked.clear()
        self.end_offset = end_offset


def read_marker(data: Buffer, header: BatchHeader) -> EndMarker | None:
    """Return the end of transaction in a control batch; None when it holds another control record.

    A control batch without records is what compaction leaves of one: also None. Raises KafkaError
    CORRUPT_MESSAGE when the record is not what the header says.
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
    """Return the path of the snapshot that holds everything below `offset`."""
    return f"{directory}/{names.stem(offset)}{names.SNAPSHOT}"


def write_snapshot(fs: Fs, directory: str, offset: int, entries: Iterable[SnapshotEntry]) -> File:
    """Write the snapshot at `offset` and return its file, to be synced and closed by the caller."""
    return write_snapshot_file(fs, directory, offset, encode_snapshot(entries))


def write_snapshot_file(fs: Fs, directory: str, offset: int, data: bytes) -> File:
    """`write_snapshot` of what `ProducerStates.snapshot` returned."""
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
    """Remove the snapshots of places beyond `offset`; True when there were any."""
    gone = [found for found in snapshot_offsets(fs, directory) if found > offset]
    for found in gone:
        fs.remove(snapshot_path(directory, found))
    return bool(gone)


def read_latest_snapshot(
    fs: Fs, directory: str, *, upto_offset: int
) -> tuple[int, list[SnapshotEntry]] | None:
    """Return (offset, entries) of the newest good snapshot at or below `upto_offset`."""
    offsets = snapshot_offsets(fs, directory)
    latest = latest_snapshot(fs, directory, offsets, upto_offset=upto_offset)
    return None if latest is None else (latest[0], list(latest[1]))


def latest_snapshot(
    fs: Fs, directory: str, offsets: Iterable[int], *, upto_offset: int
) -> tuple[int, Iterator[SnapshotEntry]] | None:
    """As `read_latest_snapshot`, its entries decoded one at a time.

    A damaged one is removed, and the one before it is tried: what it held is in the log. `offsets` are those
    of the snapshots that are there.
    """
    for offset in sorted((each for each in offsets if each <= upto_offset), reverse=True):
        path = snapshot_path(directory, offset)
        try:
            return offset, snapshot_entries(read_whole(fs, path) or b"", path=path)
        except StorageError as problem:
            if not problem.has_lost_nothing:  # it may be sound, and is read another time
                fs.remove(path)
    return None
