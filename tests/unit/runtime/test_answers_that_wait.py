"""Who waits for room while answers are at their bound: he is called again, once, and counts nothing after."""

from contextlib import suppress
from types import SimpleNamespace as Of
from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.runtime.loop import Runtime
from tests.unit.runtime.test_answers import World


def test_a_replica_that_waits_goes_on_when_brokers_have_room_again() -> None:
    """A client's answer is the one that goes on, and takes long: the replica does not wait for it."""
    world = World()
    client, f1, f2, f3 = map(world.peer, ["client", "f1", "f2", "f3"])
    world.slice_of(client, 1000)
    assert not client.response_memory.must_wait()
    for each in (f1, f2, f3):
        each.response_memory.is_urgent = True
    for each in (f1, f2):
        world.slice_of(each, 500)
    world.slice_of(f3, 1)
    assert world.answers.waiting == 1, "there is no room at all"
    for each in (f1, f2):
        each.response_memory.made()
    world.loop.run()
    assert not f3.response_memory.must_wait()
    assert world.went_on == ["f3"]


def test_a_replica_whose_answer_waits_to_begin_does_when_brokers_have_room_again() -> None:
    world = World()
    client, other, f1, f2 = map(world.peer, ["client", "other", "f1", "f2"])
    world.slice_of(client, 999)
    world.slice_of(other, 400)
    f1.response_memory.is_urgent = f2.response_memory.is_urgent = True
    world.slice_of(f1, 601)
    assert f2.response_memory.must_wait_to_begin()
    world.wait(f2, to_begin=True)
    f1.response_memory.made()
    world.loop.run()
    assert world.went_on == ["f2"]


def test_clients_and_who_says_that_it_is_a_replica_are_let_in_alternately() -> None:
    """Anybody may say so: a flood of them would have kept each large answer of clients waiting for ever."""
    world = World()
    full, one, client = map(world.peer, ["full", "one", "client"])
    flood = [world.peer(f"replica {n}") for n in range(4)]
    full.response_memory.is_urgent = True
    full.response_memory.grow(1500)
    client.response_memory.grow(500)
    assert not one.response_memory.must_wait()
    for each in flood:
        each.response_memory.is_urgent = True
        world.slice_of(each, 1)
    world.slice_of(client, 1)
    assert world.answers.waiting == 5
    full.response_memory.made()
    world.loop.run()
    assert world.went_on[:2] == ["replica 0", "client"]
    assert len(world.went_on) == 5


def test_two_parts_of_an_answer_that_wait_are_both_called_again() -> None:
    world = World()
    a, b = map(world.peer, "ab")
    world.slice_of(a, 1000)
    assert not a.response_memory.must_wait()
    called: list[int] = []

    def part(number: int, now_ms: int) -> Effects:
        called.append(number)
        return []

    for number in (1, 2):
        assert b.response_memory.must_wait()
        b.response_memory.wait(lambda now_ms, number=number: part(number, now_ms))  # type: ignore[misc]
    a.response_memory.made()
    world.loop.run()
    assert called == [1, 2]


def test_what_comes_for_who_has_hung_up_is_not_counted() -> None:
    """As what the tier gave, some moments later: ten such clients filled the room for good."""
    world = World()
    a = world.peer("a")
    a.response_memory.close()
    a.response_memory.grow(700)
    a.response_memory.hold(700)
    assert world.answers.held_bytes == 0


@pytest.mark.parametrize("held", [0, 1000])
def test_who_hangs_up_before_a_slice_of_his_answer_is_encoded_leaves_nothing(held: int) -> None:
    world = World()
    full, me = map(world.peer, ["full", "me"])
    if held:
        full.response_memory.grow(held)
    connection = Of(closed=False)
    runtime: Any = None
    effect: Any = Of(context=Of(connection=connection, response_memory=me.response_memory))
    work: Any = Runtime._encode(runtime, effect, iter([300, 300]))  # type: ignore[arg-type]
    next(work)
    connection.closed = True
    me.response_memory.close()
    with suppress(StopIteration):
        for _ in range(10):
            work.send(0)
    assert world.answers.held_bytes == held
    assert world.answers.one is None


def test_who_waits_for_others_lets_another_answer_go_on() -> None:
    world = World()
    a, b = map(world.peer, "ab")
    world.slice_of(a, 1000)
    assert not a.response_memory.must_wait()
    world.slice_of(b, 100)
    a.response_memory.give_way()
    world.loop.run()
    assert world.went_on == ["b"]
    assert a.response_memory.making_bytes == 1000, "it counts all the same"
