"""The disk of a replica in memory: its log, its snapshots and its vote."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.raft.election_state import ElectionState
from firnline.raft.fetch_rules import end_offset_for
from firnline.raft.ports import SnapshotPart
from firnline.records.batch import BatchHeader, headers, set_offset_and_epoch
from firnline.records.record import records
from tests.worlds.quorum import SnapshotBytes

START_MS = 1_000_000


class Part:
    """A snapshot on its way here."""

    def __init__(self, log: "Disk", snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot_id = snapshot_id
        self.data = bytearray()
        self.is_discarded = False
        self._log = log

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def append(self, data: bytes) -> KafkaError | None:
        self.data += data
        return None

    def problem(self) -> KafkaError | None:
        if self.data.endswith(b"!"):
            return None
        return KafkaError(Code.CORRUPT_MESSAGE, "no footer")

    def files(self) -> Sequence[Any]:
        return ()

    def discard(self) -> None:
        self.is_discarded = True


@lru_cache(maxsize=100_000)
def _header(batch: bytes) -> BatchHeader:
    return next(headers(batch))


class Disk:
    """Log, snapshots and vote of one node. `lose_power` forgets what was not synced.

    `holds_cuts`: the loop has forgotten what is cut, and the disk has not, until `end_cut`.
    `holds_saves`: the disk has not the vote that it was given, until `end_save`.
    """

    lost_beginning = False

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.start_offset = 0
        self.synced_offset = 0
        self.high_watermark = 0
        self.saved: list[ElectionState] = []
        self.snapshots: dict[OffsetAndEpoch, tuple[bytes, int]] = {}
        self.parts: list[Part] = []
        self.forgot: OffsetAndEpoch | None = None
        self.holds_cuts = self.holds_saves = False
        self._saving: tuple[ElectionState, Any] | None = None
        self._uncut: list[bytes] | None = None
        self._when_cut: Callable[[StorageError | None, int], Effects] | None = None

    # ---- what the quorum sees

    @property
    def end_offset(self) -> int:
        if self.batches:
            return _header(self.batches[-1]).next_offset
        return self.start_offset

    @property
    def last_epoch(self) -> int:
        return self.end_offset_for(2**31 - 1).epoch

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        epochs: list[tuple[int, int]] = []
        for header in map(_header, self.batches):
            if not epochs or epochs[-1][0] != header.leader_epoch:
                epochs.append((header.leader_epoch, header.base_offset))
        return end_offset_for(
            epoch,
            epochs=epochs,
            end_offset=self.end_offset,
            newest_snapshot_id=self.newest_snapshot_id,
            earliest_snapshot_id=self.earliest_snapshot_id,
        )

    def append(self, batch: bytearray, *, epoch: int, now_ms: int) -> int:
        assert self._when_cut is None, "files are being cut"
        offset = self.end_offset
        set_offset_and_epoch(batch, 0, offset, epoch)
        self.batches.append(bytes(batch))
        return offset

    def append_fetched(self, data: bytes, *, now_ms: int) -> KafkaError | None:
        assert self._when_cut is None, "files are being cut"
        if b"corrupt" in data:
            return KafkaError(Code.CORRUPT_MESSAGE, "damaged")
        for header in headers(data):
            assert header.base_offset == self.end_offset, "an answer to another question"
            self.batches.append(bytes(data[header.position : header.position + header.size_bytes]))
        return None

    def read(self, start_offset: int, *, max_bytes: int) -> bytes:
        found, size = [], 0
        for batch in self.batches:
            if _header(batch).last_offset >= start_offset:
                size += len(batch)
                if found and size > max_bytes:
                    break
                found.append(batch)
        return b"".join(found)

    def truncate_to(
        self, offset: int, then: Callable[[StorageError | None, int], Effects], now_ms: int
    ) -> Effects:
        assert offset >= self.high_watermark, "what is committed was cut"
        uncut = [b for b in self.batches if _header(b).next_offset <= self.synced_offset]
        self.batches = [b for b in self.batches if _header(b).next_offset <= offset]
        assert self.end_offset == offset, "cut inside a batch"
        self.synced_offset = min(self.synced_offset, offset)
        return self._cut(uncut, then, now_ms)

    def _cut(
        self,
        uncut: list[bytes],
        then: Callable[[StorageError | None, int], Effects],
        now_ms: int,
    ) -> Effects:
        if not self.holds_cuts:
            return then(None, now_ms)
        self._uncut, self._when_cut = uncut, then
        return []

    def end_cut(self, now_ms: int, problem: StorageError | None = None) -> Effects:
        """The disk has done what it was asked for."""
        then, self._when_cut, self._uncut = self._when_cut, None, None
        assert then is not None, "nothing is being cut"
        return then(problem, now_ms)

    def unsynced(self) -> Sequence[Any]:
        return ()

    def synced(self, end_offset: int) -> None:
        assert end_offset <= self.end_offset, "more was synced than there is"
        self.synced_offset = max(self.synced_offset, end_offset)

    def advance_high_watermark(self, offset: int) -> None:
        assert self.high_watermark <= offset <= self.end_offset
        self.high_watermark = offset

    @property
    def forgotten(self) -> OffsetAndEpoch | None:
        """Until the log, synced, is as long again as it was."""
        place = self.forgot
        is_synced = self.synced_offset >= self.end_offset
        if place and is_synced and (self.last_epoch, self.end_offset) >= (place[1], place[0]):
            self.forgot = place = None
        return place

    @property
    def newest_snapshot_id(self) -> OffsetAndEpoch | None:
        return max(self.snapshots, default=None, key=lambda one: (one.epoch, one.offset))

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        return min(self.snapshots, default=None, key=lambda one: (one.epoch, one.offset))

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotBytes | None:
        found = self.snapshots.get(snapshot_id)
        return None if found is None else SnapshotBytes(found[0])

    def start_part(self, snapshot_id: OffsetAndEpoch) -> Part:
        self.parts.append(Part(self, snapshot_id))
        return self.parts[-1]

    def install(
        self,
        part: SnapshotPart,
        begun: Callable[[int], Effects],
        then: Callable[[StorageError | None, int], Effects],
        now_ms: int,
    ) -> Effects:
        assert isinstance(part, Part)
        assert not part.is_discarded
        offset = part.snapshot_id.offset
        self.snapshots = {part.snapshot_id: (bytes(part.data), now_ms)}
        self.batches = []
        self.start_offset = self.synced_offset = self.high_watermark = offset
        return begun(now_ms) + self._cut([], then, now_ms)

    def retire_snapshots(self, new_start_offset: int, *, now_ms: int) -> Effects:
        assert new_start_offset in {one.offset for one in self.snapshots}
        self.start_offset = new_start_offset
        self.snapshots = {k: v for k, v in self.snapshots.items() if k.offset >= new_start_offset}
        self.batches = [b for b in self.batches if _header(b).next_offset > new_start_offset]
        return []

    def snapshot_sizes(self) -> Sequence[tuple[OffsetAndEpoch, int, int]]:
        return sorted((one, len(data), at_ms) for one, (data, at_ms) in self.snapshots.items())

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.batches))

    # ---- the vote

    def load(self) -> ElectionState | None:
        return self.saved[-1] if self.saved else None

    def save(self, state: ElectionState, then: Any = None, now_ms: int = 0) -> Effects:
        """Without `then`: what a test finds there at a start."""
        if self.holds_saves:
            assert self._saving is None, "one at a time"
            self._saving = (state, then)
            return []
        self.saved.append(state)
        return [] if then is None else then(None, now_ms)

    def end_save(self, now_ms: int, problem: StorageError | None = None) -> Effects:
        """The disk has the vote, or failed."""
        assert self._saving is not None
        (state, then), self._saving = self._saving, None
        if problem is None:
            self.saved.append(state)
        return then(problem, now_ms)

    # ---- what a test does to it

    def take_snapshot(
        self, offset: int, *, data: bytes = b"snapshot!", at_ms: int = START_MS
    ) -> None:
        """Complete, of what lies below `offset`, which ends a batch."""
        (epoch,) = [
            h.leader_epoch for h in map(next, map(headers, self.batches)) if h.next_offset == offset
        ]
        self.snapshots[OffsetAndEpoch(offset, epoch)] = (data, at_ms)

    @property
    def is_saving(self) -> bool:
        return self._saving is not None

    def forget_save(self) -> None:
        """Who asked for it is gone."""
        self._saving = None

    def lose_power(self) -> None:
        if self._uncut:
            self.batches = self._uncut  # none of it is gone for good
            self.synced_offset = _header(self.batches[-1]).next_offset
        self._uncut = self._when_cut = None
        self.batches = [b for b in self.batches if _header(b).next_offset <= self.synced_offset]
        self.parts = []
        newest = self.newest_snapshot_id
        if newest is not None and newest.offset > self.end_offset:
            # The repair of Q44: a snapshot is complete, and outlives a log that was not synced.
            self.batches = []
            self.start_offset = self.synced_offset = newest.offset
            self.snapshots = {newest: self.snapshots[newest]}

    def values(self) -> list[tuple[int, int, bytes]]:
        """Offset, epoch and value of every record; control records have the value b'control'."""
        found = []
        for batch in self.batches:
            (header,) = headers(batch)
            for row in records(batch, header):
                value = b"control" if header.is_control else bytes(row.value or b"")
                found.append((row.offset, header.leader_epoch, value))
        return found
