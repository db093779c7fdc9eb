"""Committed offsets are forgotten by request (KIP-496): answered once that is in the log, and for good."""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.base.ids import TopicPartition
from firnline.coordinator.records import OffsetCommitKey, encode_key
from tests.worlds.decoded import all_records
from tests.worlds.groups import GROUP, GroupWorld, Reported, subscription


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def forget(
    world: GroupWorld,
    *places: tuple[str, int],
    group: str = GROUP,
    meanwhile: Callable[[], Any] | None = None,
) -> None:
    def answer(code: Code, codes: Sequence[Code]) -> Effects:
        return [Reported("forget", (code, list(codes)))]  # type: ignore[list-item]

    partitions = [TopicPartition(*place) for place in places]
    topics = {topic for topic, _ in places}
    subscribed, _ = to_the_end(world.groups.find_subscribed(group, topics))
    delete = partial(world.groups.delete_offsets, group, partitions, subscribed, answer)
    if meanwhile is not None:
        meanwhile()
    world.run(delete(world.now_ms))


def to_the_end(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """Return what is found, and after how many pauses."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as found:
            return found.value, pauses
        pauses += 1


def test_it_is_answered_once_the_tombstones_are_in_the_log(world: GroupWorld) -> None:
    world.commit("a", ("t", 0, 5), ("t", 1, 6), ("u", 0, 7))
    world.holds_appends = True
    forget(world, ("t", 0), ("u", 0), ("u", 9))
    assert world.is_waiting("forget")
    assert len(world.fetched()) == 3
    world.commit_appends()
    assert world.answer_to("forget") == (Code.NONE, [Code.NONE] * 3)
    for _ in range(2):
        assert world.fetched() == {("t", 1): 6}
        world.crash()


def test_what_is_not_there_is_not_written(world: GroupWorld) -> None:
    world.commit("a", ("t", 0, 5))
    world.holds_appends = True
    forget(world, ("t", 1), ("t", 1))
    assert world.answer_to("forget") == (Code.NONE, [Code.NONE] * 2)
    forget(world, ("t", 0), ("t", 0))
    [append] = world.appends
    key = encode_key(OffsetCommitKey(group=GROUP, topic="t", partition=0))
    assert [(row.key, row.value) for row in all_records(append.batch)] == [(key, None)]


def test_a_commit_on_its_way_is_forgotten_too_and_one_after_the_tombstone_is_not(
    world: GroupWorld,
) -> None:
    world.commit("before", ("t", 0, 1))
    world.holds_appends = True
    world.commit("during", ("t", 1, 2))
    forget(world, ("t", 0), ("t", 1))
    world.commit("after", ("t", 1, 3))
    world.commit_appends()
    assert world.fetched() == {("t", 1): 3}
    world.crash()
    assert world.fetched() == {("t", 1): 3}


def test_what_cannot_be_written_is_said_and_stays(world: GroupWorld) -> None:
    world.commit("a", ("t", 0, 5))
    world.holds_appends = True
    forget(world, ("t", 0))
    world.fail_appends(Code.NOT_LEADER_OR_FOLLOWER)
    code, _ = world.answer_to("forget")
    assert code is Code.NOT_COORDINATOR
    assert world.fetched() == {("t", 0): 5}


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_in_every_state_with_members_their_topics_stay(world: GroupWorld, state: str) -> None:
    ids = world.stable("a", metadata=subscription("t"))
    world.commit("a", ("t", 0, 5), ("u", 0, 6), member_id=ids["a"], generation=1)
    world.take_reported()
    if state != "Stable":
        world.enter("b", metadata=subscription("t"))
    if state == "CompletingRebalance":
        world.join("a", ids["a"], metadata=subscription("t"))
    assert world.state() == state
    world.take_reported()
    forget(world, ("t", 0), ("u", 0))
    assert world.answer_to("forget") == (
        Code.NONE,
        [Code.GROUP_SUBSCRIBED_TO_TOPIC, Code.NONE],
    )
    assert world.fetched() == {("t", 0): 5}


def test_what_a_member_subscribes_to_that_is_joining_stays(world: GroupWorld) -> None:
    """Apache Kafka 4.3.1 deletes it, and the member begins anew there (asked)."""
    ids = world.stable("a", metadata=subscription("t"))
    world.commit("a", ("u", 0, 6), member_id=ids["a"], generation=1)
    world.enter("b", metadata=subscription("u"))
    assert world.state() == "PreparingRebalance"
    forget(world, ("u", 0))
    assert world.answer_to("forget") == (Code.NONE, [Code.GROUP_SUBSCRIBED_TO_TOPIC])
    assert world.fetched() == {("u", 0): 6}


def test_where_members_join_while_their_topics_are_looked_for_clients_ask_again(
    world: GroupWorld,
) -> None:
    world.commit("before", ("t", 0, 5))
    forget(world, ("t", 0), meanwhile=lambda: world.enter("a", metadata=subscription("t")))
    assert world.answer_to("forget") == (Code.COORDINATOR_NOT_AVAILABLE, [])
    world.pass_time(3_000)
    assert world.answer_to("a").generation_id == 1
    forget(world, ("t", 0))
    assert world.answer_to("forget") == (Code.NONE, [Code.GROUP_SUBSCRIBED_TO_TOPIC])
    assert world.fetched() == {("t", 0): 5}


def test_a_subscription_to_a_hundred_thousand_topics_holds_up_nobody(world: GroupWorld) -> None:
    """A member that named 20 million held the loop for 9 s at each OffsetDelete of 40 bytes."""
    names = [f"n{number}" for number in range(50_000)]
    for who, topics in (("a", ["t", *names]), ("b", [*names, "u"])):
        world.enter(who, metadata=subscription(*topics))
    world.pass_time(6_000)
    found, pauses = to_the_end(world.groups.find_subscribed(GROUP, {"t", "u", "v"}))
    assert found.topics == {"t", "u"}
    assert pauses == 100


def test_who_does_not_coordinate_the_group_says_so(world: GroupWorld) -> None:
    world.commit("a", ("t", 0, 5))
    for group, code in (("", Code.INVALID_GROUP_ID), ("none", Code.GROUP_ID_NOT_FOUND)):
        forget(world, ("t", 0), group=group)
        assert world.answer_to("forget") == (code, [])
    world.unload()
    forget(world, ("t", 0))
    assert world.answer_to("forget") == (Code.NOT_COORDINATOR, [])
