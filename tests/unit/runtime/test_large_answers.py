"""Large requests and answers, a slice at a time: others go on, order stays, and memory has a bound."""

import time
from typing import Any

import pytest

from firnline.base.effects import Reply
from firnline.runtime import net
from tests.unit.runtime.echo import PRODUCE, Running, frame, is_closed, produced, read_frame, reply


def test_others_are_served_between_the_slices_of_an_answer_and_its_own_requests_after_it(
    node: Running,
) -> None:
    echo: Any = node.runtime.dispatcher
    with node.connect() as large, node.connect() as small:
        large.sendall(frame(b"l-in-slices") + frame(b"e-behind-it"))
        while not echo.slices:
            node.on_loop(lambda: None)
        small.sendall(frame(b"e-elsewhere"))
        assert read_frame(small) == b"e-elsewhere"
        echo.is_encoded = True
        assert read_frame(large) == b"l-in-slices"
        assert read_frame(large) == b"e-behind-it"


@pytest.mark.parametrize("many", [b"m", b"s\x04"])
def test_an_answer_of_many_parts_is_sent_in_several_steps(
    node: Running, many: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: heartbeats are in time. Method: the socket takes all, and yet a step leaves something."""
    monkeypatch.setattr(net, "_PARTS_PER_STEP", 100)
    monkeypatch.setattr(net, "_SENDFILE_PARTS", 100)
    monkeypatch.setattr(net, "_SENDFILE_STEP_BYTES", 1 << 16)
    left: list[int] = []

    def answer() -> None:
        (ticket,) = node.runtime.dispatcher.produced  # type: ignore[attr-defined]
        ticket.body = many
        node.runtime.execute([Reply(context=ticket, message=1)])
        left.append(len(ticket.connection._out))

    with node.connect() as sock, node.connect() as other:
        sock.sendall(frame(PRODUCE))
        produced(node, 1)
        node.on_loop(answer)
        other.sendall(frame(b"e-elsewhere"))
        assert read_frame(other) == b"e-elsewhere"
        whole = bytes(range(8)) * 1000 if many == b"m" else bytes(range(256)) * (4 << 12)
        assert read_frame(sock) == whole
        sock.sendall(frame(b"e-after it"))
        assert read_frame(sock) == b"e-after it"
    assert left[0] > 0


def test_what_is_left_of_an_answer_is_dropped_with_its_connection(node: Running) -> None:
    echo: Any = node.runtime.dispatcher
    with node.connect() as sock:
        sock.sendall(frame(b"l-in-slices"))
        while not echo.slices:
            node.on_loop(lambda: None)
        for connection in list(node.server._connections.values()):
            node.on_loop(connection.close)
    node.on_loop(lambda: None)
    seen = echo.slices
    for _ in range(5):
        node.on_loop(lambda: None)
    assert echo.slices == seen


def test_a_bug_in_a_later_slice_closes_its_connection_and_not_the_node(node: Running) -> None:
    with node.connect() as good, node.connect() as bad:
        bad.sendall(frame(b"f-a-bug"))
        assert is_closed(bad)
        good.sendall(frame(b"e-still-here"))
        assert read_frame(good) == b"e-still-here"
    assert node.runtime.failure is None


def test_records_behind_a_produce_in_slices_are_not_appended_before_its_last_one(
    node: Running,
) -> None:
    """Goal: the order in which a producer sent them. Method: two are open at once, unless the first is
    not appended yet."""
    with node.connect() as sock:
        sock.sendall(frame(PRODUCE + b"in slices") + frame(PRODUCE + b"2"))
        [first] = produced(node, 1)
        reply(node, first)
        assert read_frame(sock) == first.body
        _, second = produced(node, 2)
        reply(node, second)
        assert read_frame(sock) == second.body


# ------------------------------------------------------------------- how much may be under way at once


HELD = PRODUCE + b"in slices"


def waiting(node: Running, count: int) -> None:
    """Wait until so many requests wait for room."""
    deadline = time.monotonic() + 20
    while node.runtime.admission.waiting != count and time.monotonic() < deadline:
        node.on_loop(lambda: None)
    assert node.runtime.admission.waiting == count


@pytest.mark.parametrize("size", [20_000, 1_000_000])
def test_large_requests_wait_while_those_in_slices_are_many_and_small_ones_do_not(
    node: Running, size: int
) -> None:
    """Goal: bounded memory, whoever hangs up. Method: one request fills the room; sizes that come in one
    piece and in many."""
    admission = node.runtime.admission
    admission.bytes_max = 1
    bodies = [b"e%d" % n + b"x" * size for n in range(3)]
    with node.connect() as first, node.connect() as small:
        first.sendall(frame(HELD))
        [held] = produced(node, 1)
        first.close()
        large = [node.connect() for _ in bodies]
        for sock, body in zip(large, bodies, strict=True):
            sock.sendall(frame(body) + frame(b"e-behind"))
        waiting(node, 3)
        small.sendall(frame(b"e-small-one"))
        assert read_frame(small) == b"e-small-one"
        assert admission.held_bytes == len(frame(HELD))
        node.on_loop(held.on_end)
        for sock, body in zip(large, bodies, strict=True):
            assert read_frame(sock) == body
            assert read_frame(sock) == b"e-behind"
            sock.close()
    assert (admission.held_bytes, admission.waiting) == (0, 0)


@pytest.mark.parametrize("size", [20_000, 1_000_000])
def test_a_request_that_waited_for_room_is_dropped_with_its_connection(
    node: Running, size: int
) -> None:
    node.runtime.admission.bytes_max = 1
    with node.connect() as first, node.connect() as last:
        first.sendall(frame(HELD))
        [held] = produced(node, 1)
        with node.connect() as gone:
            gone.sendall(frame(PRODUCE + b"x" * size))
            waiting(node, 1)
        last.sendall(frame(b"e" + b"x" * size))
        waiting(node, 2)
        node.on_loop(list(node.server._connections.values())[-1].close)  # the one that came last
        node.on_loop(held.on_end)
        assert len(read_frame(last)) == size + 1
        produced(node, 1)  # and no other


@pytest.mark.parametrize("key", [1, 56, 58, 73])
def test_replicas_and_brokers_do_not_wait_for_clients(node: Running, key: int) -> None:
    node.runtime.admission.bytes_max = 1
    with node.connect() as client, node.connect() as broker:
        client.sendall(frame(HELD))
        [held] = produced(node, 1)
        body = key.to_bytes(2, "big") + b"x" * 20_000
        broker.settimeout(20)
        broker.sendall(frame(body))
        assert read_frame(broker) == body
        node.on_loop(held.on_end)


def test_those_who_wait_come_in_one_after_the_other_as_far_as_there_is_room(node: Running) -> None:
    admission = node.runtime.admission
    admission.bytes_max = 30_000
    body = PRODUCE + b"x" * 20_000 + b"in slices"
    socks = [node.connect() for _ in range(5)]
    for place, sock in enumerate(socks):
        sock.sendall(frame(body))
        waiting(node, max(0, place - 1))
    tickets = produced(node, 2)
    for count in range(3, 6):
        node.on_loop(tickets[count - 3].on_end)
        tickets = produced(node, count)
        assert admission.held_bytes == 2 * len(frame(body))
        waiting(node, 5 - count)
    for sock in socks:
        sock.close()
