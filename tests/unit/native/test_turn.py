"""One turn of the loop, compiled and in Python: who is told what, and what is sent."""

import itertools
import os
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firnline.base.slices import FileSlice
from firnline.runtime.disk import RealFs
from firnline.runtime.turn import Turn, turn_python
from tests.page_cache import was_missed
from tests.unit.native.compiled import native, needs_native


class World:
    """A poller, a pair of sockets of which ours is a stream, and what was told."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.poller = select.epoll()
        self.callbacks: dict[int, Any] = {}
        self.streams: dict[int, Any] = {}
        self.shared = memoryview(bytearray(1000))
        self.reported: list[Any] = []
        self.slow: list[tuple[int, float]] = []
        self.begun: list[float] = []
        self.unsent: list[Any] = []
        self.answers: Any = {}
        self.pairs: list[tuple[socket.socket, socket.socket]] = []

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """Return (the peer's socket, ours): what it sends is answered by what `answers` has for it."""
        peer, ours = socket.socketpair()
        ours.setblocking(False)
        peer.settimeout(5)

        def on_received(size: int) -> Any:
            said = bytes(self.shared[:size])
            self.reported.append(said)
            answer = self.answers.get(said)
            return answer() if callable(answer) else answer

        self.poller.register(ours.fileno(), select.EPOLLIN)
        self.streams[ours.fileno()] = (on_received, lambda *args: self.unsent.append(args))
        self.pairs.append((peer, ours))
        return peer, ours

    def turn(self, wait_s: float = 0.0) -> None:
        self.began = self._turn(
            self.poller,
            wait_s,
            self.callbacks,
            self.streams,
            self.shared,
            self.on_slow,
            self.begins,
        )

    def on_slow(self, fd: int, took_s: float) -> None:
        self.slow.append((fd, took_s))

    def begins(self, now: float) -> None:
        self.begun.append(now)

    def close(self) -> None:
        self.poller.close()
        for pair in self.pairs:
            for sock in pair:
                sock.close()


@pytest.fixture(params=[turn_python, pytest.param("compiled", marks=needs_native)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(native.turn if request.param == "compiled" else request.param)
    yield made
    made.close()


def slice_of(path: Path, size: int, position: int = 0, claims: int | None = None) -> FileSlice:
    path.write_bytes(bytes(range(256)) * (size // 256 + 1))
    os.truncate(path, size)
    file = RealFs().open(str(path))
    return FileSlice(file, position, size - position if claims is None else claims)


def test_bytes_are_reported_and_the_answer_is_sent(world: World) -> None:
    peer, _ = world.pair()
    world.answers[b"ask"] = b"answer"
    peer.sendall(b"ask")
    world.turn()
    assert peer.recv(100) == b"answer"
    assert world.reported == [b"ask"]
    assert world.unsent == []


def test_no_answer_is_none(world: World) -> None:
    peer, _ = world.pair()
    peer.sendall(b"ask")
    world.turn()
    world.turn()
    assert world.reported == [b"ask"]


def test_records_of_a_file_go_between_the_bytes(world: World, tmp_path: Path) -> None:
    peer, _ = world.pair()
    world.answers[b"ask"] = (b"<", slice_of(tmp_path / "x", 600, position=300), b">")
    peer.sendall(b"ask")
    world.turn()
    assert peer.recv(1000) == b"<" + (bytes(range(256)) * 3)[300:600] + b">"


def test_records_that_the_disk_has_to_read_are_left_to_others(world: World, tmp_path: Path) -> None:
    peer, _ = world.pair()
    part = slice_of(tmp_path / "x", 40_000)
    world.shared = memoryview(bytearray(50_000))
    answer = (b"<", part, b">")
    world.answers[b"ask"] = answer

    def is_left() -> bool:
        peer.sendall(b"ask")
        world.turn()
        if not world.unsent:
            assert len(peer.recv(50_000)) == 40_002
        return bool(world.unsent)

    assert was_missed(is_left, tmp_path / "x")
    assert world.unsent == [(answer, 0)]
    part.read()
    peer.sendall(b"ask")
    world.turn()
    assert len(peer.recv(50_000)) == 40_002


def test_records_that_the_buffer_cannot_take_are_left_to_others(
    world: World, tmp_path: Path
) -> None:
    """Above 64 KiB nothing is joined, and nothing above the buffer."""
    peer, _ = world.pair()
    world.shared = memoryview(bytearray(300_000))
    answer = (b"<", slice_of(tmp_path / "x", 64 * 1024), b"")
    world.answers[b"ask"] = answer
    peer.sendall(b"ask")
    world.turn()
    assert world.unsent == [(answer, 0)]


@pytest.mark.parametrize("shape", ["short file", "two slices", "no slice", "no file"])
def test_answers_of_another_shape_are_left_to_others(
    world: World, tmp_path: Path, shape: str
) -> None:
    peer, _ = world.pair()
    part = slice_of(tmp_path / "x", 50)
    answer: Any = {
        "short file": (b"<", part._replace(size_bytes=51), b">"),
        "two slices": (b"<", part, part, b">"),
        "no slice": (b"<", b"=", b">"),
        "no file": (b"<", part._replace(file=Without()), b">"),  # type: ignore[arg-type]
    }[shape]
    world.answers[b"ask"] = answer
    peer.sendall(b"ask")
    world.turn()
    assert world.unsent == [(answer, 0)]


class Without:
    """A file that is none, as the simulator's."""

    def fileno(self) -> int:
        return -1


def test_what_the_socket_does_not_take_is_left_to_others(world: World) -> None:
    peer, _ = world.pair()
    answer = bytes(8 << 20)
    world.answers[b"ask"] = answer
    peer.sendall(b"ask")
    world.turn()
    [(left, sent)] = world.unsent
    assert left is answer
    assert 0 < sent < len(answer)
    got = 0
    while got < sent:
        got += len(peer.recv(1 << 20))
    assert got == sent


def test_a_peer_that_has_gone_is_reported_as_nothing_received(world: World) -> None:
    peer, _ = world.pair()
    peer.close()
    world.turn()
    assert world.reported == [b""]


def test_a_peer_that_is_gone_when_it_is_answered_harms_nobody(world: World) -> None:
    (peer, _), (other, _) = world.pair(), world.pair()

    def leave() -> bytes:
        peer.close()
        return b"too late"

    world.answers |= {b"ask": leave, b"and me": b"yes"}
    peer.sendall(b"ask")
    other.sendall(b"and me")
    world.turn()
    assert world.unsent == [(b"too late", 0)]
    assert other.recv(100) == b"yes"


def test_a_stream_that_was_closed_in_this_turn_is_not_answered(world: World) -> None:
    """Its descriptor may be somebody else's by then."""
    (one, ours), (two, _) = world.pair(), world.pair()

    def close_the_other() -> bytes:
        world.streams[ours.fileno()] = (lambda size: None, lambda *args: None)
        return b"done"

    world.answers |= {b"first": b"never sent", b"second": close_the_other}
    one.sendall(b"first")
    two.sendall(b"second")
    world.turn()
    assert two.recv(100) == b"done"
    one.settimeout(0)
    with pytest.raises(BlockingIOError):
        one.recv(100)


def test_many_streams_are_each_answered_once(world: World) -> None:
    """More than are sent together."""
    peers = [world.pair()[0] for _ in range(50)]
    world.answers = {b"%d" % i: b"answer %d" % i for i in range(50)}
    for i, peer in enumerate(peers):
        peer.sendall(b"%d" % i)
    world.turn()
    assert [peer.recv(100) for peer in peers] == [b"answer %d" % i for i in range(50)]


def test_what_is_no_stream_goes_to_its_callback(world: World) -> None:
    peer, ours = world.pair()
    del world.streams[ours.fileno()]
    seen: list[int] = []
    world.callbacks[ours.fileno()] = seen.append
    peer.sendall(b"x")
    world.turn()
    assert seen == [select.EPOLLIN]
    assert world.reported == []


def test_what_is_forgotten_is_passed_over(world: World) -> None:
    peer, ours = world.pair()
    del world.streams[ours.fileno()]
    peer.sendall(b"x")
    world.turn()
    assert world.reported == []


def test_a_stream_that_may_only_be_written_to_has_its_callback(world: World) -> None:
    _, ours = world.pair()
    seen: list[int] = []
    world.callbacks[ours.fileno()] = seen.append
    world.poller.modify(ours.fileno(), select.EPOLLOUT)
    world.turn()
    assert seen == [select.EPOLLOUT]


@pytest.mark.parametrize("how", ["received", "unsent", "callback", "no answer at all"])
def test_an_exception_ends_the_turn_and_is_seen(world: World, how: str) -> None:
    peer, ours = world.pair()

    def fail(*_: object) -> None:
        raise KeyError("mine")

    on_received, _ = world.streams[ours.fileno()]
    if how == "received":
        world.answers[b"x"] = fail
    elif how == "unsent":
        world.answers[b"x"] = bytes(8 << 20)
        world.streams[ours.fileno()] = (on_received, fail)
    elif how == "callback":
        del world.streams[ours.fileno()]
        world.callbacks[ours.fileno()] = fail
    else:
        world.answers[b"x"] = 5
    peer.sendall(b"x")
    with pytest.raises(TypeError if how == "no answer at all" else KeyError):
        world.turn()


def test_waiting_ends_in_time_and_with_news(world: World) -> None:
    peer, _ = world.pair()
    world.turn(0.001)
    peer.sendall(b"x")
    world.turn(60.0)
    assert world.reported == [b"x"]


def test_what_takes_long_is_reported_with_its_descriptor_and_nothing_else(world: World) -> None:
    quick, _ = world.pair()
    slow, ours = world.pair()

    def answer_late() -> bytes:
        time.sleep(0.02)
        return b"late"

    world.answers |= {b"now": b"at once", b"later": answer_late}
    quick.sendall(b"now")
    world.turn()
    quick_slow = list(world.slow)  # a busy machine may hold anybody up
    slow.sendall(b"later")
    before = time.monotonic()
    world.turn()
    assert before <= world.began <= time.monotonic() - 0.02
    (reported,) = [row for row in world.slow[len(quick_slow) :] if row[0] == ours.fileno()]
    assert 0.02 <= reported[1] < 10
    assert slow.recv(10) == b"late"


def test_where_a_step_begins_is_reported_but_not_for_every_step(world: World) -> None:
    """The loop reads a clock then that costs a system call."""
    peers = [world.pair()[0] for _ in range(20)]

    def answer_late() -> bytes:
        time.sleep(0.0015)
        return b"late"

    world.answers = {b"now": b"at once", b"later": answer_late}
    peers[0].sendall(b"now")
    before = time.monotonic()
    world.turn()
    if time.monotonic() - before < 0.001:
        assert world.begun == []
    for peer in peers:
        peer.sendall(b"later")
    world.begun.clear()
    world.turn()
    assert len(world.begun) >= len(peers)
    steps = [later - at for at, later in itertools.pairwise([world.began, *world.begun])]
    assert min(steps) > 0.001


def test_a_failure_of_the_callback_where_a_step_begins_is_not_swallowed(world: World) -> None:
    peer, _ = world.pair()
    world.answers[b"x"] = lambda: time.sleep(0.002)
    world.begins = lambda now: 1 / 0  # type: ignore[method-assign,assignment]
    peer.sendall(b"x")
    with pytest.raises(ZeroDivisionError):
        world.turn()


def test_a_failure_of_the_callback_of_a_slow_step_is_not_swallowed(world: World) -> None:
    peer, _ = world.pair()
    world.answers[b"x"] = lambda: time.sleep(0.02)
    world.on_slow = lambda fd, took_s: 1 / 0  # type: ignore[method-assign,assignment]
    peer.sendall(b"x")
    with pytest.raises(ZeroDivisionError):
        world.turn()
