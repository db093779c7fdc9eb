"""How many bytes of answers a node holds: who goes on, who waits, who is closed."""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.errors import ProtocolError
from firnline.runtime.bounds.answers import Again, Answers, ResponseMemory

BOUND = 1000


class Loop:
    """Calls that wait, and the one timer."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []
        self.timers: list[Callable[[], object]] = []

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        self.calls.append(lambda: call(*args))

    def call_later(self, _delay_s: float, call: Callable[[], object]) -> object:
        self.timers.append(call)
        return call

    def run(self) -> None:
        while self.calls:
            self.calls.pop(0)()

    def seconds(self, count: int) -> None:
        """So many looks."""
        for _ in range(count):
            timers, self.timers = self.timers, []
            for each in timers:
                each()
            self.run()


class Peer:
    """A connection."""

    def __init__(self, world: "World", name: str) -> None:
        self.world, self.name = world, name
        self.response_memory: ResponseMemory = world.answers.memory_of(self)

    def close_slow(self) -> None:
        self.world.closed.append(self.name)
        self.response_memory.close()


class World:
    def __init__(self) -> None:
        self.loop = Loop()
        self.went_on: list[str] = []
        self.closed: list[str] = []
        self.answers = Answers(self.loop, self._resume, BOUND)  # type: ignore[arg-type]

    def _resume(self, again: Again) -> None:
        again(0)

    def peer(self, name: str) -> Peer:
        return Peer(self, name)

    def wait(self, peer: Peer, *, to_begin: bool = False) -> None:
        def again(_now_ms: int) -> Effects:
            self.went_on.append(peer.name)
            return []

        peer.response_memory.wait(again, to_begin=to_begin)

    def slice_of(self, peer: Peer, size: int) -> None:
        """One slice of an answer, or its wait."""
        if peer.response_memory.must_wait():
            self.wait(peer)
        else:
            peer.response_memory.grow(size)


def test_at_the_bound_one_answer_goes_on_and_the_others_follow_one_by_one() -> None:
    """Goal: no deadlock of answers that are all half made."""
    world = World()
    a, b, c = map(world.peer, "abc")
    for each in (a, b, c):
        world.slice_of(each, 400)
    assert not a.response_memory.must_wait()
    for each in (b, c):
        world.slice_of(each, 100)
    assert world.answers.waiting == 2
    world.slice_of(a, 100)
    a.response_memory.made()
    world.loop.run()
    assert world.went_on == ["b", "c"], "there is room for both"
    assert world.answers.held_bytes == 800


def test_the_second_part_of_an_answer_does_not_wait_as_one_that_begins() -> None:
    """It would wait for room that it holds itself, and so would all the others."""
    world = World()
    peers = [world.peer(name) for name in "abcd"]
    for each in peers:
        assert not each.response_memory.must_wait_to_begin()
        each.response_memory.grow(400)
    assert world.peer("e").response_memory.must_wait_to_begin()
    assert not any(each.response_memory.must_wait_to_begin() for each in peers)


def test_replicas_do_not_wait_for_clients_and_have_a_bound_of_their_own() -> None:
    """Anybody may say that he is one."""
    world = World()
    a, b, c = map(world.peer, "abc")
    world.slice_of(a, 1000)
    b.response_memory.is_urgent = c.response_memory.is_urgent = True
    assert not b.response_memory.must_wait_to_begin()
    assert not b.response_memory.must_wait()
    for each in (b, c):
        each.response_memory.grow(500)
    assert c.response_memory.must_wait_to_begin() is False, "it has begun"
    other = world.peer("d")
    other.response_memory.is_urgent = True
    assert other.response_memory.must_wait_to_begin()
    assert not b.response_memory.must_wait(), "one goes on"
    assert c.response_memory.must_wait()
    a.response_memory.made()
    world.loop.run()
    assert not c.response_memory.must_wait()


def test_an_answer_above_the_bound_is_refused_and_gives_all_back() -> None:
    world = World()
    a, b = map(world.peer, "ab")
    world.slice_of(b, 400)
    world.slice_of(a, 900)
    with pytest.raises(ProtocolError, match=r"ask for less.*answers.max.bytes"):
        a.response_memory.grow(200)
    assert world.answers.refused == 1
    a.response_memory.close()
    assert world.answers.held_bytes == 400
    assert not b.response_memory.must_wait()


def test_a_request_that_has_come_and_a_replica_are_never_refused_for_their_size() -> None:
    """A low bound must not stop a producer of many partitions, nor a follower."""
    world = World()
    a, b = map(world.peer, "ab")
    a.response_memory.hold(5000)
    a.response_memory.grow(1000)
    with pytest.raises(ProtocolError):
        a.response_memory.grow(1)
    a.response_memory.made()
    assert (world.answers.held_bytes, a.response_memory.asking_bytes) == (0, 0)
    b.response_memory.is_urgent = True
    b.response_memory.grow(5000)
    assert world.answers.refused == 1


def test_whoever_waits_is_let_go_when_his_connection_closes() -> None:
    world = World()
    a, b = map(world.peer, "ab")
    world.slice_of(a, 1000)
    assert not a.response_memory.must_wait()
    world.slice_of(b, 1)
    b.response_memory.close()
    world.loop.run()
    assert (world.went_on, world.answers.waiting) == (["b"], 0)


def test_whoever_never_reads_is_closed_when_others_need_the_room_and_not_before() -> None:
    world = World()
    a, b, c = map(world.peer, "abc")
    a.response_memory.unsent(700)
    world.loop.seconds(60)
    assert world.closed == []
    b.response_memory.unsent(400)
    world.slice_of(c, 100)
    assert world.answers.waiting == 1, "nobody goes on who would hold more"
    world.loop.seconds(2)
    assert world.closed == []
    world.loop.seconds(1)
    assert world.closed == ["a"], "the one who holds most, and no more than needed"
    assert world.went_on == ["c"]
    assert world.answers.slow_readers == 1


def test_whoever_reads_nothing_has_longer_while_one_answer_can_go_on() -> None:
    world = World()
    a, b, c = map(world.peer, "abc")
    a.response_memory.unsent(700)
    world.slice_of(b, 400)
    assert not b.response_memory.must_wait()
    world.slice_of(c, 100)
    world.loop.seconds(9)
    assert world.closed == []
    world.loop.seconds(1)
    assert world.closed == ["a"]


def test_whoever_reads_is_not_closed_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firnline.runtime.bounds.answers.READER_BYTES_PER_CHECK", 10)
    world = World()
    a, c = map(world.peer, "ac")
    a.response_memory.unsent(1200)
    world.slice_of(c, 100)
    for left in range(1190, 1000, -10):
        a.response_memory.unsent(left)
        world.loop.seconds(1)
    assert world.closed == []
    a.response_memory.unsent(990)
    world.loop.run()
    assert world.went_on == ["c"]


def test_without_room_no_answer_begins_and_who_does_not_read_is_closed_within_seconds() -> None:
    world = World()
    readers = [world.peer(f"r{n}") for n in range(13)]
    for each in readers:
        each.response_memory.unsent(100)
    late = world.peer("late")
    assert late.response_memory.must_wait_to_begin()
    world.wait(late, to_begin=True)
    world.loop.seconds(2)
    assert world.went_on == ["late"]
    assert len(world.closed) == 9, "down to half, so that it lasts"
    assert world.answers.held_bytes < BOUND / 2


def test_reads_of_the_tier_begin_while_there_is_room_and_hold_up_only_one_another() -> None:
    """F17. At the bound a client that reads nothing is closed for them."""
    world = World()
    first, second, third = (world.peer(name) for name in "abc")
    assert first.response_memory.reserve(BOUND)
    assert not second.response_memory.reserve(1)
    assert not second.response_memory.must_wait()
    first.response_memory.release(BOUND)
    first.response_memory.unsent(BOUND)
    assert not second.response_memory.reserve(1)
    world.loop.seconds(4)
    assert world.closed == ["a"]
    assert second.response_memory.reserve(BOUND)
    second.response_memory.close()
    second.response_memory.release(BOUND)
    assert third.response_memory.reserve(BOUND)
    assert not world.peer("d").response_memory.reserve(1)
