"""Metrics as Prometheus text, on one port of 127.0.0.1. WORLD.

Few values are counted for metrics alone: three integers per API, and some of the quorum. All others are read
when a scrape comes, on the loop, because only the loop may read them. The thread of the scrape formats the
text. Names are those that the JMX exporter gives to Kafka's beans, so that dashboards for Kafka work.
"""

import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from wsgiref.simple_server import make_server

from prometheus_client import GCCollector, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from firnline.api.dispatch import RequestCount
from firnline.base.errors import ConfigError
from firnline.broker.controller_node import ControllerNode
from firnline.broker.node import BrokerNode
from firnline.replica.partition import Partition
from firnline.runtime.loop import Runtime
from firnline.server import (
    compaction_metrics,
    loop_metrics,
    quorum_metrics,
    replica_metrics,
    table_metrics,
    tier_metrics,
)
from firnline.server.broker_metrics import node as node_metrics
from firnline.server.broker_metrics import requests as request_metrics
from firnline.server.broker_metrics import traffic as traffic_metrics
from firnline.server.broker_metrics.node import ControllerFacts, NodeFacts
from firnline.server.broker_metrics.requests import RequestFacts, RequestFamilies
from firnline.server.broker_metrics.traffic import TrafficFacts
from firnline.server.compaction_metrics import CompactionFacts
from firnline.server.loop_metrics import LoopFacts
from firnline.server.metrics_port import MetricsServer, ScrapeHandler
from firnline.server.quorum_metrics import QuorumFacts, QuorumFamilies
from firnline.server.replica_metrics import PARTITIONS_PER_SLICE, ReplicaFacts
from firnline.server.table_metrics import TableFacts
from firnline.server.tier_metrics import TierFacts

HOST = "127.0.0.1"
_ANSWER_S = 5.0
# Above this, partitions are only counted: ten thousand would be most of a megabyte per scrape.
PARTITION_SERIES_MAX = 1000


class PartitionSizes(NamedTuple):
    """One hosted partition. Offsets: start inclusive, end exclusive.

    replicas, isr, min_isr  how many there are, and how many acks=all needs
    """

    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    segments: int
    is_leader: bool = False
    replicas: int = 0
    isr: int = 0
    min_isr: int = 0


class AnswerFacts(NamedTuple):
    """Memory of responses (runtime/bounds/answers)."""

    held_bytes: int = 0
    waiting: int = 0
    refused: int = 0
    slow_readers: int = 0


class Snapshot(NamedTuple):
    """All values at one moment."""

    requests: list[RequestCount]
    replicas: ReplicaFacts
    partitions: list[PartitionSizes]
    tier: TierFacts | None
    quorum: QuorumFacts
    loop: LoopFacts
    compaction: CompactionFacts | None = None
    unreadable_records: Sequence[tuple[str, int]] = ()  # by topic
    failed_requests: Mapping[str, int] = MappingProxyType({})
    answers: AnswerFacts = AnswerFacts()
    tables: TableFacts = TableFacts()
    loop_requests: RequestFacts = RequestFacts()
    traffic: TrafficFacts | None = None
    broker: NodeFacts | None = None
    controller: ControllerFacts | None = None


def _unreadable(node: BrokerNode | ControllerNode) -> list[tuple[str, int]]:
    """Return how many records of each system topic this node has skipped."""
    if not isinstance(node, BrokerNode):
        return []
    return node.unreadable_records


def _compaction(node: BrokerNode | ControllerNode, runtime: Runtime) -> CompactionFacts | None:
    if not isinstance(node, BrokerNode):
        return None
    paths = [directory.path for directory in node.storage.directories]
    stuck = runtime.stuck_compactions
    return compaction_metrics.look(node.parts.compacting, paths, runtime.now_ms(), stuck)


def look(runtime: Runtime) -> Generator[None, None, Snapshot]:
    """Read all values, on the loop; yields after some partitions, so that other work can run."""
    node: BrokerNode | ControllerNode = runtime.node
    hosted = list(node.hosted) if isinstance(node, BrokerNode) else []
    tier = (yield from tier_metrics.look(runtime, node)) if isinstance(node, BrokerNode) else None
    replicas = ReplicaFacts()
    broker: NodeFacts | None = None
    controller: ControllerFacts | None = None
    traffic: TrafficFacts | None = None
    if isinstance(node, BrokerNode):
        replicas = yield from replica_metrics.look(node)
        broker = yield from node_metrics.look(runtime, node)
        traffic = yield from traffic_metrics.look(node.hosted.traffic)
    else:
        controller = node_metrics.look_at_controller(runtime, node)
    lateness = node.machine.lateness.copy()
    partitions: list[PartitionSizes] = []
    if len(hosted) <= PARTITION_SERIES_MAX:
        for first in range(0, len(hosted), PARTITIONS_PER_SLICE):
            partitions += map(_sizes, hosted[first : first + PARTITIONS_PER_SLICE])
            yield
    return Snapshot(
        requests=_all_requests(runtime),
        replicas=replicas,
        partitions=partitions,
        tier=tier,
        quorum=quorum_metrics.look(node.quorum, runtime.now_ms()),
        loop=loop_metrics.look(runtime),
        compaction=_compaction(node, runtime),
        unreadable_records=_unreadable(node),
        failed_requests=dict(runtime.failed_requests.counts),
        answers=AnswerFacts(
            runtime.answers.held_bytes,
            runtime.answers.waiting,
            runtime.answers.refused,
            runtime.answers.slow_readers,
        ),
        tables=table_metrics.look(runtime),
        loop_requests=request_metrics.look(runtime, lateness, time.monotonic()),
        traffic=traffic,
        broker=broker,
        controller=controller,
    )


def _sizes(partition: Partition) -> PartitionSizes:
    log = partition.log
    return PartitionSizes(
        *partition.topic_partition,
        log.log_start_offset,
        log.log_end_offset,
        log.size_bytes,
        len(log.closed_segments()) + 1,
        partition.is_leader,
        len(partition.replicas),
        len(partition.isr),
        partition.min_isr,
    )


def ask_for_all(runtime: Runtime) -> Snapshot:
    """Read all values from another thread, one slice in each turn of the loop."""
    steps = look(runtime)

    def step() -> Snapshot | None:
        try:
            next(steps)
        except StopIteration as end:
            found: Snapshot = end.value
            return found
        return None

    while True:
        found: Snapshot | None = runtime.ask(step, _ANSWER_S)
        if found is not None:
            return found


def _all_requests(runtime: Runtime) -> list[RequestCount]:
    """Return the counts of all listeners: a combined node serves controllers and clients."""
    dispatchers = [runtime.dispatcher, *(server.dispatcher for server in runtime.servers)]
    once = [each for place, each in enumerate(dispatchers) if each not in dispatchers[:place]]
    counts: dict[tuple[str, int], RequestCount] = {}
    for row in (row for dispatcher in once for row in dispatcher.counters()):
        known = counts.get((row.name, row.version))
        counts[row.name, row.version] = row if known is None else _sum(known, row)
    return list(counts.values())


def _sum(one: RequestCount, other: RequestCount) -> RequestCount:
    """Return the counts of two listeners together. Both times are of one thread's, and are put together."""
    errors = Counter(one.errors)
    errors.update(other.errors)
    return one._replace(
        requests=one.requests + other.requests,
        in_bytes=one.in_bytes + other.in_bytes,
        out_bytes=one.out_bytes + other.out_bytes,
        of_followers=one.of_followers + other.of_followers,
        answers_without_error=one.answers_without_error + other.answers_without_error,
        errors=errors,
        times=one.times.plus(other.times),
        follower_times=one.follower_times.plus(other.follower_times),
    )


def families(found: Snapshot) -> Iterator[Metric]:
    """Yield all values as Prometheus families."""
    if found.traffic is not None:
        yield from traffic_metrics.families(found.traffic)
    if found.broker is not None:
        yield from node_metrics.families(found.broker)
    if found.controller is not None:
        yield from node_metrics.controller_families(found.controller)
    failed = CounterMetricFamily(
        "firnline_failed_requests",
        "Requests that failed with an internal error, which closes the connection.",
        labels=["request"],
    )
    for name, count in found.failed_requests.items():
        failed.add_metric([name], count)
    yield failed
    yield from _answers(found.answers)
    yield from table_metrics.families(found.tables)
    yield from replica_metrics.families(found.replicas)
    yield from _partitions(found.partitions)
    yield from _cluster_partitions([row for row in found.partitions if row.is_leader])
    if found.tier is not None:
        yield from tier_metrics.families(found.tier)
    unreadable = GaugeMetricFamily(
        "firnline_unreadable_records",
        "Records of internal topics that cannot be read and were skipped.",
        labels=["topic"],
    )
    for topic, count in found.unreadable_records:
        unreadable.add_metric([topic], count)
    yield unreadable
    yield from loop_metrics.families(found.loop)
    yield from compaction_metrics.families(found.compaction)


def _answers(found: AnswerFacts) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "firnline_answers_held_bytes",
        "Bytes of responses that are being built, or that clients have not read yet.",
        found.held_bytes,
    )
    yield GaugeMetricFamily(
        "firnline_answers_waiting", "Responses that wait for memory.", found.waiting
    )
    yield CounterMetricFamily(
        "firnline_answers_refused",
        "Responses that were too large, which closes the connection.",
        found.refused,
    )
    yield CounterMetricFamily(
        "firnline_slow_readers_closed",
        "Connections closed because their unread responses used memory that others needed.",
        found.slow_readers,
    )


def _partitions(rows: list[PartitionSizes]) -> Iterator[Metric]:
    for name, field, words in (
        ("logstartoffset", "log_start_offset", "First offset."),
        ("logendoffset", "log_end_offset", "Offset of the next record."),
        ("size", "size_bytes", "Bytes of the local segments."),
        ("numlogsegments", "segments", "Local segments."),
    ):
        yield _by_partition(f"kafka_log_log_{name}", words, rows, field)


def _cluster_partitions(led: list[PartitionSizes]) -> Iterator[Metric]:
    """Yield what Kafka's leaders say of their partitions."""
    families = {
        name: GaugeMetricFamily(
            f"kafka_cluster_partition_{name}", words, labels=["topic", "partition"]
        )
        for name, words in (
            ("replicascount", "Replicas."),
            ("insyncreplicascount", "Replicas in sync."),
            ("underreplicated", "1 with replicas out of sync."),
            ("underminisr", "1 while acks=all is refused."),
            ("atminisr", "1 while one replica away from that."),
        )
    }
    for row in led:
        place = [row.topic, str(row.partition)]
        families["replicascount"].add_metric(place, row.replicas)
        families["insyncreplicascount"].add_metric(place, row.isr)
        families["underreplicated"].add_metric(place, row.isr < row.replicas)
        families["underminisr"].add_metric(place, row.isr < row.min_isr)
        families["atminisr"].add_metric(place, row.isr == row.min_isr)
    yield from families.values()


def _by_partition(name: str, words: str, rows: list[PartitionSizes], field: str) -> Metric:
    family = GaugeMetricFamily(name, words, labels=["topic", "partition"])
    for row in rows:
        family.add_metric([row.topic, str(row.partition)], getattr(row, field))
    return family


class Exporter(Collector):
    """The port of the metrics. It is bound at once, and answers once a node is set with `show`."""

    def __init__(self, port: int, *, host: str = HOST) -> None:
        self._runtime: Runtime | None = None
        self._lock = threading.Lock()
        self._quorum = QuorumFamilies()
        self._requests = RequestFamilies()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        try:
            app = make_wsgi_app(registry)
            self._server = make_server(host, port, app, MetricsServer, ScrapeHandler)
        except OSError as problem:
            raise ConfigError(
                f"cannot listen on {host}:{port} (firnline.metrics.host, firnline.metrics.port):"
                f" {problem.strerror or problem}"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that was bound."""
        return int(self._server.server_port)

    def show(self, runtime: Runtime) -> None:
        """From now on answer with the metrics of this node."""
        self._runtime = runtime

    def collect(self) -> Iterator[Metric]:
        """Called by the library, on its own thread."""
        with self._lock:
            runtime = self._runtime
            if runtime is None:
                return
            found = ask_for_all(runtime)
        yield from self._requests.families(found.requests, found.loop_requests)
        yield from families(found)
        yield from self._quorum.families(found.quorum)

    def close(self) -> None:
        """Close the port. After this returns, no scrape uses the loop any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        with self._lock:
            self._runtime = None
