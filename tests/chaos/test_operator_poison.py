"""Batches with a right CRC that nobody can read, in topics of the system: what a node does, what mends it."""

import time
from pathlib import Path

import pytest

from firnline.base.errors import Code, FirnlineError
from firnline.client.admin import Admin
from firnline.protocol.messages import k44_incremental_alter_configs as m44
from firnline.records.batch import headers
from firnline.testing.plugin import TIERED_TOPIC, Broker
from tests.chaos.operators import RECORDS, copy_of, doctor, numbers, produce, running
from tests.chaos.workload import PATIENCE_S
from tests.peers.nodes import files_below
from tests.raw_batches import GZIP, raw_batch
from tests.wire.line import Target

TIER, METADATA = "__remote_log_metadata", "__cluster_metadata"
GARBAGE = raw_batch(b"this is not gzip", codec=GZIP)
GIVEN_UP = "firnline.remote.log.metadata.given.up"
ALL = list(range(RECORDS))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node that kept its history in a tier, and that a client could not deceive."""
    base = tmp_path_factory.mktemp("filled")
    with running(Broker(base / "data", tier=base / "tier")) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("tiered", partitions=1, replication_factor=1, configs=TIERED_TOPIC)
            produce(broker, "tiered", 0)
            admin.tier_flush("tiered", (), timeout_s=PATIENCE_S)
        target = Target("firnline", broker.bootstrap, broker.pid, Path())
        answer = target.produce(TIER, GARBAGE)
        assert answer.error_code == Code.INVALID_TOPIC_EXCEPTION
    return base


def poison(directory: Path, topic: str) -> None:
    """Write garbage behind what each partition of a topic holds."""
    found = sorted(directory.glob(f"{topic}-*/*.log"))
    assert found
    for path in found:
        data = path.read_bytes()
        *_, last = headers(data) if data else [None]
        batch = bytearray(GARBAGE)
        if last is not None:
            batch[:8] = last.next_offset.to_bytes(8, "big")
            batch[12:16] = last.leader_epoch.to_bytes(4, "big")
        path.write_bytes(data + batch)


def test_garbage_in_the_metadata_of_the_tier_costs_no_start_and_no_record(
    filled: Path, tmp_path: Path
) -> None:
    data, tier = (
        copy_of(filled / "data", tmp_path / "data"),
        copy_of(filled / "tier", tmp_path / "tier"),
    )
    poison(data, TIER)
    held = sorted(path.name for path in files_below(tier, "*.log"))
    assert held
    for _ in range(2):
        with running(Broker(data, tier=tier)) as broker:
            assert numbers(broker, "tiered") == ALL
            code, found = doctor("--bootstrap-server", broker.bootstrap)
            assert code == 3
            assert [each["kind"] for each in found["findings"]] == ["tier-metadata-unreadable"]
            assert broker.log_text().count("cannot be read") >= 4
    with running(Broker(data, tier=tier)) as broker:
        offsets = {
            int(line.partition(" partition=")[2].split()[0]): line.partition(" offset=")[2].split()[
                0
            ]
            for line in broker.log_text().splitlines()
            if "cannot be read" in line
        }
        assert sorted(offsets) == [0, 1, 2, 3]
        value = ",".join(f"{partition}:{offset}" for partition, offset in offsets.items())
        row = m44.AlterableConfig(name=GIVEN_UP, config_operation=0, value=value)
        resource = m44.AlterConfigsResource(resource_type=4, resource_name="", configs=[row])
        target = Target("firnline", broker.bootstrap, broker.pid, Path())
        [answer] = target.ask(m44.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert answer.error_code == 0, answer
        produce(broker, "tiered", RECORDS)
        with Admin(broker.bootstrap) as admin:
            deadline = time.monotonic() + PATIENCE_S
            while True:
                try:
                    admin.tier_flush("tiered", (), timeout_s=PATIENCE_S)
                    break
                except FirnlineError:
                    assert time.monotonic() < deadline
                    time.sleep(0.2)
        code, found = doctor("--bootstrap-server", broker.bootstrap)
        assert code == 0, found
        assert set(held) < {path.name for path in files_below(tier, "*.log")}


def test_garbage_in_the_nodes_own_metadata_stops_it_in_words(filled: Path, tmp_path: Path) -> None:
    data, tier = (
        copy_of(filled / "data", tmp_path / "data"),
        copy_of(filled / "tier", tmp_path / "tier"),
    )
    poison(data, METADATA)
    broker = Broker(data, tier=tier)
    with pytest.raises(Exception, match="what this release cannot act on") as raised:
        broker.start()
    assert "Traceback" not in str(raised.value)
    assert "Traceback" not in broker.log_text()
