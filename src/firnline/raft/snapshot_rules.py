"""When a snapshot may be taken, and which old ones go. PURE. Source: KIP-630; spec Q33, Q40, Q42, Q51.

The log start is 0 or the end of a snapshot that is here: old snapshots go by raising it to the end of the
next one, and the last one always stays. Sizes in bytes, times in ms since 1970; a negative limit is none.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import OffsetAndEpoch
from firnline.raft.fetch_rules import Lineage, Valid, judge_fetch
from firnline.raft.settings import QuorumSettings


class StoredSnapshot(NamedTuple):
    """One complete snapshot; `last_contained_ms` is the append time of the last record in it."""

    snapshot_id: OffsetAndEpoch
    size_bytes: int
    last_contained_ms: int


class CleanableLog(Protocol):
    """What cleaning needs of a log; every `ReplicatedLog` has it."""

    @property
    def start_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def snapshot_sizes(self) -> Sequence[tuple[OffsetAndEpoch, int, int]]: ...

    def retire_snapshots(self, new_start_offset: int, *, now_ms: int) -> Effects: ...


# ------------------------------------------------------------------------------------- creation


def judge_creation(
    log: Lineage, snapshot_id: OffsetAndEpoch, *, high_watermark: int
) -> KafkaError | bool:
    """May a snapshot of that id be written? False: quietly not, it is here or not needed any more (Q33).

    KafkaError for an id that is no committed place of the log: what would be written is not its state.
    """
    if snapshot_id.offset < log.start_offset:
        return False
    if snapshot_id.offset > high_watermark:
        return KafkaError(
            Code.INVALID_REQUEST,
            "a snapshot beyond what is committed",
            end_offset=snapshot_id.offset,
            high_watermark=high_watermark,
        )
    if snapshot_id.offset <= 0 or judge_fetch(log, *snapshot_id) != Valid():
        return KafkaError(
            Code.INVALID_REQUEST,
            "a snapshot of a place that is not in the log",
            end_offset=snapshot_id.offset,
            epoch=snapshot_id.epoch,
        )
    # An older one than the newest would only be retired.
    newest = log.newest_snapshot_id
    return newest is None or snapshot_id.offset > newest.offset


# ------------------------------------------------------------------------------------- cleaning


def clean(log: CleanableLog, settings: QuorumSettings, *, now_ms: int) -> Effects:
    """Retire what each replica retires on its own: first by size, then by age (Q40)."""
    effects: Effects = []
    while (start := next_start_offset(log, settings, now_ms=now_ms)) is not None:
        effects += log.retire_snapshots(start, now_ms=now_ms)
    return effects


def next_start_offset(log: CleanableLog, settings: QuorumSettings, *, now_ms: int) -> int | None:
    """Return the log start that retires the oldest snapshot, or None when it may stay, or is the last."""
    stored = [StoredSnapshot(*row) for row in log.snapshot_sizes()]
    if len(stored) < 2:
        return None
    oldest, successor = stored[:2]
    total_bytes = log.size_bytes + sum(one.size_bytes for one in stored)
    max_bytes, max_ms = settings.retention_max_bytes, settings.retention_max_ms
    is_too_large = 0 <= max_bytes < total_bytes
    is_too_old = max_ms >= 0 and now_ms - oldest.last_contained_ms > max_ms
    return successor.snapshot_id.offset if is_too_large or is_too_old else None


# ------------------------------------------------------------------------------------- the lag option


def leader_start_offset(
    log: CleanableLog, fetched_offsets: Iterable[int], *, max_lag_ms: int, now_ms: int
) -> int | None:
    """Return where the leader's log may begin under metadata.start.offset.lag.time.max.ms; None: as it is.

    `fetched_offsets` are the places that each live voter and observer last fetched from: the end of the
    newest snapshot that all of them passed, or that is older than the bound (Q51).
    """
    slowest = min(fetched_offsets, default=None)
    for one in reversed([StoredSnapshot(*row) for row in log.snapshot_sizes()]):
        end_offset = one.snapshot_id.offset
        if end_offset <= log.start_offset:
            return None
        is_passed = slowest is None or slowest >= end_offset
        if is_passed or now_ms - one.last_contained_ms > max_lag_ms:
            return end_offset
    return None


def follower_start_offset(log: CleanableLog, leader_start_offset: int) -> int | None:
    """Return where a follower's log may begin, its leader's beginning there; None: as it is (Q51).

    That is the end of its own newest snapshot that does not go further than the leader's log start.
    """
    ends = [StoredSnapshot(*row).snapshot_id.offset for row in log.snapshot_sizes()]
    end_offset = max((end for end in ends if end <= leader_start_offset), default=0)
    return end_offset if end_offset > log.start_offset else None
