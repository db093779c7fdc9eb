"""When a snapshot may be taken, and which old ones are removed. PURE. Source: KIP-630; spec Q33, Q40, Q42,
Q51.

The log start is 0 or the end of a snapshot on this disk. Raising it to the end of the next snapshot removes
the older ones; the last one always stays. Sizes in bytes, times in ms since 1970; a negative limit is none.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import OffsetAndEpoch
from firnline.raft.fetch_rules import Lineage, Valid, validate_fetch
from firnline.raft.settings import QuorumSettings


class StoredSnapshot(NamedTuple):
    """One complete snapshot; `last_contained_ms` is the append time of its last record."""

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


# ------------------------------------------------------------------------------------- creation


def check_creation(
    log: Lineage, snapshot_id: OffsetAndEpoch, *, high_watermark: int
) -> KafkaError | bool:
    """May a snapshot of that id be written? False if it exists or is no longer needed (Q33).

    KafkaError for an id that is no committed place of the log.
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
    if snapshot_id.offset <= 0 or validate_fetch(log, *snapshot_id) != Valid():
        return KafkaError(
            Code.INVALID_REQUEST,
            "a snapshot of a place that is not in the log",
            end_offset=snapshot_id.offset,
            epoch=snapshot_id.epoch,
        )
    # A snapshot older than the newest would only be retired.
    newest = log.newest_snapshot_id
    return newest is None or snapshot_id.offset > newest.offset


# ------------------------------------------------------------------------------------- cleaning


class Lag(NamedTuple):
    """What metadata.start.offset.lag.time.max.ms is compared with (Q51).

    A leader gives the last fetch offset of each other live voter and observer, and no `leader_start_offset`;
    any other node gives the start of its leader's log, from the last Fetch response.
    """

    replica_offsets: Sequence[int] = ()
    leader_start_offset: int | None = None


def next_start_offset(
    log: CleanableLog,
    *,
    settings: QuorumSettings,
    now_ms: int,
    lag: Lag | None = None,
    held_offset: int | None = None,
) -> int | None:
    """Return the next log start, or None to keep the present one. The caller retires to it and asks again.

    Without `lag` each replica cleans by itself (Q40); with it, only Q51 applies. In both cases the log keeps
    everything after `held_offset`, because a replica needs it.
    """
    stored = [StoredSnapshot(*row) for row in log.snapshot_sizes()]
    if lag is None:
        start_offset = _by_retention(stored, log.size_bytes, settings, now_ms)
        if start_offset is None or held_offset is None or start_offset <= held_offset:
            return start_offset
        return None
    if held_offset is not None:
        stored = [one for one in stored if one.snapshot_id.offset <= held_offset]
    if lag.leader_start_offset is None:
        end_offset = _as_leader(stored, lag, settings.start_offset_lag_time_max_ms, now_ms)
    else:
        end_offset = _as_follower(stored, lag.leader_start_offset)
    return end_offset if end_offset > log.start_offset else None


def _by_retention(
    stored: list[StoredSnapshot], log_bytes: int, settings: QuorumSettings, now_ms: int
) -> int | None:
    """By size, then by age: the oldest snapshot is removed, and the log begins at the end of the next one."""
    if len(stored) < 2:
        return None
    oldest, successor = stored[:2]
    total_bytes = log_bytes + sum(one.size_bytes for one in stored)
    max_bytes, max_ms = settings.retention_max_bytes, settings.retention_max_ms
    is_too_large = 0 <= max_bytes < total_bytes
    is_too_old = max_ms >= 0 and now_ms - oldest.last_contained_ms > max_ms
    return successor.snapshot_id.offset if is_too_large or is_too_old else None


def _as_leader(stored: list[StoredSnapshot], lag: Lag, max_lag_ms: int, now_ms: int) -> int:
    """The end of the newest snapshot that each live replica has passed, or that is older than the limit."""
    slowest = min(lag.replica_offsets, default=None)
    for one in reversed(stored):
        end_offset = one.snapshot_id.offset
        is_passed = slowest is None or slowest >= end_offset
        if is_passed or now_ms - one.last_contained_ms > max_lag_ms:
            return end_offset
    return 0


def _as_follower(stored: list[StoredSnapshot], leader_start_offset: int) -> int:
    """The end of the newest local snapshot that is not beyond the leader's log start."""
    ends = [one.snapshot_id.offset for one in stored]
    return max((end for end in ends if end <= leader_start_offset), default=0)
