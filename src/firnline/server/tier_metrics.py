"""Metrics of the tier. WORLD.

Each of Kafka's names for what is copied, fetched and deleted, for what waits and for sizes has the value of
the node, and that of each topic with the label `topic`. Kafka renamed some of KIP-405's own (KIP-930): both
names are there. The cost of a scrape follows the number of partitions, and not that of their segments.
Source: KIP-405 'Monitoring', KIP-930, KIP-956, KIP-963; spec T48, T50; docs/reference/metrics.md.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from firnline.broker.node import BrokerNode
from firnline.runtime.loop import Runtime
from firnline.runtime.threads.pools import PoolFacts
from firnline.server.replica_metrics import PARTITIONS_PER_SLICE
from firnline.tiered.counters import Counted, Counters, Times
from firnline.tiered.status import Gauges

_TOPICS = "kafka_server_brokertopicmetrics_"
_MANAGER = "kafka_log_remote_remotelogmanager_"
_POOL = "kafka_log_remote_remotestoragethreadpool_"
# What is counted, the names of KIP-930 and KIP-963, and those that KIP-405 had.
_COUNTERS: tuple[tuple[Counted, str, tuple[str, ...]], ...] = (
    ("copy_requests", "Segments whose copy to the tier began.", ("remotecopyrequests",)),
    ("copy_bytes", "Bytes of copied segments.", ("remotecopybytes", "remotebytesout")),
    ("copy_errors", "Copies that failed.", ("remotecopyerrors", "remotewriteerror")),
    ("fetch_requests", "Reads of the tier.", ("remotefetchrequests", "remotereadrequests")),
    ("fetch_bytes", "Bytes read from the tier.", ("remotefetchbytes", "remotebytesin")),
    ("fetch_errors", "Reads of the tier that failed.", ("remotefetcherrors", "remotereaderror")),
    ("delete_requests", "Segments to delete from the tier.", ("remotedeleterequests",)),
    ("delete_errors", "Deletions that failed.", ("remotedeleteerrors",)),
    (
        "aux_state_requests",
        "Followers' requests for the state at the end of a remote segment.",
        ("buildremotelogauxstaterequests",),
    ),
    (
        "aux_state_errors",
        "Those requests that failed.",
        ("buildremotelogauxstateerrors",),
    ),
)
# Gauges of partitions that have sums for topics and for the node, too, as Kafka has them; of leaders alone,
# so that the sum over all brokers counts each partition once.
_SUMMED = frozenset(
    (
        "copy_lag_segments",
        "copy_lag_bytes",
        "delete_lag_segments",
        "delete_lag_bytes",
        "remote_bytes",
        "metadata_count",
    )
)
# Gauges of a partition, and whether they are those of its leader alone.
_GAUGES: tuple[tuple[str, str, str, bool], ...] = (
    (
        _TOPICS + "remotecopylagsegments",
        "copy_lag_segments",
        "Closed segments that wait to be copied.",
        True,
    ),
    (
        _TOPICS + "remotecopylagbytes",
        "copy_lag_bytes",
        "Bytes of closed segments that wait to be copied.",
        True,
    ),
    (
        _TOPICS + "remotedeletelagsegments",
        "delete_lag_segments",
        "Segments whose deletion has begun.",
        True,
    ),
    (
        _TOPICS + "remotedeletelagbytes",
        "delete_lag_bytes",
        "Bytes of segments whose deletion has begun.",
        True,
    ),
    (_TOPICS + "remotelogsizebytes", "remote_bytes", "Bytes in the tier.", False),
    (
        _TOPICS + "remotelogmetadatacount",
        "metadata_count",
        "Segments that the metadata has, in any state.",
        False,
    ),
    (
        _TOPICS + "retentionsizeinpercent",
        "retention_used_percent",
        "Bytes in the tier and on the disk, in percent of retention.bytes; 0 without a limit.",
        True,
    ),
    (
        _TOPICS + "localretentionsizeinpercent",
        "local_retention_used_percent",
        "Local bytes, in percent of local.retention.bytes; 0 without a limit.",
        True,
    ),
    (
        "firnline_tier_unexplained_segments",
        "unexplained_segments",
        "Segments in the tier that its metadata does not know: nothing is copied or deleted.",
        False,
    ),
)


class TierFacts(NamedTuple):
    """The tier of a node at one moment.

    size_computation_ms  by topic: how long the last decisions about retention took, which need the size in
                         the tier; of led partitions alone
    store_open_ms  by operation: for how long its circuit has been open; None for one that is closed
    unanswered_ms  for how long a call of the store that should have had its answer has had none; 0: all have
    overdue_bytes  by reason: local bytes beyond local.retention.* for two rounds of deletion (F33, F35)
    """

    partitions: list[Gauges]
    size_computation_ms: Mapping[str, int]
    counters: Counters
    by_topic: Mapping[str, Counters]
    copy_throttle: Times
    fetch_throttle: Times
    fetch_times: Times
    store_open_ms: Mapping[str, int | None]
    unanswered_ms: int
    pools: Mapping[str, PoolFacts]
    partitions_to_remove: int
    overdue_bytes: Mapping[str, int]
    expired_fetches: int
    expired_searches: int


def look(runtime: Runtime, node: BrokerNode) -> Generator[None, None, TierFacts | None]:
    """Read the values, on the loop; None without a tier. Yields after some partitions."""
    tier = node.tier
    if tier is None:
        return None
    now_ms = runtime.now_ms()
    partitions: list[Gauges] = []
    for row in tier.gauges(now_ms):
        partitions.append(row)
        if len(partitions) % PARTITIONS_PER_SLICE == 0:
            yield
    took_ms: Counter[str] = Counter()
    for number, (topic, decided_in_ms) in enumerate(tier.decision_times(), 1):
        took_ms[topic] += decided_in_ms
        if number % PARTITIONS_PER_SLICE == 0:
            yield
    services = tier.services
    unanswered = services.circuits.unanswered(now_ms)
    return TierFacts(
        partitions=partitions,
        size_computation_ms=took_ms,
        counters=services.counters,
        by_topic=dict(services.counters.by_topic),
        copy_throttle=services.copy_throttle.look(now_ms),
        fetch_throttle=services.fetch_throttle.look(now_ms),
        fetch_times=services.fetch_times.look(now_ms),
        store_open_ms=services.circuits.open_ms(now_ms),
        unanswered_ms=0 if unanswered is None else now_ms - unanswered.since_ms,
        pools=runtime.pool_facts(),
        partitions_to_remove=tier.remover.backlog,
        overdue_bytes=tier.local_audit.overdue_bytes,
        expired_fetches=node.fetching.remote_expired,
        expired_searches=node.listing_offsets.remote_expired,
    )


def families(found: TierFacts) -> Iterator[Metric]:
    """Yield them as Prometheus families."""
    for what, words, names in _COUNTERS:
        for name in names:
            yield _counter(_TOPICS + name, words, what, found)
    for name, field, words, is_leaders in _GAUGES:
        yield _gauge(name, words, field, found, is_leaders=is_leaders)
    computation = GaugeMetricFamily(
        _TOPICS + "remotelogsizecomputationtime",
        "How long the last decisions about retention took, which need the size in the tier: ms.",
        labels=["topic"],
    )
    _add_sums(computation, found.size_computation_ms)
    yield computation
    lag = GaugeMetricFamily(
        "firnline_tier_copy_lag_seconds",
        "Since the newest record of the oldest segment that waits to be copied was written.",
        labels=["topic", "partition"],
    )
    for row in found.partitions:
        if row.is_leader:
            lag.add_metric([row.topic, str(row.partition)], row.copy_lag_ms / 1000)
    yield lag
    yield CounterMetricFamily(
        "firnline_tier_damaged_segments",
        "Damaged segments found since the start, in the log or in the tier.",
        value=found.counters.damaged_segments,
    )
    for name, words, count in _read_ahead(found.counters):
        yield CounterMetricFamily(f"firnline_tier_read_ahead_{name}", words, value=count)
    yield from _times(found)
    yield from _backlogs(found)
    yield from _store(found.store_open_ms)
    yield GaugeMetricFamily(
        "firnline_tier_store_unanswered_seconds",
        "For how long a call of the store that should have had its answer has had none.",
        found.unanswered_ms / 1000,
    )
    yield from _pools(found.pools)


def _read_ahead(counters: Counters) -> Iterator[tuple[str, str, int]]:
    """Iterate over names, descriptions and counts of what is read before a consumer asks for it."""
    yield "bytes", "Bytes read ahead of consumers.", counters.read_ahead_bytes
    yield "hits", "Reads that got what was read ahead.", counters.read_ahead_hits
    yield "hit_bytes", "Bytes of those reads.", counters.read_ahead_hit_bytes
    yield "errors", "Reads ahead that failed; they are made again.", counters.read_ahead_errors


def _counter(name: str, words: str, what: Counted, found: TierFacts) -> Metric:
    family = CounterMetricFamily(name, words, labels=["topic"])
    family.add_sample(f"{name}_total", {}, getattr(found.counters, what))
    for topic, counters in found.by_topic.items():
        family.add_metric([topic], getattr(counters, what))
    return family


def _gauge(
    name: str, words: str, field: str, found: TierFacts, *, is_leaders: bool
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, words, labels=["topic", "partition"])
    sums: Counter[str] = Counter()
    for row in found.partitions:
        value = getattr(row, field)
        if row.is_leader or not is_leaders:
            family.add_metric([row.topic, str(row.partition)], value)
        if row.is_leader:
            sums[row.topic] += value
    if field in _SUMMED:
        _add_sums(family, sums)
    return family


def _add_sums(family: GaugeMetricFamily, by_topic: Mapping[str, int]) -> None:
    """Add the value of each topic of which this node leads partitions, and that of all of them."""
    for topic, value in by_topic.items():
        family.add_sample(family.name, {"topic": topic}, value)
    family.add_sample(family.name, {}, sum(by_topic.values()))


def _times(found: TierFacts) -> Iterator[Metric]:
    for name, times, words in (
        ("remote_copy_throttle_time", found.copy_throttle, "a copy was put off by its quota"),
        ("remote_fetch_throttle_time", found.fetch_throttle, "reads were put off by their quota"),
    ):
        prefix = f"kafka_server_remotelogmanager_{name}"
        ms = f"For how long {words}, in ms,"
        yield GaugeMetricFamily(
            f"{prefix}_avg", f"{ms} on average in the last minute.", times.avg_ms
        )
        yield GaugeMetricFamily(f"{prefix}_max", f"{ms} at most in the last minute.", times.max_ms)
    prefix = f"{_MANAGER}remotelogreaderfetchrateandtimems"
    times = found.fetch_times
    words = "Reads of records in the store, with their wait for a thread"
    yield SummaryMetricFamily(prefix, f"{words}, in ms.", times.times, times.total_ms)
    yield GaugeMetricFamily(f"{prefix}_mean", f"{words}: ms in the last minute.", times.avg_ms)
    yield GaugeMetricFamily(f"{prefix}_max", f"{words}: ms in the last minute.", times.max_ms)


def _backlogs(found: TierFacts) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "firnline_tier_partitions_to_remove",
        "Partitions of deleted topics that this node has to remove from the tier.",
        found.partitions_to_remove,
    )
    overdue = GaugeMetricFamily(
        "firnline_tier_local_overdue_bytes",
        "Local bytes of partitions that exceed local.retention.* for two rounds of deletion.",
        labels=["reason"],
    )
    for reason, size_bytes in found.overdue_bytes.items():
        overdue.add_metric([reason], size_bytes)
    yield overdue
    for name, count, words in (
        ("delayedremotefetchmetrics", found.expired_fetches, "Fetches that waited for the tier"),
        ("delayedremotelistoffsetsmetrics", found.expired_searches, "ListOffsets that did"),
    ):
        yield CounterMetricFamily(
            f"kafka_server_{name}_expires", f"{words} for longer than allowed.", value=count
        )


def _store(open_ms: Mapping[str, int | None]) -> Iterator[Metric]:
    is_open = GaugeMetricFamily(
        "firnline_tier_store_open",
        "1 while the store of the tier fails and gets probes instead of this operation.",
        labels=["operation"],
    )
    seconds = GaugeMetricFamily(
        "firnline_tier_store_open_seconds", "For how long.", labels=["operation"]
    )
    for operation, since_ms in open_ms.items():
        is_open.add_metric([operation], since_ms is not None)
        seconds.add_metric([operation], (since_ms or 0) / 1000)
    yield is_open
    yield seconds


def _pools(pools: Mapping[str, PoolFacts]) -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        "firnline_pool_waiting", "Work that waits for a thread of the pool.", labels=["pool"]
    )
    busy = GaugeMetricFamily("firnline_pool_busy", "Threads that work.", labels=["pool"])
    threads = GaugeMetricFamily(
        "firnline_pool_threads", "Threads that the pool may have.", labels=["pool"]
    )
    for name, facts in pools.items():
        waiting.add_metric([name], facts.waiting)
        busy.add_metric([name], facts.busy)
        threads.add_metric([name], facts.threads)
    yield waiting
    yield busy
    yield threads
    reader, copier = pools.get("read", PoolFacts()), pools.get("copy", PoolFacts())
    yield GaugeMetricFamily(
        f"{_POOL}remotelogreadertaskqueuesize", "Reads that wait for a thread.", reader.waiting
    )
    yield GaugeMetricFamily(
        f"{_POOL}remotelogreaderavgidlepercent",
        "Part of the reading threads that do nothing now, from 0 to 1.",
        reader.idle,
    )
    yield GaugeMetricFamily(
        f"{_MANAGER}remotelogmanagertasksavgidlepercent",
        "Part of the copying threads that do nothing now, from 0 to 1.",
        copier.idle,
    )
