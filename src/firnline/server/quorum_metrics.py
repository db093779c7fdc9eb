"""Metrics of the metadata quorum. WORLD.

The quorum counts in plain numbers; this module names them like Kafka's beans (raft-metrics, SnapshotEmitter,
MetadataLoader, KafkaController) in the spelling of the JMX exporter, with KIP-630's own four. Rates and
averages are over the scrapes of the last minute, as Kafka's are over two windows of 30 s. Source: spec 1.14.
"""

import threading
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UnknownMetricFamily,
)

from firnline.metadata.image import ClusterImage
from firnline.metadata.partition_counts import Latencies
from firnline.metadata.quorum import MetadataCounters, MetadataQuorum
from firnline.metadata.snapshotter import SnapshotCounters
from firnline.raft.node import QuorumCounters

_RAFT = "kafka_server_raft_metrics_"
_EMITTER = "kafka_server_snapshotemitter_"
_LOADER = "kafka_server_metadataloader_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
_WINDOW_MS = 60_000

Numbers = tuple[tuple[str, float, str], ...]


class Histogram(NamedTuple):
    """A copy of `Latencies`: the count of each bucket, and their sum."""

    counts: tuple[int, ...]
    sum_ms: int


class Cluster(NamedTuple):
    """What the committed image says of the cluster."""

    metadata_version: int
    topics: int
    partitions: int
    offline_partitions: int
    imbalanced_partitions: int
    unclean_elections: int
    last_standing_elections: int
    fenced_brokers: int
    active_brokers: int


class QuorumFacts(NamedTuple):
    """All values at one moment."""

    now_ms: int
    is_voter: bool
    raft: QuorumCounters
    metadata: MetadataCounters
    cluster: Cluster
    snapshots: SnapshotCounters
    newest_snapshot_bytes: int
    newest_snapshot_end: int
    damaged_snapshots: int
    lacks_promised: bool
    generated_in: Histogram
    loaded_in: Histogram


def look(quorum: MetadataQuorum, now_ms: int) -> QuorumFacts:
    """Read the values, on the loop."""
    state = quorum.snapshot_state()
    newest_id, newest_bytes = state.snapshots[-1][:2] if state.snapshots else (None, 0)
    return QuorumFacts(
        now_ms=now_ms,
        is_voter=quorum.raft.node_id in quorum.raft.voters,
        raft=quorum.raft.counters(),
        metadata=quorum.counters(),
        cluster=_cluster(quorum, quorum.image),
        snapshots=quorum.snapshotter.counters,
        newest_snapshot_bytes=newest_bytes,
        newest_snapshot_end=0 if newest_id is None else newest_id.offset,
        damaged_snapshots=len(state.damaged_ids),
        lacks_promised=state.forgotten is not None,
        generated_in=_histogram(quorum.snapshotter.latencies),
        loaded_in=_histogram(quorum.load_latencies),
    )


def _cluster(quorum: MetadataQuorum, image: ClusterImage) -> Cluster:
    counts = quorum.partition_counts
    fenced = sum(broker.fenced for broker in image.brokers.values())
    return Cluster(
        metadata_version=image.metadata_version,
        topics=len(image.topics_by_id),
        partitions=counts.partitions,
        offline_partitions=counts.offline,
        imbalanced_partitions=counts.imbalanced,
        unclean_elections=counts.unclean_elections,
        last_standing_elections=counts.last_standing_elections,
        fenced_brokers=fenced,
        active_brokers=len(image.brokers) - fenced,
    )


def _histogram(latencies: Latencies) -> Histogram:
    return Histogram(tuple(latencies.counts), latencies.sum_ms)


class QuorumFamilies:
    """Yields values as Prometheus families; remembers those of the last minute. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[QuorumFacts] = deque()

    def families(self, facts: QuorumFacts) -> Iterator[Metric]:
        """Yield all families at one moment."""
        yield _state(facts)
        for name, value, words in self._gauges(facts):
            yield GaugeMetricFamily(name, words, value)
        yield from _of_kip_630(facts)
        if facts.is_voter:
            yield from _of_controllers(facts)

    def _gauges(self, facts: QuorumFacts) -> Numbers:
        return _of_raft(facts) + self._over_time(facts) + _of_snapshots(facts)

    def _over_time(self, facts: QuorumFacts) -> Numbers:
        with self._lock:
            while self._samples and facts.now_ms - self._samples[0].now_ms > _WINDOW_MS:
                self._samples.popleft()
            base = self._samples[0] if self._samples else facts
            self._samples.append(facts)
        elapsed_s = (facts.now_ms - base.now_ms) / 1000
        now, was = facts.raft, base.raft
        is_first = base is facts

        def mean(sum_ms: int, count: int, sum_before: int, count_before: int) -> float:
            events = count - (0 if is_first else count_before)
            return (sum_ms - (0 if is_first else sum_before)) / events if events else float("nan")

        def rate(count: int, before: int) -> float:
            return (count - before) / elapsed_s if elapsed_s > 0 else 0.0

        commit = mean(now.commit_ms_sum, now.commits, was.commit_ms_sum, was.commits)
        election = mean(now.election_ms_sum, now.elections, was.election_ms_sum, was.elections)
        return (
            (_RAFT + "commit_latency_avg", commit, "Time from append to commit, ms."),
            (_RAFT + "election_latency_avg", election, "Time to elect a leader, ms."),
            (
                _RAFT + "fetch_records_rate",
                rate(now.fetched_records, was.fetched_records),
                "Records a second that were fetched from the leader.",
            ),
            (
                _RAFT + "append_records_rate",
                rate(now.appended_records, was.appended_records),
                "Records a second that were appended as leader.",
            ),
        )


def _state(facts: QuorumFacts) -> Metric:
    name = facts.raft.role.value if facts.is_voter else "observer"
    family = GaugeMetricFamily(
        _RAFT + "current_state", "1 for the current state.", labels=["current_state"]
    )
    family.add_metric([name], 1)
    return family


def _of_raft(facts: QuorumFacts) -> Numbers:
    raft = facts.raft
    return (
        (_RAFT + "current_leader", raft.leader_id, "Node id of the leader; -1 for none."),
        (_RAFT + "current_vote", raft.voted_id, "Node id voted for in this epoch; -1 for none."),
        (_RAFT + "current_epoch", raft.epoch, "Epoch of the quorum."),
        (
            _RAFT + "high_watermark",
            raft.high_watermark,
            "The high watermark; -1 while it is not known.",
        ),
        (_RAFT + "log_end_offset", raft.log_end_offset, "Offset of the next record."),
        (_RAFT + "log_end_epoch", raft.log_end_epoch, "Epoch of the last record."),
        (_RAFT + "commit_latency_max", raft.commit_ms_max, "Longest time to commit, ms."),
        (_RAFT + "election_latency_max", raft.election_ms_max, "Longest election, ms."),
    )


def _of_snapshots(facts: QuorumFacts) -> Numbers:
    made = facts.snapshots
    at_ms = made.latest_generated_at_ms
    return (
        (
            _EMITTER + "latestsnapshotgeneratedbytes",
            max(made.latest_size_bytes, 0),
            "Size of the last snapshot that this process took.",
        ),
        (
            _EMITTER + "latestsnapshotgeneratedagems",
            facts.now_ms - at_ms if at_ms >= 0 else -1,
            "Age of that snapshot; -1 for none.",
        ),
        (
            _LOADER + "currentmetadataversion",
            facts.cluster.metadata_version,
            "Level of metadata.version.",
        ),
        (
            _LOADER + "handleloadsnapshotcount",
            facts.metadata.snapshots_loaded,
            "Snapshots loaded since the start.",
        ),
        (_LOADER + "currentcontrollerid", facts.raft.leader_id, "Active controller; -1 for none."),
    )


def _of_kip_630(facts: QuorumFacts) -> Iterator[Metric]:
    """KIP-630's four metrics, and what it forgot; on every node, because every node takes snapshots."""
    lag_offsets = max(facts.raft.high_watermark, 0) - facts.newest_snapshot_end
    for name, value, words in (
        (
            _CONTROLLER + "snapshotsizebytes",
            facts.newest_snapshot_bytes,
            "Size of the newest snapshot of this node.",
        ),
        (
            _CONTROLLER + "snapshotlag",
            max(lag_offsets, 0),
            "Committed records that no snapshot of this node has.",
        ),
        (
            "firnline_metadata_snapshots_damaged",
            facts.damaged_snapshots,
            "Damaged snapshots that were taken out of use.",
        ),
        (
            "firnline_metadata_lacks_promised_records",
            int(facts.lacks_promised),
            "1 while the log lacks metadata that damage cost: the node takes no part in elections.",
        ),
    ):
        yield GaugeMetricFamily(name, words, value)
    for name, count, words in (
        ("taken", facts.snapshots.generated, "Snapshots taken since the start."),
        ("failed", facts.snapshots.failed, "Snapshots that failed since the start."),
    ):
        yield CounterMetricFamily(f"firnline_metadata_snapshots_{name}", words, count)
    for name, found, words in (
        ("gensnapshotlatencyms", facts.generated_in, "Time to take a snapshot, ms."),
        ("loadsnapshotlatencyms", facts.loaded_in, "Time to load a snapshot, ms."),
    ):
        yield _as_histogram(_CONTROLLER + name, words, found)


def _of_controllers(facts: QuorumFacts) -> Iterator[Metric]:
    for name, value, words in _controller_gauges(facts):
        yield GaugeMetricFamily(_CONTROLLER + name, words, value)
    yield CounterMetricFamily(
        "kafka_controller_controllerstats_uncleanleaderelections",
        "Elections of leaders outside the ISR, as seen by this node.",
        facts.cluster.unclean_elections,
    )
    yield UnknownMetricFamily(
        "kafka_controller_controllerstats_uncleanleaderelectionspersec",
        "The same, as other rules for the JMX exporter name it.",
        facts.cluster.unclean_elections,
    )
    yield CounterMetricFamily(
        "firnline_controller_last_standing_elections",
        "Elections of the last replica standing, as seen by this node.",
        facts.cluster.last_standing_elections,
    )


def _controller_gauges(facts: QuorumFacts) -> Numbers:
    cluster, metadata = facts.cluster, facts.metadata
    lag_ms = 0 if metadata.is_active else facts.now_ms - metadata.last_applied_timestamp_ms
    return (
        ("activecontrollercount", int(metadata.is_active), "1 on the active controller."),
        (
            "newactivecontrollerscount",
            metadata.new_active_controllers,
            "Changes of the active controller.",
        ),
        ("lastappliedrecordoffset", metadata.last_applied_offset, "Last record applied."),
        ("lastcommittedrecordoffset", metadata.last_committed_offset, "Last record committed."),
        (
            "lastappliedrecordtimestamp",
            metadata.last_applied_timestamp_ms,
            "When the last record applied was written, ms since 1970.",
        ),
        (
            "lastappliedrecordlagms",
            lag_ms,
            "Time since the last applied record was written; 0 on the active controller.",
        ),
        ("fencedbrokercount", cluster.fenced_brokers, "Brokers that are fenced."),
        ("activebrokercount", cluster.active_brokers, "Brokers that are not fenced."),
        ("globaltopiccount", cluster.topics, "Topics."),
        ("globalpartitioncount", cluster.partitions, "Partitions."),
        ("offlinepartitionscount", cluster.offline_partitions, "Partitions without a leader."),
        (
            "preferredreplicaimbalancecount",
            cluster.imbalanced_partitions,
            "Partitions whose leader is not their preferred leader.",
        ),
    )


def _as_histogram(name: str, words: str, found: Histogram) -> Metric:
    buckets, total = [], 0
    for bound, count in zip((*Latencies.BOUNDS_MS, "+Inf"), found.counts, strict=True):
        total += count
        buckets.append((str(bound), total))
    return HistogramMetricFamily(name, words, buckets=buckets, sum_value=found.sum_ms)
