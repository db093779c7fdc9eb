"""Metrics of the broker itself: its problems, disks, loop, groups, and what waits in it. WORLD."""

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric

from firnline.api import health
from firnline.base.counting.machine import HELD_UP_REPORTED_MS, DiskSpace, MachineFacts
from firnline.broker.controller_node import ControllerNode
from firnline.broker.lifecycle import Stage
from firnline.broker.node import BrokerNode
from firnline.coordinator.group_state import GroupState
from firnline.runtime.loop import Runtime

_GROUPS = "kafka_coordinator_group_groupmetadatamanager_"
_GROUPS_PER_SLICE = 1_000
# Kafka's numbers of the states of a broker: KIP-631, `BrokerState`.
_BROKER_STATES = {
    Stage.STARTING: 1,
    Stage.REGISTERED: 2,
    Stage.FENCED: 2,
    Stage.RUNNING: 3,
    Stage.LEAVING: 6,
    Stage.STOPPED: 7,
}
_GROUP_STATES = (
    ("numgroupspreparingrebalance", GroupState.PREPARING_REBALANCE),
    ("numgroupscompletingrebalance", GroupState.COMPLETING_REBALANCE),
    ("numgroupsstable", GroupState.STABLE),
    ("numgroupsempty", GroupState.EMPTY),
    ("numgroupsdead", GroupState.DEAD),
)


class NodeFacts(NamedTuple):
    """The values at one moment.

    directories  by path: whether the log directory has failed
    delayed      by kind: operations that wait
    """

    state: int
    problems: list[health.Problem]
    disks: dict[str, DiskSpace]
    directories: dict[str, bool]
    held_up_ms: int
    groups: int
    groups_by_state: dict[str, int]
    delayed: dict[str, int]


class ControllerFacts(NamedTuple):
    """The values of a node that is only a controller."""

    problems: list[health.Problem]
    disks: dict[str, DiskSpace]
    held_up_ms: int


def look(runtime: Runtime, node: BrokerNode) -> Generator[None, None, NodeFacts]:
    """Read the values, on the loop; yields after some groups and partitions."""
    now_ms = runtime.now_ms()
    problems = yield from health.problems(node, now_ms)
    by_state: dict[str, int] = Counter()
    _, groups = node.groups.list_groups()
    for number, group in enumerate(groups, 1):
        if group is not None:
            by_state[group.state] += 1
        if number % _GROUPS_PER_SLICE == 0:
            yield
    machine, delayed = node.machine, runtime.delayed()
    return NodeFacts(
        state=_BROKER_STATES[node.lifecycle.stage],
        problems=problems,
        disks=dict(machine.disks),
        directories={d.path: d.path in node.storage.offline for d in node.storage.directories},
        held_up_ms=_held_up_ms(machine, now_ms),
        groups=node.groups.group_count,
        groups_by_state=by_state,
        delayed={"Produce": delayed["produce"], "Fetch": delayed["fetch"]},
    )


def look_at_controller(runtime: Runtime, node: ControllerNode) -> ControllerFacts:
    """Read the values of a node that is only a controller, on the loop."""
    now_ms = runtime.now_ms()
    problems = health.controller_problems(node, now_ms)
    return ControllerFacts(problems, dict(node.machine.disks), _held_up_ms(node.machine, now_ms))


def _held_up_ms(machine: MachineFacts, now_ms: int) -> int:
    is_recent = now_ms - machine.held_up_at_ms < HELD_UP_REPORTED_MS
    return machine.held_up_ms if is_recent else 0


def controller_families(found: ControllerFacts) -> Iterator[Metric]:
    """Yield those of a node that is only a controller."""
    yield _problems(found.problems, health.CONTROLLER_KINDS)
    yield from _space(found.disks)
    yield _held_up(found.held_up_ms)


def families(found: NodeFacts) -> Iterator[Metric]:
    """Yield them as Prometheus families."""
    words = "1 starting, 2 recovering or fenced, 3 running, 6 and 7 shutting down."
    yield GaugeMetricFamily("kafka_server_kafkaserver_brokerstate", words, found.state)
    yield _problems(found.problems, health.KINDS)
    yield from _directories(found)
    yield from _space(found.disks)
    yield _held_up(found.held_up_ms)
    yield GaugeMetricFamily(_GROUPS + "numgroups", "Consumer groups.", found.groups)
    for name, state in _GROUP_STATES:
        words = f"Consumer groups in the state {state.value}."
        yield GaugeMetricFamily(_GROUPS + name, words, found.groups_by_state.get(state.value, 0))
    yield from _waiting(found)
    yield from _io()


def _problems(found: list[health.Problem], kinds: Sequence[str]) -> Metric:
    wrong = GaugeMetricFamily(
        "firnline_problems",
        "Problems of this node, as `firnline cluster status` reports them.",
        labels=["kind"],
    )
    counts = Counter(each.kind for each in found)
    for kind in kinds:
        wrong.add_metric([kind], counts[kind])
    return wrong


def _held_up(held_up_ms: int) -> Metric:
    return GaugeMetricFamily(
        "firnline_loop_held_up_seconds",
        "The longest time within the last minute in which the loop served nobody.",
        held_up_ms / 1000,
    )


def _directories(found: NodeFacts) -> Iterator[Metric]:
    offline = GaugeMetricFamily(
        "kafka_log_logmanager_logdirectoryoffline",
        "1 for a log directory that has failed.",
        labels=["logDirectory"],
    )
    for path, is_offline in found.directories.items():
        offline.add_metric([path], is_offline)
    yield offline
    yield GaugeMetricFamily(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that have failed.",
        sum(found.directories.values()),
    )


def _space(disks: dict[str, DiskSpace]) -> Iterator[Metric]:
    free = GaugeMetricFamily(
        "firnline_disk_free_bytes", "Free space for this node.", labels=["logDirectory"]
    )
    total = GaugeMetricFamily(
        "firnline_disk_total_bytes", "Size of the file system.", labels=["logDirectory"]
    )
    for path, space in disks.items():
        free.add_metric([path], space.free_bytes)
        total.add_metric([path], space.total_bytes)
    yield free
    yield total


def _waiting(found: NodeFacts) -> Iterator[Metric]:
    delayed = GaugeMetricFamily(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Requests that wait for followers, for records, for a disk or for the tier.",
        labels=["delayedOperation", "delayedoperation"],
    )
    for kind, count in found.delayed.items():
        delayed.add_metric([kind, kind], count)
    yield delayed


def _io() -> Iterator[Metric]:
    """Yield what the process has read from and written to disks; Kafka has it from the same file of Linux."""
    found: dict[str, int] = {}
    with suppress(OSError, ValueError), open("/proc/self/io") as lines:
        found = {name: int(value) for name, value in (line.split(":") for line in lines)}
    prefix = "kafka_server_kafkaserver_linux_disk_"
    for name in ("read_bytes", "write_bytes"):
        if name in found:
            words = f"{name.replace('_', ' ').capitalize()} of disks since the start."
            yield GaugeMetricFamily(prefix + name, words, found[name])
