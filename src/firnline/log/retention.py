"""Retention: which segments a log deletes, by log start offset, size and age. PURE.

Segments are deleted strictly oldest first, up to the first that has to stay.
- On a topic without a remote tier, retention.ms and retention.bytes apply, and the log start offset moves.
- On a tiered topic, local.retention.* apply, or retention.* while copying is disabled. Only segments that the
  remote tier has, or that are below the log start offset, are deleted; the log start offset stays, because
  the older records are in the tier (spec T13, T14, T16).
- An active segment beyond the limits is rolled first, so that it can be copied and deleted: an idle topic
  drains completely (T15).
- While a lease runs (`leases`), nothing expires that is nowhere else.
- A local segment must be strictly older than the limit, a remote one at least as old (T12).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from firnline.base.effects import Effects, SetTimer, Submit
from firnline.base.errors import StorageError
from firnline.base.ids import (
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
)
from firnline.base.ports import Fs
from firnline.config.topic import TopicConfig, is_leased
from firnline.log.epochs import LeaderEpochs

_FROM_TOTAL = -2
# The most that one step deletes, in about 3 ms: each segment has up to five files to rename, and each rename
# may wait for the journal of the file system.
SEGMENTS_AT_ONCE = 32
NAMES_AT_ONCE = 128


class SegmentAge(NamedTuple):
    """One segment as retention sees it. `end_offset` is exclusive; times in ms since 1970.

    Its timestamp may have to be read from a file, so it is read only where it matters.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_time_ms: Callable[[], int]


class LogView(NamedTuple):
    """One log as retention sees it; `segments` oldest first, the last one active.

    The total size takes a pass over all segments, so it is computed only where it matters. The local log
    start offset is that of `removable_below`.
    """

    segments: Sequence[SegmentAge]
    log_start_offset: int
    local_log_start_offset: int
    high_watermark: int
    highest_remote_offset: int
    is_tiered: bool  # the topic has remote storage enabled (T4)
    size_bytes: Callable[[], int]  # of all segments


class Decision(NamedTuple):
    """How many of the oldest segments to delete, why, and whether to roll the active one first."""

    segments: int = 0
    reason: str = ""
    roll_active: bool = False


class Overdue(NamedTuple):
    """The oldest local segment of a tiered log exceeds the local limits. `is_copied`: the tier has it."""

    base_offset: int
    is_copied: bool
    local_bytes: int  # of the whole local log


def is_tiered(topic: str, config: TopicConfig) -> bool:
    """Whether a topic is tiered (T4): remote storage is enabled, and it is neither compacted nor internal.

    True even on a broker whose remote tier is disabled: its local files are not the whole log.
    """
    return (
        config.remote_storage_enable
        and "compact" not in config.cleanup_policy
        and topic not in INTERNAL_TOPICS
        and topic not in (METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC)
    )


def local_retention(config: TopicConfig, *, is_copied: bool) -> tuple[int, int]:
    """Return the limits (ms, bytes) of the local files; -1 is no limit (T13)."""
    if not is_copied:
        return config.retention_ms, config.retention_bytes
    ms, size = config.local_retention_ms, config.local_retention_bytes
    return (
        config.retention_ms if ms == _FROM_TOTAL else ms,
        config.retention_bytes if size == _FROM_TOTAL else size,
    )


class _Local(Protocol):
    """What `removable_below` asks of a log."""

    @property
    def is_tiered(self) -> bool: ...

    local_log_start_offset: int
    highest_remote_offset: int
    epochs: LeaderEpochs


def removable_below(log: _Local) -> int:
    """Return the offset below which local files may go because of the log start offset.

    A crash may take that back. Then the leader epochs on disk tell a tiered log from where on anybody has its
    records; those that the tier never had are kept until they do.
    """
    start, copied = log.local_log_start_offset, log.highest_remote_offset + 1
    if not log.is_tiered or start <= copied:
        return start
    return min(start, max(copied, log.epochs.kept_start_offset))


def decide(view: LogView, config: TopicConfig, now_ms: int) -> Decision:
    """Apply the rules in order: log start offset; then, with cleanup.policy `delete`, size and age.

    Returns the first decision that deletes segments or rolls the active one, limited to one step. The caller
    applies it and calls again.
    """
    is_copied = view.is_tiered and not config.remote_log_copy_disable
    start = view.local_log_start_offset if view.is_tiered else view.log_start_offset
    rules: list[tuple[str, Callable[[SegmentAge, bool], bool]]] = [
        ("log start", lambda segment, is_active: not is_active and segment.end_offset <= start)
    ]
    # On a tiered topic these rules only remove what the tier has, and the log start stays.
    is_kept = is_leased(config, now_ms) and not view.is_tiered
    if "delete" in config.cleanup_policy and not is_kept:
        limit_ms, limit_bytes = local_retention(config, is_copied=is_copied)
        if limit_bytes >= 0:
            rules.append(("size", _size_rule(view, limit_bytes)))
        if limit_ms >= 0:
            rules.append(("age", lambda segment, _: now_ms - segment.largest_time_ms() > limit_ms))
    for reason, is_in_breach in rules:
        decision = _oldest(view, reason, is_in_breach)
        if decision.segments or decision.roll_active:
            return decision
    return Decision()


def overdue(view: LogView, config: TopicConfig, now_ms: int) -> Overdue | None:
    """Return whether the oldest closed segment exceeds the local limits of a tiered log, else None."""
    if not view.is_tiered or len(view.segments) < 2 or "delete" not in config.cleanup_policy:
        return None
    oldest = view.segments[0]
    limit_ms, limit_bytes = local_retention(config, is_copied=not config.remote_log_copy_disable)
    is_old = limit_ms >= 0 and now_ms - oldest.largest_time_ms() > limit_ms
    if view.high_watermark < oldest.end_offset or not (is_old or limit_bytes >= 0):
        return None
    local_bytes = view.size_bytes()
    if not is_old and local_bytes - oldest.size_bytes < limit_bytes:
        return None
    is_copied = oldest.end_offset - 1 <= view.highest_remote_offset
    return Overdue(oldest.base_offset, is_copied, local_bytes)


def _size_rule(view: LogView, limit_bytes: int) -> Callable[[SegmentAge, bool], bool]:
    excess = [view.size_bytes() - limit_bytes]

    def is_in_breach(segment: SegmentAge, is_active: bool) -> bool:
        if excess[0] - segment.size_bytes < 0:
            return False
        excess[0] -= segment.size_bytes
        return True

    return is_in_breach


def _oldest(
    view: LogView,
    reason: str,
    is_in_breach: Callable[[SegmentAge, bool], bool],
) -> Decision:
    count, last = 0, len(view.segments) - 1
    for slot, segment in enumerate(view.segments):
        is_active = slot == last
        if count == SEGMENTS_AT_ONCE or (is_active and not segment.size_bytes):
            break
        if view.high_watermark < segment.end_offset or not is_in_breach(segment, is_active):
            break
        # Roll it first, because the log always needs an active segment.
        if is_active:
            return Decision(count, reason, roll_active=True)
        is_remote = segment.end_offset - 1 <= view.highest_remote_offset
        if view.is_tiered and not is_remote and view.local_log_start_offset < segment.end_offset:
            break
        count += 1
    return Decision(count, reason) if count else Decision()


def next_step(
    path: str, delete_due_segments: Callable[[int], Effects], names_changed: int, now_ms: int
) -> Effects:
    """Return the effect that goes on with retention in a later turn, if this step reached its limit.

    An error then is ignored here: the next round of retention over all logs meets it again.
    """

    def look(at_ms: int) -> Effects:
        try:
            return delete_due_segments(at_ms)
        except StorageError:
            return []

    if names_changed < NAMES_AT_ONCE:
        return []
    return [SetTimer(key=("retention", path), at_ms=now_ms, then=look)]


def rename_all(fs: Fs, pairs: Sequence[tuple[str, str]]) -> None:
    """Rename files, from the first name of each pair to the second.

    StorageError when a rename failed. If that error passes, as on a full disk, the old names are restored.
    """
    done: list[tuple[str, str]] = []
    try:
        for old, new in pairs:
            fs.rename(old, new)
            done.append((old, new))
    except StorageError as problem:
        if problem.is_passing:
            for old, new in reversed(done):
                fs.rename(new, old)
        raise


def removal(fs: Fs, paths: list[str], directory: str, *, delay_ms: int, now_ms: int) -> Effects:
    """Return the effects that remove files of the log in `directory`, `delay_ms` from now."""
    if not paths:
        return []

    def remove() -> None:
        for path in paths:
            fs.remove(path)

    submit = Submit(
        name=f"remove segments of {directory}",
        pool="disk",
        path=directory,
        work=remove,
        # A failure is ignored: the next start removes what is left (rel-P11).
        then=lambda result, now: [],
    )
    # The time is part of the key: compaction may delete two segments of the same name.
    key = ("remove-segments", directory, paths[0], now_ms)
    return [SetTimer(key=key, at_ms=now_ms + delay_ms, then=lambda now: [submit])]
