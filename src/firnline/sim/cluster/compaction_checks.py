"""What compaction may remove from a replica, and what it must keep: rel-C10. SIM.

The ledger holds every record that was ever committed. A replica of a compacted partition has fewer: each of
its records was committed at the same offset, and the newest record of each key in its range is there.
"""

from typing import Protocol

from firnline.base.errors import KafkaError
from firnline.base.units import DAY_MS
from firnline.records.batch import BatchHeader, headers
from firnline.records.record import records

# With a longer delete.retention.ms no tombstone may be missing either, whatever the clocks do.
_FOR_EVER_MS = 1000 * DAY_MS


def is_compacted(log: object) -> bool:
    """Whether that is a log of a topic that is compacted now."""
    return "compact" in log.config.cleanup_policy  # type: ignore[attr-defined]


class History(Protocol):
    """What was committed to one partition; `PartitionHistory` in `sim/cluster/ledger.py` is one."""

    end_offset: int

    @property
    def cuts(self) -> int:
        """How often its lineage was cut."""
        ...

    def borders_from(self, offset: int) -> list[int]: ...

    def batch_at(self, offset: int) -> bytes | None: ...


class KeyedHistory:
    """Records that were ever committed to one partition, by offset and by key."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._cuts = 0
        self._upto = 0
        self._rows: dict[int, tuple[bytes | None, bytes | None]] = {}
        self._newest: dict[bytes, int] = {}
        # Keys whose newest record was lost by a truncation: older records that it replaced may be gone too.
        self._lost_from: dict[bytes, int] = {}
        # The offsets in a checked batch: replicas have the same batches, round after round.
        self._sound: dict[bytes, tuple[int, ...]] = {}

    def _catch_up(self) -> None:
        history = self._history
        if history.cuts != self._cuts:
            self._rows.clear()
            self._newest.clear()
            self._sound.clear()
            self._cuts, self._upto = history.cuts, 0
        for base_offset in history.borders_from(self._upto):
            batch = history.batch_at(base_offset)
            if batch is None:
                continue
            header = next(headers(batch))
            if not header.is_control:
                for row in records(batch, header):
                    self._rows[row.offset] = row.key, row.value
                    if row.key is not None:
                        self._newest[row.key] = row.offset
        self._upto = history.end_offset

    def lose(self, offset: int) -> None:
        """Everything from `offset` on is about to be lost, where that is allowed.

        A replica that compacted with these records, and then truncates them, also lacks the records they
        replaced.
        """
        self._catch_up()
        for key, newest in self._newest.items():
            if newest >= offset:
                self._lost_from[key] = max(offset, self._lost_from.get(key, 0))

    def is_so(self, data: bytes) -> str | None:
        """Return a complaint about a record of complete batches that was never committed, or None."""
        self._catch_up()
        before = -1
        for header in headers(data):
            if header.base_offset >= self._upto:
                break
            offsets = self._offsets(data, header)
            if isinstance(offsets, str):
                return offsets
            if offsets and offsets[0] <= before:
                return f"offset {offsets[0]} comes after {before}"
            before = offsets[-1] if offsets else before
        return None

    def _offsets(self, data: bytes, header: BatchHeader) -> tuple[int, ...] | str:
        """Return the offsets of the records in a batch, or a complaint about one that was never committed."""
        if header.is_control:
            return ()
        batch = _batch(data, header)
        known = self._sound.get(batch)
        if known is not None:
            return known
        found: list[int] = []
        try:
            rows = list(records(data, header))
        except KafkaError as problem:
            return f"records at {header.base_offset} that nobody can read: {problem}"
        for row in rows:
            if self._rows.get(row.offset) != (row.key, row.value):
                return f"another record at {row.offset} (epoch {header.leader_epoch})"
            if found and row.offset <= found[-1]:
                return f"offset {row.offset} comes after {found[-1]}"
            found.append(row.offset)
        self._sound[batch] = tuple(found)
        return self._sound[batch]

    def is_left_of(self, batch: bytes, committed: bytes) -> bool:
        """Whether compaction may have turned `committed` into `batch`: the remaining records, in the same
        place.
        """
        ours, original = next(headers(batch)), next(headers(committed))
        is_there = (ours.base_offset, ours.next_offset) == (
            original.base_offset,
            original.next_offset,
        )
        return is_there and ours.leader_epoch == original.leader_epoch and self.is_so(batch) is None

    def differs(
        self, data: bytes, start_offset: int, end_offset: int, delete_retention_ms: int
    ) -> str | None:
        """Compare what a replica has of [`start_offset`, `end_offset`); return what it must not lack."""
        problem = self.is_so(data)
        if problem is not None:
            return problem
        has = {
            offset for each in headers(data) for offset in self._sound.get(_batch(data, each), ())
        }
        for key, offset in self._newest.items():
            may_go = self._rows[offset][1] is None and delete_retention_ms < _FOR_EVER_MS
            may_go |= offset < self._lost_from.get(key, 0)
            if start_offset <= offset < end_offset and offset not in has and not may_go:
                return f"the newest record of {key!r}, {offset}, is not there"
        return None


def _batch(data: bytes, header: BatchHeader) -> bytes:
    return data[header.position : header.position + header.size_bytes]
