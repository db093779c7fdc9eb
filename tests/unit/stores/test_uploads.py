"""Requests about unfinished uploads go where those of obstore go: same proxy, same certificates."""

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from firnline.stores import uploads
from firnline.stores.cloud import CloudStore
from firnline.stores.uploads import Uploads

CREDENTIALS = {"access_key_id": "me", "secret_access_key": "hunter2-hunter2", "region": "x"}
STORE = {**CREDENTIALS, "endpoint": "http://store.nowhere.invalid"}
NONE = b"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"


class Proxy(BaseHTTPRequestHandler):
    """Answers that there are no uploads, and keeps what it was asked for."""

    asked = list[str]()

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", str(len(NONE)))
        self.end_headers()
        self.wfile.write(NONE)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def proxy() -> Iterator[str]:
    Proxy.asked.clear()
    server = HTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(5)


def listed(**more: str) -> list[str]:
    assert CloudStore("s3://bucket/tier", STORE | more).abort_unfinished(0) == 0
    return Proxy.asked


def test_they_go_through_the_proxy_of_the_store(proxy: str) -> None:
    """They went straight to a host that only the proxy can reach."""
    [asked] = listed(proxy_url=proxy)
    assert asked.startswith("http://store.nowhere.invalid/bucket?prefix=tier%2F&uploads=")


def test_what_is_excluded_does_not(proxy: str) -> None:
    direct = {"endpoint": proxy, "proxy_url": "http://127.0.0.1:1"}
    [asked] = listed(**direct, proxy_excludes="elsewhere,127.0.0.0/8")
    assert asked.startswith("/bucket?")


@pytest.mark.parametrize(
    ("host", "excludes", "is_excluded"),
    [
        ("a.b.c", "b.c", True),
        ("a.b.c", ".b.c , x", True),
        ("ab.c", "b.c", False),
        ("a.b.c", "*", True),
        ("10.1.2.3", "10.1.0.0/16", True),
        ("10.2.2.3", "10.1.0.0/16", False),
        ("a.b.c", "", False),
    ],
)
def test_hosts_without_a_proxy(host: str, excludes: str, *, is_excluded: bool) -> None:
    assert uploads._is_excluded(host, excludes) == is_excluded


def test_they_trust_the_certificates_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ssl.SSLContext] = []

    class Context(ssl.SSLContext):
        loaded = list[object]()

        def load_verify_locations(self, *_: object, cadata: object = None, **__: object) -> None:
            self.loaded.append(cadata)

    def context() -> ssl.SSLContext:
        made.append(Context(ssl.PROTOCOL_TLS_CLIENT))
        return made[-1]

    monkeypatch.setattr(ssl, "create_default_context", context)
    Uploads.of("bucket", "tier", CREDENTIALS | {"root_certificate": "PEM"})
    assert Context.loaded == ["PEM"]
    assert made[0].verify_mode == ssl.CERT_REQUIRED
    Uploads.of("bucket", "tier", CREDENTIALS | {"allow_invalid_certificates": "true"})
    assert made[1].verify_mode == ssl.CERT_NONE
    assert not made[1].check_hostname
