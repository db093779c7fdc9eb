"""System tables from the files that a real node wrote, without Spark; the node is stopped, killed or runs."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="NOT RUN: pyarrow is not installed")

from firnline.base.errors import ConfigError, StorageError
from firnline.cli.dump import facts_of
from firnline.client.admin import Admin
from firnline.log.directory import CLEAN_SHUTDOWN
from firnline.records.batch import headers
from firnline.spark.tables.options import parse_table_options
from firnline.spark.tables.read import plan_table, read_table
from firnline.testing.plugin import Broker
from tests.spark.reading_tables import ms, rows

LOG = "__cluster_metadata-0"
FIRST = f"{0:020d}.log"
# A snapshot after a few topics.
_OPTIONS = ("-X", "metadata.log.max.record.bytes.between.snapshots=1000")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The log directory of a node that was stopped: some topics, one changed, one deleted."""
    broker = Broker(tmp_path_factory.mktemp("node") / "data", options=_OPTIONS)
    broker.start()
    try:
        with Admin(broker.bootstrap) as admin:
            for number in range(12):
                admin.create_topic(f"t{number}", partitions=3, configs={"retention.ms": "1000"})
            admin.delete_topic("t3")
            admin.set_partitions("t4", 5)
            admin.create_topic("t3", partitions=1, configs={})
        broker.stop()
        yield broker.directory
    finally:
        if broker.process is not None:
            broker.kill()


@pytest.fixture
def node(stopped: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(stopped, tmp_path / "data"))


def dumped(path: Path) -> list[dict[str, Any]]:
    """The records that `firnline dump` prints of a file."""
    return [dict(fact) for fact in facts_of(path) if "record" in fact]


def as_dumped(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `metadata` or `snapshots` with the names and forms of the dump."""
    value = None if row["value"] is None else json.loads(row["value"])
    fact = {"record": row["offset"], "timestamp_ms": ms(row["timestamp"]), "epoch": row["epoch"]}
    if row["is_control"]:
        return fact | {"control": row["type"], "value": value}
    return fact | {"type": row["type"], "version": row["version"], "value": value}


def test_metadata_is_what_dump_prints_of_the_log(stopped: Path) -> None:
    found = rows("metadata", log_dirs=stopped)
    expected = dumped(stopped / LOG / FIRST)
    assert [as_dumped(row) for row in found] == expected
    assert {row["file"] for row in found} == {str(stopped / LOG / FIRST)}
    assert {"TopicRecord", "PartitionRecord", "RemoveTopicRecord", "ConfigRecord"} <= {
        row["type"] for row in found
    }


def test_columns_that_records_have_in_common_are_those_of_their_fields(stopped: Path) -> None:
    for row in rows("metadata", log_dirs=stopped):
        fields = json.loads(row["value"])
        if row["type"] in ("TopicRecord", "PartitionRecord"):
            assert row["topic_id"] == fields["topic_id"]
            assert row["topic"] == fields.get("name")
            assert row["partition"] == fields.get("partition_id")
        elif row["type"] == "ConfigRecord":
            assert row["topic"] == (
                fields["resource_name"] if fields["resource_type"] == 2 else None
            )
        elif row["type"] in ("FenceBrokerRecord", "UnfenceBrokerRecord"):
            assert (row["broker_id"], row["broker_epoch"]) == (fields["id"], fields["epoch"])
        elif row["type"] in ("RegisterBrokerRecord", "BrokerRegistrationChangeRecord"):
            assert (row["broker_id"], row["broker_epoch"]) == (
                fields["broker_id"],
                fields["broker_epoch"],
            )


def test_snapshots_are_what_dump_prints_of_each(stopped: Path) -> None:
    files = sorted((stopped / LOG).glob("*.checkpoint"))
    assert len(files) > 2
    found = rows("snapshots", log_dirs=stopped)
    assert [as_dumped(row) for row in found] == [fact for file in files for fact in dumped(file)]
    assert [row["file"] for row in found] == [str(f) for f in files for _ in dumped(f)]
    assert all(
        Path(row["file"]).name
        == f"{row['snapshot_offset']:020d}-{row['snapshot_epoch']:010d}.checkpoint"
        for row in found
    )


def test_metadata_as_of_an_offset_are_the_records_below_it(stopped: Path) -> None:
    everything = rows("metadata", log_dirs=stopped)
    for as_of in (0, 7, len(everything)):
        assert rows("metadata", log_dirs=stopped, asOfOffset=as_of) == everything[:as_of]
    with pytest.raises(ConfigError, match=rf"beyond the end.*newest={len(everything)}"):
        rows("metadata", log_dirs=stopped, asOfOffset=len(everything) + 1)


def test_snapshots_as_of_an_offset_are_the_newest_at_or_below_it(stopped: Path) -> None:
    places = sorted({row["snapshot_offset"] for row in rows("snapshots", log_dirs=stopped)})
    for as_of, expected in ((places[1], 1), (places[1] - 1, 0), (places[1] + 1, 1)):
        found = rows("snapshots", log_dirs=stopped, asOfOffset=as_of)
        assert {row["snapshot_offset"] for row in found} == {places[expected]}
    with pytest.raises(ConfigError, match=rf"no snapshot is at or below.*oldest={places[0]}"):
        rows("snapshots", log_dirs=stopped, asOfOffset=places[0] - 1)
    with pytest.raises(ConfigError, match="beyond the end"):
        rows("snapshots", log_dirs=stopped, asOfOffset=10**9)


@pytest.mark.parametrize("table", ["metadata", "snapshots"])
def test_any_flipped_byte_is_an_error_with_file_and_position(node: Path, table: str) -> None:
    """Of the headers of two batches, bit by bit where no CRC helps; of the others some bytes."""
    file = node / LOG / FIRST if table == "metadata" else max((node / LOG).glob("*.checkpoint"))
    file.chmod(0o644)
    good = file.read_bytes()
    starts = [head.position for head in headers(good)]
    places = {*range(starts[1], starts[1] + 61), *range(len(good) - 3, len(good))}
    places |= set(range(0, len(good), 397))
    for place in sorted(places):
        broken = bytearray(good)
        broken[place] ^= 1
        file.write_bytes(broken)
        with pytest.raises(StorageError) as caught:
            rows(table, log_dirs=node)
        assert caught.value.facts["path"] == str(file), place
        batch = max(start for start in starts if start <= place)
        following = min((start for start in starts if start > batch), default=len(good))
        # A wrong epoch may show only by the batch after it.
        assert caught.value.facts["position"] in (batch, following), place


def torn(node: Path, cut: bytes | int) -> Path:
    """Make the log one that was not closed and not synced, with bytes after it or cut off it."""
    (node / CLEAN_SHUTDOWN).unlink()
    (node / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    file = node / LOG / FIRST
    data = file.read_bytes()
    file.write_bytes(data[:-cut] if isinstance(cut, int) else data + cut)
    return file


@pytest.mark.parametrize("cut", [5, b"\0" * 700, b"\x01" * 30], ids=["short", "zeros", "bytes"])
def test_a_torn_end_of_a_log_that_was_not_closed_is_left_out_with_a_line(
    node: Path, cut: bytes | int, caplog: pytest.LogCaptureFixture
) -> None:
    everything = rows("metadata", log_dirs=node)
    file = torn(node, cut)
    before = file.read_bytes()
    found = rows("metadata", log_dirs=node)
    lost = 1 if isinstance(cut, int) else 0
    assert [as_dumped(r) for r in found] == [
        as_dumped(r) for r in everything[: len(everything) - lost]
    ]
    lines = [r.getMessage() for r in caplog.records if "was not closed" in r.getMessage()]
    assert len(lines) == 1
    assert str(file) in lines[0]
    assert f"offset={len(found)} " in lines[0]
    assert file.read_bytes() == before


def test_a_torn_end_is_damage_if_the_node_closed_or_synced_the_log(node: Path) -> None:
    file = node / LOG / FIRST
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(StorageError, match="not complete"):
        rows("metadata", log_dirs=node)
    (node / CLEAN_SHUTDOWN).unlink()
    with pytest.raises(StorageError, match="not complete"):
        rows("metadata", log_dirs=node)  # its recovery point says that it was synced


def test_a_node_that_closed_its_log_left_no_torn_end_also_above_its_recovery_point(
    node: Path,
) -> None:
    file = node / LOG / FIRST
    file.write_bytes(file.read_bytes()[:-5])
    (node / "recovery-point-offset-checkpoint").write_text("0\n1\n__cluster_metadata 0 1\n")
    with pytest.raises(StorageError, match="not complete"):
        rows("metadata", log_dirs=node)
    # A marker without a recovery point is Kafka's: Kafka closes the log of the metadata after it.
    (node / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    assert rows("metadata", log_dirs=node)


def test_another_leader_epoch_is_damage_by_the_checkpoint_or_by_the_next_batch(node: Path) -> None:
    file = node / LOG / FIRST
    good = file.read_bytes()
    starts = [head.position for head in headers(good)]
    broken = bytearray(good)
    broken[starts[-1] + 15] ^= 2
    file.write_bytes(broken)  # no batch follows
    with pytest.raises(StorageError, match="another leader epoch") as caught:
        rows("metadata", log_dirs=node)
    assert caught.value.facts["position"] == starts[-1]
    broken = bytearray(good)
    broken[starts[3] + 15] ^= 2
    file.write_bytes(broken)
    torn(node, b"")  # the checkpoint may be older than the batches
    with pytest.raises(StorageError, match="another leader epoch") as caught:
        rows("metadata", log_dirs=node)
    assert caught.value.facts["position"] == starts[4]


def test_what_changes_between_plan_and_read_is_an_error(node: Path) -> None:
    file = node / LOG / FIRST
    good = file.read_bytes()
    options = parse_table_options({"table": "metadata", "log.dirs": str(node)})
    (task,) = plan_table(options)
    starts = [head.position for head in headers(good)]
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    for data, problem, position in (
        (good[: starts[-1]], "changed while it was read", starts[-1]),
        (flipped, "another CRC", starts[-1]),
    ):
        file.write_bytes(data)
        with pytest.raises(StorageError, match=problem) as caught:
            list(read_table(options, task, ("offset",)))
        assert caught.value.facts["position"] == position
    file.unlink()
    with pytest.raises(StorageError, match="read again"):
        list(read_table(options, task, ("offset",)))


def test_a_broken_batch_before_a_sound_one_is_no_torn_end(node: Path) -> None:
    file = torn(node, b"")
    good = file.read_bytes()
    starts = [head.position for head in headers(good)]
    for at in (starts[-2] + 10, starts[-2] + 70, starts[3] + 8):  # lengths, and a record
        broken = bytearray(good)
        broken[at] ^= 0x40
        file.write_bytes(broken)
        with pytest.raises(StorageError, match=r"damaged.*position"):
            rows("metadata", log_dirs=node)
    file.write_bytes(good[:-5])
    later = file.with_name(f"{10**6:020d}.log")
    later.write_bytes(good)
    with pytest.raises(StorageError, match=r"damaged.*followed_by"):
        rows("metadata", log_dirs=node)


def test_a_log_with_a_missing_segment_is_refused(node: Path) -> None:
    file = node / LOG / FIRST
    data = file.read_bytes()
    heads = list(headers(data))
    second, third = heads[4], heads[8]
    file.write_bytes(data[: second.position])
    rest = file.with_name(f"{third.base_offset:020d}.log")
    rest.write_bytes(data[third.position :])
    with pytest.raises(StorageError, match="ends at another offset") as caught:
        rows("metadata", log_dirs=node)
    assert caught.value.facts["path"] == str(rest)
    middle = file.with_name(f"{second.base_offset:020d}.log")
    middle.write_bytes(data[second.position : third.position])
    assert len(rows("metadata", log_dirs=node)) == heads[-1].next_offset


def test_of_several_nodes_the_log_that_reaches_furthest_is_read(
    stopped: Path, node: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = node / LOG / FIRST
    data = file.read_bytes()
    file.write_bytes(data[: list(headers(data))[-1].position])
    everything = rows("metadata", log_dirs=stopped)
    for dirs in (f"{node},{stopped}", f"{stopped}, {node}"):
        assert rows("metadata", log_dirs=dirs) == everything
    assert f"reaches furthest path={stopped / LOG} end_offset={len(everything)} of=2" in caplog.text


def test_a_directory_without_the_log_is_refused_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no __cluster_metadata is in .*metadata\.log\.dir"):
        rows("metadata", log_dirs=tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        rows("metadata", log_dirs=tmp_path / "nowhere")


def test_a_running_node_is_read_and_not_touched(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", options=_OPTIONS)
    broker.start()
    try:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("before", partitions=1, configs={})
            first = rows("metadata", log_dirs=broker.directory)
            admin.create_topic("after", partitions=1, configs={})
            second = rows("metadata", log_dirs=broker.directory)
        names = [
            {r["topic"] for r in found if r["type"] == "TopicRecord"} for found in (first, second)
        ]
        assert names == [{"before"}, {"before", "after"}]
        assert second[: len(first)] == first
    finally:
        broker.kill()
    assert rows("metadata", log_dirs=broker.directory)[: len(second)] == second
