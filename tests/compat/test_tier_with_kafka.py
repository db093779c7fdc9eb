"""Apache Kafka judges the tier: its tools read our metadata records and our objects, we read its own."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition, uuid_text
from firnline.cli.main import cli
from firnline.client.admin import Admin
from firnline.records.build import NewRecord, build_batch
from firnline.stores.directory import DirectoryStore
from firnline.testing.plugin import Broker
from firnline.tiered.metadata.cache import MetadataCache
from firnline.tiered.metadata.changes import from_record
from firnline.tiered.metadata.partitioner import metadata_partition_of
from firnline.tiered.metadata.records import decode
from firnline.tiered.objects.storage import ObjectStorage
from firnline.tiered.spi import DeleteState, PartitionDelete, RemoteSegment, SegmentState
from tests.chaos.test_tier_errors import TOPIC, fill
from tests.peers import kafka
from tests.peers.nodes import eventually
from tests.worlds.decoded import all_records
from tests.worlds.tier import TOPIC_ID, Cluster, Node

pytestmark = pytest.mark.peer


def test_kafka_prints_our_remote_log_metadata(tmp_path: Path) -> None:
    """Every kind of record: a copy that starts and finishes, deletes, a partition's deletion."""
    cluster = Cluster(partitions=1)
    node = Node(cluster, metadata_partitions=1).start().lead(3)
    node.produce(3, "a", "b")
    node.lead(4)
    node.storage.custom_metadata = b"xyz"
    node.produce(4, "c")
    node.pass_time(1000)
    first = node.segments()[0]
    metadata = node.tier.services.metadata
    gone = PartitionDelete(TOPIC_ID, "t", 0, DeleteState.MARKED, 1, cluster.now_ms)
    node.run(metadata.put_partition_delete(gone, lambda error, now: [], cluster.now_ms))
    folder = tmp_path / "__remote_log_metadata-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(b"".join(cluster.metadata[0]))
    printed = kafka.tool(
        "dump", str(folder / f"{0:020d}.log"), "--remote-log-metadata-decoder", "--print-data-log"
    )
    assert "CORRUPT" not in printed.upper()
    assert f"id={uuid_text(first.segment_id)}" in printed
    assert f"{uuid_text(TOPIC_ID)}:t-0" in printed
    assert "startOffset=0, endOffset=1" in printed
    assert "startOffset=2, endOffset=2" in printed
    assert "segmentLeaderEpochs={3=0}" in printed
    assert "segmentLeaderEpochs={4=2}" in printed
    for state in ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_PARTITION_MARKED"):
        assert state in printed, state
    assert printed.count("isvalid: true") == len(cluster.metadata[0])


def test_we_print_the_metadata_as_kafkas_formatter_does(tmp_path: Path) -> None:
    """T25. Copies, deletions of segments and of a topic; from the broker and from its files."""
    formatter = (
        "org.apache.kafka.server.log.remote.metadata.storage.serialization"
        ".RemoteLogMetadataSerde$RemoteLogMetadataFormatter"
    )
    options = ("-X", "log.segment.delete.delay.ms=0")
    broker = Broker(tmp_path / "data", tier=tmp_path / "tier", options=options)
    broker.start()
    try:
        fill(broker)
        with Admin(broker.bootstrap) as admin:
            admin.delete_topic(TOPIC)
        of_broker = ("tier", "metadata", "--bootstrap-server", broker.bootstrap)
        eventually(
            "its deletion is finished",
            lambda: "DELETE_PARTITION_FINISHED" in CliRunner().invoke(cli, of_broker).stdout,
        )
        theirs = kafka.tool(
            "console-consumer", "--bootstrap-server", broker.bootstrap, "--topic",
            REMOTE_LOG_METADATA_TOPIC, "--from-beginning", "--timeout-ms", "5000", "--formatter", formatter,
        )  # fmt: skip
        ours = CliRunner().invoke(cli, of_broker)
    finally:
        assert broker.stop() == 0
    lines = [line for line in theirs.splitlines() if line.startswith("partition: ")]
    assert len(lines) >= 20
    assert (ours.exit_code, sorted(ours.stdout.splitlines())) == (0, sorted(lines))
    folders = sorted((tmp_path / "data").glob(f"{REMOTE_LOG_METADATA_TOPIC}-*"))
    stored = [each for each in folders if any(path.stat().st_size for path in each.glob("*.log"))]
    of_files = CliRunner().invoke(cli, ["tier", "metadata", *map(str, stored)])
    assert (of_files.exit_code, sorted(of_files.stdout.splitlines())) == (0, sorted(lines))


def tier_of(tmp_path: Path) -> tuple[Node, DirectoryStore]:
    """Copy segments with a transaction aborted and one committed into a directory."""
    cluster = Cluster()
    store = DirectoryStore(str(tmp_path / "tier"))
    node = Node(cluster)
    node.storage.inner = ObjectStorage(store)
    node.tier.services.catalog = store
    node.start().lead(0)
    for number in range(50):
        node.produce(0, f"value-{number}" * 50, roll=False)
    txn: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    node.produce(0, "undone", base_sequence=0, roll=False, **txn)
    marker = build_batch([NewRecord(b"\0\0\0\0", bytes(6), cluster.now_ms)], is_control=True, **txn)
    node.log.append_as_leader(marker, leader_epoch=0, now_ms=cluster.now_ms, origin="coordinator")
    node.log.advance_high_watermark(node.log.log_end_offset)
    node.log.roll(cluster.now_ms)
    node.pass_time(1000)
    return node, store


def test_kafka_reads_our_objects_as_its_own_files(tmp_path: Path) -> None:
    node, store = tier_of(tmp_path)
    (segment,) = node.segments()
    assert not segment.txn_index_empty
    folder = tmp_path / "t-0"
    folder.mkdir()
    for info in store.list_prefix("data/"):
        name = info.key.rpartition("/")[2]
        stem, _, suffix = name.partition(".")
        base = int(stem[:20])
        offset = segment.end_offset + 1 if suffix == "snapshot" else base
        shutil.copy(Path(store.root) / info.key, folder / f"{offset:020d}.{suffix}")
    log = folder / f"{0:020d}.log"
    printed = kafka.tool("dump", str(log), "--print-data-log", "--deep-iteration")
    assert printed.count("isvalid: true") == 52
    assert "value-49" in printed
    assert "endTxnMarker: ABORT" in printed
    for suffix in ("index", "timeindex"):
        path = str(folder / f"{0:020d}.{suffix}")
        checked = kafka.tool("dump", path, "--index-sanity-check")
        assert "passed sanity check" in checked
        entries = kafka.tool("dump", path, "--verify-index-only")
        assert "Mismatches" not in entries, entries
        assert "Found timestamp mismatch" not in entries, entries
    aborted = kafka.tool("dump", str(folder / f"{0:020d}.txnindex"))
    assert "producerId: 7 firstOffset: 50 lastOffset: 51" in aborted
    snapshot = kafka.tool("dump", str(folder / f"{segment.end_offset + 1:020d}.snapshot"))
    assert "producerId: 7" in snapshot


def test_we_read_the_metadata_that_kafka_writes(tmp_path: Path) -> None:
    """A tiered Kafka node copies and deletes; our cache says the same of it."""
    with kafka.start(tmp_path, tiered=True) as peer:
        at = ("--bootstrap-server", peer.bootstrap)
        configs = ("remote.storage.enable=true", "segment.bytes=1048576", "local.retention.ms=1")
        kafka.tool(
            "topics",
            *("--create", "--topic", "cold", "--partitions", "1", *at),
            *(word for config in configs for word in ("--config", config)),
        )
        kafka.tool(
            "producer-perf",
            *("--topic", "cold", "--num-records", "4000", "--record-size", "1000"),
            *("--throughput", "-1", "--bootstrap-server", peer.bootstrap),
        )
        cache, where = wait_for_copies(peer, 2)
    finished = [s for s in cache.segments() if s.state == SegmentState.COPY_FINISHED]
    assert finished[0].base_offset == 0
    assert finished[0].topic == "cold"
    assert [s.base_offset for s in finished[1:]] == [s.end_offset + 1 for s in finished[:-1]]
    for segment in finished:
        middle = (segment.base_offset + segment.end_offset) // 2
        found = cache.lookup(segment.epochs[0][0], middle)
        assert found is not None
        assert found.segment_id == segment.segment_id
    names = [path.name for path in peer.data().glob("__remote_log_metadata-*") if has_data(path)]
    partition = metadata_partition_of(where, len(list(peer.data().glob("__remote_log_metadata-*"))))
    assert names == [f"__remote_log_metadata-{partition}"]


def has_data(folder: Path) -> bool:
    return any(path.stat().st_size for path in folder.glob("*.log"))


def wait_for_copies(peer: kafka.Cluster, count: int) -> tuple[MetadataCache, TopicIdPartition]:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        cache, where = MetadataCache(), None
        for path in sorted(peer.data().glob("__remote_log_metadata-*/*.log")):
            for record in all_records(path.read_bytes()):
                change = from_record(decode(record.value or b""))
                assert change is not None
                where = TopicIdPartition(change.topic_id, change.partition)
                if isinstance(change, RemoteSegment):
                    assert cache.add(change), change
                elif isinstance(change, PartitionDelete):
                    assert cache.apply_delete(change)
                else:
                    assert cache.update(change), change
        finished = [s for s in cache.segments() if s.state == SegmentState.COPY_FINISHED]
        if where is not None and len(finished) >= count:
            return cache, where
        time.sleep(0.5)
    raise AssertionError("Kafka copied nothing in 90 seconds")
