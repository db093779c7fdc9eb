"""A peer that hangs up while its request waits: it is seen, and what waited for it goes."""

import gc
import os
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from firnline.base.effects import Reply
from firnline.base.limits import HALF_CLOSED_MS
from firnline.base.slices import FileSlice
from firnline.runtime import disk
from firnline.runtime.bounds.connections import Limits
from firnline.runtime.disk import RealFs
from tests.unit.runtime.echo import Echo, Running, Ticket, frame, is_closed, read_frame


class Waiting(Echo):
    """A dispatcher whose requests wait: a command is H for one that is given up when its peer has gone,
    h for one that is not, e for an echo."""

    def __init__(self, big: Path) -> None:
        super().__init__(big)
        self.waiting: list[Any] = []
        self.given_up: list[bytes] = []

    def on_frame(
        self, connection: Any, frame: memoryview, now_ms: int, *, owns_bytes: bool = False
    ) -> list[Any]:
        ticket = Ticket(connection, bytes(frame))
        command = ticket.body[:1]
        if command == b"e":
            return [Reply(context=ticket, message=1)]
        self.waiting.append(ticket)
        if command == b"H":

            def give_up(_: int) -> list[Any]:
                self.given_up.append(ticket.body)
                return []

            connection.when_gone(ticket.turn, give_up)
        return []


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Running]:
    big = tmp_path / "big"
    big.write_bytes(b"")
    running = Running(big)
    running.runtime.dispatcher = running.server.dispatcher = Waiting(big)  # type: ignore[assignment]
    running.limits = Limits(total=1000)
    running.thread.start()
    yield running
    running.on_loop(running.loop.stop)
    running.thread.join(20)
    running.runtime.close()


def waiting(node: Running) -> Waiting:
    found: Any = node.runtime.dispatcher
    return found  # type: ignore[no-any-return]


def until(node: Running, is_so: Callable[[], bool]) -> None:
    """Let the loop run until it is so; fail after 20 s."""
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        node.on_loop(lambda: None)


def close(sock: socket.socket) -> None:
    sock.close()


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def half_close(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("hang_up", [close, reset, half_close])
@pytest.mark.parametrize("behind", [b"", frame(b"e-behind"), frame(b"e-half of it")[:7]])
def test_who_hangs_up_while_its_request_waits_is_seen_at_once(
    node: Running, hang_up: Callable[[socket.socket], None], behind: bytes
) -> None:
    """Also where bytes that nobody has read lie before the end of its stream."""
    with node.connect() as other, node.connect() as sock:
        sock.sendall(frame(b"H-wait for a day"))
        until(node, lambda: bool(waiting(node).waiting))
        sock.sendall(behind)
        hang_up(sock)
        until(node, lambda: waiting(node).given_up == [b"H-wait for a day"])
        assert node.server.connection_count == 1
        other.sendall(frame(b"e-still-here"))
        assert read_frame(other) == b"e-still-here"
    assert node.runtime.failure is None


def test_a_thousand_that_ask_for_a_long_wait_and_hang_up_leave_nothing(node: Running) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with ExitStack() as many:
            for number in range(200):
                sock = many.enter_context(node.connect())
                sock.sendall(frame(b"H-number %d" % number))
            until(node, lambda: len(waiting(node).waiting) == 200)
        until(node, lambda: len(waiting(node).given_up) == 200)
        until(node, lambda: node.server.connection_count == 0)
        waiting(node).waiting.clear()
        waiting(node).given_up.clear()
    # Clients of earlier tests may have opened some meanwhile, and close them again.
    until(node, lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_who_ends_its_side_receives_an_answer_that_comes_soon(node: Running) -> None:
    """As Kafka: the end is looked at when the answer has left. What waits long says so (`when_gone`)."""
    with node.connect() as sock:
        sock.sendall(frame(b"h-a sync of the disk"))
        until(node, lambda: bool(waiting(node).waiting))
        sock.shutdown(socket.SHUT_WR)
        node.on_loop(lambda: None)
        node.on_loop(lambda: None)
        reply = Reply(context=waiting(node).waiting[0], message=1)
        node.on_loop(lambda: node.runtime.execute([reply]))
        assert read_frame(sock) == b"h-a sync of the disk"
        assert is_closed(sock)


def test_who_ends_its_side_and_receives_nothing_is_dropped_in_time(node: Running) -> None:
    with node.connect() as sock, node.connect() as patient:
        for each in (sock, patient):
            each.sendall(frame(b"h-wait for a group"))
        until(node, lambda: len(waiting(node).waiting) == 2)
        sock.shutdown(socket.SHUT_WR)
        ended = waiting(node).waiting
        until(node, lambda: any(each.connection.has_ended for each in ended))
        now_ms = node.runtime.now_ms()
        node.on_loop(lambda: node.server.sweep(now_ms + HALF_CLOSED_MS // 2))
        assert node.server.connection_count == 2
        node.on_loop(lambda: node.server.sweep(now_ms + HALF_CLOSED_MS + 1000))
        assert is_closed(sock)
        assert node.server.connection_count == 1


def test_what_was_answered_is_not_given_up_later(node: Running) -> None:
    with node.connect() as sock:
        for _ in range(2):
            sock.sendall(frame(b"H-a poll"))
            until(node, lambda: bool(waiting(node).waiting))
            reply = Reply(context=waiting(node).waiting.pop(), message=1)
            node.on_loop(lambda reply=reply: node.runtime.execute([reply]))
            assert read_frame(sock) == b"H-a poll"
    until(node, lambda: node.server.connection_count == 0)
    assert waiting(node).given_up == []


def test_a_wait_that_is_given_up_needs_no_garbage_collector(node: Running) -> None:
    gc.disable()
    try:
        with node.connect() as sock:
            sock.sendall(frame(b"H-a poll"))
            until(node, lambda: bool(waiting(node).waiting))
            held = weakref.ref(waiting(node).waiting.pop().connection._waits[0])
        until(node, lambda: bool(waiting(node).given_up))
        until(node, lambda: held() is None)
    finally:
        gc.enable()


# ---- what is told of a connection in the turn in which its answer begins to leave


@pytest.mark.parametrize("act", ["asks", "ends its side"])
@pytest.mark.parametrize("are_cold", [False, True])
def test_an_answer_leaves_in_full_whatever_its_peer_did_a_moment_before(
    node: Running, act: str, are_cold: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its peer asks the next thing, or ends its side, and that is told after the answer was taken up, and
    did not fit into the socket, in the same turn: it was never sent on."""
    monkeypatch.setattr(disk, "in_memory", lambda fd, position, size: not are_cold)
    size = 8 << 20
    (tmp_path / "large").write_bytes(bytes(size))
    part = FileSlice(RealFs().open(str(tmp_path / "large")), 0, size)
    with node.connect() as sock:
        sock.sendall(frame(b"h-a large one"))
        until(node, lambda: bool(waiting(node).waiting))
        [ticket] = waiting(node).waiting
        if act == "ends its side":  # it had asked before, and is not read from
            sock.sendall(frame(b"e-behind"))
            until(node, lambda: not ticket.connection._reading)
        begun, may_go_on = threading.Event(), threading.Event()

        def hold_up(_: object, now_ms: int) -> list[Any]:
            begun.set()
            assert may_go_on.wait(20)
            # Longer than one look at what threads have done: the answer is for the next one.
            time.sleep(0.01)
            return []

        def answer(_: object, now_ms: int) -> list[Any]:
            ticket.connection.answer([struct.pack(">i", size), part], ticket.turn)
            return []

        node.runtime._doorbell.ring(hold_up, None)
        assert begun.wait(20)
        node.runtime._doorbell.ring(answer, None)
        if act == "asks":
            sock.sendall(frame(b"e-behind"))
        else:
            sock.shutdown(socket.SHUT_WR)
        may_go_on.set()
        assert read_frame(sock) == bytes(size)
        assert read_frame(sock) == b"e-behind"
