"""Metrics of the replicas that a broker leads. WORLD.

Names and meanings are those of Kafka's ReplicaManager. A partition in reassignment counts as under-replicated
by its old replicas, not by those being added. Source: spec 2.10; KIP-841, KIP-858.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric

from firnline.broker.node import BrokerNode
from firnline.metadata.image import PartitionImage
from firnline.replica.alter import IsrCounters
from firnline.replica.partition import Partition
from firnline.server.broker_metrics.requests import twins

# Per slice: below a millisecond.
PARTITIONS_PER_SLICE = 250
_MANAGER = "kafka_server_replicamanager_"


class ReplicaFacts(NamedTuple):
    """Counts of led partitions, and of their proposed ISR changes."""

    partitions: int = 0
    leaders: int = 0
    offline: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    changes: IsrCounters = IsrCounters()
    unassigned_directories: int = 0
    max_lag: int = 0


def look(node: BrokerNode) -> Generator[None, None, ReplicaFacts]:
    """Read the values, on the loop; yields after some partitions, returns the facts."""
    hosted = list(node.hosted)
    facts = ReplicaFacts(
        partitions=len(hosted),
        changes=node.parts.replication.isr_counters,
        unassigned_directories=node.parts.replication.unassigned,
    )
    for first in range(0, len(hosted), PARTITIONS_PER_SLICE):
        facts = _with(facts, node, hosted[first : first + PARTITIONS_PER_SLICE])
        yield
    return facts


def _with(facts: ReplicaFacts, node: BrokerNode, some: Sequence[Partition]) -> ReplicaFacts:
    """Return the facts with some more partitions."""
    led = [partition for partition in some if partition.is_leader]
    states = [(partition, _state(node, partition)) for partition in led]
    return facts._replace(
        leaders=facts.leaders + len(led),
        max_lag=max([facts.max_lag, *(each.lag for each in some if not each.is_leader)]),
        offline=facts.offline + sum(partition.is_offline for partition in some),
        under_replicated=facts.under_replicated
        + sum(len(partition.isr) < _factor(partition, state) for partition, state in states),
        under_min_isr=facts.under_min_isr
        + sum(len(partition.isr) < partition.min_isr for partition in led),
        at_min_isr=facts.at_min_isr
        + sum(len(partition.isr) == partition.min_isr for partition in led),
        reassigning=facts.reassigning
        + sum(
            state is not None and bool(state.adding_replicas or state.removing_replicas)
            for _, state in states
        ),
    )


def _state(node: BrokerNode, partition: Partition) -> PartitionImage | None:
    return node.image.partition(*partition.topic_partition)


def _factor(partition: Partition, state: PartitionImage | None) -> int:
    coming = 0 if state is None else len(state.adding_replicas)
    return len(partition.replicas) - coming


def families(found: ReplicaFacts) -> Iterator[Metric]:
    """Yield them as Prometheus families."""
    for name, value, words in (
        ("partitioncount", found.partitions, "Partitions on this broker."),
        ("leadercount", found.leaders, "Partitions that this broker leads."),
        ("offlinereplicacount", found.offline, "Partitions whose files failed."),
        ("underreplicatedpartitions", found.under_replicated, "Led, with replicas out of sync."),
        ("underminisrpartitioncount", found.under_min_isr, "Led, and acks=all is refused."),
        ("atminisrpartitioncount", found.at_min_isr, "Led, and one replica away from that."),
        ("reassigningpartitions", found.reassigning, "Led, and being reassigned."),
    ):
        yield GaugeMetricFamily(_MANAGER + name, words, value)
    for name, count, words in (
        ("isrexpands", found.changes.expands, "Replicas joined an ISR."),
        ("isrshrinks", found.changes.shrinks, "Replicas left an ISR."),
        ("failedisrupdates", found.changes.failed, "Proposed ISR changes that were refused."),
    ):
        for family in twins(_MANAGER + name, words, ()):
            family.add_metric((), count)  # type: ignore[attr-defined]
            yield family
    lag = GaugeMetricFamily(
        "kafka_server_replicafetchermanager_maxlag",
        "The most records that a replica here lacks of what its leader has committed.",
        labels=["clientId", "clientid"],  # two rule files for the JMX exporter spell it in two ways
    )
    lag.add_metric(["Replica", "Replica"], found.max_lag)
    yield lag
    yield GaugeMetricFamily(
        "kafka_server_assignmentsmanager_queuedreplicatodirassignments",
        "Replicas whose directory the controller does not know yet.",
        found.unassigned_directories,
    )
