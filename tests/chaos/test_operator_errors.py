"""What operators do to a broker: each mistake is told in one clear line, and costs no data.

The rule of every test here: exit code 1, one line on stderr that says what and where and what to do, no
traceback; and once the mistake is mended, the next start serves every record.
"""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firnline.client.admin import Admin
from firnline.records.build import NewRecord, build_batch
from firnline.testing.plugin import TIERED_TOPIC, Broker
from tests.chaos.image import unmount, why_not
from tests.chaos.operators import running
from tests.chaos.workload import make_topic, read_all
from tests.peers.nodes import eventually
from tests.wire.line import Target

TOPIC, PARTITIONS, BATCHES = "kept", 1, 60
NO_SPACE = "free space on this disk"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A directory with a topic of several segments, once stopped cleanly and once killed."""
    base = tmp_path_factory.mktemp("template")
    broker = Broker(base / "data")
    broker.start()
    fill(broker)
    shutil.copytree(base / "data", base / "killed")
    assert broker.stop() == 0
    return base / "data", base / "killed"


@pytest.fixture
def data(template: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the directory that was stopped cleanly."""
    return Path(shutil.copytree(template[0], tmp_path / "data"))


@pytest.fixture
def killed(template: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the directory of a broker that was running: nothing of it counts as synced."""
    return Path(shutil.copytree(template[1], tmp_path / "killed"))


def fill(broker: Broker) -> None:
    """Write numbered batches of one record, several to a segment."""
    make_topic(broker.bootstrap, TOPIC, PARTITIONS, internal_segment_bytes="16384")
    target = Target("firnline", broker.bootstrap, broker.pid, Path())
    for number in range(BATCHES):
        batch = build_batch(
            [NewRecord(None, b"%d %s" % (number, b"x" * 1000), int(time.time() * 1000))]
        )
        assert target.produce(TOPIC, batch).error_code == 0


def numbers(broker: Broker) -> list[int]:
    return [number for _, number in read_all(broker.bootstrap, TOPIC, PARTITIONS)[0]]


def assert_all_there(directory: Path, *options: str) -> str:
    """Start a broker on the directory, read everything, return its log."""
    broker = Broker(directory, options=options)
    broker.start()
    try:
        assert numbers(broker) == list(range(BATCHES))
    finally:
        code = broker.stop()
    assert code == 0
    assert "Traceback" not in broker.log_text()
    return broker.log_text()


def refused(*arguments: str | Path) -> str:
    """Run `firnline dev` and return its one line; it has to end with 1 by itself."""
    command = [sys.executable, "-m", "firnline", "dev", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == ""
    return one_line(done.returncode, done.stderr)


def one_line(code: int | None, stderr: str) -> str:
    assert code == 1, (code, stderr)
    assert "Traceback" not in stderr, stderr
    lines = [line for line in stderr.splitlines() if line.startswith("firnline: ")]
    assert len(lines) == 1, stderr
    assert stderr.splitlines()[-1] == lines[0]
    return lines[0]


# ------------------------------------------------------------------------------- start


def test_a_second_process_on_the_directory_is_refused_and_the_first_goes_on(data: Path) -> None:
    broker = Broker(data)
    broker.start()
    try:
        line = refused("--port", "0", "--dir", data)
        assert "in use by another process" in line
        assert str(data) in line
        assert numbers(broker) == list(range(BATCHES))
    finally:
        broker.stop()
    assert_all_there(data)


def test_a_port_in_use_is_named_and_nothing_is_written(data: Path, tmp_path: Path) -> None:
    broker = Broker(data)
    broker.start()
    try:
        line = refused("--port", str(broker.port), "--dir", tmp_path / "other")
        assert f"127.0.0.1:{broker.port}" in line
        assert "in use" in line
    finally:
        broker.stop()
    assert not list((tmp_path / "other").glob("*-[0-9]*/*.log"))


def test_the_directory_of_another_node_is_refused(data: Path) -> None:
    voters = "controller.quorum.voters=2@127.0.0.1:9093"
    line = refused("--port", "0", "--dir", data, "-X", "node.id=2", "-X", voters)
    assert "node 1" in line
    assert str(data) in line
    assert_all_there(data)


def test_the_directory_of_another_cluster_is_refused(data: Path, tmp_path: Path) -> None:
    other = Broker(tmp_path / "other")
    other.start()
    other.stop()
    line = refused("--port", "0", "--dir", data, "-X", f"log.dirs={data},{tmp_path / 'other'}")
    assert "belongs to the cluster" in line
    assert str(tmp_path / "other") in line
    assert_all_there(data)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("log.retention.mss=5", "log.retention.ms"),
        ("log.segment.byte=5", "log.segment.bytes"),
        ("log.retention.ms=soon", "whole number"),
        ("num.partitions=0", "num.partitions"),
        ("firnline.acks.fsync=sometimes", "always"),
    ],
)
def test_a_bad_setting_is_named_with_what_it_could_be(data: Path, setting: str, said: str) -> None:
    line = refused("--port", "0", "--dir", data, "-X", setting)
    assert setting.partition("=")[0] in line
    assert said in line


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file/data" in refused("--port", "0", "--dir", tmp_path / "file" / "data")


# ------------------------------------------------------------------------------- tier


@pytest.fixture
def tiered(tmp_path: Path) -> tuple[Path, Path]:
    """Data and tier of a broker whose first records lie in the tier alone."""
    broker = Broker(tmp_path / "data", tier=tmp_path / "tier")
    broker.start()
    try:
        from firnline.client.admin import Admin

        with Admin(broker.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=TIERED_TOPIC)
            target = Target("firnline", broker.bootstrap, broker.pid, Path())
            for number in range(BATCHES):
                value = b"%d %s" % (number, b"x" * 1000)
                batch = build_batch([NewRecord(None, value, int(time.time() * 1000))])
                assert target.produce(TOPIC, batch).error_code == 0
        first = tmp_path / "data" / f"{TOPIC}-0" / f"{0:020d}.log"
        deadline = time.monotonic() + 40
        while first.exists():
            assert time.monotonic() < deadline, "the first segment stays local"
            time.sleep(0.1)
    finally:
        broker.stop()
    return tmp_path / "data", tmp_path / "tier"


def test_a_tier_that_is_not_mounted_is_noticed_at_start(tiered: tuple[Path, Path]) -> None:
    """An empty mount point must not become a second tier under the first one's mount."""
    data, tier = tiered
    away = tier.with_name("away")
    tier.rename(away)
    for empty in (False, True):
        if empty:
            tier.mkdir()
        line = refused("--port", "0", "--dir", data, "--tier", tier)
        assert str(tier) in line
        assert "mounted" in line
        assert not tier.exists() or not list(tier.iterdir())
    tier.rmdir()
    away.rename(tier)
    broker = Broker(data, tier=tier)
    broker.start()
    try:
        assert numbers(broker) == list(range(BATCHES))
    finally:
        broker.stop()


def test_a_tier_that_is_a_file_is_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "tier").write_text("")
    line = refused("--port", "0", "--dir", data, "--tier", tmp_path / "tier")
    assert str(tmp_path / "tier") in line


# ------------------------------------------------------------------------------- damaged files


def segments(directory: Path, suffix: str = ".log") -> list[Path]:
    found = sorted((directory / f"{TOPIC}-0").glob("*" + suffix))
    assert len(found) > 2
    return found


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 - 3])


def garbled(path: Path) -> None:
    path.write_bytes(bytes(7 * i & 0xFF for i in range(path.stat().st_size)))


@pytest.mark.parametrize("damage", [zeroed, cut, garbled, Path.unlink])
@pytest.mark.parametrize("state", ["clean", "killed"])
def test_damaged_index_files_are_made_again(
    data: Path, killed: Path, state: str, damage: Callable[[Path], None]
) -> None:
    directory = data if state == "clean" else killed
    for suffix in (".index", ".timeindex"):
        for path in segments(directory, suffix):
            damage(path)
    assert "cut off" not in assert_all_there(directory)


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    ],
)
@pytest.mark.parametrize("content", [None, "", "garbage\n", "0\n1\nkept 0 -5\n", "9\n0\n"])
def test_a_damaged_checkpoint_costs_no_record(data: Path, name: str, content: str | None) -> None:
    path = data / name
    if content is None:
        path.unlink(missing_ok=True)
    else:
        path.write_text(content)
    assert_all_there(data)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x40
    path.write_bytes(content)


def test_a_flipped_byte_above_the_recovery_point_ends_the_log_there_and_says_so(
    killed: Path,
) -> None:
    """What lies before it is served, and the log goes on from there."""
    (killed / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    last = segments(killed)[-1]
    base = int(last.stem)
    flip(last, last.stat().st_size - 10)
    broker = Broker(killed)
    broker.start()
    try:
        found = numbers(broker)
        assert found == list(range(BATCHES - 1))
        assert base < len(found)
        target = Target("firnline", broker.bootstrap, broker.pid, Path())
        answer = target.produce(TOPIC, build_batch([NewRecord(None, b"59 again", 1)]))
        assert (answer.error_code, answer.base_offset) == (0, BATCHES - 1)
    finally:
        assert broker.stop() == 0
    log = broker.log_text()
    assert re.search(
        rf"WARNING.*log cut off topic={TOPIC} partition=0 end_offset={BATCHES - 1} ", log
    ), log
    assert "Traceback" not in log


def test_damage_below_the_recovery_point_found_after_a_crash_refuses_the_partition(
    data: Path,
) -> None:
    """What was synced was acknowledged: cutting it off would lose it. The rest of the node serves."""
    (data / ".kafka_cleanshutdown").unlink()
    first = segments(data)[-1]
    flip(first, first.stat().st_size // 2)
    broker = Broker(data)
    broker.start()
    try:
        make_topic(broker.bootstrap, "other", 1)
        target = Target("firnline", broker.bootstrap, broker.pid, Path())
        answer = target.produce("other", build_batch([NewRecord(None, b"v", 1)]))
        assert answer.error_code == 0
        assert target.produce(TOPIC, build_batch([NewRecord(None, b"v", 1)])).error_code != 0
    finally:
        assert broker.stop() == 0
    log = broker.log_text()
    assert re.search(
        rf"WARNING.*partition is not served topic={TOPIC} partition=0 error=.*remedy=", log
    ), log
    assert "Traceback" not in log
    flip(first, first.stat().st_size // 2)
    assert_all_there(data)


def test_a_flipped_byte_below_the_recovery_point_reaches_nobody_as_a_good_record(
    data: Path,
) -> None:
    """A clean stop synced it: the disk itself lied. Batches before and after are not touched."""
    first = segments(data)[0]
    flip(first, first.stat().st_size // 2)
    broker = Broker(data)
    broker.start()
    try:
        with pytest.raises(Exception, match=r"(?i)crc|corrupt|bad"):
            numbers(broker)
    finally:
        assert broker.stop() == 0
    assert "Traceback" not in broker.log_text()
    flip(first, first.stat().st_size // 2)
    assert_all_there(data)


# ------------------------------------------------------------------------------- full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MiB in memory, which may be grown."""
    reason = why_not()
    if reason:
        pytest.skip(reason.replace("a file system image", "a small file system"))
    at = tmp_path / "small"
    at.mkdir()
    options = ["-t", "tmpfs", "-o", "size=6m", "tmpfs", str(at)]
    done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NOT RUN: cannot mount a small file system: {done.stderr.strip()}")
    try:
        yield at
    finally:
        unmount(at)


def test_a_full_disk_refuses_what_does_not_fit_and_loses_nothing(small_disk: Path) -> None:
    """Appends are refused and told of once, reads go on, and free space is all it takes (d 85)."""
    broker = Broker(small_disk / "data")
    broker.log_file = small_disk.parent / "broker.log"  # beside the disk that fills up
    broker.start()
    try:
        make_topic(broker.bootstrap, TOPIC, PARTITIONS)
        target = Target("firnline", broker.bootstrap, broker.pid, Path())
        acked = refused_count = 0
        for number in range(200):
            value = b"%d %s" % (number, b"x" * 50_000)
            answer = target.produce(TOPIC, build_batch([NewRecord(None, value, 1)]))
            if answer.error_code == 0:
                assert refused_count == 0, "a full disk took a record later"
                acked += 1
            else:
                assert answer.error_code == 56  # KAFKA_STORAGE_ERROR
                refused_count += 1
        assert acked > 20
        assert refused_count > 20
        assert numbers(broker) == list(range(acked))
        reported = [line for line in broker.log_text().splitlines() if NO_SPACE in line]
        assert 1 <= len(reported) <= 5
        assert f"{small_disk}/data/{TOPIC}-0" in reported[0]
        assert "Traceback" not in broker.log_text()
        broker.kill()
        grown = ["mount", "-o", "remount,size=64m", str(small_disk)]
        subprocess.run(grown, check=True, capture_output=True)
        broker.start()
        assert numbers(broker) == list(range(acked))
        target = Target("firnline", broker.bootstrap, broker.pid, Path())
        answer = target.produce(TOPIC, build_batch([NewRecord(None, b"0 more", 1)]))
        assert (answer.error_code, answer.base_offset) == (0, acked)
        assert broker.stop() == 0
    finally:
        if broker.process is not None:
            broker.kill()


def test_a_node_whose_disk_is_full_stays_up_and_a_shorter_retention_ends_it(
    small_disk: Path,
) -> None:
    """It stopped at the next record of its metadata, did not start, and nobody could alter its topics."""
    often = (
        *("-X", "metadata.max.idle.interval.ms=50", "-X", "log.retention.check.interval.ms=300"),
        *("-X", "log.segment.delete.delay.ms=300"),
    )
    with running(Broker(small_disk / "data", options=often)) as broker:
        make_topic(broker.bootstrap, TOPIC, PARTITIONS, internal_segment_bytes="1048576")
        target = Target("firnline", broker.bootstrap, broker.pid, Path())

        def is_taken(size: int) -> bool:
            record = NewRecord(None, b"0 " + b"x" * size, int(time.time() * 1000))
            return target.produce(TOPIC, build_batch([record])).error_code == 0

        for size in (50_000, 1_000, 1):  # until there is no room for the smallest, either
            while is_taken(size):
                pass
        (metadata,) = (small_disk / "data/__cluster_metadata-0").glob("*.log")
        was = metadata.stat().st_size
        # More pages than the disk has left.
        eventually("metadata is written on", lambda: metadata.stat().st_size > was + (16 << 10))
        assert not is_taken(1_000)
        with Admin(broker.bootstrap) as admin:
            admin.alter_topic(TOPIC, changes={"retention.bytes": "1048576"})
        eventually("records are taken again", lambda: is_taken(1_000))
