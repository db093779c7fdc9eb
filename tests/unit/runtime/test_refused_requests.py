"""What the log says of a request that was refused: whose, which, why; and no client writes its own lines."""

import json
import logging
import re
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from firnline.api.dispatch import Dispatcher
from firnline.base.errors import ProtocolError
from firnline.base.log_lines.process import CLIENT_ID_CHARS_MAX
from firnline.protocol.frame import SIZE_BYTES
from firnline.runtime import listener
from firnline.runtime.listener import Server
from firnline.runtime.logs.formats import JsonFormatter, TextFormatter
from firnline.runtime.logs.lines import BURST, LineLogger
from firnline.runtime.net import Connection
from tests.worlds.harness import Harness

HOSTILE = [
    "x\n2026-11-29 09:00:00,000 CRITICAL firnline: the node stops\r\x1b[2J\u2028",
    'x" reason=ok host=10.9.9.9 client_id="y',
    "\\" * 50,
    "a=b " * 1_000,
]


@pytest.fixture(scope="module")
def dispatcher() -> Dispatcher:
    return Dispatcher(Harness().node)


def refuse(dispatcher: Dispatcher, frame: bytes) -> None:
    """Send a frame that is refused."""
    connection: Any = SimpleNamespace(
        peer_host="10.0.0.7",
        listener="L",
        close=lambda: None,
        dispatcher=dispatcher,
        _runtime=SimpleNamespace(now_ms=lambda: 0),
        _at_once=lambda *_: None,
    )
    data = bytearray(len(frame).to_bytes(SIZE_BYTES, "big") + frame)
    with pytest.raises(ProtocolError) as found:
        Connection._on_frame(connection, memoryview(data), len(data))
    server: Any = SimpleNamespace(bad_peers=0)
    Server.on_bad_peer(server, connection, found.value)
    assert server.bad_peers == 1


def request(client_id: bytes, key: int = 3, version: int = 999) -> bytes:
    return struct.pack(">hhih", key, version, 1, len(client_id)) + client_id


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Any:
    monkeypatch.setattr(listener, "log_line", LineLogger().log)
    return lambda: caplog.records[-1]


def test_it_names_client_address_api_version_and_reason(
    dispatcher: Dispatcher, record: Any
) -> None:
    refuse(dispatcher, request(b"orders"))
    assert record().fields == {
        "host": "10.0.0.7",
        "client_id": "orders",
        "api": "Metadata",
        "version": 999,
        "reason": "unsupported version [key=3 version=999]",
    }
    refuse(dispatcher, request(b"orders", key=9_999, version=0))
    assert (record().fields["api"], record().fields["client_id"]) == (9_999, "orders")


@pytest.mark.parametrize("client_id", HOSTILE)
def test_no_client_id_breaks_a_line_or_forges_a_field(
    dispatcher: Dispatcher, record: Any, client_id: str
) -> None:
    refuse(dispatcher, request(client_id.encode()))
    line = TextFormatter().format(record())
    assert line.isprintable()
    assert len(line) < 500
    # As a reader of fields sees it: those of quotes are one value.
    fields = re.findall(r' (\w+)=("(?:[^"\\]|\\.)*"|\S+)', line.partition("request refused")[2])
    assert [name for name, _ in fields] == ["host", "client_id", "api", "version", "reason"]
    assert (fields[0][1], fields[2][1]) == ("10.0.0.7", "Metadata")
    text = JsonFormatter().format(record())
    assert "\n" not in text
    shown = json.loads(text)["fields"]["client_id"]
    assert client_id.startswith(shown.removesuffix("...")[:CLIENT_ID_CHARS_MAX])


@pytest.mark.parametrize(
    ("frame", "known"),
    [
        (b"\0\3", {}),
        (struct.pack(">hhih", 3, 999, 1, 30_000), {"api": "Metadata", "version": 999}),
        (request(b"\xff\xfe"), {"api": "Metadata", "version": 999}),
    ],
    ids=["no header", "the client id is cut", "it is not UTF-8"],
)
def test_what_cannot_be_read_is_left_out(
    dispatcher: Dispatcher, record: Any, frame: bytes, known: dict[str, object]
) -> None:
    refuse(dispatcher, frame)
    fields = dict(record().fields)
    assert fields.pop("reason")
    assert fields == {"host": "10.0.0.7", **known}


def test_a_client_that_never_stops_has_a_few_lines(
    dispatcher: Dispatcher, record: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for number in range(1_000):
            refuse(dispatcher, request(f"client-{number}".encode()))
    assert BURST.at_once <= len(caplog.records) <= BURST.at_once + 2
