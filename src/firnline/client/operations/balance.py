"""Which brokers are to have the replicas of some partitions: evenly, with few moves. PURE."""

from collections import Counter
from collections.abc import Mapping, Sequence

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import TopicPartition

Assignment = dict[TopicPartition, tuple[int, ...]]


def balanced(
    current: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str | None],
    replication_factor: int | None = None,
) -> Assignment:
    """Return replicas for each partition, preferred leader first, on the brokers of `racks` alone.

    A replica stays where it is unless its broker is not among them, or has more than its share. Two brokers
    differ by at most one replica, if no rack has a say; with racks, no partition is on fewer of them for it.
    Raises KafkaError if there are fewer brokers than replicas.
    """
    wanted: dict[TopicPartition, list[int]] = {}
    counts = Counter(dict.fromkeys(racks, 0))
    for place, replicas in sorted(current.items()):
        size = replication_factor or len(replicas)
        if size > len(racks):
            why = f"{place} is to have {size} replicas, but only {len(racks)} brokers are named"
            raise KafkaError(Code.INVALID_REPLICATION_FACTOR, why)
        wanted[place] = [broker for broker in replicas if broker in racks][:size]
        counts.update(wanted[place])
    for place, replicas in wanted.items():
        while len(replicas) < (replication_factor or len(current[place])):
            chosen = min(
                (broker for broker in sorted(racks) if broker not in replicas),
                key=lambda broker: (_shared(replicas, broker, racks), counts[broker]),
            )
            replicas.append(chosen)
            counts[chosen] += 1
    _level(wanted, counts, racks)
    _share_leaders(wanted, sorted(racks))
    return {place: tuple(replicas) for place, replicas in wanted.items()}


def _shared(replicas: Sequence[int], broker: int, racks: Mapping[int, str | None]) -> int:
    """Return how many of the replicas share the broker's rack."""
    rack = racks[broker]
    return 0 if rack is None else sum(racks[other] == rack for other in replicas)


def _level(
    wanted: dict[TopicPartition, list[int]], counts: Counter[int], racks: Mapping[int, str | None]
) -> None:
    """Move replicas from the fullest broker to the emptiest one that may take one, until they are even."""
    while _move_one(wanted, counts, racks):
        pass


def _move_one(
    wanted: dict[TopicPartition, list[int]], counts: Counter[int], racks: Mapping[int, str | None]
) -> bool:
    by_load = sorted(racks, key=lambda broker: (counts[broker], broker))
    for full in reversed(by_load):
        for empty in by_load:
            if counts[full] - counts[empty] < 2:
                break
            for replicas in wanted.values():
                if full not in replicas or empty in replicas:
                    continue
                others = [broker for broker in replicas if broker != full]
                if _shared(others, empty, racks) <= _shared(others, full, racks):
                    replicas[replicas.index(full)] = empty
                    counts[full] -= 1
                    counts[empty] += 1
                    return True
    return False


def _share_leaders(wanted: dict[TopicPartition, list[int]], brokers: Sequence[int]) -> None:
    """Put another replica first where its broker is preferred less often; that copies nothing."""
    preferred = Counter(dict.fromkeys(brokers, 0))
    preferred.update(replicas[0] for replicas in wanted.values() if replicas)
    while True:
        for replicas in wanted.values():
            other = min(replicas, key=lambda broker: (preferred[broker], broker))
            if preferred[replicas[0]] - preferred[other] >= 2:
                preferred[replicas[0]] -= 1
                preferred[other] += 1
                at = replicas.index(other)
                replicas[0], replicas[at] = other, replicas[0]
                break
        else:
            return
