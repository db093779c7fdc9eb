"""Snapshots both ways: Kafka's dump, its shell and Kafka itself on ours, and our reader on Kafka's."""

import json
import re
from pathlib import Path

import pytest

from firnline.base.ids import OffsetAndEpoch
from firnline.metadata.delta import Replay
from firnline.metadata.image import ClusterImage
from firnline.metadata.loader import Loader, SnapshotLoader
from firnline.metadata.meta_log import MetaLog, open_meta_log
from firnline.metadata.snapshot_file import SnapshotCheck, snapshot_name
from firnline.metadata.snapshotter import SnapshotSettings, Snapshotter
from firnline.runtime.disk import RealFs
from tests.compat.test_metadata_with_kafka import (
    AT_ZERO,
    CLUSTER,
    Ours,
    describe_when_led,
    dumped,
    formatted,
)
from tests.peers import kafka
from tests.peers.nodes import eventually
from tests.peers.ports import free_ports
from tests.peers.quorum import shell_output
from tests.worlds.decoded import image_records
from tests.worlds.effects import carried_out
from tests.worlds.quorum import broker_config

pytestmark = pytest.mark.peer
PARTITION = "__cluster_metadata-0"


def take_snapshot(ours: Ours) -> OffsetAndEpoch:
    """Have the snapshotter write down the image as it is."""
    image, log = ours.quorum.image, ours.log
    log.advance_high_watermark(log.end_offset)
    snapshotter = Snapshotter(log, SnapshotSettings(max_new_record_bytes=1))
    delta = Replay(image).finish(offset=image.offset, epoch=image.epoch)
    carried_out(
        snapshotter.on_applied(
            delta,
            bytes_applied=1,
            last_timestamp_ms=ours.loop.now_ms,
            is_batch_end=True,
            now_ms=ours.loop.now_ms,
        ),
        ours.loop.now_ms,
    )
    assert snapshotter.counters.generated == 1
    assert log.newest_snapshot_id is not None
    return log.newest_snapshot_id


@pytest.fixture(scope="module")
def a_snapshot(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ClusterImage]:
    """A snapshot as a controller of ours leaves it, and what is in it."""
    base = tmp_path_factory.mktemp("ours")
    ours = Ours(formatted(base))
    ours.live()
    snapshot_id = take_snapshot(ours)
    image = ours.quorum.image
    ours.close()
    return base / PARTITION / snapshot_name(snapshot_id), image


def test_kafkas_dump_reads_every_record_of_our_snapshot(
    a_snapshot: tuple[Path, ClusterImage],
) -> None:
    path, image = a_snapshot
    rows = dumped(path)
    assert len(rows) == len(list(image_records(image)))
    text = kafka.tool("dump", str(path), "--cluster-metadata-decoder")
    assert re.search(r'SnapshotHeader .*"lastContainedLogTimestamp":1700000001000', text), text
    assert f"Snapshot end offset: {image.offset + 1}, epoch: {image.epoch}" in text
    assert text.index("SnapshotHeader") < text.index("payload: {") < text.index("SnapshotFooter")


def test_kafkas_shell_loads_our_snapshot(a_snapshot: tuple[Path, ClusterImage]) -> None:
    path, image = a_snapshot
    listed, moved = shell_output(
        path, "ls /image/topics/byName", "cat /image/topics/byName/moved/0"
    )
    assert sorted(listed.split()) == sorted(image.topics_by_name)
    assert re.search(r'"?replicas"?[=:] ?\[1\]', moved), moved


def test_kafka_runs_on_a_log_of_ours_that_begins_at_a_snapshot(tmp_path: Path) -> None:
    """Goal: what we clean up, a JVM controller does not miss."""
    ports = free_ports(2)
    clients, controller = ports
    config = formatted(
        tmp_path / "node-1" / "data",
        controller_quorum_voters=f"1@127.0.0.1:{controller}",
        listeners=f"PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controller}",
    )
    ours = Ours(config)
    ours.live()
    snapshot_id = take_snapshot(ours)
    now_ms = ours.loop.now_ms
    carried_out(ours.log.retire_snapshots(snapshot_id.offset, now_ms=now_ms), now_ms)
    ours.close()
    known = {"cluster_id": CLUSTER, "ports": [ports], "pids": []}
    (tmp_path / "peer.json").write_text(json.dumps(known))
    with kafka.start(tmp_path) as peer:
        reported = describe_when_led("--bootstrap-server", peer.bootstrap)
        assert re.search(r"Topic: moved\b.*PartitionCount: 3\b", reported)
        assert re.search(r"Topic: grown\b.*PartitionCount: 4\b", reported)


def loaded(log: MetaLog, snapshot_id: OffsetAndEpoch) -> ClusterImage:
    file = log.open_snapshot(snapshot_id)
    assert file is not None
    loader = SnapshotLoader(snapshot_id, file)
    for _ in loader.steps():
        pass
    return loader.image()


def replayed(log: MetaLog, end_offset: int) -> ClusterImage:
    """What the log says up to there, without any snapshot."""
    loader = Loader()
    while loader.next_offset < end_offset:
        data = log.read(loader.next_offset, max_bytes=64 * 1024)
        for _ in loader.steps(data, end_offset=end_offset):
            pass
    return loader.image()


def test_each_snapshot_of_kafka_is_the_state_of_its_log_there(tmp_path: Path) -> None:
    """rel-Q9 on Kafka's files: its snapshots, its log, our reader; and a start that has lost the log."""
    often = {"metadata.log.max.record.bytes.between.snapshots": 600}
    with kafka.start(tmp_path, settings=often, format_args=AT_ZERO) as peer:
        at = ("--bootstrap-server", peer.bootstrap)
        for name in ("a", "b", "c"):
            kafka.tool("topics", "--create", "--topic", name, "--partitions", "20", *at)
        # A broker may hear of a topic after the controller has said that it is there.
        eventually(
            "the broker knows all topics",
            lambda: {"a", "b", "c"} <= {*kafka.tool("topics", "--list", *at).split()},
        )
        kafka.tool("topics", "--delete", "--topic", "b", *at)
        change = ("--alter", "--add-config", "retention.ms=2000")
        kafka.tool("configs", *at, "--topic", "a", *change)
    data = tmp_path / "node-1" / "data"
    log = open_meta_log(RealFs(), broker_config(log_dirs=str(data)), now_ms=1)
    stored = log.snapshot_sizes()
    assert len(stored) >= 2, "Kafka wrote fewer snapshots than this test needs"
    for snapshot_id, size_bytes, last_contained_ms in stored:
        path = data / PARTITION / snapshot_name(snapshot_id)
        content = path.read_bytes()
        check = SnapshotCheck()
        assert all(check.feed(content[n : n + 77]) is None for n in range(0, len(content), 77)), (
            snapshot_id
        )
        assert check.problem() is None
        assert (len(content), check.last_contained_ms) == (size_bytes, last_contained_ms)
        assert last_contained_ms > 1_600_000_000_000
        ours, theirs = loaded(log, snapshot_id), replayed(log, snapshot_id.offset)
        assert list(image_records(ours)) == list(image_records(theirs)), snapshot_id
        assert (ours.offset, ours.epoch) == (theirs.offset, theirs.epoch)
    newest, end_offset = stored[-1][0], log.end_offset
    assert sorted(loaded(log, newest).topics_by_name) in (["a", "c"], ["a", "b", "c"])
    log.close()

    # The newest snapshot alone, as after a stop between a download and the truncation (Q44).
    for path in (data / PARTITION).iterdir():
        if path.name.startswith("00000") and path.name != snapshot_name(newest):
            path.unlink()
    (data / PARTITION / "leader-epoch-checkpoint").unlink()
    log = open_meta_log(RealFs(), broker_config(log_dirs=str(data)), now_ms=1)
    assert (log.start_offset, log.end_offset, log.last_epoch) == (
        newest.offset,
        newest.offset,
        newest.epoch,
    )
    assert end_offset >= newest.offset
    log.close()
