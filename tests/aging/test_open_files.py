"""At the limit of open files a node says no, in words: it ends nothing, loses nothing, and starts again."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from firnline.base.errors import FirnlineError
from firnline.client.admin import Admin
from firnline.runtime.descriptors import Descriptors
from firnline.testing.plugin import Broker

LIMIT = 160
PARTITIONS = 10
# Segments of some records.
SMALL = {"internal.segment.bytes": "2000"}
WAIT_S = 60.0


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def limit(broker: Broker, soft: int) -> None:
    """Change the limit of the running process; the hard one stays."""
    hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (soft, hard))


def used(broker: Broker) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    options = ["-X", "log.segment.delete.delay.ms=0", "-X", "log.roll.ms=1000000"]
    options += ["-X", "log.flush.offset.checkpoint.interval.ms=500"]
    options += ["-X", "replica.high.watermark.checkpoint.interval.ms=500"]
    options += ["-X", "log.retention.check.interval.ms=500"]
    made = Broker(tmp_path / "data", options=options)
    made.start()
    try:
        yield made
    finally:
        if made.process is not None:
            made.kill()


def fill(admin: Admin) -> list[str]:
    """Make topics until that is refused; return their names."""
    names: list[str] = []
    problem: FirnlineError | None = None
    while problem is None:
        name = f"t-{len(names)}"
        try:
            admin.create_topic(name, partitions=PARTITIONS, configs=SMALL)
            names.append(name)
        except FirnlineError as refused:
            problem = refused
    assert "POLICY_VIOLATION" in str(problem)
    assert "raise its limit of open files" in str(problem)
    return names


def produce(broker: Broker, topic: str, count: int) -> int:
    """Send records of 500 bytes, four to a segment; return how many were acknowledged."""
    acknowledged: list[object] = []
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.num.messages": 1}
    )
    for number in range(count):
        reported = [lambda problem, message: acknowledged.append(message) if not problem else None]
        producer.produce(topic, bytes(500), partition=number % PARTITIONS, callback=reported[0])
    assert producer.flush(WAIT_S) == 0
    return len(acknowledged)


def consumed(broker: Broker, topic: str, count: int, *, group: str = "all") -> int:
    """Read a topic; return how many records came, `count` at most."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    got, deadline = 0, time.monotonic() + WAIT_S
    while got < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        got += message is not None and not message.error()
    consumer.close()
    return got


def test_at_the_limit_topics_and_connections_are_refused_and_all_else_goes_on(
    broker: Broker,
) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("first", partitions=1, configs={})
        limit(broker, LIMIT)
        names = fill(admin)
        assert names
        with pytest.raises(FirnlineError, match="raise its limit"):
            admin.set_partitions(names[0], 10 * PARTITIONS)
    # Who connects takes what is left, and the reserve stays: segments roll, and logs are synced.
    with contextlib.ExitStack() as stack:
        address = ("127.0.0.1", broker.port)
        for _ in range(2 * LIMIT):
            stack.enter_context(socket.create_connection(address, timeout=WAIT_S))
        wait_until(lambda: "it was the least active of an address" in broker.log_text())
        assert used(broker) < LIMIT
    wait_until(lambda: used(broker) < LIMIT - 30)
    assert produce(broker, names[0], 200) == 200
    with Admin(broker.bootstrap) as admin:
        for name in names[1:]:
            admin.delete_topic(name)
        wait_until(lambda: used(broker) < LIMIT // 2 + 20)
        admin.create_topic("later", partitions=PARTITIONS, configs={})
        limit(broker, 4096)
        assert consumed(broker, names[0], 200) == 200
    assert "failed and is out of use" not in broker.log_text()
    assert broker.stop() == 0


def test_as_many_partitions_work_as_there_are_descriptors(broker: Broker) -> None:
    """Half of the descriptors are for files of logs: each is closed when others need it, and opened again."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("first", partitions=PARTITIONS, configs={})
        assert produce(broker, "first", 10) == 10
        assert consumed(broker, "first", 10) == 10  # commits have partitions, too
        limit(broker, LIMIT)
        topics = fill(admin)
    logs = sum(path.is_dir() for path in broker.directory.iterdir())
    assert LIMIT - PARTITIONS < logs <= LIMIT
    for _ in range(2):
        assert [produce(broker, topic, 20) for topic in topics] == [20] * len(topics)
        assert used(broker) < LIMIT - 20
    assert [consumed(broker, topic, 40) for topic in topics] == [40] * len(topics)
    assert "failed and is out of use" not in broker.log_text()
    assert "EMFILE" not in broker.log_text()
    broker.kill()
    command = f"ulimit -n {LIMIT + 10}; exec {sys.executable} -m firnline dev --port 0"
    with subprocess.Popen(
        ["sh", "-c", f"{command} --dir {broker.directory}"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().partition("ready at ")[2].split()[0]
            broker.port = int(address.rpartition(":")[2])
            found = [consumed(broker, topic, 40, group="again") for topic in topics]
            assert found == [40] * len(topics)
        finally:
            process.terminate()
    assert process.returncode == 0


def test_without_one_descriptor_for_a_while_no_directory_fails(broker: Broker) -> None:
    """Segments cannot roll, nothing can be synced by name; then there are some, and all goes on."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("t", partitions=PARTITIONS, configs=SMALL)
        admin.create_topic("u", partitions=PARTITIONS, configs={"flush.ms": "100"})
        # What deletes is imported in a node's first second, which may not be over yet.
        admin.create_topic("deleted-before", partitions=1, configs={})
        admin.delete_topic("deleted-before")
        before = produce(broker, "t", 100)
        limit(broker, 3)  # below what is open: each open file, socket and directory is refused
        with pytest.raises(FirnlineError, match="raise its limit"):
            admin.create_topic("v", partitions=1, configs={})
        admin.delete_topic("u")
        time.sleep(3)  # syncs, checkpoints and retention come and go
        limit(broker, 4096)
        wait_until(lambda: produce(broker, "t", 100) == 100)
        admin.create_topic("v", partitions=1, configs={})
        assert consumed(broker, "t", before + 100) == before + 100
    assert "failed and is out of use" not in broker.log_text()
    broker.restart()
    assert broker.stop() == 0


def test_a_start_below_the_limit_that_its_logs_need_says_what_to_raise(broker: Broker) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("t", partitions=100, configs={})
    assert broker.stop() == 0
    command = f"ulimit -n 90; exec {sys.executable} -m firnline dev --port 0"
    done = subprocess.run(
        ["sh", "-c", f"{command} --dir {broker.directory}"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode not in (0, -9)
    assert "the limit of open files is 90, and this node has 101 logs" in done.stderr
    assert "LimitNOFILE" in done.stderr
    assert "Traceback" not in done.stderr
    broker.start()
    assert "recover" not in broker.log_text()
    assert broker.stop() == 0


_WATCHED = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        print("imported", name, file=sys.stderr, flush=True)
import firnline.cli.main
sys.meta_path.insert(0, Finder())
firnline.cli.main.main()
"""


def test_nothing_is_imported_when_it_is_used_first(tmp_path: Path) -> None:
    """At the limit of open files it could not be: the request that needs it would fail."""
    log = tmp_path / "log"
    with log.open("w") as stream:
        command = [sys.executable, "-c", _WATCHED, "dev", "--port", "0", "--dir", f"{tmp_path}/d"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().partition("ready at ")[2].split()[0]
        last = "handlers.k32012"
        wait_until(lambda: last in log.read_text())
        before = log.read_text()
        broker = Broker(tmp_path / "d")
        broker.port = int(address.rpartition(":")[2])
        with Admin(address) as admin:
            admin.create_topic("t", partitions=PARTITIONS, configs={})
            assert produce(broker, "t", 20) == 20
            assert consumed(broker, "t", 20) == 20
            admin.set_partitions("t", PARTITIONS + 1)
            admin.delete_topic("t")
        assert log.read_text().removeprefix(before) == ""
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0


def test_the_count_of_open_files_is_that_of_the_kernel() -> None:
    descriptors = Descriptors()
    before = descriptors.used()
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(open("/dev/null"))
        assert descriptors.used() == before + 10
        assert descriptors.left() == descriptors.limit - descriptors.reserved - before - 10
