"""Requests to other nodes, over loopback sockets to peers that misbehave in every way we thought of."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from firnline.base import limits
from firnline.base.effects import Peer, Send, Unanswered
from firnline.client.wire import encode_request
from firnline.protocol.messages import messages_of
from firnline.protocol.messages.headers import RequestHeader
from firnline.protocol.messages.k18_api_versions import ApiVersion, ApiVersionsResponse
from firnline.protocol.messages.k63_broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from firnline.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from firnline.runtime import links
from firnline.runtime.loop import Runtime
from firnline.runtime.poll import PollLoop
from tests.peers.ports import free_ports

FRAME_LIMIT = 3 << 20
HEARTBEAT = 63


class Idle:
    """A node with nothing to do."""


class Asker:
    """A runtime whose loop runs in the test's own thread until everything asked was answered."""

    def __init__(self) -> None:
        self.loop = PollLoop()
        node: Any = Idle()
        self.runtime = Runtime(
            node, self.loop, threads={}, client_id="node-7", answer_bytes_max=FRAME_LIMIT
        )
        self.answers: list[Any] = []
        self._wanted = 0

    def ask(self, port: int, request: Any = None, **options: Any) -> None:
        self._wanted += 1
        peer = Peer(2, options.pop("host", "127.0.0.1"), port)
        given: dict[str, Any] = {"timeout_ms": 20_000, "then": self._received, **options}
        self.runtime.execute([Send(peer=peer, request=request or heartbeat(0), **given)])

    def _received(self, answer: Any, now_ms: int) -> list[Any]:
        self.answers.append(answer)
        if len(self.answers) == self._wanted:
            self.loop.stop()
        return []

    def until_answered(self) -> list[Any]:
        """Run the loop until the last answer; return all of them, in the order they came."""
        watchdog = self.loop.call_later(30, self.loop.stop)
        self.loop.run()
        watchdog.cancel()
        assert len(self.answers) == self._wanted, "the loop was stopped by the watchdog"
        found, self.answers, self._wanted = self.answers, [], 0
        assert self.runtime.failure is None
        return found


def heartbeat(offset: int) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(broker_id=1, broker_epoch=5, current_metadata_offset=offset)


class Peering:
    """The other end of one connection, played by a function of the test, on a thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.client_ids: list[str | None] = []

    def take(self) -> tuple[RequestHeader, Any]:
        """Read one request whole."""
        frame = self._exactly(struct.unpack(">i", self._exactly(4))[0])
        key, version = struct.unpack_from(">hh", frame)
        request, _ = messages_of(key)
        header, position = RequestHeader.read(frame, 2 if version in request.flexible else 1)
        self.client_ids.append(header.client_id)
        message, end = request.read(frame, version, position)
        assert end == len(frame)
        return header, message

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def greet(self, highest: int = 2, key: int = HEARTBEAT) -> None:
        """Answer ApiVersions: this peer serves BrokerHeartbeat up to `highest`, and nothing else."""
        header, _ = self.take()
        assert header.request_api_key == 18
        rows = [ApiVersion(api_key=key, min_version=0, max_version=highest)]
        body = ApiVersionsResponse(api_keys=rows).write(header.request_api_version)
        self.frame(struct.pack(">i", header.correlation_id) + body)

    def frame(self, body: bytes) -> None:
        self.sock.sendall(struct.pack(">i", len(body)) + body)

    def answer(self, header: RequestHeader, *, is_fenced: bool = False) -> None:
        self.frame(self.encoded(header, is_fenced=is_fenced))

    def encoded(self, header: RequestHeader, *, is_fenced: bool = False) -> bytes:
        body = BrokerHeartbeatResponse(is_fenced=is_fenced).write(header.request_api_version)
        return struct.pack(">ib", header.correlation_id, 0) + body


Script = Callable[[Peering], None]


class Scripted:
    """A listener: connection n is played by script n, later ones by the last."""

    def __init__(self, *scripts: Script) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.accepted = 0
        self.problems: list[BaseException] = []
        self._scripts = scripts
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.accepted, len(self._scripts) - 1)]
            self.accepted += 1
            with sock:
                try:
                    script(Peering(sock))
                except (EOFError, ConnectionError):
                    pass
                except BaseException as problem:  # noqa: BLE001 - the test looks at it
                    self.problems.append(problem)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self._thread.join(20)
        assert not self.problems


@pytest.fixture
def play() -> Iterator[Callable[..., Scripted]]:
    """Start a listener whose connections are played by the scripts given."""
    made: list[Scripted] = []

    def start(*scripts: Script) -> Scripted:
        made.append(Scripted(*scripts))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.fixture
def asker(play: object) -> Iterator[Asker]:
    """Closed before its peers: they play until it hangs up."""
    made = Asker()
    yield made
    made.runtime.close()
    made.loop.close()


def polite(peer: Peering) -> None:
    peer.greet()
    while True:
        header, _ = peer.take()
        peer.answer(header)


def unanswered(answer: Any) -> str:
    assert isinstance(answer, Unanswered)
    return answer.why


def test_many_requests_go_out_before_the_first_answer_and_come_back_in_order(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    offsets: list[int] = []
    client_ids: list[str | None] = []

    def script(peer: Peering) -> None:
        peer.greet()
        taken = [peer.take() for _ in range(5)]
        offsets.extend(message.current_metadata_offset for _, message in taken)
        for number, (header, _) in enumerate(taken):
            peer.answer(header, is_fenced=number % 2 == 1)
        client_ids.extend(peer.client_ids)

    peer = play(script)
    for offset in range(5):
        asker.ask(peer.port, heartbeat(offset))
    answers = asker.until_answered()
    assert offsets == [0, 1, 2, 3, 4]
    assert [answer.is_fenced for answer in answers] == [False, True, False, True, False]
    assert client_ids == ["node-7"] * 6
    assert peer.accepted == 1


def test_a_request_leaves_in_the_newest_version_of_both_unless_it_is_bounded(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    versions: list[int] = []

    def script(peer: Peering) -> None:
        peer.greet(highest=1)
        for _ in range(2):
            header, _ = peer.take()
            versions.append(header.request_api_version)
            peer.answer(header)

    peer = play(script)
    asker.ask(peer.port)
    asker.ask(peer.port, version_max=0)
    asker.until_answered()
    assert versions == [1, 0]


def test_what_the_peer_does_not_serve_is_refused_alone(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    """Goal: one request the peer has no version of must not cost those around it their answers."""
    peer = play(polite)
    asker.ask(peer.port)
    asker.ask(peer.port, AllocateProducerIdsRequest(broker_id=1, broker_epoch=1))
    asker.ask(peer.port)
    found = asker.until_answered()
    why = [each for each in found if isinstance(each, Unanswered)]
    assert len(why) == 1
    assert "UNSUPPORTED_VERSION" in why[0].why
    assert why[0].is_unsupported
    assert peer.accepted == 1


def test_a_request_that_means_something_else_in_an_older_version_does_not_leave_in_it(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    """A pre-vote in a version without the field would be a vote."""

    def script(peer: Peering) -> None:
        peer.greet(highest=1)
        peer.take()

    asker.ask(play(script).port, version_min=2)
    (answer,) = asker.until_answered()
    assert isinstance(answer, Unanswered)
    assert answer.is_unsupported
    assert asker.runtime.links.connection_count == 1


def test_channels_do_not_wait_for_each_other(asker: Asker, play: Callable[..., Scripted]) -> None:
    """Method: the first connection never answers; the second one, of another channel, does."""

    def parked(peer: Peering) -> None:
        peer.greet()
        peer.take()
        threading.Thread(target=polite_next, args=(listener.listener,), daemon=True).start()
        peer.take()  # until the asker hangs up

    def polite_next(sock: socket.socket) -> None:
        with contextlib.suppress(EOFError, OSError), sock.accept()[0] as other:
            polite(Peering(other))

    listener = play(parked)
    asker.ask(listener.port, then=lambda answer, now: [], timeout_ms=60_000)
    asker._wanted -= 1
    asker.ask(listener.port, channel="another")
    (answer,) = asker.until_answered()
    assert isinstance(answer, BrokerHeartbeatResponse)


def test_nobody_listening_is_reported_at_once(asker: Asker) -> None:
    (port,) = free_ports(1)
    asker.ask(port)
    asker.ask(port)
    assert all("refused" in unanswered(each) for each in asker.until_answered())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("port", [-1, 0, 1 << 16, (1 << 31) - 1])
def test_a_port_that_cannot_be_stops_nothing(asker: Asker, host: str, port: int) -> None:
    """It came in an answer: whoever lies about where the leader is must not end the node."""
    asker.ask(port, host=host)
    (answer,) = asker.until_answered()
    assert unanswered(answer) == f"{host}:{port}: there is no such port"


def test_a_dead_peer_is_not_dialled_for_every_request(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    """Goal: a node that asks again and again must not open a connection each time.
    Method: the peer hangs up before it says what it speaks; the pause that follows is made long."""
    peer = play(lambda peering: None)
    asker.ask(peer.port)
    unanswered(*asker.until_answered())
    (link,) = asker.runtime.links._links.values()
    assert link._retry_at_ms >= link.last_active_ms + links._BACKOFF_MS
    link._retry_at_ms += 60_000
    for _ in range(20):
        asker.ask(peer.port)
    assert all(unanswered(each) for each in asker.until_answered())
    assert peer.accepted == 1
    for _ in range(20):
        link._drop("again")
    pause_ms = link._retry_at_ms - asker.runtime.now_ms()
    assert links._BACKOFF_MS < pause_ms <= links._BACKOFF_MAX_MS


def test_after_a_pause_the_peer_is_dialled_again(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    peer = play(lambda peering: None, polite)
    asker.ask(peer.port)
    unanswered(*asker.until_answered())
    (link,) = asker.runtime.links._links.values()
    link._retry_at_ms = 0
    asker.ask(peer.port)
    (answer,) = asker.until_answered()
    assert isinstance(answer, BrokerHeartbeatResponse)
    assert link._failures == 0


def test_an_answer_cut_off_in_the_middle_is_no_answer(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    def script(peer: Peering) -> None:
        peer.greet()
        header, _ = peer.take()
        complete = peer.encoded(header)
        peer.sock.sendall(struct.pack(">i", len(complete)) + complete[:-3])

    asker.ask(play(script).port)
    asker.ask(asker_port := play(polite).port)
    found = asker.until_answered()
    assert sum(isinstance(each, Unanswered) for each in found) == 1
    assert asker_port


def test_bytes_that_come_one_by_one_make_an_answer(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    def script(peer: Peering) -> None:
        peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.greet()
        first, _ = peer.take()
        second, _ = peer.take()
        bodies = (peer.encoded(first), peer.encoded(second))
        for byte in b"".join(struct.pack(">i", len(body)) + body for body in bodies):
            peer.sock.sendall(bytes([byte]))
            time.sleep(0.001)
        peer.take()

    port = play(script).port
    asker.ask(port)
    asker.ask(port)
    assert all(isinstance(each, BrokerHeartbeatResponse) for each in asker.until_answered())


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol"),
        pytest.param(struct.pack(">i", FRAME_LIMIT + 1), id="oversize"),
        pytest.param(struct.pack(">i", -1), id="a negative size"),
        pytest.param(struct.pack(">ii", 4, 1), id="no body"),
        pytest.param(struct.pack(">iii", 8, 1, 0x00FF_FFFF), id="cut short"),
        pytest.param(b"\x00\x00\x00\x20" + b"\xff" * 32, id="all ones"),
    ],
)
@pytest.mark.parametrize("moment", ["greeting", "answer"])
def test_nonsense_ends_the_connection_and_nothing_else(
    asker: Asker, play: Callable[..., Scripted], nonsense: bytes, moment: str
) -> None:
    def script(peer: Peering) -> None:
        if moment == "greeting":
            peer.take()
        else:
            peer.greet()
            peer.take()
        peer.sock.sendall(nonsense)
        peer.take()  # until the asker hangs up

    asker.ask(play(script).port)
    assert unanswered(*asker.until_answered())
    assert asker.runtime.links.connection_count == 0


def test_garbage_in_the_body_of_an_answer_is_not_believed(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    def script(peer: Peering) -> None:
        peer.greet()
        header, _ = peer.take()
        peer.frame(struct.pack(">i", header.correlation_id) + b"\xff" * 40)

    asker.ask(play(script).port)
    assert "not understood" in unanswered(*asker.until_answered())


def test_an_answer_to_another_request_is_not_taken_for_ours(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    """Method: two requests; the answer to the second one comes first."""

    def script(peer: Peering) -> None:
        peer.greet()
        peer.take()
        second, _ = peer.take()
        peer.answer(second)

    port = play(script).port
    asker.ask(port)
    asker.ask(port)
    assert all("another request" in unanswered(each) for each in asker.until_answered())


def test_an_answer_nobody_asked_for_ends_the_connection(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    def script(peer: Peering) -> None:
        peer.greet()
        header, _ = peer.take()
        complete = peer.encoded(header)
        peer.sock.sendall((struct.pack(">i", len(complete)) + complete) * 2)

    port = play(script).port
    asker.ask(port)
    (answer,) = asker.until_answered()
    assert isinstance(answer, BrokerHeartbeatResponse)
    assert asker.runtime.links.connection_count == 0


def test_silence_ends_at_the_timeout_for_all_that_wait_on_the_connection(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    """A peer that answers nothing for one timeout is as good as dead: the others need not find out too."""

    def script(peer: Peering) -> None:
        peer.greet()
        while True:
            peer.take()

    port = play(script).port
    asker.ask(port, timeout_ms=60_000)
    asker.ask(port, timeout_ms=80)
    assert all("in time" in unanswered(each) for each in asker.until_answered())


def test_a_peer_that_never_says_what_it_speaks_is_given_up(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    def script(peer: Peering) -> None:
        peer.take()
        peer.take()

    asker.ask(play(script).port, timeout_ms=80)
    assert "in time" in unanswered(*asker.until_answered())


def test_a_peer_that_does_not_read_costs_one_connection(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    """Method: more bytes than the sockets take, and nobody reads them; then somebody does."""
    go = threading.Event()

    def script(peer: Peering) -> None:
        peer.greet()
        assert go.wait(20)
        for _ in range(40):
            header, _ = peer.take()
            peer.answer(header)

    port = play(script).port
    for _ in range(40):
        asker.ask(port, heartbeat(0), then=asker._received)
        (link,) = asker.runtime.links._links.values()
        # Grow the request: 100,000 directories that failed.
        asked: Any = link._waiting[-1].effect.request
        asked.offline_log_dirs = [bytes(16)] * 10_000
    asker.loop.call_later(0.2, go.set)
    assert all(isinstance(each, BrokerHeartbeatResponse) for each in asker.until_answered())


def test_what_waits_for_one_peer_is_bounded(
    asker: Asker, play: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "LINK_REQUESTS_MAX", 3)
    assert limits.LINK_REQUESTS_MAX == 10_000
    port = play(polite).port
    for _ in range(5):
        asker.ask(port)
    found = asker.until_answered()
    assert [isinstance(each, Unanswered) for each in found].count(True) == 2


def test_a_continuation_may_ask_again(asker: Asker, play: Callable[..., Scripted]) -> None:
    peer = play(polite)
    received: list[int] = []

    def again(answer: Any, now_ms: int) -> list[Any]:
        received.append(1)
        if len(received) < 50:
            return [
                Send(
                    peer=Peer(2, "127.0.0.1", peer.port),
                    request=heartbeat(0),
                    timeout_ms=9_000,
                    then=again,
                )
            ]
        asker.loop.stop()
        return []

    asker.ask(peer.port, then=again)
    asker._wanted = 0
    asker.until_answered()
    assert len(received) == 50
    assert peer.accepted == 1


def test_a_connection_nobody_uses_is_closed_and_opened_again(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    peer = play(polite)
    asker.ask(peer.port)
    asker.until_answered()
    asker.runtime.links.sweep(asker.runtime.now_ms() + links.IDLE_MS // 2)
    assert asker.runtime.links.connection_count == 1
    asker.runtime.links.sweep(asker.runtime.now_ms() + links.IDLE_MS + 1_000)
    assert asker.runtime.links.connection_count == 0
    asker.ask(peer.port)
    (answer,) = asker.until_answered()
    assert isinstance(answer, BrokerHeartbeatResponse)
    assert peer.accepted == 2


def test_a_name_is_looked_up_beside_the_loop(
    asker: Asker, play: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the name has an address where nobody listens, then the right one."""
    peer = play(polite)
    threads: list[str] = []

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        assert host == "controller-2.example"
        threads.append(threading.current_thread().name)
        rows = [("127.0.0.9", port), ("127.0.0.1", port)]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", row) for row in rows]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    asker.ask(peer.port, host="controller-2.example")
    (answer,) = asker.until_answered()
    assert isinstance(answer, BrokerHeartbeatResponse)
    assert threads == ["firnline-names-0"]


def test_a_name_that_is_not_found_is_reported(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    asker.ask(9, host="nowhere.example")
    assert "not known" in unanswered(*asker.until_answered())


def test_the_client_id_and_the_header_are_those_of_the_version() -> None:
    frame = encode_request(heartbeat(1), version=0, correlation_id=3, client_id="node-7")
    assert frame[4:] == struct.pack(">hhih", 63, 0, 3, 6) + b"node-7" + b"\0" + heartbeat(1).write(
        0
    )
