"""What a broker knows of the replicas it leads, for the metrics port. WORLD.

Names and meanings are those of Kafka's ReplicaManager: a partition that is moved is under-replicated by the
replicas it had, not by those on their way in. Source: spec 2.10; KIP-841, KIP-858.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from firnline.broker.node import BrokerNode
from firnline.metadata.image import PartitionImage
from firnline.replica.alter import IsrCounters
from firnline.replica.partition import Partition

# Looked at in one go: below a millisecond.
PARTITIONS_PER_LOOK = 250
_MANAGER = "kafka_server_replicamanager_"


class ReplicaFacts(NamedTuple):
    """Counts of partitions that are led here, and of what was proposed for them.

    evicted_producers  that partitions which are here forgot to make room for others, since they were opened
    """

    partitions: int = 0
    leaders: int = 0
    offline: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    changes: IsrCounters = IsrCounters()
    unassigned_directories: int = 0
    evicted_producers: int = 0


def look(node: BrokerNode) -> Generator[None, None, ReplicaFacts]:
    """Take the facts, on the loop; yields after some partitions, returns them."""
    hosted = list(node.hosted)
    facts = ReplicaFacts(
        partitions=len(hosted),
        changes=node.parts.replication.isr_counters,
        unassigned_directories=node.parts.replication.unassigned,
    )
    for first in range(0, len(hosted), PARTITIONS_PER_LOOK):
        facts = _with(facts, node, hosted[first : first + PARTITIONS_PER_LOOK])
        yield
    return facts


def _with(facts: ReplicaFacts, node: BrokerNode, some: Sequence[Partition]) -> ReplicaFacts:
    """Return the facts with those of some more partitions."""
    led = [partition for partition in some if partition.is_leader]
    states = [(partition, _state(node, partition)) for partition in led]
    return facts._replace(
        leaders=facts.leaders + len(led),
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
        evicted_producers=facts.evicted_producers
        + sum(partition.log.producers.evicted for partition in some),
    )


def _state(node: BrokerNode, partition: Partition) -> PartitionImage | None:
    return node.image.partition(*partition.topic_partition)


def _factor(partition: Partition, state: PartitionImage | None) -> int:
    coming = 0 if state is None else len(state.adding_replicas)
    return len(partition.replicas) - coming


def families(found: ReplicaFacts) -> Iterator[Metric]:
    """Say facts in Prometheus' terms."""
    for name, value, words in (
        ("partitioncount", found.partitions, "Partitions here."),
        ("leadercount", found.leaders, "Partitions led here."),
        ("offlinereplicacount", found.offline, "Partitions whose files failed."),
        ("underreplicatedpartitions", found.under_replicated, "Led, with replicas out of sync."),
        ("underminisrpartitioncount", found.under_min_isr, "Led, and acks=all is refused."),
        ("atminisrpartitioncount", found.at_min_isr, "Led, and one loss from that."),
        ("reassigningpartitions", found.reassigning, "Led, and on the way to other brokers."),
    ):
        yield GaugeMetricFamily(_MANAGER + name, words, value)
    for name, count, words in (
        ("isrexpands", found.changes.expands, "Replicas joined an ISR."),
        ("isrshrinks", found.changes.shrinks, "Replicas left an ISR, as their leader proposed."),
        ("failedisrupdates", found.changes.failed, "Proposals that were refused."),
    ):
        yield CounterMetricFamily(_MANAGER + name, words, count)
    yield GaugeMetricFamily(
        "kafka_server_assignmentsmanager_queuedreplicatodirassignments",
        "Replicas whose directory the controller does not know yet.",
        found.unassigned_directories,
    )
    # Not a counter: a partition that goes takes its own with it.
    yield GaugeMetricFamily(
        "firnline_producers_evicted",
        "Producers that partitions here forgot before their time.",
        found.evicted_producers,
    )
