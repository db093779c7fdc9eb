"""Finds local logs that are larger than local.retention.* allows, and says why: the disk fills. PURE.

Local segments stay until the tier has them, so they pile up while copies fail; and the local deletion itself
may stand still. Neither is an error of any request. Every round looks at the oldest closed segment of each
partition. Between two rounds a segment that is due is copied and deleted, so one that both find stays for a
reason: the first is logged, and the end of the last. Source: F33, F35; spec T13.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from firnline.base.background import Background, SlicedTask
from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import StorageError, some_of
from firnline.base.log_lines.tier import LOCAL_SEGMENTS_GO, LOCAL_SEGMENTS_STAY
from firnline.log.retention import Overdue
from firnline.tiered.hosted import Hosted

# What one slice covers; a partition costs as much as this many segments, whose sizes are added up.
PARTITIONS_PER_SLICE, SEGMENTS_AS_ONE = 200, 50
_TIMER = ("tier", "local audit")

Overdues = dict[str, Overdue]


class _Kind(NamedTuple):
    """One reason why local segments stay. `is_copied`: the tier has them."""

    is_copied: bool
    reason: str
    what: str


_KINDS = (
    _Kind(
        False,
        "not copied",
        "stay on the disk beyond local.retention.*, because the tier does not have them yet",
    ),
    _Kind(
        True,
        "not deleted",
        "stay on the disk beyond local.retention.*, though the tier has them: the deletion of local segments"
        " stands still",
    ),
)


class LocalAudit:
    """The audit of one node.

    hosted       returns the tiered partitions of the node
    sliced_tasks runs the rounds
    """

    def __init__(self, hosted: Callable[[], Iterable[Hosted]], sliced_tasks: Background) -> None:
        self._hosted = hosted
        self._sliced_tasks = sliced_tasks
        self._before: dict[bool, Overdues] = {}
        # By kind: what two rounds in a row have found.
        self.found: dict[bool, Overdues] = {kind.is_copied: {} for kind in _KINDS}

    @property
    def problem(self) -> str | None:
        """What was found, for the operator; None if all is well."""
        lines = [_line(kind, self.found[kind.is_copied]) for kind in _KINDS]
        return "; ".join(line for line in lines if line) or None

    @property
    def overdue_bytes(self) -> dict[str, int]:
        """The local bytes of the partitions that were found, by reason."""
        return {kind.reason: _local_bytes(self.found[kind.is_copied]) for kind in _KINDS}

    def start(self, interval_ms: int, now_ms: int) -> Effects:
        """Set the timer of the next round."""

        def round_begins(at_ms: int) -> Effects:
            begun = self._sliced_tasks.begin(self._round(at_ms), at_ms)
            return [*begun, *self.start(interval_ms, at_ms)]

        return [SetTimer(key=_TIMER, at_ms=now_ms + interval_ms, then=round_begins)]

    def _round(self, now_ms: int) -> SlicedTask:
        now: dict[bool, Overdues] = {kind.is_copied: {} for kind in _KINDS}
        yield []
        seen = 0
        for hosted in list(self._hosted()):
            found = None if hosted.is_over else _overdue(hosted, now_ms)
            if found is not None:
                now[found.is_copied][str(hosted.log.topic_partition)] = found
            seen += 1 + len(hosted.log.closed_segments()) // SEGMENTS_AS_ONE
            if seen >= PARTITIONS_PER_SLICE:
                seen = 0
                yield []
        effects: Effects = []
        for kind in _KINDS:
            before = self._before.get(kind.is_copied, {})
            again = {
                name: each
                for name, each in now[kind.is_copied].items()
                if name in before and before[name].base_offset == each.base_offset
            }
            was_found = bool(self.found[kind.is_copied])
            self.found[kind.is_copied] = again
            if again and not was_found:
                names, size_bytes = some_of(sorted(again)), _local_bytes(again)
                effects.append(
                    LOCAL_SEGMENTS_STAY(reason=kind.reason, partitions=names, bytes=size_bytes)
                )
            elif was_found and not again:
                effects.append(LOCAL_SEGMENTS_GO(reason=kind.reason))
        self._before = now
        return effects


def _overdue(hosted: Hosted, now_ms: int) -> Overdue | None:
    if not hosted.may_copy:  # then the total limits apply, and expiration reports its own failures
        return None
    try:
        return hosted.log.overdue(now_ms)
    except StorageError:
        return None  # an index is damaged; retention reports it


def _line(kind: _Kind, found: Overdues) -> str:
    if not found:
        return ""
    size_bytes = _local_bytes(found)
    return f"segments of {some_of(sorted(found))} {kind.what}. Their local logs have {size_bytes} bytes"


def _local_bytes(found: Overdues) -> int:
    return sum(each.local_bytes for each in found.values())
