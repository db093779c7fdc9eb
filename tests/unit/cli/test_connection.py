"""The client's connection: versions, errors, and peers that are no brokers."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from firnline.base.errors import Code, KafkaError, ProtocolError
from firnline.client.connection import Connection, Unreachable, parse_address
from firnline.client.wire import choose_version, decode_versions, encode_request, refuse
from firnline.protocol.messages.headers import ResponseHeader
from firnline.protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from firnline.protocol.messages.k18_api_versions import ApiVersion, ApiVersionsResponse
from firnline.protocol.messages.k32001_tier_status import TierStatusRequest
from firnline.protocol.schema import Versions
from tests.peers.ports import free_ports
from tests.unit.cli.fake_broker import FakeBroker

Peer = Callable[[Callable[[socket.socket], object]], int]


@pytest.fixture
def peer() -> Iterator[Peer]:
    """Listens once, and does to the first connection what a test says; returns the port."""
    opened: list[socket.socket] = []

    def start(behaviour: Callable[[socket.socket], object]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        opened.append(listener)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                behaviour(connection)

        threading.Thread(target=serve, daemon=True).start()
        port: int = listener.getsockname()[1]
        return port

    yield start
    for listener in opened:
        listener.close()


def test_the_highest_version_both_know_is_chosen() -> None:
    spoken = {3: Versions(0, 9)}
    assert choose_version(MetadataRequest(), spoken) == 9
    assert choose_version(MetadataRequest, {3: Versions(0, 99)}) == MetadataRequest.valid.last
    with pytest.raises(KafkaError, match="no version that both sides know"):
        choose_version(MetadataRequest, {3: Versions(90, 99)})
    with pytest.raises(KafkaError, match="does not serve"):
        choose_version(MetadataRequest, {})


def test_our_own_requests_are_not_looked_up() -> None:
    assert choose_version(TierStatusRequest, {}) == 0


def test_a_broker_too_old_for_our_question_is_still_understood() -> None:
    """It answers in version 0 with UNSUPPORTED_VERSION and its range (C4)."""
    answer = ApiVersionsResponse(
        error_code=Code.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=18, min_version=0, max_version=1)],
    )
    frame = ResponseHeader(correlation_id=7).write(0) + answer.write(0)
    assert decode_versions(frame, correlation_id=7) == {18: (0, 1)}
    with pytest.raises(ProtocolError):
        decode_versions(frame, correlation_id=8)


def test_a_frame_begins_with_its_length() -> None:
    frame = encode_request(MetadataRequest(), version=1, correlation_id=5, client_id="me")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame[4:16] == b"\0\x03\0\x01\0\0\0\x05\0\x02me"


def test_versions_are_asked_for_once() -> None:
    with FakeBroker({3: lambda _: MetadataResponse(cluster_id="c")}) as broker:
        client = Connection("127.0.0.1", broker.port)
        assert client.ask(MetadataRequest(topics=None)).cluster_id == "c"
        assert client.ask(MetadataRequest(topics=None), version=5).cluster_id == "c"
        assert client.spoken()[3] == MetadataRequest.valid
        client.close()
    assert len(broker.asked) == 2


def test_nobody_there_says_which_address() -> None:
    (port,) = free_ports(1)
    with (
        Connection("127.0.0.1", port) as client,
        pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port}: Connection refused"),
    ):
        client.ask(MetadataRequest())


def test_a_peer_that_hangs_up_says_so(peer: Peer) -> None:
    with (
        Connection("127.0.0.1", peer(lambda connection: None)) as client,
        pytest.raises(Unreachable, match="closed the connection"),
    ):
        client.ask(MetadataRequest(), version=1)


def test_a_web_server_is_not_mistaken_for_a_broker(peer: Peer) -> None:
    port = peer(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with (
        Connection("127.0.0.1", port) as client,
        pytest.raises(ProtocolError, match="is this a Kafka port"),
    ):
        client.ask(MetadataRequest(), version=1)


def test_a_peer_that_says_nothing_does_not_hang_us(peer: Peer) -> None:
    over = threading.Event()
    client = Connection("127.0.0.1", peer(lambda connection: over.wait(30)), timeout_s=0.05)
    with client, pytest.raises(Unreachable, match="did not answer in time"):
        client.ask(MetadataRequest(), version=1)
    over.set()


def test_an_answer_to_another_question_is_refused(peer: Peer) -> None:
    answer = ResponseHeader(correlation_id=99).write(0)
    frame = len(answer).to_bytes(4, "big") + answer
    client = Connection("127.0.0.1", peer(lambda connection: connection.sendall(frame)))
    with client, pytest.raises(ProtocolError, match="response to another request"):
        client.ask(MetadataRequest(), version=1)


@pytest.mark.parametrize("text", ["localhost", "h:0", "h:99999", "h:x", "h:\u0661"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Unreachable, match="expected host:port"):
        parse_address(text)


def test_addresses() -> None:
    assert parse_address("h:9092") == ("h", 9092)
    assert parse_address("[::1]:9092") == ("::1", 9092)
    assert parse_address(":9092") == ("127.0.0.1", 9092)


def test_an_error_code_of_the_future_is_shown_as_a_number() -> None:
    refuse(0, None, "x")
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR: topic t: error code 9999"):
        refuse(9999, None, "topic t")


@pytest.mark.parametrize("address", [("127.0.0.1", 99_999), ("127.0.0.1", -1), ("x" * 70, 9092)])
def test_an_address_that_cannot_be_is_reported_in_words(address: tuple[str, int]) -> None:
    """A broker may name one as that of another."""
    with Connection(*address) as connection, pytest.raises(Unreachable, match="cannot reach"):
        connection.ask(MetadataRequest(), version=12)
