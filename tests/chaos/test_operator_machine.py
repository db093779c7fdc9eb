"""What happens to the machine under a node: its clock moved, its disk read-only, or slow beyond measure."""

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from firnline.client.admin import Admin
from firnline.records.build import NewRecord, build_batch
from firnline.testing.plugin import Broker
from tests.chaos.image import unmount, why_not
from tests.chaos.operators import (
    DAY_S,
    RECORDS,
    copy_of,
    fill,
    numbers,
    produce,
    running,
    with_shim,
)
from tests.chaos.test_operator_errors import refused
from tests.chaos.workload import PATIENCE_S, make_topic
from tests.peers.nodes import bytes_in, eventually
from tests.wire.line import Target

ALL = list(range(RECORDS))
TEN_YEARS_S = 3_652 * DAY_S
INVALID_TIMESTAMP = 32


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("filled")
    with running(Broker(base / "data")) as broker:
        fill(broker, "forever", "week")
        with Admin(broker.bootstrap) as admin:
            admin.alter_topic("forever", changes={"retention.ms": "-1"})
    return base


@pytest.fixture
def data(filled: Path, tmp_path: Path) -> Path:
    return copy_of(filled / "data", tmp_path / "data")


def at_another_time(patch: pytest.MonkeyPatch, moved_s: int) -> None:
    with_shim(patch, "moved_clock", CLOCK_MOVED_S=str(moved_s))


def test_a_clock_a_day_back_costs_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients whose clocks are right are told, until the node's is, too: their records are of the future."""
    with monkeypatch.context() as patch:
        at_another_time(patch, -DAY_S)
        with running(Broker(data)) as broker:
            assert (numbers(broker, "forever"), numbers(broker, "week")) == (ALL, ALL)
            target = Target("firnline", broker.bootstrap, broker.pid, Path())
            record = NewRecord(None, b"1 x", int(time.time() * 1000))
            answer = target.produce("forever", build_batch([record]))
            assert answer.error_code == INVALID_TIMESTAMP
    with running(Broker(data)) as broker:
        produce(broker, "forever", RECORDS, 1)
        assert (numbers(broker, "forever"), numbers(broker, "week")) == ([*ALL, RECORDS], ALL)


def test_a_clock_ten_years_ahead_and_back_costs_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fears that what is kept for a time is gone, by that clock. Method: a topic with a limit of bytes, too,
    from which records go when the limits are applied; and an operator who starts the node twice.
    """
    ahead_ms = int((time.time() + TEN_YEARS_S) * 1000)
    check = ("-X", "log.retention.check.interval.ms=300")
    for number in (RECORDS, RECORDS + 1):
        with monkeypatch.context() as patch:
            at_another_time(patch, TEN_YEARS_S)
            with running(Broker(data, options=check)) as broker:
                target = Target("firnline", broker.bootstrap, broker.pid, Path())
                batch = build_batch([NewRecord(None, b"%d x" % number, ahead_ms)])
                assert target.produce("forever", batch).error_code == 0
                make_topic(broker.bootstrap, f"small{number}", 1, retention_bytes="0")
                assert target.produce(f"small{number}", batch).error_code == 0
                small = f"small{number}-0/*.log"
                eventually("limits are applied", partial(is_empty, data, small))
                assert numbers(broker, "week") == ALL
                assert "the clock is far from the time at which this" in broker.log_text()
                eventually("it says so", partial(is_said, broker, "its clock was 3652 days ahead"))
    with running(Broker(data, options=check)) as broker:
        produce(broker, "week", RECORDS, 1)
        assert numbers(broker, "forever") == [*ALL, RECORDS, RECORDS + 1]
        assert numbers(broker, "week") == [*ALL, RECORDS]
        eventually("all is well", lambda: status(broker)[0] == 0)  # a busy machine holds up loops


def status(broker: Broker) -> tuple[int, str]:
    command = [sys.executable, "-m", "firnline", "cluster", "status", "-b", broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout


def is_said(broker: Broker, problem: str) -> bool:
    code, shown = status(broker)
    return code == 3 and problem in " ".join(shown.split())


def is_empty(data: Path, files: str) -> bool:
    return not bytes_in(data, files)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    reason = why_not()
    if reason:
        pytest.skip(reason.replace("a file system image", "a file system in memory"))
    at = tmp_path / "small"
    at.mkdir()
    options = ["-t", "tmpfs", "-o", "size=32m", "tmpfs", str(at)]
    done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NOT RUN: cannot mount a file system in memory: {done.stderr.strip()}")
    try:
        yield at
    finally:
        unmount(at)


def test_a_disk_that_is_read_only_is_refused_and_costs_nothing(
    filled: Path, small_disk: Path
) -> None:
    """As Linux mounts a disk that failed."""
    data = copy_of(filled / "data", small_disk / "data")
    for mode in ("ro", "rw"):
        subprocess.run(["mount", "-o", f"remount,{mode}", str(small_disk)], check=True)
        if mode == "ro":
            line = refused("--port", "0", "--dir", data)
            assert "Read-only file system" in line or "EROFS" in line
            assert str(data) in line
    broker = Broker(data)
    broker.log_file = small_disk.parent / "broker.log"
    with running(broker):
        assert (numbers(broker, "forever"), numbers(broker, "week")) == (ALL, ALL)


def test_a_disk_slower_than_the_session_costs_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sync takes longer than the broker's session: it beats on, answers late, and is not fenced."""
    with monkeypatch.context() as patch:
        with_shim(patch, "slow_sync", SYNC_TAKES_S="0.5")
        session = ["-X", "broker.session.timeout.ms=400", "-X", "broker.heartbeat.interval.ms=100"]
        broker = Broker(data, options=session)
        broker.start()
        try:
            produce(broker, "forever", RECORDS, 2)
            with Admin(broker.bootstrap) as admin:
                assert [each.node_id for each in admin.metadata([]).brokers] == [1]
            assert numbers(broker, "forever") == [*ALL, RECORDS, RECORDS + 1]
        finally:
            broker.kill()
    with running(Broker(data)) as broker:
        assert numbers(broker, "forever") == [*ALL, RECORDS, RECORDS + 1]
