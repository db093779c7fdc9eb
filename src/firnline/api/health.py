"""What is wrong with a node, by its own account: for `firnline cluster status`, metrics and alerts. PURE.

Each problem has a kind, a sentence for people, and what tells more. It is reported while it lasts; what
happened once, such as a failed append, for as long as it says here.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from firnline.base.counting.aging import Aging
from firnline.base.counting.machine import HELD_UP_REPORTED_MS, MachineFacts
from firnline.base.units import DAY_MS, HOUR_MS, MIB, ceil_div

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode
    from firnline.broker.controller_node import ControllerNode
    from firnline.broker.node import BrokerNode

# An append that failed within this time counts as failing now: producers try again all the time.
APPEND_FAILED_MS = 30_000
# A loop that was held up for longer has missed heartbeats of its clients.
HELD_UP_MS = 2_000
# What is left of a disk: a twentieth, or less than two gigabytes of a large one.
DISK_PART, DISK_LEFT_BYTES = 20, 2048 * MIB
DISK_SILENT_MS = 10_000
COPY_BEHIND_MS = 600_000
_ROWS_PER_SLICE = 200
_LISTED = 3

KINDS = (
    "appends-fail",
    "log-directory-offline",
    "disk-nearly-full",
    "disk-silent",
    "loop-held-up",
    "clock-doubted",
    "tier-store-fails",
    "tier-copies-fail",
    "tier-copies-behind",
    "metadata-lost",
    "snapshot-damaged",
    "snapshot-fails",
    "no-leader",
)
# A controller has no appends of clients, no log directories of its own that can fail alone, and no tier.
CONTROLLER_KINDS = (
    *("disk-nearly-full", "disk-silent", "loop-held-up"),
    *("metadata-lost", "snapshot-damaged", "snapshot-fails", "no-leader"),
)


class Problem(NamedTuple):
    """One problem. `kind` is one of KINDS; `see` is what tells more: a command in backticks, or a place."""

    kind: str
    what: str
    see: str


def problems(node: "BrokerNode", now_ms: int) -> Generator[None, None, list[Problem]]:
    """Return the problems of this node, now; yields after some partitions, so that others are served."""
    found = yield from _appends(node, now_ms)
    found += [*_offline(node), *_machine(node.machine, now_ms)]
    found += _clock(node.storage.aging, now_ms)
    found += yield from _tier(node, now_ms)
    return _shown(node, [*found, *_metadata(node), *_leader(node)])


def controller_problems(node: "ControllerNode", now_ms: int) -> list[Problem]:
    """Return the problems of a node that is only a controller. If its directory fails, the node stops."""
    return _shown(node, [*_machine(node.machine, now_ms), *_metadata(node), *_leader(node)])


def _shown(node: "AnyNode", found: list[Problem]) -> list[Problem]:
    redact = node.config.redact
    return [each._replace(what=redact(each.what)) for each in found]


def _appends(node: "BrokerNode", now_ms: int) -> Generator[None, None, list[Problem]]:
    failing = yield from node.hosted.traffic.failing_since(now_ms - APPEND_FAILED_MS)
    if not failing:
        return []
    last_ms = max(traffic.failed_append_ms for _, traffic in failing)
    count = sum(traffic.failed_appends for _, traffic in failing)
    return [
        Problem(
            "appends-fail",
            f"appends to {_some([topic for topic, _ in failing])} fail: {count} so far, the last one"
            f" {_seconds(now_ms - last_ms)} ago; the disk refuses them",
            "`df -h " + " ".join(each.path for each in node.storage.directories) + "`",
        )
    ]


def _offline(node: "BrokerNode") -> list[Problem]:
    return [
        Problem(
            "log-directory-offline",
            f"the log directory {path} has failed: {why}. Its replicas are offline until the next start",
            f"`ls {path}` and `dmesg`",
        )
        for path, why in sorted(node.storage.offline.items())
    ]


def _machine(machine: MachineFacts, now_ms: int) -> list[Problem]:
    found = []
    for path, space in sorted(machine.disks.items()):
        if space.free_bytes < min(space.total_bytes // DISK_PART, DISK_LEFT_BYTES):
            left = f"{space.free_bytes / MIB:.0f} of {space.total_bytes / MIB:.0f} MiB are free"
            found.append(
                Problem("disk-nearly-full", f"the disk of {path}: {left}", f"`df -h {path}`")
            )
    silent_ms = now_ms - machine.silent_since_ms
    if machine.silent_disk and silent_ms > DISK_SILENT_MS:
        what = f"the disk of {machine.silent_disk} has not answered for {_seconds(silent_ms)}"
        found.append(Problem("disk-silent", what, "`dmesg`"))
    return [*found, *_loop(machine, now_ms)]


def _clock(aging: Aging, now_ms: int) -> list[Problem]:
    if not aging.is_doubted(now_ms):
        return []
    days = abs(aging.ahead_ms) // DAY_MS
    if aging.ahead_ms > 0:
        hours = ceil_div(aging.until_ms - now_ms, HOUR_MS)
        what = (
            f"its clock was {days} days ahead of the time at which this node last ran: is it right? For"
            f" another {hours} h records age as if the node had not been off"
        )
    else:
        what = (
            f"its clock was {days} days behind the time at which this node last ran: it is wrong now, or was"
            " then. Records with a later time are refused"
        )
    return [Problem("clock-doubted", what, "`date`")]


def _loop(machine: MachineFacts, now_ms: int) -> list[Problem]:
    ago_ms = now_ms - machine.held_up_at_ms
    if machine.held_up_ms < HELD_UP_MS or ago_ms >= HELD_UP_REPORTED_MS:
        return []
    return [
        Problem(
            "loop-held-up",
            f"it served nobody for {machine.held_up_ms / 1000:.1f} s, until {_seconds(ago_ms)} ago: the"
            " machine is overloaded, the process was stopped, or one step took that long",
            "the metric firnline_loop_longest_step_seconds",
        )
    ]


def _tier(node: "BrokerNode", now_ms: int) -> Generator[None, None, list[Problem]]:
    tier = node.tier
    if tier is None:
        return []
    found = [
        Problem(
            "tier-store-fails",
            f"the store of the tier fails ({each.operation}), for {_seconds(now_ms - each.opened_ms)}"
            f" now: {each.problem}",
            "`firnline tier status`",
        )
        for each in tier.services.circuits.problems()
    ]
    failing: list[str] = []
    behind: list[str] = []
    longest_ms = 0
    for number, row in enumerate(tier.gauges(now_ms), 1):
        if row.copy_lag_ms > COPY_BEHIND_MS:
            longest_ms = max(longest_ms, row.copy_lag_ms)
            behind.append(f"{row.topic}-{row.partition}")
        if number % _ROWS_PER_SLICE == 0:
            yield
    for number, (place, problem) in enumerate(tier.copy_problems(), 1):
        failing.append(f"{place}: {problem}")
        if number % _ROWS_PER_SLICE == 0:
            yield
    if tier.problem is not None:
        failing.append(tier.problem)
    if failing:
        what = f"copies to the tier fail: {_some(failing, one=True)}"
        found.append(Problem("tier-copies-fail", what, "`firnline tier status`"))
    if behind:
        what = f"copies of {_some(behind)} have been due for up to {_seconds(longest_ms)}"
        found.append(Problem("tier-copies-behind", what, "`firnline tier status`"))
    return found


def _metadata(node: "AnyNode") -> list[Problem]:
    state = node.quorum.snapshot_state()
    found = []
    if state.forgotten is not None:
        what = "it has lost metadata that it had promised to keep, and takes no part in elections"
        found.append(Problem("metadata-lost", what, "`firnline quorum snapshots`"))
    if state.damaged_ids:
        what = f"it has set aside {len(state.damaged_ids)} damaged snapshot(s) of the metadata"
        found.append(Problem("snapshot-damaged", what, "`firnline quorum snapshots`"))
    if node.quorum.snapshotter.problem is not None:
        why = node.quorum.snapshotter.problem
        what = f"it takes no snapshot of the metadata, whose log grows meanwhile: {why}"
        found.append(Problem("snapshot-fails", what, "`firnline quorum snapshots`"))
    return found


def _leader(node: "AnyNode") -> list[Problem]:
    if node.quorum.raft.answering_leader_id >= 0:
        return []
    what = "the quorum has no leader that it knows: too few controllers reach one another"
    return [Problem("no-leader", what, "`firnline quorum status`")]


def _seconds(duration_ms: int) -> str:
    """Return a duration for people."""
    return (
        f"{max(0, duration_ms) // 1000} s"
        if duration_ms < 120_000
        else f"{duration_ms // 60_000} min"
    )


def _some(names: list[str], *, one: bool = False) -> str:
    """Return the first names, and how many more there are."""
    shown = names[: 1 if one else _LISTED]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
