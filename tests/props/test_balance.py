"""A plan that spreads replicas: even, on the named brokers alone, and with no more moves than it needs."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.base.errors import KafkaError
from firnline.base.ids import TopicPartition
from firnline.client.operations.balance import Assignment, balanced

BROKERS = st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True)


@st.composite
def placed(draw: st.DrawFn) -> tuple[Assignment, list[int]]:
    """Partitions with up to as many replicas as there are named brokers, on any brokers."""
    brokers = draw(BROKERS)
    count = draw(st.integers(1, 12))
    size = draw(st.integers(1, len(brokers)))
    replicas = st.lists(st.integers(0, 9), min_size=size, max_size=size, unique=True).map(tuple)
    return {TopicPartition("t", n): draw(replicas) for n in range(count)}, brokers


@given(placed())
def test_replicas_are_even_and_only_where_they_may_be(case: tuple[Assignment, list[int]]) -> None:
    current, brokers = case
    found = balanced(current, dict.fromkeys(brokers))
    assert found.keys() == current.keys()
    counts = Counter(dict.fromkeys(brokers, 0))
    for place, replicas in found.items():
        assert len(set(replicas)) == len(replicas) == len(current[place])
        assert set(replicas) <= set(brokers)
        counts.update(replicas)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert balanced(found, dict.fromkeys(brokers)) == found, "what is even is left alone"


@given(placed())
def test_no_more_replicas_move_than_are_elsewhere_or_too_many(
    case: tuple[Assignment, list[int]],
) -> None:
    current, brokers = case
    found = balanced(current, dict.fromkeys(brokers))
    moved = sum(len({*found[place]} - {*current[place]}) for place in current)
    held = Counter(broker for replicas in current.values() for broker in replicas)
    total = sum(held.values())
    elsewhere = sum(count for broker, count in held.items() if broker not in brokers)
    above = sum(max(0, held[broker] - total // len(brokers)) for broker in brokers)
    # One that comes from elsewhere may fill a broker, of which another one must go then.
    assert moved <= 2 * elsewhere + above


@given(placed(), st.data())
def test_racks_are_not_given_up_for_evenness(
    case: tuple[Assignment, list[int]], data: st.DataObject
) -> None:
    current, brokers = case
    racks: dict[int, str | None] = {b: data.draw(st.sampled_from("xyz")) for b in brokers}
    for place, replicas in balanced(current, racks).items():
        kept = [broker for broker in current[place] if broker in racks]
        before = len({racks[broker] for broker in kept})
        assert len({racks[broker] for broker in replicas}) >= before


def test_preferred_leaders_are_shared_by_order_alone() -> None:
    current = {TopicPartition("t", n): (1, 2) for n in range(4)}
    found = balanced(current, {1: None, 2: None})
    assert Counter(replicas[0] for replicas in found.values()) == {1: 2, 2: 2}
    assert all({*replicas} == {1, 2} for replicas in found.values())


def test_the_replication_factor_may_change() -> None:
    place = TopicPartition("t", 0)
    racks: dict[int, str | None] = {1: "x", 2: "x", 3: "y"}
    assert {*balanced({place: (1,)}, racks, 2)[place]} == {1, 3}, "another rack first"
    assert balanced({place: (1, 2, 3)}, racks, 1)[place] == (1,)
    with pytest.raises(KafkaError, match="only 3 brokers are named"):
        balanced({place: (1,)}, racks, 4)
