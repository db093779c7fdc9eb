"""What real clients sent to Kafka: every request is understood; cut or flipped, it does no harm.

`recorded_requests.txt` was taken between Kafka 4.3.1 and its own tools, librdkafka, kafka-python, aiokafka
and kcat. Source: reliability (d) rows 28 and 29.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from firnline.base.errors import ProtocolError
from firnline.protocol.messages import REQUESTS
from firnline.protocol.messages.headers import RequestHeader
from firnline.protocol.schema import Message


class Recorded(NamedTuple):
    key: int
    version: int
    client: str
    frame: bytes

    def __str__(self) -> str:
        return f"{self.client}-{REQUESTS[self.key][0].__name__}-v{self.version}"


def _load() -> Iterator[Recorded]:
    for line in Path(__file__).with_name("recorded_requests.txt").read_text().splitlines():
        if not line.startswith("#"):
            key, version, client, frame = line.split()
            yield Recorded(int(key), int(version), client, bytes.fromhex(frame))


ALL = list(_load())
EACH = pytest.mark.parametrize("request_", ALL, ids=str)


def understand(recorded: Recorded, frame: bytes) -> tuple[RequestHeader, Any]:
    """Read a whole frame as the dispatcher would: header, body, and nothing after it."""
    kind: type[Message] = REQUESTS[recorded.key][0]
    header_version = 2 if recorded.version in kind.flexible else 1
    header, position = RequestHeader.read(frame, header_version)
    body, end = kind.read(frame, recorded.version, position)
    if end != len(frame):
        raise ProtocolError("bytes after the request")
    return header, body


def test_enough_clients_and_requests_were_recorded() -> None:
    assert len(ALL) >= 40
    assert {r.client for r in ALL} == {"java", "librdkafka", "kafka-python", "aiokafka", "kcat"}


@EACH
def test_a_real_request_is_understood_and_written_the_same(request_: Recorded) -> None:
    header, body = understand(request_, request_.frame)
    assert (header.request_api_key, header.request_api_version) == (request_.key, request_.version)
    kind = REQUESTS[request_.key][0]
    header_version = 2 if request_.version in kind.flexible else 1
    assert header.write(header_version) + body.write(request_.version) == request_.frame


@EACH
def test_a_request_cut_at_any_byte_is_refused(request_: Recorded) -> None:
    for size in range(len(request_.frame)):
        with pytest.raises(ProtocolError):
            understand(request_, request_.frame[:size])


@EACH
def test_a_request_with_a_byte_too_many_is_refused(request_: Recorded) -> None:
    with pytest.raises(ProtocolError):
        understand(request_, request_.frame + b"\0")


@EACH
def test_any_flipped_bit_gives_a_request_or_a_refusal(request_: Recorded) -> None:
    frame = bytearray(request_.frame)
    for position in range(len(frame)):
        for bit in range(8):
            frame[position] ^= 1 << bit
            with suppress(ProtocolError):
                understand(request_, bytes(frame))
            frame[position] ^= 1 << bit
