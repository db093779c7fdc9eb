"""The stores of a tier on real servers: versitygw for S3, Azurite for Azure, Apache Hadoop for HDFS."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from firnline.base.errors import StorageError
from firnline.cli.tier.check import check
from firnline.stores.hdfs import PUTTING
from firnline.stores.port import ObjectMissing, ObjectStore, RemoteStorageError, StoreRefused
from firnline.stores.registry import open_store
from tests.peers import azurite, s3
from tests.peers.nodes import eventually
from tests.peers.servers import Server, options_of

pytestmark = pytest.mark.peer
# A store that is down is noticed in less. HDFS tries thrice to connect, for a put and for what it cleans up.
DEADLINE_S = 20.0
SECRETS = (s3.SECRET, azurite.SECRET)


@pytest.fixture(scope="module", params=["azurite", "hdfs", "s3"])
def server(request: pytest.FixtureRequest, start_store: Callable[[str], Server]) -> Server:
    return start_store(request.param)


@pytest.fixture
def store(server: Server) -> Iterator[ObjectStore]:
    """The store of a server, emptied at the end."""
    opened = open_store(server.uri, server.settings)
    yield opened
    opened.delete_many([info.key for info in opened.list_prefix("some/")])


def calls(store: ObjectStore) -> dict[str, Callable[[], object]]:
    """One call of each kind."""
    large = bytes(9 << 20)
    return {
        "get": lambda: store.get("some/a"),
        "range": lambda: store.get("some/a", 0, 1),
        "stat": lambda: store.stat("some/a"),
        "put": lambda: store.put("some/b", (b"x",), size_bytes=1),
        "put in parts": lambda: store.put("some/c", (large,), size_bytes=len(large)),
        "list": lambda: store.list_prefix("some/"),
        "delete": lambda: store.delete("some/a"),
        "delete many": lambda: store.delete_many(["some/a", "some/b"]),
    }


def problem_of(call: Callable[[], object]) -> StorageError:
    """Return what the call raises, which repeats no secret."""
    with pytest.raises(StorageError) as caught:
        call()
    assert not any(secret in str(caught.value) for secret in SECRETS)
    return caught.value


def assert_refused(store: ObjectStore, says: str) -> None:
    for name, call in calls(store).items():
        problem = problem_of(call)
        assert isinstance(problem, StoreRefused), (name, problem)
        assert says in str(problem), name


def wrong(secret: str) -> str:
    return secret[:-4].swapcase()[::-1] + secret[-4:]


def test_a_real_server_does_what_a_tier_needs(server: Server) -> None:
    done = CliRunner().invoke(check, [server.uri, *options_of(server.settings), "--format", "json"])
    assert done.exit_code == 0, done.output
    results = [row["result"] for row in json.loads(done.output)]
    assert results == ["ok"] * 15
    assert not any(secret in done.output for secret in SECRETS)


def test_deletes_go_on_behind_what_does_not_exist(store: ObjectStore) -> None:
    keys = [f"some/{number}" for number in range(5)]
    for key in keys[::2]:
        store.put(key, (b"x",), size_bytes=1)
    store.delete_many(keys)
    assert store.list_prefix("some/") == []
    store.delete_many(keys)


def test_a_server_that_is_down_is_no_missing_object(server: Server, store: ObjectStore) -> None:
    store.put("some/a", (b"0123",), size_bytes=4)
    server.kill()
    some = ("get", "put", "list") if server.uri.startswith("hdfs:") else calls(store)
    for name in some:
        call = calls(store)[name]
        began_s = time.monotonic()
        problem = problem_of(call)
        assert type(problem) is RemoteStorageError, name
        assert time.monotonic() - began_s < DEADLINE_S, name
    if server.uri.startswith("s3:"):
        assert type(problem_of(lambda: store.abort_unfinished(0))) is RemoteStorageError
    server.start()
    if not server.uri.startswith("az:"):  # Azurite writes its tables some seconds later
        assert store.get("some/a") == b"0123"


def test_a_wrong_secret_is_refused(start_store: Callable[[str], Server]) -> None:
    server = start_store("s3")
    secret = {"secret_access_key": wrong(s3.SECRET)}
    store = open_store(server.uri, server.settings | secret)
    assert_refused(store, "credentials")
    assert isinstance(problem_of(lambda: store.abort_unfinished(0)), StoreRefused)
    server = start_store("azurite")
    store = open_store(server.uri, server.settings | {"account_key": wrong(azurite.SECRET)})
    assert_refused(store, "credentials")


@pytest.mark.parametrize(("name", "scheme"), [("s3", "s3"), ("azurite", "az")])
def test_a_missing_bucket_is_no_empty_tier(
    start_store: Callable[[str], Server], name: str, scheme: str
) -> None:
    store = open_store(f"{scheme}://no-such-place/tier", start_store(name).settings)
    assert_refused(store, "no such bucket or container")
    if scheme == "s3":
        assert isinstance(problem_of(lambda: store.abort_unfinished(0)), StoreRefused)


def test_a_file_where_hdfs_needs_a_directory(start_store: Callable[[str], Server]) -> None:
    server = start_store("hdfs")
    store = open_store(server.uri, server.settings)
    store.put("some/a", (b"x",), size_bytes=1)
    below = open_store(f"{server.uri}/some/a", server.settings)
    for name, call in calls(below).items():
        problem = problem_of(call)
        assert isinstance(problem, RemoteStorageError if name != "stat" else ObjectMissing), name
    # A directory is no object.
    assert isinstance(problem_of(lambda: store.get("some")), ObjectMissing)
    assert isinstance(problem_of(lambda: store.stat("some")), ObjectMissing)
    store.delete("some/a")


# Puts 64 MiB, of which the last 40 never come.
SLOW_PUT = """
import sys, time
from firnline.stores.registry import open_store

def chunks():
    for _ in range(24):
        yield bytes(1 << 20)
    print("under way", flush=True)
    time.sleep(3600)

store = open_store(sys.argv[1], dict(pair.split("=", 1) for pair in sys.argv[2:]))
store.put("some/large", chunks(), size_bytes=64 << 20)
"""


def test_a_killed_clients_put_shows_nowhere_and_can_be_removed(
    server: Server, store: ObjectStore
) -> None:
    pairs = [f"{key}={value}" for key, value in server.settings.items()]
    line = [sys.executable, "-c", SLOW_PUT, server.uri, *pairs]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"under way\n"
        if server.uri.startswith("s3:"):
            eventually("parts have arrived", lambda: len(parts(server)) >= 2)
        ports = connections(client.pid, "laddr")
        client.kill()
    if server.uri.startswith("s3:"):  # a part that is still being written outlives the abort
        pid = server.processes[0].pid
        eventually("its requests ended", lambda: not ports & connections(pid, "raddr"))
    assert store.list_prefix("some/") == []
    assert isinstance(problem_of(lambda: store.get("some/large")), ObjectMissing)
    assert store.abort_unfinished(3600) == 0
    assert store.abort_unfinished(0, "some/small") == 0
    if server.uri.startswith("s3:"):
        assert store.abort_unfinished(0, "some/la") == 1
        assert parts(server) == []
    # Azure discards such parts itself, after a week.
    count = 1 if server.uri.startswith("hdfs:") else 0
    assert store.abort_unfinished(0) == count
    assert store.abort_unfinished(0) == 0
    assert parts(server) == []
    assert store.list_prefix(f"{PUTTING}/") == []
    store.put("some/large", (b"x",), size_bytes=1)
    assert store.get("some/large") == b"x"


def connections(pid: int, side: str) -> set[int]:
    """The ports at one side of the TCP connections that a process holds."""
    held = psutil.Process(pid).net_connections("tcp")
    return {getattr(each, side).port for each in held if each.raddr}


def parts(server: Server) -> list[str]:
    """The files of the S3 server that are parts of uploads."""
    if not server.uri.startswith("s3:"):
        return []
    return [key for key in s3.objects(server) if "multipart" in key]


def test_a_server_that_hangs_is_left_in_time(start_store: Callable[[str], Server]) -> None:
    server = start_store("s3")
    store = open_store(server.uri, server.settings | {"timeout": "1s", "max_retries": "0"})
    store.put("some/kept", (b"x",), size_bytes=1)
    server.pause()
    try:
        for name, call in calls(store).items():
            began_s = time.monotonic()
            assert type(problem_of(call)) is RemoteStorageError, name
            assert time.monotonic() - began_s < 15, f"{name}: 30 s is the default"
    finally:
        server.resume()
    assert store.get("some/kept") == b"x"  # the others: as it finds their requests
    store.delete_many(["some/kept", "some/a", "some/b", "some/c"])


def test_credentials_of_the_environment(
    start_store: Callable[[str], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_store("s3")
    for key, value in server.settings.items():
        monkeypatch.setenv(f"AWS_{key.upper()}", value)
    store = open_store(server.uri, {})
    store.put("some/a", (b"x",), size_bytes=1)
    assert store.get("some/a") == b"x"
    store.abort_unfinished(0)  # what a server that hung has left
    assert store.abort_unfinished(0) == 0
    store.delete("some/a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", wrong(s3.SECRET))
    assert_refused(open_store(server.uri, {}), "credentials")


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("s3", "s3://bucket/prefix"),
        ("azurite", "az://container/prefix"),
        ("hdfs", "hdfs://namenode:8020/firnline"),
    ],
)
def test_the_words_of_the_readme(
    start_store: Callable[[str], Server], name: str, address: str
) -> None:
    """The check and `dev` as the page shows them, with another address and other credentials."""
    server = start_store(name)
    page = (Path(__file__).parents[2] / "README.md").read_text()
    checked = re.findall(rf"^    firnline tier check ({re.escape(address)})$", page, re.MULTILINE)
    assert checked == [address]
    prefix = {"s3": "AWS_", "az": "AZURE_STORAGE_"}.get(address.partition(":")[0], "")
    own = {f"{prefix}{key.upper()}": value for key, value in server.settings.items()}
    if "AWS_ENDPOINT" in own:
        own["AWS_ENDPOINT_URL"] = own.pop("AWS_ENDPOINT")
    if name == "hdfs":
        own = {"HADOOP_USER_NAME": "firnline"}
    done = subprocess.run(
        [sys.executable, "-m", "firnline", "tier", "check", server.uri],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **own},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
    (line,) = [each for each in done.stdout.splitlines() if each.startswith("wrong credentials")]
    is_checked = "not checked" not in line
    assert is_checked == (name != "hdfs"), "the secret of the environment is one, too"
    shown = [key for key in own if key not in ("AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT")]
    assert all(key in page for key in shown)
    assert f"\n    firnline dev --tier {address}\n" in page
    with subprocess.Popen(
        [sys.executable, "-m", "firnline", "dev", "--port", "0", "--tier", server.uri],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **own},
    ) as dev:
        assert dev.stdout is not None
        ready = dev.stdout.readline()
        dev.send_signal(signal.SIGINT)
        assert dev.wait(60) == 0
    assert ready.startswith("firnline dev: ready at ")
    assert ready.endswith(f", tier {server.uri})\n")
