"""Which brokers get the replicas of new partitions. PURE. Source: KIP-36, KIP-631; spec I26.

Leaders go round robin over the active brokers, alternating racks. The topic id determines the first, so
topics spread and the result is deterministic. Followers come after the leader at a distance that grows with
each round, so the followers of one broker's partitions are on many brokers. A rack gets another replica of a
partition only if no rack with fewer can take it. Brokers without a rack form one rack.
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

    Brokers that are fenced or shutting down get followers only if the active ones are too few for the number
    of replicas or for a replica in every rack. Brokers with only cordoned directories get none.
    INVALID_REPLICATION_FACTOR if there are too few brokers, or none that can lead.
    """
    racks = {
        node_id: brokers[node_id].rack
        for node_id in sorted(brokers)
        if brokers[node_id].takes_new_replicas
    }
    active = _alternating([each for each in racks if brokers[each].is_active], racks)
    others = _alternating([each for each in racks if not brokers[each].is_active], racks)
    if replication_factor > len(racks):
        cordoned = len(brokers) - len(racks)
        which = f", {cordoned} of them cordoned" if cordoned else ""
        return KafkaError(
            Code.INVALID_REPLICATION_FACTOR,
            f"{replication_factor} replicas need as many brokers; {len(brokers)} are registered{which}",
        )
    if not active:
        return KafkaError(Code.INVALID_REPLICATION_FACTOR, "all brokers are fenced at the moment")
    start = int.from_bytes(topic_id, "big")
    if replication_factor <= len(active) and len(dict.fromkeys(racks.values())) == 1:
        return [
            _in_one_rack(active, start, partition, replication_factor)
            for partition in range(first_partition, first_partition + count)
        ]
    return [
        _replicas(active, others, racks, start, partition, replication_factor)
        for partition in range(first_partition, first_partition + count)
    ]


def _alternating(node_ids: Sequence[int], racks: Mapping[int, str | None]) -> list[int]:
    """Return the brokers in an order that alternates racks as long as more than one is left."""
    turns: dict[int, int] = {}
    seen: dict[str | None, int] = {}
    for node_id in node_ids:
        turns[node_id] = seen.get(racks[node_id], 0)
        seen[racks[node_id]] = turns[node_id] + 1
    return sorted(node_ids, key=lambda each: (turns[each], racks[each] or "", each))


def _in_one_rack(active: Sequence[int], start: int, partition: int, wanted: int) -> Assignment:
    """Return what `_replicas` returns without racks, at a cost independent of the number of brokers."""
    count = len(active)
    at, shift = (start + partition) % count, partition // count
    behind = (at + 1 + (shift + place) % (count - 1) for place in range(wanted - 1))
    return (active[at], *(active[place % count] for place in behind))


def _replicas(
    active: Sequence[int],
    others: Sequence[int],
    racks: Mapping[int, str | None],
    start: int,
    partition: int,
    wanted: int,
) -> Assignment:
    at = (start + partition) % len(active)
    behind = [*active[at + 1 :], *active[:at]]
    # The round number shifts the followers: partition p and p + n have the same leader, other followers.
    shift = (partition // len(active)) % max(len(behind), 1)
    followers = [*behind[shift:], *behind[:shift], *others]
    chosen = [active[at]]
    counts = dict.fromkeys(racks.values(), 0)
    counts[racks[active[at]]] = level = 1
    left = len(counts) - 1  # racks that have less than `level` replicas of this partition
    while len(chosen) < wanted:
        for node_id in followers:
            if not left or len(chosen) == wanted:
                break
            if counts[racks[node_id]] < level and node_id not in chosen:
                chosen.append(node_id)
                counts[racks[node_id]] += 1
                left -= 1
        level, left = level + 1, len(counts)
    return tuple(chosen)


def assignment_problem(
    brokers: Mapping[int, BrokerImage], replica_ids: Sequence[int]
) -> KafkaError | None:
    """Return the error if a partition cannot be on these brokers, else None. They may be fenced."""
    why = _replica_problem(brokers, replica_ids, None)
    return KafkaError(Code.INVALID_REPLICA_ASSIGNMENT, why) if why else None


def manual_problem(
    brokers: Mapping[int, BrokerImage], assignments: Iterable[Sequence[int]], replicas: int | None
) -> KafkaError | None:
    """Return the error if a client's own assignments are not valid, else None.

    replicas  the number of replicas of each partition; None: as many as the first has
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
