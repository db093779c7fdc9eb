"""`isr`: the history of ISRs with the epochs of their brokers, compared with the images of a loader."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="NOT RUN: pyarrow is not installed")

from firnline.base.errors import ConfigError, StorageError
from firnline.base.ids import OffsetAndEpoch, uuid_text
from firnline.metadata import records as r
from firnline.metadata.snapshot_file import snapshot_name
from tests.metadata_stories import Life
from tests.spark.reading_tables import rows
from tests.spark.test_tables_state import EPOCH, Written, write_life

LOG = "__cluster_metadata-0"
TOPIC = b"t" * 16


def short(row: dict[str, Any]) -> tuple[Any, ...]:
    members = row["isr"] and [(m["broker_id"], m["broker_epoch"]) for m in row["isr"]]
    return row["offset"], row["type"], row["partition"], row["leader"], row["leader_epoch"], members


def check_last_rows(written: Written, found: list[dict[str, Any]], as_of: int) -> None:
    """The last row of each partition is what the image says, if the image has the partition."""
    last: dict[tuple[str, int], dict[str, Any]] = {}
    for row in found:
        if row["type"] == "RemoveTopicRecord":
            last = {key: one for key, one in last.items() if key[0] != row["topic_id"]}
        else:
            last[(row["topic_id"], row["partition"])] = row
    image = written.images[as_of]
    expected = {
        (uuid_text(topic_id), number): (topic.name, one.leader, one.leader_epoch, list(one.isr))
        for topic_id, topic in image.topics_by_id.items()
        for number, one in topic.partitions.items()
    }
    assert {
        key: (
            row["topic"],
            row["leader"],
            row["leader_epoch"],
            [m["broker_id"] for m in row["isr"]],
        )
        for key, row in last.items()
    } == expected


@pytest.mark.parametrize("seed", range(4))
def test_the_last_row_of_each_partition_is_what_its_image_says(tmp_path: Path, seed: int) -> None:
    written = write_life(tmp_path, Life(seed).write(600), snapshot_every=15)
    for as_of in sorted(written.images)[::10]:
        found = rows("isr", log_dirs=tmp_path, asOfOffset=as_of)
        assert {row["source"] for row in found} <= {"log"}
        check_last_rows(written, found, as_of)


@pytest.mark.parametrize("seed", range(4))
def test_without_the_oldest_records_a_snapshot_says_what_was_before(
    tmp_path: Path, seed: int
) -> None:
    written = write_life(tmp_path, Life(seed).write(600), snapshot_every=15)
    everything = rows("isr", log_dirs=tmp_path)
    place = tmp_path / LOG
    for segment in sorted(place.glob("*.log"))[:3]:
        segment.unlink()
    start = int(min(place.glob("*.log")).stem)
    oldest = min(s for s in written.snapshots if s >= start)
    for snapshot in written.snapshots:
        if snapshot < oldest:
            (place / snapshot_name(OffsetAndEpoch(snapshot, EPOCH))).unlink()
    found = rows("isr", log_dirs=tmp_path)
    assert [row["offset"] for row in found] == sorted(row["offset"] for row in found)
    by_snapshot = [row for row in found if row["source"] == "snapshot"]
    image = written.images[oldest]
    assert len(by_snapshot) == sum(len(t.partitions) for t in image.topics_by_id.values())
    assert {row["offset"] for row in by_snapshot} <= {oldest}
    assert {row["timestamp"] for row in by_snapshot} <= {None}
    # From the snapshot on nothing is unknown; before it each fact is right or null.
    after = [row for row in found if row["offset"] >= oldest and row["source"] == "log"]
    assert after == [row for row in everything if row["offset"] >= oldest]
    before = [row for row in found if row["offset"] < oldest]
    complete = [row for row in everything if start <= row["offset"] < oldest]
    assert [row["offset"] for row in before] == [row["offset"] for row in complete]
    for one, right in zip(before, complete, strict=True):
        for name in ("type", "topic_id", "partition", "timestamp", "source"):
            assert one[name] == right[name]
        for name in ("topic", "leader", "leader_epoch", "partition_epoch"):
            assert one[name] in (None, right[name]), (name, one, right)
        if one["isr"] is not None:
            assert [m["broker_id"] for m in one["isr"]] == [m["broker_id"] for m in right["isr"]]
    check_last_rows(written, found[len(before) :], max(written.images))
    # A snapshot above the offset that was asked for has no part in it.
    if start < oldest:
        assert rows("isr", log_dirs=tmp_path, asOfOffset=oldest - 1) == [
            row for row in before if row["offset"] < oldest - 1
        ]
    with pytest.raises(ConfigError, match=rf"does not go back to asOfOffset.*oldest={start}"):
        rows("isr", log_dirs=tmp_path, asOfOffset=start - 1)


def register(broker_id: int, epoch: int) -> r.RegisterBrokerRecord:
    return r.RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch)


def change(**fields: Any) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, **fields)


def told() -> Life:
    """Broker 2 leaves the ISR, registers anew, and returns under its new epoch; 1 is unregistered."""
    life = Life(1)
    (first,) = life.batches
    one, two = len(first), len(first) + 1
    life.batches += [
        [register(1, one)],
        [register(2, two)],
        [r.TopicRecord(name="t", topic_id=TOPIC)],
        [
            r.PartitionRecord(
                partition_id=0, topic_id=TOPIC, replicas=[1, 2], isr=[1, 2], leader=1,
                leader_epoch=0, partition_epoch=0, eligible_leader_replicas=[2],
            )
        ],
        [change(isr=[1])],
        [register(2, two + 5)],
        [change(isr=[1, 2])],
        [r.ClearElrRecord(topic_name="t")],
        [change(leader=2)],
        [r.UnregisterBrokerRecord(broker_id=1, broker_epoch=one)],
        [change(isr=[2, 1])],
        [r.RemoveTopicRecord(topic_id=TOPIC)],
    ]  # fmt: skip
    return life


def test_members_have_the_epoch_of_their_registration_at_that_record(tmp_path: Path) -> None:
    write_life(tmp_path, told(), snapshot_every=10**9)
    at = len(told().batches[0])
    one, two, again = at, at + 1, at + 6
    found = rows("isr", log_dirs=tmp_path)
    assert [short(row) for row in found] == [
        (at + 3, "PartitionRecord", 0, 1, 0, [(1, one), (2, two)]),
        (at + 4, "PartitionChangeRecord", 0, 1, 0, [(1, one)]),
        (at + 6, "PartitionChangeRecord", 0, 1, 0, [(1, one), (2, again)]),
        (at + 8, "PartitionChangeRecord", 0, 2, 1, [(1, one), (2, again)]),
        (at + 10, "PartitionChangeRecord", 0, 2, 1, [(2, again), (1, None)]),
        (at + 11, "RemoveTopicRecord", None, None, None, None),
    ]
    # The record that cleared the ELR was a change, too.
    assert [row["partition_epoch"] for row in found] == [0, 1, 2, 4, 5, None]
    assert {row["topic"] for row in found} == {"t"}


def test_a_registration_before_the_log_is_known_if_it_still_holds(tmp_path: Path) -> None:
    """The log begins after broker 1 registered, and before broker 2 did so again."""
    written = write_life(tmp_path, told(), snapshot_every=10**9, segment_batches=5)
    at = len(told().batches[0])
    one, two, again = at, at + 1, at + 6
    write_life(tmp_path / "other", told(), snapshot_every=7, segment_batches=5)
    name = snapshot_name(OffsetAndEpoch(at + 7, EPOCH))
    (tmp_path / LOG / name).write_bytes((tmp_path / "other" / LOG / name).read_bytes())
    (tmp_path / LOG / f"{0:020d}.log").unlink()
    found = rows("isr", log_dirs=tmp_path)
    assert min(row["offset"] for row in found) == at + 4
    assert [(row["source"], *short(row)) for row in found][:3] == [
        ("log", at + 4, "PartitionChangeRecord", 0, None, None, [(1, one)]),
        ("log", at + 6, "PartitionChangeRecord", 0, None, None, [(1, one), (2, again)]),
        ("snapshot", at + 7, "PartitionRecord", 0, 1, 0, [(1, one), (2, again)]),
    ]
    assert found[0]["topic"] == "t"
    assert two not in {m["broker_epoch"] for row in found for m in row["isr"] or ()}
    (tmp_path / LOG / name).unlink()
    with pytest.raises(StorageError, match="begins after the newest snapshot"):
        rows("isr", log_dirs=tmp_path)
    assert written.snapshots == []


def test_a_fetched_snapshot_without_a_log_gives_its_rows(tmp_path: Path) -> None:
    written = write_life(tmp_path, Life(3).write(300), snapshot_every=15)
    for segment in (tmp_path / LOG).glob("*.log"):
        segment.unlink()
    for snapshot in written.snapshots[:-1]:
        (tmp_path / LOG / snapshot_name(OffsetAndEpoch(snapshot, EPOCH))).unlink()
    found = rows("isr", log_dirs=tmp_path)
    assert {row["source"] for row in found} == {"snapshot"}
    check_last_rows(written, found, written.snapshots[-1])


def test_a_transaction_that_began_below_the_log_is_not_taken_for_what_it_aborted(
    tmp_path: Path,
) -> None:
    life = Life(1)
    life.batches += [
        [r.BeginTransactionRecord(name="a")],
        [r.TopicRecord(name="t", topic_id=TOPIC)],
        [r.PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=[1], isr=[1], leader=1)],
        [r.AbortTransactionRecord()],
        [r.TopicRecord(name="t", topic_id=TOPIC)],
        [r.PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=[2], isr=[2], leader=2)],
    ]
    at = len(life.batches[0])
    write_life(tmp_path, life, snapshot_every=4, segment_batches=2)
    (tmp_path / LOG / f"{0:020d}.log").unlink()
    found = rows("isr", log_dirs=tmp_path)
    assert [short(row) for row in found] == [(at + 5, "PartitionRecord", 0, 2, -1, [(2, None)])]


def test_a_registration_that_the_log_has_lost_is_unknown_and_not_the_next_one(
    tmp_path: Path,
) -> None:
    """The snapshot knows broker 2 by its second registration, which came after the first row."""
    life = Life(1)
    at = len(life.batches[0])
    life.batches += [
        [register(1, at)],
        [register(2, at + 1)],
        [r.TopicRecord(name="t", topic_id=TOPIC)],
        [r.PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=[1, 2], isr=[1, 2], leader=1)],
        [change(isr=[2, 1])],
        [register(2, at + 5)],
        [change(isr=[1, 2])],
    ]
    write_life(tmp_path, life, snapshot_every=6, segment_batches=4)
    (tmp_path / LOG / f"{0:020d}.log").unlink()
    found = rows("isr", log_dirs=tmp_path)
    assert [(row["source"], *short(row)[:2], short(row)[-1]) for row in found] == [
        ("log", at + 3, "PartitionRecord", [(1, at), (2, None)]),
        ("log", at + 4, "PartitionChangeRecord", [(2, None), (1, at)]),
        ("snapshot", at + 6, "PartitionRecord", [(2, at + 5), (1, at)]),
        ("log", at + 6, "PartitionChangeRecord", [(1, at), (2, at + 5)]),
    ]
