"""What happens to the machine under a node: its clock moved, its disk read-only, or slow beyond measure."""

import subprocess
import time
from collections.abc import Iterator
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
from tests.peers.nodes import bytes_in
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


def test_a_clock_ten_years_ahead_and_back_costs_what_retention_says(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept for a time is over by that clock, and gone; what is kept for ever stays."""
    with monkeypatch.context() as patch:
        at_another_time(patch, TEN_YEARS_S)
        check = ("-X", "log.retention.check.interval.ms=300")
        with running(Broker(data, options=check)) as broker:
            assert numbers(broker, "forever") == ALL
            target = Target("firnline", broker.bootstrap, broker.pid, Path())
            ahead_ms = int((time.time() + TEN_YEARS_S) * 1000)
            answer = target.produce(
                "forever", build_batch([NewRecord(None, b"%d x" % RECORDS, ahead_ms)])
            )
            assert answer.error_code == 0
            deadline = time.monotonic() + 20
            while bytes_in(data, "week-0/*.log"):
                assert time.monotonic() < deadline
                time.sleep(0.1)
    with running(Broker(data)) as broker:
        assert numbers(broker, "forever") == [*ALL, RECORDS]
        produce(broker, "forever", RECORDS + 1, 1)
        produce(broker, "week", RECORDS, 1)
        assert numbers(broker, "forever") == [*ALL, RECORDS, RECORDS + 1]
        assert numbers(broker, "week") == [RECORDS]


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
