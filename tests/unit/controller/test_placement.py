"""Where replicas go: over racks first, then evenly over brokers (KIP-36)."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from firnline.base.errors import Code, KafkaError
from firnline.controller.placement import Assignment, _in_one_rack, _replicas, place
from firnline.metadata.image import BrokerImage


def broker(node_id: int, rack: str | None, *, fenced: bool = False) -> BrokerImage:
    return BrokerImage(
        broker_id=node_id,
        epoch=node_id,
        incarnation_id=bytes(16),
        endpoints=(),
        features=Map(),
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=False,
        log_dirs=(),
    )


def cluster(racks: dict[int, str | None], *fenced: int) -> dict[int, BrokerImage]:
    return {each: broker(each, racks[each], fenced=each in fenced) for each in racks}


def placed(
    brokers: dict[int, BrokerImage], factor: int, count: int = 60, topic: int = 0
) -> list[Assignment]:
    found = place(
        brokers,
        topic_id=topic.to_bytes(16, "big"),
        first_partition=0,
        count=count,
        replication_factor=factor,
    )
    assert not isinstance(found, KafkaError), found
    return found


THREE_RACKS: dict[int, str | None] = {n: "abc"[(n - 1) // 3] for n in range(1, 10)}


@pytest.mark.parametrize("factor", [2, 3])
def test_the_loss_of_a_rack_never_takes_two_replicas_while_another_rack_has_none(
    factor: int,
) -> None:
    for replicas in placed(cluster(THREE_RACKS), factor):
        assert len({THREE_RACKS[each] for each in replicas}) == factor


def test_more_replicas_than_racks_are_spread_over_racks_all_the_same() -> None:
    for replicas in placed(cluster(THREE_RACKS), 5):
        assert sorted(Counter(THREE_RACKS[each] for each in replicas).values()) == [1, 2, 2]


def test_leaders_and_replicas_are_even_over_brokers_of_even_racks() -> None:
    found = placed(cluster(THREE_RACKS), 3, count=72)
    leaders = Counter(replicas[0] for replicas in found)
    assert set(leaders.values()) == {8}
    held = Counter(each for replicas in found for each in replicas)
    assert sorted(held) == list(range(1, 10))
    assert max(held.values()) - min(held.values()) <= 3, held
    followers = {replicas[1:] for replicas in found if replicas[0] == 1}
    assert len(followers) >= 4, "one broker's loss moves its load to many"


def test_leaders_do_not_all_begin_in_one_rack() -> None:
    first = Counter(
        THREE_RACKS[placed(cluster(THREE_RACKS), 1, count=1, topic=topic)[0][0]]
        for topic in range(9)
    )
    assert first == {"a": 3, "b": 3, "c": 3}


def test_a_fenced_broker_never_leads_and_gets_a_replica_only_for_its_rack() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "c"}
    for replicas in placed(cluster(racks, 4), 2):
        assert 4 not in replicas, "two racks have brokers that live"
    for replicas in placed(cluster(racks, 4), 3):
        assert 4 in replicas[1:]
        assert 3 in replicas


def test_brokers_without_a_rack_share_one() -> None:
    racks: dict[int, str | None] = {1: None, 2: None, 3: "b"}
    for replicas in placed(cluster(racks), 2):
        assert 3 in replicas


def test_too_few_brokers_and_none_that_live_are_refused() -> None:
    def code(brokers: dict[int, BrokerImage], factor: int) -> Code:
        found = place(
            brokers, topic_id=bytes(16), first_partition=0, count=1, replication_factor=factor
        )
        assert isinstance(found, KafkaError)
        return found.code

    racks: dict[int, str | None] = {1: "a", 2: "b"}
    assert code(cluster(racks), 3) == Code.INVALID_REPLICATION_FACTOR
    assert code(cluster(racks, 1, 2), 1) == Code.INVALID_REPLICATION_FACTOR


@given(
    st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=12),
    st.data(),
)
def test_whatever_the_racks_replicas_are_as_many_distinct_and_as_spread_as_can_be(
    names: list[str | None], data: st.DataObject
) -> None:
    racks = dict(enumerate(names))
    fenced = data.draw(st.sets(st.sampled_from(sorted(racks)), max_size=len(racks) - 1))
    factor = data.draw(st.integers(1, len(racks)))
    sizes = Counter(racks.values())
    for replicas in placed(cluster(racks, *sorted(fenced)), factor, count=13):
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] not in fenced
        counts = Counter(racks[each] for each in replicas)
        for rack, size in sizes.items():
            if counts[rack] < size:
                assert counts[rack] >= max(counts.values()) - 1, (replicas, racks)


def test_without_racks_replicas_are_those_that_the_rule_for_racks_gives() -> None:
    dice = random.Random(1)
    for _ in range(300):
        active = dice.sample(range(50), dice.randint(1, 12))
        wanted, partition = dice.randint(1, len(active)), dice.randint(0, 500)
        start = dice.getrandbits(128)
        by_racks = _replicas(active, [], dict.fromkeys(active), start, partition, wanted)
        assert _in_one_rack(active, start, partition, wanted) == by_racks


def test_a_broker_whose_directories_are_all_cordoned_takes_nothing_new() -> None:
    """KIP-1066: and with one that is not cordoned it does."""
    a, b = b"a" * 16, b"b" * 16
    brokers = cluster({1: None, 2: None, 3: None})
    brokers[2] = brokers[2]._replace(log_dirs=(a, b), cordoned_log_dirs=(b, a))
    brokers[3] = brokers[3]._replace(log_dirs=(a, b), cordoned_log_dirs=(b,))
    assert {each for replicas in placed(brokers, 2) for each in replicas} == {1, 3}
    refused = place(brokers, topic_id=bytes(16), first_partition=0, count=1, replication_factor=3)
    assert isinstance(refused, KafkaError)
    assert refused.code == Code.INVALID_REPLICATION_FACTOR
