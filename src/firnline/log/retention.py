"""Which segments may go, by age, size and log start, in the local and in the total limit. PURE.

On a tiered topic the local limits rule the local files, the total ones where copying is disabled, and only
what the remote tier holds, or what lies below the log start, may go: files never move where the log begins,
for what lies below them is in the tier (spec T13, T14, T16). Elsewhere the total limits do both.
Strictly the oldest first, up to the first that has to stay. An active segment in breach is rolled, so that on
a tiered topic it can be copied and then removed: idle topics drain completely (T15). Local age breaches one
tick later than remote: strictly greater (T12).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from firnline.base.effects import Effects, SetTimer, Submit
from firnline.base.errors import StorageError
from firnline.base.ids import (
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
)
from firnline.base.ports import File, Fs
from firnline.config.topic import TopicConfig

if TYPE_CHECKING:
    from firnline.log.log import Log

_FROM_TOTAL = -2
# What leaves a log in one step, some 3 ms of the loop: each segment has up to five names to change, and any
# of them may wait for the journal of the file system.
SEGMENTS_AT_ONCE = 32
NAMES_AT_ONCE = 128


class SegmentAge(NamedTuple):
    """One segment as retention sees it. `end_offset` is exclusive; times in ms since 1970.

    Its time may have to be read from a file, so it is asked for where it decides.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_time_ms: Callable[[], int]


class LogView(NamedTuple):
    """One log as retention sees it; `segments` oldest first, the last one active.

    What takes a look at every segment is asked for where it decides.
    """

    segments: Sequence[SegmentAge]
    log_start_offset: int
    local_log_start_offset: int
    high_watermark: int
    highest_remote_offset: int
    is_tiered: bool  # the topic's settings send it to the tier (T4)
    size_bytes: Callable[[], int]  # of all segments


def view_of(log: "Log", ages: Sequence[SegmentAge]) -> LogView:
    """Return how retention sees a log whose segments are `ages`."""
    return LogView(
        ages,
        log.log_start_offset,
        log.local_log_start_offset,
        log.high_watermark,
        # What the file of the lineage does not cover yet stays: only its batches say their epoch.
        min(log.highest_remote_offset, log.epochs.unkept_from - 1),
        log.is_tiered,
        lambda: log.size_bytes,
    )


class Decision(NamedTuple):
    """How many of the oldest segments go, why, and whether the active one is to be rolled first."""

    segments: int = 0
    reason: str = ""
    roll_active: bool = False


def is_tiered(topic: str, config: TopicConfig) -> bool:
    """Whether a topic's settings send it to the tier (T4): switched on, not compacted, not internal.

    Not whether this broker has a tier: one that has lost it must not take its files for the whole log.
    """
    return (
        config.remote_storage_enable
        and "compact" not in config.cleanup_policy
        and topic not in INTERNAL_TOPICS
        and topic not in (METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC)
    )


def local_retention(config: TopicConfig, *, is_copied: bool) -> tuple[int, int]:
    """Return (ms, bytes) that limit the local files; -1 is no limit (T13)."""
    if not is_copied:
        return config.retention_ms, config.retention_bytes
    ms, size = config.local_retention_ms, config.local_retention_bytes
    return (
        config.retention_ms if ms == _FROM_TOTAL else ms,
        config.retention_bytes if size == _FROM_TOTAL else size,
    )


def decide(view: LogView, config: TopicConfig, now_ms: int) -> Decision:
    """Apply the rules one after another: log start, then, under `delete`, size and age.

    Returns the first that removes something, or that wants the active segment rolled, and no more than may go
    in one step; the caller applies it and asks again.
    """
    is_copied = view.is_tiered and not config.remote_log_copy_disable
    start = view.local_log_start_offset if view.is_tiered else view.log_start_offset
    rules: list[tuple[str, Callable[[SegmentAge, bool], bool]]] = [
        ("log start", lambda segment, is_active: not is_active and segment.end_offset <= start)
    ]
    if "delete" in config.cleanup_policy:
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
        # Rolled first in any case: the log always has an active segment.
        if is_active:
            return Decision(count, reason, roll_active=True)
        is_remote = segment.end_offset - 1 <= view.highest_remote_offset
        if view.is_tiered and not is_remote and view.log_start_offset < segment.end_offset:
            break
        count += 1
    return Decision(count, reason) if count else Decision()


def closing(*logs: "Log") -> Effects:
    """Give `logs` of one log directory up; return what lets go of files whose closing may wait for the disk.

    A descriptor is closed by the last one who uses it: no other file has its number before.
    """
    files: list[File] = [file for log in logs for file in log.give_up()]
    if not files:
        return []
    work = files.clear  # the last reference to most of them
    path = logs[0].path
    name = f"close {path}"
    return [Submit(name=name, pool="disk", path=path, work=work, then=lambda result, now_ms: [])]


def looking_again(log: "Log", names_changed: int, now_ms: int) -> Effects:
    """Return what has the rest leave in later turns, where a step had as many names to change as it may.

    An error there is left to the next look of whoever looks at all logs.
    """

    def look(at_ms: int) -> Effects:
        try:
            return log.delete_due_segments(at_ms)
        except StorageError:
            return []

    if names_changed < NAMES_AT_ONCE:
        return []
    return [SetTimer(key=("retention", log.path), at_ms=now_ms, then=look)]


def rename_all(fs: Fs, pairs: Sequence[tuple[str, str]]) -> None:
    """Rename files, from the first name of each pair to the second.

    StorageError when one could not be; where that passes, as on a full disk, all have their old names again.
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
        # What could not be removed now is found and removed at the next start (rel-P11).
        then=lambda result, now: [],
    )
    # A compacted segment may leave twice under one name.
    key = ("remove-segments", directory, paths[0], now_ms)
    return [SetTimer(key=key, at_ms=now_ms + delay_ms, then=lambda now: [submit])]
