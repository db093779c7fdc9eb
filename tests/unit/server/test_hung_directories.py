"""A node one of whose directories hangs ends all the same, and leaves that directory to nobody before."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firnline.client.connection import Connection, Unreachable
from firnline.log.checkpoint import format_directory
from firnline.log.directory import LOCK
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.runtime.disk import RealFs
from tests.peers.ports import free_ports
from tests.worlds.chance import SeededRng
from tests.worlds.harness import CLUSTER_ID, batch, format_disk

pytestmark = pytest.mark.slow

# To be longer than a process takes to be gone once its files are closed.
_END_S = 6.0
_SERVER = """
import os, sys, threading
from firnline.runtime import loop, disk
from firnline.runtime.threads import sync_threads
loop.END_S = {end_s}
make_dir, sync = disk.RealFs.make_dir, os.fdatasync
def hang():
    print("hangs", file=sys.stderr, flush=True)
    threading.Event().wait()
def make(fs, path):
    if "/b/made-" in path:
        hang()
    make_dir(fs, path)
def flush(fd):
    path = os.readlink(f"/proc/self/fd/{{fd}}")
    if "/b/synced-" in path and path.endswith(".log") and os.fstat(fd).st_size:
        hang()
    sync(fd)
disk.RealFs.make_dir, os.fdatasync = make, flush
sync_threads.serve_syncs = sync_threads.serve_syncs_python
from firnline.cli.main import main
sys.argv = ["firnline", "server", "--config", {config!r}]
main()
"""
_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}
log.dirs={a},{b}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
"""


@contextmanager
def server(directory: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A node with two directories, and its address. The second one hangs: see above."""
    a, b = directory / "a", directory / "b"
    fs, rng = RealFs(), SeededRng()
    for path in (a, b):
        path.mkdir()
    format_disk(fs, rng, str(a))  # type: ignore[arg-type]
    format_directory(fs, str(b), cluster_id=CLUSTER_ID, node_id=1, directory_id=rng.uuid())
    config = directory / "server.properties"
    config.write_text(_SETTINGS.format(a=a, b=b, port=free_ports(1)[0]))
    command = [sys.executable, "-c", _SERVER.format(end_s=_END_S, config=str(config))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, said(process, "ready at ").split()[-1]
        finally:
            process.kill()


def said(process: "subprocess.Popen[str]", what: str) -> str:
    """The next line of its log with that in it."""
    assert process.stderr is not None
    received = []
    for line in process.stderr:
        received.append(line)
        if what in line:
            return line
    raise AssertionError(f"it ended before it said {what!r}: {received}")


def is_free(directory: Path) -> bool:
    """Whether another process could take the directory into use."""
    fd = os.open(directory / LOCK, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(fd)


def create(address: str, topic: str, partitions: int) -> None:
    command = [sys.executable, "-m", "firnline", "topic", "create", topic]
    command += ["--partitions", str(partitions), "--bootstrap-server", address]
    subprocess.run(command, check=False, capture_output=True)


def produce(address: str, topic: str, index: int) -> int:
    """Have a record on disk; return the error code."""
    host, _, port = address.rpartition(":")
    data = PartitionProduceData(index=index, records=batch("v"))
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    with Connection(host, int(port), timeout_s=3) as client:
        answer = client.ask(request, version=9)
    return int(answer.responses[0].partition_responses[0].error_code)


def test_a_node_that_makes_a_log_in_a_directory_that_hangs_ends_before_that_directory_is_free(
    tmp_path: Path,
) -> None:
    """The thread would go on to make files there when another process has the directory, and has that log."""
    with server(tmp_path) as (process, address):
        create(address, "made", 2)
        said(process, "hangs")
        process.send_signal(signal.SIGTERM)
        said(process, "stopping")
        began = time.monotonic()
        while not is_free(tmp_path / "b"):
            assert time.monotonic() - began < 20 + _END_S, "it never ends"
            time.sleep(0.01)
        assert process.wait(_END_S / 2) == 0


def test_a_producer_is_answered_though_the_sync_of_another_one_hangs_in_another_directory(
    tmp_path: Path,
) -> None:
    with server(tmp_path) as (process, address):
        create(address, "synced", 2)
        [hung] = [index for index in range(2) if (tmp_path / "b" / f"synced-{index}").exists()]
        with pytest.raises(Unreachable):
            produce(address, "synced", hung)
        said(process, "hangs")
        assert produce(address, "synced", 1 - hung) == 0
