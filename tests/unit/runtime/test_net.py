"""The socket side of a node, with a node that only echoes: order, back-pressure, bad peers."""

import gc
import socket
import struct
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from firnline.base.effects import Flush, Reply, SetTimer, Submit
from firnline.base.errors import KafkaError, ProtocolError
from firnline.base.slices import FileSlice
from firnline.protocol.schema import Part
from firnline.runtime import net
from firnline.runtime.disk import RealFs
from firnline.runtime.loop import Runtime
from firnline.runtime.net import OPEN_MAX, Server, listen
from firnline.runtime.poll import READABLE, PollLoop

LIMIT = 4 * 1024 * 1024
PRODUCE = (
    b"\0\0 produce "  # the API key that these frames begin with: appended when they are taken up
)


class Ticket:
    """What the echo needs of a RequestContext."""

    def __init__(self, connection: Any, body: bytes) -> None:
        self.connection = connection
        self.turn = connection.turn
        self.body = body
        self.is_large = self.is_urgent = False


class Echo:
    """A dispatcher whose requests say what to do: their first byte is the command.

    e echo | s serve that many mebibytes from the file | w wait 30 ms, then echo | n no answer
    h hold until the test answers | b a bug in a handler | p not a request | PRODUCE wait in `produced`
    m a thousand slices of the file, of 8 bytes each
    l echo, encoded in slices until `is_encoded` | f a bug in the second of them
    """

    latest_name = "echo"
    in_turns: Ticket | None = None

    def __init__(self, big: Path) -> None:
        self.file = RealFs().open(str(big))
        self.held: Ticket | None = None
        self.produced: list[Ticket] = []
        self.slices = 0
        self.is_encoded = False

    def at_once(self, connection: Any, data: memoryview, size: int, now_ms: int) -> None:
        """Nothing is usual here."""

    def on_frame(self, connection: Any, frame: memoryview, now_ms: int) -> list[Any]:
        ticket = Ticket(connection, bytes(frame))
        self.in_turns = None
        if ticket.body.startswith(PRODUCE):
            self.produced.append(ticket)
            if ticket.body.endswith(b"in slices"):
                self.in_turns = ticket
            return []
        command = ticket.body[:1]
        ticket.is_large = command in (b"l", b"f")
        if command == b"w":
            reply = Reply(context=ticket, message=1)
            key = ("wait", id(connection))
            return [SetTimer(key=key, at_ms=now_ms + 30, then=lambda now: [reply])]
        if command == b"h":
            self.held = ticket
            return []
        if command == b"p":
            raise ProtocolError("not a request")
        if command == b"b":
            raise KeyError("a bug of ours")
        return [Reply(context=ticket, message=None if command == b"n" else 1)]

    def encode(self, reply: Reply) -> list[Part]:
        body = reply.context.body
        if body[:1] == b"s":
            size = body[1] << 20
            return [struct.pack(">i", size), FileSlice(self.file, 0, size)]
        if body[:1] == b"m":
            slices = [FileSlice(self.file, 0, 8) for _ in range(1000)]
            return [struct.pack(">i", 8000), *slices]
        return [struct.pack(">i", len(body)) + body]

    def encoding(self, reply: Reply) -> Iterator[None]:
        while not self.is_encoded:
            self.slices += 1
            if self.slices > 1 and reply.context.body.startswith(b"f"):
                raise KeyError("a bug of ours")
            yield
        return self.encode(reply)  # type: ignore[return-value]


class QuietNode:
    """A node with nothing to do."""

    def start(self, now_ms: int) -> list[Any]:
        return []


class Running:
    """A runtime on a thread of its own."""

    latest_name = "echo"

    def __init__(self, big: Path) -> None:
        self.loop = PollLoop()
        self.runtime = Runtime(QuietNode(), self.loop, threads={"read": 1})
        self.runtime.dispatcher = Echo(big)  # type: ignore[assignment]
        sock = listen("127.0.0.1", 0)
        self.port: int = sock.getsockname()[1]
        self.server = Server(
            self.runtime,
            self.loop,
            sock,
            listener="TEST",
            frame_bytes_max=LIMIT,
            idle_ms=600_000,
            connections_max=8,
        )
        self.runtime.servers.append(self.server)
        self.thread = threading.Thread(target=self.loop.run)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 20)

    def on_loop(self, call: Any) -> None:
        """Run `call` on the loop's thread and wait for it."""
        done = threading.Event()

        def then(result: Any, now_ms: int) -> list[Any]:
            call()
            done.set()
            return []

        self.runtime._doorbell.ring(then, None)
        assert done.wait(20)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Running]:
    big = tmp_path / "big"
    big.write_bytes(bytes(range(256)) * (32 << 12))
    running = Running(big)
    running.thread.start()
    yield running
    running.on_loop(running.loop.stop)
    running.thread.join(20)
    running.runtime.close()


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def read_frame(sock: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", read_exactly(sock, 4))
    return read_exactly(sock, size)


def read_exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, "the connection was closed"
        data += piece
    return bytes(data)


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


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
        client.settimeout(5)
        assert read_frame(client) == b"hold it!"
        assert read_frame(client) == b"e" + b"2" * 2000


def test_a_request_without_an_answer_does_not_stop_the_next(node: Running) -> None:
    with node.connect() as sock:
        sock.sendall(frame(b"n-no-answer") + frame(b"e-answered"))
        assert read_frame(sock) == b"e-answered"


def test_large_requests_and_file_answers_arrive_whole(node: Running) -> None:
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


def test_connections_above_the_limit_are_refused(node: Running) -> None:
    kept = [node.connect() for _ in range(8)]
    for sock in kept:
        sock.sendall(frame(b"e-one-of-eight"))
        read_frame(sock)
    with node.connect() as ninth:
        assert is_closed(ninth)
    for sock in kept:
        sock.close()


def test_who_never_sends_a_request_is_closed_in_time(node: Running) -> None:
    with node.connect() as silent, node.connect() as active:
        active.sendall(frame(b"e-has-spoken"))
        read_frame(active)
        node.on_loop(lambda: node.server.sweep(node.runtime.now_ms() + 31_000))
        assert is_closed(silent)
        active.sendall(frame(b"e-still-here"))
        assert read_frame(active) == b"e-still-here"


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

    def done(result: Any, now_ms: int) -> list[Any]:
        results.append(result)
        if len(results) == 105:
            finished.set()
        return []

    work = [Submit(name="read", pool="read", work=lambda: release.wait(20), then=done)] * 105
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
            connections_max=8,
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


def produced(node: Running, count: int) -> list[Ticket]:
    """Wait until that many were taken up, and a turn longer; return all that were."""
    echo: Any = node.runtime.dispatcher
    deadline = time.monotonic() + 20
    while len(echo.produced) < count and time.monotonic() < deadline:
        node.on_loop(lambda: None)
    for _ in range(3):
        node.on_loop(lambda: None)
    found: list[Ticket] = echo.produced
    return found


def reply(node: Running, *tickets: Ticket) -> None:
    replies: list[Any] = [Reply(context=ticket, message=1) for ticket in tickets]
    node.on_loop(lambda: node.runtime.execute(replies))


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
        sock.sendall(b"".join(frame(PRODUCE + bytes([n])) for n in range(OPEN_MAX + 5)))
        tickets = list(produced(node, OPEN_MAX))
        assert len(tickets) == OPEN_MAX
        reply(node, *tickets)
        reply(node, *produced(node, OPEN_MAX + 5)[OPEN_MAX:])
        told = [read_frame(sock) for _ in range(OPEN_MAX + 5)]
        assert told == [PRODUCE + bytes([n]) for n in range(OPEN_MAX + 5)]


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
        whole = b"".join(frame(each.body) for each in tickets)
        assert bytes(begun) + read_exactly(sock, len(whole) - len(begun)) == whole


# -------------------------------------------------------------------------------- in slices


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
