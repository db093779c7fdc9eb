"""What operators do to a tier: forgotten, emptied, mixed up. Refused with the remedy, and nothing is lost."""

import json
import shutil
import time
from pathlib import Path

import pytest

from firnline.client.admin import Admin
from firnline.records.build import NewRecord, build_batch
from firnline.testing.plugin import TIERED_TOPIC, Broker
from tests.chaos.test_operator_errors import refused
from tests.chaos.workload import read_all
from tests.wire.line import Target

TOPIC, BATCHES, PER_BATCH = "kept", 40, 500
RECORDS = BATCHES * PER_BATCH


def write(broker: Broker) -> None:
    """Write numbered records to a tiered topic."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=TIERED_TOPIC)
    target = Target("firnline", broker.bootstrap, broker.pid, Path())
    now_ms = int(time.time() * 1000)
    for at in range(0, RECORDS, PER_BATCH):
        rows = [NewRecord(None, b"%d x" % n, now_ms) for n in range(at, at + PER_BATCH)]
        assert target.produce(TOPIC, build_batch(rows)).error_code == 0


def fill(broker: Broker) -> None:
    """Write numbered records, and wait until most of them are in the tier alone."""
    write(broker)
    with Admin(
        broker.bootstrap
    ) as admin:  # a copy that a stop cuts off is begun again, under another id
        admin.tier_flush(TOPIC, [0], timeout_s=30)
    deadline = time.monotonic() + 40
    while (broker.directory / f"{TOPIC}-0" / f"{0:020d}.log").exists():
        assert time.monotonic() < deadline, "the first segment stays local"
        time.sleep(0.1)


def numbers(broker: Broker) -> list[int]:
    return [number for _, number in read_all(broker.bootstrap, TOPIC, 1)[0]]


def segments_of(tier: Path) -> list[str]:
    return sorted(str(path.relative_to(tier)) for path in tier.glob("data/*/0/*.log"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("template")
    broker = Broker(base / "data", tier=base / "tier")
    broker.start()
    try:
        fill(broker)
    finally:
        broker.stop()
    return base


@pytest.fixture
def base(template: Path, tmp_path: Path) -> Path:
    """The directories `data` and `tier` of a broker that was stopped."""
    return Path(shutil.copytree(template, tmp_path / "copy"))


def assert_all_there(base: Path, segments: list[str], wait_s: float = 0) -> None:
    """Start with the tier; look again after `wait_s`, in which the expiration task has its turns."""
    broker = Broker(base / "data", tier=base / "tier")
    broker.start()
    try:
        assert numbers(broker) == list(range(RECORDS))
        if wait_s:
            time.sleep(wait_s)
            assert numbers(broker) == list(range(RECORDS))
    finally:
        assert broker.stop() == 0
    assert set(segments) <= set(segments_of(base / "tier"))


def test_one_start_without_the_tier_is_refused_and_costs_nothing(base: Path) -> None:
    segments = segments_of(base / "tier")
    assert len(segments) >= 7
    line = refused("--port", "0", "--data-dir", base / "data")
    assert "remote.log.storage.system.enable is false" in line
    assert f"holds tiered topics: {TOPIC}" in line
    assert "--tier URI" in line
    assert_all_there(base, segments, wait_s=2.5)


def test_an_empty_tier_is_refused_and_costs_nothing(base: Path) -> None:
    segments = segments_of(base / "tier")
    (base / "empty").mkdir()
    (base / "marked").mkdir()
    shutil.copy(base / "tier" / ".firnline-tier", base / "marked")
    line = refused("--port", "0", "--data-dir", base / "data", "--tier", base / "empty")
    assert "is not there" in line
    line = refused("--port", "0", "--data-dir", base / "data", "--tier", base / "marked")
    assert "the tier is empty, and this node has records" in line
    assert str(base / "marked") in line
    assert "cluster.json" in line
    assert_all_there(base, segments)


def test_another_clusters_tier_is_refused_and_costs_neither(base: Path, tmp_path: Path) -> None:
    other = Broker(tmp_path / "other", tier=tmp_path / "others-tier")
    other.start()
    other.stop()
    segments = segments_of(base / "tier")
    for data, tier in ((base / "data", tmp_path / "others-tier"), (other.directory, base / "tier")):
        line = refused("--port", "0", "--data-dir", data, "--tier", tier)
        assert "the tier belongs to another cluster" in line
        assert str(tier) in line
        assert "a tier of its own" in line
    assert_all_there(base, segments)


def test_two_clusters_cannot_share_a_tier(base: Path, tmp_path: Path) -> None:
    line = refused("--port", "0", "--data-dir", tmp_path / "second", "--tier", base / "tier")
    assert "the tier belongs to another cluster" in line


def test_a_tier_of_before_the_binding_is_taken_over(base: Path) -> None:
    (base / "tier" / "cluster.json").unlink()
    assert_all_there(base, segments_of(base / "tier"))
    said = json.loads((base / "tier" / "cluster.json").read_text())
    assert said["firnline"] == "tier"
    assert len(said["clusterId"]) == 22


def test_who_gives_the_history_up_says_so_as_the_refusal_says(base: Path) -> None:
    (base / "new").mkdir()
    (base / "new" / ".firnline-tier").touch()
    line = refused("--port", "0", "--data-dir", base / "data", "--tier", base / "new")
    text = line.partition("with this line: ")[2].rstrip("]")
    (base / "new" / "cluster.json").write_text(text)
    broker = Broker(base / "data", tier=base / "new")
    broker.start()
    broker.stop()


def test_metadata_that_was_lost_costs_no_history(base: Path) -> None:
    """A leader that finds `__remote_log_metadata` empty must not take the tier for empty."""
    segments = segments_of(base / "tier")
    data = base / "data"
    away = [path.rename(base / path.name) for path in data.glob("__remote_log_metadata-*")]
    assert away
    for path in away:  # as the log says: without a directory it does not lead an empty log
        (data / path.name).mkdir()
    broker = Broker(data, tier=base / "tier")
    broker.start()
    try:
        deadline = time.monotonic() + 20
        while "its metadata does not know" not in broker.log_text():
            assert time.monotonic() < deadline, broker.log_text()
            time.sleep(0.1)
        with Admin(broker.bootstrap) as admin:
            [row] = admin.tier_status([TOPIC])[0].partitions
        assert row["state"] == "failing"
        time.sleep(2.5)
    finally:
        broker.stop()
    assert segments_of(base / "tier") == segments
    assert broker.log_text().count("its metadata does not know") == 1
    for path in data.glob("__remote_log_metadata-*"):
        shutil.rmtree(path)
    for path in away:
        path.rename(data / path.name)
    assert_all_there(base, segments, wait_s=2.5)
