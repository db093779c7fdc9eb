"""The socket side of a node, with a node that only echoes: order, back-pressure, bad peers."""

import gc
import socket
import struct
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from firnline.base.effects import Effects, Flush, Reply, Submit
from firnline.base.errors import KafkaError
from firnline.base.limits import OPEN_REQUESTS_MAX
from firnline.protocol.schema import Part
from firnline.runtime import poll
from firnline.runtime.bounds.connections import Connections, Limits
from firnline.runtime.listener import Server, listen
from firnline.runtime.poll import READABLE
from tests.unit.runtime.echo import (
    LIMIT,
    PRODUCE,
    Echo,
    Running,
    Ticket,
    frame,
    is_closed,
    produced,
    read_exactly,
    read_frame,
    reply,
)


def test_pipelined_requests_are_answered_in_order_even_when_some_wait(node: Running) -> None:
    """A waiting request holds back those behind it on its connection (C18), not other connections."""
    bodies = [b"%s-request-%03d" % (b"w" if i % 10 == 3 else b"e", i) for i in range(60)]
    with node.connect() as sock, node.connect() as other:
        sock.sendall(b"".join(map(frame, bodies)))
        other.sendall(frame(b"e-elsewhere"))
        assert read_frame(other) == b"e-elsewhere"
        assert [read_frame(sock) for _ in bodies] == bodies


def test_bytes_that_come_in_the_turn_of_an_answer_do_not_overtake_those_before(
    node: Running,
) -> None:
    """Goal: a stream of bytes stays in order. Method: half a request waits behind one in progress;
    its other half arrives in the very turn of the loop in which that one is answered."""
    echo = node.runtime.dispatcher
    assert isinstance(echo, Echo)
    with node.connect() as client:
        second = frame(b"e" + b"2" * 2000)
        client.sendall(frame(b"hold it!") + second[:900])
        for _ in range(1000):
            if echo.held is not None and echo.held.connection._backlog:
                break
            node.on_loop(lambda: None)
        held = echo.held
        assert held is not None

        def one_turn() -> None:
            client.sendall(second[900:])
            node.runtime.execute([Reply(context=held, message=1)])
            held.connection._on_ready(READABLE)  # as epoll tells it, in the same turn

        node.on_loop(one_turn)
        client.settimeout(20)
        assert read_frame(client) == b"hold it!"
        assert read_frame(client) == b"e" + b"2" * 2000


def test_a_request_without_an_answer_does_not_stop_the_next(node: Running) -> None:
    with node.connect() as sock:
        sock.sendall(frame(b"n-no-answer") + frame(b"e-answered"))
        assert read_frame(sock) == b"e-answered"


def test_large_requests_and_file_answers_arrive_in_full(node: Running) -> None:
    body = b"e" + bytes(range(256)) * 12_000
    with node.connect() as sock:
        for _ in range(3):
            sock.sendall(frame(body))
            assert read_frame(sock) == body
        sock.sendall(frame(b"s\x20-file-slice"))
        content = read_frame(sock)
        assert len(content) == 32 << 20
        assert content[:512] == bytes(range(256)) * 2
        assert content == bytes(range(256)) * (32 << 12)


def test_a_peer_that_does_not_read_is_not_read_from_and_others_go_on(node: Running) -> None:
    with node.connect() as lazy, node.connect() as busy:
        for _ in range(3):
            lazy.sendall(frame(b"s\x20-file-slice"))
        for i in range(50):
            busy.sendall(frame(b"e-%06d" % i))
            assert read_frame(busy) == b"e-%06d" % i
        for _ in range(3):
            assert len(read_frame(lazy)) == 32 << 20


@pytest.mark.parametrize(
    "garbage", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_bytes_that_are_no_frame_close_the_connection_alone(node: Running, garbage: bytes) -> None:
    with node.connect() as good, node.connect() as bad:
        bad.sendall(garbage + b"x" * 16)
        assert is_closed(bad)
        good.sendall(frame(b"e-still-here"))
        assert read_frame(good) == b"e-still-here"


def test_a_bad_request_and_a_bug_close_their_connection_and_not_the_node(node: Running) -> None:
    for command in (b"p-bad-request", b"b-handler-bug"):
        with node.connect() as sock:
            sock.sendall(frame(command))
            assert is_closed(sock)
    with node.connect() as sock:
        sock.sendall(frame(b"e-still-here"))
        assert read_frame(sock) == b"e-still-here"
    assert node.runtime.failure is None
    assert node.server.bad_peers == 1


def test_a_peer_that_leaves_in_mid_frame_frees_its_buffer(node: Running) -> None:
    with node.connect() as sock:
        sock.sendall(struct.pack(">i", 1 << 20) + b"half of it")
    with node.connect() as sock:
        sock.sendall(frame(b"e-still-here"))
        assert read_frame(sock) == b"e-still-here"
        counts: list[int] = []
        node.on_loop(lambda: counts.append(node.server.connection_count))
        assert counts == [1]


def test_a_closed_connection_needs_no_garbage_collector(node: Running) -> None:
    """Those that come and go by the thousand must not pile up until it runs."""
    found: list[Any] = []
    gc.disable()
    try:
        with node.connect() as sock:
            sock.sendall(frame(b"e-is-here"))
            read_frame(sock)
            node.on_loop(lambda: found.extend(map(tracked, node.server._connections.values())))
        with node.connect() as sock:  # the loop has closed the first one when this one is answered
            sock.sendall(frame(b"e-is-there"))
            read_frame(sock)
        node.on_loop(lambda: None)
        assert found
        assert not found[0].is_alive
    finally:
        gc.enable()


class Sentinel:
    """Lives as long as what holds it."""


def tracked(connection: Any) -> Any:
    """Let a connection hold something; return whether that is still alive, as `is_alive`."""
    held = Sentinel()
    connection.principal = held
    alive = SimpleNamespace(is_alive=True)
    weakref.finalize(held, lambda: setattr(alive, "is_alive", False))
    return alive


def test_who_never_sends_a_request_is_closed_in_time(node: Running) -> None:
    with node.connect() as silent, node.connect() as active:
        active.sendall(frame(b"e-has-spoken"))
        read_frame(active)
        node.on_loop(lambda: node.server.sweep(node.runtime.now_ms() + 31_000))
        assert is_closed(silent)
        active.sendall(frame(b"e-still-here"))
        assert read_frame(active) == b"e-still-here"


def test_connections_that_have_to_go_together_are_closed_a_few_in_each_turn(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine thousand that came at once and never asked took 150 ms of the loop when they were closed."""
    monkeypatch.setattr(poll, "_STEPS_S", 0)
    node.limits = Limits(total=100)
    socks = [node.connect() for _ in range(50)]
    left: list[int] = []

    def sweep() -> None:
        node.server.sweep(node.runtime.now_ms() + 31_000)
        left.append(node.server.connection_count)

    while node.server.connection_count < 50:
        node.on_loop(lambda: None)
    node.on_loop(sweep)
    assert left == [49]
    for sock in socks:
        assert is_closed(sock)
        sock.close()


def test_a_failing_continuation_stops_the_node_with_its_reason(tmp_path: Path) -> None:
    running = Running(_empty(tmp_path))
    running.thread.start()

    def broken(result: Any, now_ms: int) -> list[Any]:
        raise AssertionError("an invariant is broken")

    work = Submit(name="work", pool="read", work=lambda: 1, then=broken)
    running.runtime._doorbell.ring(lambda result, now: [work], None)
    running.thread.join(20)
    assert not running.thread.is_alive()
    assert "an invariant is broken" in str(running.runtime.failure)
    running.runtime.close()


def test_a_full_pool_refuses_at_once(node: Running) -> None:
    """The queue of remote reads is bounded (T36): what does not fit is told so, nothing hangs."""
    release = threading.Event()
    results: list[Any] = []
    finished = threading.Event()

    def done(result: Any, now_ms: int) -> Effects:
        results.append(result)
        if len(results) == 105:
            finished.set()
        return []

    read = Submit(name="read", pool="read", work=lambda: release.wait(20), then=done)
    work: Effects = [read] * 105
    node.on_loop(lambda: node.runtime.execute(work))
    release.set()
    assert finished.wait(20)
    refused = [r for r in results if isinstance(r, KafkaError)]
    assert 1 <= len(refused) <= 5


def test_flushes_that_wait_are_synced_together(node: Running) -> None:
    """While one fdatasync runs, all who ask share the next one."""

    class SlowFile:
        path = "slow"
        syncs = 0
        began = threading.Event()
        go_on = threading.Event()

        def sync(self) -> None:
            type(self).syncs += 1
            self.began.set()
            assert self.go_on.wait(20)

    slow: Any = SlowFile()
    answered: list[Any] = []
    all_done = threading.Event()

    def then(error: Any, now_ms: int) -> list[Any]:
        answered.append(error)
        if len(answered) == 11:
            all_done.set()
        return []

    flush = Flush(files=[slow], then=then)
    node.on_loop(lambda: node.runtime.execute([flush]))
    assert SlowFile.began.wait(20)
    node.on_loop(lambda: node.runtime.execute([flush] * 10))
    SlowFile.go_on.set()
    assert all_done.wait(20)
    assert answered == [None] * 11
    assert SlowFile.syncs == 2


def _empty(tmp_path: Path) -> Path:
    path = tmp_path / "empty"
    path.write_bytes(b"")
    return path


def test_each_listener_is_served_by_its_own_dispatcher(node: Running) -> None:
    """What the members of a quorum ask is nothing that clients may ask, and the other way round."""

    class Shout(Echo):
        def encode(self, reply: Reply) -> list[Part]:
            body = reply.context.body.upper()
            return [struct.pack(">i", len(body)) + body]

    sock = listen("127.0.0.1", 0)
    shout = Shout(Path(node.runtime.dispatcher.file.path))  # type: ignore[attr-defined]

    def open_another() -> None:
        server = Server(
            node.runtime,
            node.loop,
            sock,
            listener="OTHER",
            frame_bytes_max=LIMIT,
            idle_ms=600_000,
            counted=Connections(Limits),
            dispatcher=shout,  # type: ignore[arg-type]
        )
        node.runtime.servers.append(server)

    node.on_loop(open_another)
    body = b"echo twice"
    for port, wanted in ((node.port, body), (sock.getsockname()[1], body.upper())):
        with socket.create_connection(("127.0.0.1", port), 20) as client:
            client.sendall(struct.pack(">i", len(body)) + body)
            assert client.recv(100)[4:] == wanted


# ------------------------------------------------------------------- a Produce waits for followers


def test_the_next_records_do_not_wait_until_followers_have_those_before(node: Running) -> None:
    with node.connect() as sock:
        for number in b"123":
            sock.sendall(frame(PRODUCE + bytes([number])))
            produced(node, number - b"0"[0])
        tickets = produced(node, 3)
        assert [ticket.body[-1:] for ticket in tickets] == [b"1", b"2", b"3"]
        reply(node, *tickets)
        assert [read_frame(sock)[-1:] for _ in range(3)] == [b"1", b"2", b"3"]
        sock.sendall(frame(b"e-as-usual"))
        assert read_frame(sock) == b"e-as-usual"


def test_answers_leave_in_the_order_of_requests_whatever_is_committed_first(node: Running) -> None:
    with node.connect() as sock:
        sock.sendall(frame(PRODUCE + b"1") + frame(PRODUCE + b"2") + frame(b"e-what-else"))
        first, second = produced(node, 2)
        reply(node, second)
        sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        sock.settimeout(20)
        reply(node, first)
        assert [read_frame(sock) for _ in range(3)] == [first.body, second.body, b"e-what-else"]


def test_a_request_that_is_no_produce_holds_up_those_behind_it(node: Running) -> None:
    with node.connect() as sock:
        sock.sendall(frame(PRODUCE + b"1") + frame(b"hold-this-one") + frame(PRODUCE + b"2"))
        (first,) = produced(node, 1)
        reply(node, first)
        assert read_frame(sock) == first.body
        assert len(produced(node, 1)) == 1
        echo: Any = node.runtime.dispatcher
        reply(node, echo.held)
        assert read_frame(sock) == b"hold-this-one"
        reply(node, produced(node, 2)[1])
        assert read_frame(sock) == PRODUCE + b"2"


def test_a_client_has_so_many_open_requests_and_no_more(node: Running) -> None:
    with node.connect() as sock:
        sock.sendall(b"".join(frame(PRODUCE + bytes([n])) for n in range(OPEN_REQUESTS_MAX + 5)))
        tickets = list(produced(node, OPEN_REQUESTS_MAX))
        assert len(tickets) == OPEN_REQUESTS_MAX
        reply(node, *tickets)
        reply(node, *produced(node, OPEN_REQUESTS_MAX + 5)[OPEN_REQUESTS_MAX:])
        reported = [read_frame(sock) for _ in range(OPEN_REQUESTS_MAX + 5)]
        assert reported == [PRODUCE + bytes([n]) for n in range(OPEN_REQUESTS_MAX + 5)]


def test_a_client_that_leaves_while_its_records_wait_is_no_trouble(node: Running) -> None:
    with node.connect() as sock:
        sock.sendall(frame(PRODUCE + b"1") + frame(PRODUCE + b"2"))
        tickets = list(produced(node, 2))
    for _ in range(100):
        counts: list[int] = []
        node.on_loop(lambda counts=counts: counts.append(node.server.connection_count))  # type: ignore[misc]
        if counts == [0]:
            break
    reply(node, *tickets[::-1])
    with node.connect() as sock:
        sock.sendall(frame(b"e-still-here"))
        assert read_frame(sock) == b"e-still-here"
    assert node.runtime.failure is None


def test_answers_of_open_requests_that_the_peer_does_not_read_are_kept_in_order(
    node: Running,
) -> None:
    body = PRODUCE + bytes(3 << 20)
    with node.connect() as sock:
        tickets: list[Ticket] = []
        for number in range(6):
            sock.sendall(frame(body + bytes([number])))
            tickets = list(produced(node, number + 1))
        reply(node, *tickets)
        sock.sendall(frame(PRODUCE + b"7"))
        assert len(produced(node, 6)) == 6, "not read from while it does not read"
        assert [read_frame(sock)[-1] for _ in range(6)] == [0, 1, 2, 3, 4, 5]
        reply(node, produced(node, 7)[6])
        assert read_frame(sock) == PRODUCE + b"7"


def test_an_answer_does_not_overtake_what_is_left_of_the_one_before_it(node: Running) -> None:
    """The peer reads a little between two answers, so that the socket takes bytes again."""
    with node.connect() as sock:
        large = 6
        for number in range(large):
            sock.sendall(frame(PRODUCE + bytes(3 << 20)))
            produced(node, number + 1)
        sock.sendall(frame(PRODUCE + b"last"))
        tickets = list(produced(node, large + 1))
        begun = bytearray()

        def all_of_them() -> None:
            node.runtime.execute([Reply(context=each, message=1) for each in tickets[:large]])
            while len(begun) < 1 << 20:
                begun.extend(sock.recv(1 << 20))
            node.runtime.execute([Reply(context=tickets[large], message=1)])

        node.on_loop(all_of_them)
        complete = b"".join(frame(each.body) for each in tickets)
        assert bytes(begun) + read_exactly(sock, len(complete) - len(begun)) == complete
