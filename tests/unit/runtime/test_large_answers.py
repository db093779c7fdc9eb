"""Large requests and answers, a slice at a time: others go on, and order stays."""

import time
from typing import Any

import pytest

from firnline.base.effects import Reply
from firnline.runtime import net
from firnline.runtime.bounds.freeing import ROWS_PER_PORTION
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
        complete = bytes(range(8)) * 1000 if many == b"m" else bytes(range(256)) * (4 << 12)
        assert read_frame(sock) == complete
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


def test_the_rows_of_a_large_answer_are_freed_in_portions_when_it_has_left(node: Running) -> None:
    """And when its connection closed before it was there."""
    echo: Any = node.runtime.dispatcher
    echo.is_encoded = True
    freeing = node.runtime.answers.freeing
    portions: list[int] = []
    free_some = freeing.free_some

    def counted() -> None:
        portions.append(1)
        free_some()

    freeing.free_some = counted  # type: ignore[method-assign]

    def answer() -> None:
        ticket = echo.produced.pop()
        ticket.is_large, ticket.body = True, b"e-a large one"
        ticket.connection.response_memory.making_bytes = 1 << 30
        rows = [[] for _ in range(3 * ROWS_PER_PORTION)]  # type: ignore[var-annotated]
        node.runtime.execute([Reply(context=ticket, message=rows)])

    for closes in (False, True):
        portions.clear()
        with node.connect() as sock:
            sock.sendall(frame(PRODUCE))
            produced(node, 1)
            if closes:
                node.on_loop(lambda: [c.close() for c in list(node.server._connections.values())])
            node.on_loop(answer)
            assert is_closed(sock) if closes else read_frame(sock)
        deadline = time.monotonic() + 20
        while freeing.is_busy or not portions:
            assert time.monotonic() < deadline
            node.on_loop(lambda: None)
        assert len(portions) >= 3
