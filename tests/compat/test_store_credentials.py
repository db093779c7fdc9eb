"""Credentials of an S3 server that expire: in the middle of an upload, and where they are renewed."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from firnline.base.errors import StorageError
from firnline.base.units import MIB
from firnline.stores.port import StoreRefused
from firnline.stores.registry import open_store
from tests.peers import s3
from tests.peers.nodes import eventually
from tests.peers.servers import Server
from tests.peers.store_proxy import Fault, StoreProxy

pytestmark = pytest.mark.peer
LARGE = bytes(range(256)) * (12 * MIB // 256)


def test_credentials_that_expire_within_an_upload_show_nothing_of_it(
    start_store: Callable[[str], Server],
) -> None:
    """F37. Parts have arrived, the next is refused; with other credentials it is put from its beginning."""
    server = start_store("s3")
    with StoreProxy(server) as proxy:
        store = open_store(server.uri, {**proxy.settings, "part_size": str(5 * MIB)})
        store.abort_unfinished(0)
        # It is refused late, so that the other parts, which are put at the same time, have come.
        fault = Fault(key="partNumber=3", status=403, code="ExpiredToken", delay_s=2)
        expired = proxy.add("expired", fault)
        with pytest.raises(StoreRefused, match=r"refuses the credentials.*ExpiredToken"):
            store.put("some/large", (LARGE,), size_bytes=len(LARGE))
        assert expired.met == 1, "a refusal is not tried again"
        assert proxy.requests["PUT"] > 1, "other parts were on their way"
        proxy.remove("expired")
        assert store.list_prefix("some/") == []
        store.put("some/large", (LARGE,), size_bytes=len(LARGE))
        assert store.get("some/large") == LARGE
        store.delete("some/large")
        store.abort_unfinished(0)
        assert store.abort_unfinished(0) == 0


class Issuer:
    """Gives out credentials for some minutes, as the agent of a container does."""

    def __init__(self) -> None:
        self.secret, self.asked, self.address = "", 0, ""

    def answer(self) -> bytes:
        self.asked += 1
        # The client asks for new ones five minutes before.
        until = datetime.now(UTC) + timedelta(minutes=5, seconds=2)
        found = {
            "AccessKeyId": "firnline",
            "SecretAccessKey": self.secret,
            "Token": "",
            "Expiration": f"{until:%Y-%m-%dT%H:%M:%SZ}",
        }
        return json.dumps(found).encode()


@contextmanager
def issuer() -> Iterator[Issuer]:
    made = Issuer()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = made.answer()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.address = f"http://127.0.0.1:{server.server_port}/credentials"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()


def test_credentials_of_a_role_are_renewed_while_the_store_is_open(
    start_store: Callable[[str], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F37. Those that are settings or in the environment are read once: a new one takes a restart."""
    server = start_store("s3")
    token = tmp_path / "token"
    token.write_text("who asks")
    with issuer() as agent:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.address)
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(token))
        agent.secret = s3.SECRET
        own = {key: server.settings[key] for key in ("endpoint", "region")}
        store = open_store(server.uri, own)
        store.put("some/a", (b"x",), size_bytes=1)
        agent.secret = "the-store-does-not-know-this-one"

        def is_refused() -> bool:
            try:
                store.put("some/a", (b"x",), size_bytes=1)
            except StoreRefused:
                return True
            return False

        eventually("expired credentials are refused", is_refused)
        agent.secret = s3.SECRET
        eventually("others are asked for", lambda: not is_refused())
        assert agent.asked >= 3
        assert store.get("some/a") == b"x"
        store.delete("some/a")


def test_credentials_of_the_environment_are_read_once(
    start_store: Callable[[str], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As OPERATIONS says: after they are changed, brokers are restarted one after another."""
    server = start_store("s3")
    for key, value in server.settings.items():
        monkeypatch.setenv(f"AWS_{key.upper()}", value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "expired-and-no-more-of-use")
    store = open_store(server.uri, {})
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.SECRET)
    with pytest.raises(StorageError, match="refuses the credentials"):
        store.put("some/a", (b"x",), size_bytes=1)
    again = open_store(server.uri, {})
    again.put("some/a", (b"x",), size_bytes=1)
    again.delete("some/a")
