"""What a cluster tells clients of a topic, asked until it is so. WORLD.

A broker answers from the metadata that it has: right after a change it may not know of it, know a topic
before its partitions, name no leader, or die in mid-answer. So nothing here is asked once.
"""

from collections.abc import Callable, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, PartitionMetadata

from tests.peers.nodes import eventually

_PATIENCE_S = 60.0
_ANSWER_S = 5.0
Partitions = Mapping[int, PartitionMetadata]


def cluster_of(admin: AdminClient, topic: str | None = None) -> ClusterMetadata:
    """Return what a broker tells now of all topics, or of one. OSError when none does so soon.

    A request that was meant for a broker that died waits in librdkafka until its time is over: it is short,
    and whoever asks asks again.
    """
    try:
        return admin.list_topics(topic, timeout=_ANSWER_S)
    except KafkaException as problem:
        raise OSError(str(problem)) from problem


def partitions_of(admin: AdminClient, topic: str) -> Partitions:
    """Return what is told of a topic's partitions now, by number: nothing while nothing is."""
    try:
        found: Partitions = cluster_of(admin, topic).topics[topic].partitions
    except OSError:
        return {}
    return found


def await_partitions(
    admin: AdminClient, topic: str, count: int, holds: Callable[[PartitionMetadata], object]
) -> Partitions:
    """Return what is told of a topic when that is `count` partitions, and `holds` is true of each."""
    last: Partitions = {}

    def is_so() -> bool:
        nonlocal last
        last = partitions_of(admin, topic)
        return len(last) == count and all(holds(each) for each in last.values())

    what = f"{topic} is told with {count} partitions as they are to be"
    try:
        eventually(what, is_so, within_s=_PATIENCE_S)
    except AssertionError as problem:
        reported = {n: (each.leader, each.isrs) for n, each in last.items()}
        raise AssertionError(f"{problem}; told are (leader, ISR) {reported}") from None
    return last


def await_partition(
    admin: AdminClient, topic: str, holds: Callable[[PartitionMetadata], object]
) -> PartitionMetadata:
    """Return what is told of the one partition of a topic when `holds` is true of it."""
    return await_partitions(admin, topic, 1, holds)[0]


def is_led(partition: PartitionMetadata) -> bool:
    """Whether somebody leads it."""
    return bool(partition.leader >= 0)


def is_complete(partition: PartitionMetadata) -> bool:
    """Whether somebody leads it, and every replica is in its ISR."""
    return is_led(partition) and set(partition.isrs) == set(partition.replicas)
