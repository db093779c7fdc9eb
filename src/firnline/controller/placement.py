"""Which brokers get the replicas of new partitions. PURE. Source: KIP-631; spec I26.

Leaders go round the active brokers in id order, from a start that the topic id gives, so topics spread
and the same question has the same answer. Followers come behind the leader at a distance that grows with
each round, so that one broker's partitions have their followers on many. Racks are not looked at.
"""

from collections.abc import Iterable, Mapping, Sequence

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import Uuid
from firnline.metadata.image import BrokerImage

Assignment = tuple[int, ...]


def place(
    brokers: Mapping[int, BrokerImage],
    *,
    topic_id: Uuid,
    first_partition: int,
    count: int,
    replication_factor: int,
) -> list[Assignment] | KafkaError:
    """Return replicas, preferred leader first, of `count` partitions from `first_partition` on.

    Brokers that are fenced or on their way out get followers only where the others do not suffice.
    KafkaError INVALID_REPLICATION_FACTOR when there are too few brokers, or none that could lead.
    """
    active = [node_id for node_id in sorted(brokers) if brokers[node_id].is_active]
    others = [node_id for node_id in sorted(brokers) if not brokers[node_id].is_active]
    if replication_factor > len(brokers):
        return KafkaError(
            Code.INVALID_REPLICATION_FACTOR,
            f"{replication_factor} replicas need as many brokers; {len(brokers)} are registered",
        )
    if not active:
        return KafkaError(Code.INVALID_REPLICATION_FACTOR, "all brokers are fenced at the moment")
    start = int.from_bytes(topic_id, "big")
    return [
        _replicas(active, others, start, partition, replication_factor)
        for partition in range(first_partition, first_partition + count)
    ]


def _replicas(
    active: Sequence[int], others: Sequence[int], start: int, partition: int, wanted: int
) -> Assignment:
    leader = (start + partition) % len(active)
    rest = len(active) - 1
    # The round number shifts the followers: partition p and p + n have the same leader, other followers.
    shift = (partition // len(active)) % max(rest, 1)
    followers = [
        active[(leader + 1 + (shift + step) % rest) % len(active)]
        for step in range(min(wanted - 1, rest))
    ]
    return (active[leader], *followers, *others[: wanted - 1 - len(followers)])


def assignment_problem(
    brokers: Mapping[int, BrokerImage], replica_ids: Sequence[int]
) -> KafkaError | None:
    """Say why a partition cannot be on these brokers, or return None. They may be fenced."""
    why = _replica_problem(brokers, replica_ids, None)
    return KafkaError(Code.INVALID_REPLICA_ASSIGNMENT, why) if why else None


def manual_problem(
    brokers: Mapping[int, BrokerImage], assignments: Iterable[Sequence[int]], replicas: int | None
) -> KafkaError | None:
    """Say why these replicas cannot be used as a client chose them, or return None.

    `replicas` is how many each partition must have; None: as many as the first.
    """
    for replica_ids in assignments:
        why = _replica_problem(brokers, replica_ids, replicas)
        if why:
            return KafkaError(Code.INVALID_REPLICA_ASSIGNMENT, why)
        replicas = len(replica_ids)
        if not any(brokers[node_id].is_active for node_id in replica_ids):
            return KafkaError(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"all brokers of the assignment {list(replica_ids)} are fenced or shutting down",
            )
    return None


def _replica_problem(
    brokers: Mapping[int, BrokerImage], replica_ids: Sequence[int], replicas: int | None
) -> str | None:
    if not replica_ids:
        return "an assignment names no broker"
    for place_in_list, node_id in enumerate(replica_ids):
        if node_id not in brokers:
            return f"an assignment names broker {node_id}, which is not registered"
        if node_id in replica_ids[:place_in_list]:
            return f"an assignment names broker {node_id} twice"
    if replicas is not None and len(replica_ids) != replicas:
        return f"an assignment has {len(replica_ids)} replicas where the others have {replicas}"
    return None
