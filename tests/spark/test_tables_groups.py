"""`groups`, from the offsets topic of a real node, and from records written by hand."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="NOT RUN: pyarrow is not installed")

from confluent_kafka import Consumer, Producer, TopicPartition

from firnline.base.errors import ConfigError, StorageError
from firnline.base.ids import OFFSETS_TOPIC, ZERO_UUID, uuid_text
from firnline.cli.dump import facts_of
from firnline.client.admin import Admin
from firnline.coordinator import records as g
from firnline.records.build import NewRecord, build_batch
from firnline.records.control import ControlType, EndTxnMarker, encode_key, encode_value
from firnline.spark.tables.groups import plan_groups
from firnline.testing.plugin import Broker
from tests.spark.reading_tables import ms, rows

NOW = 1_700_000_000_000


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a node that was stopped: two groups of consumers, some commits replaced."""
    broker = Broker(tmp_path_factory.mktemp("node") / "data")
    broker.start()
    try:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t", partitions=2, configs={})
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(20):
            producer.produce("t", value=b"%d" % number, partition=number % 2)
        producer.flush()
        for group in ("one", "two"):
            consumer = Consumer(
                {"bootstrap.servers": broker.bootstrap, "group.id": group,
                 "auto.offset.reset": "earliest", "enable.auto.commit": False}
            )  # fmt: skip
            consumer.subscribe(["t"])
            assert len(consumer.consume(20, timeout=60)) == 20
            for offset in (3, 7):
                at = [TopicPartition("t", 0, offset), TopicPartition("t", 1, offset, "why")]
                consumer.commit(offsets=at, asynchronous=False)
            consumer.close()
    finally:
        broker.stop()
    return broker.directory


def dumped(directory: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The last record of each key that `firnline dump` prints."""
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    for file in sorted(directory.glob(f"{OFFSETS_TOPIC}-*/*.log")):
        for fact in facts_of(file):
            if "type" in fact:
                last[(str(fact["type"]), *fact["key"].values())] = dict(fact) | {"file": str(file)}
    return {key: fact for key, fact in last.items() if fact["value"] is not None}


def as_dumped(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the names and forms of the dump, without the bytes of members."""
    fact = {
        "record": row["offset"],
        "timestamp_ms": ms(row["timestamp"]),
        "type": row["type"],
        "file": row["file"],
    }
    if row["type"] == "OffsetCommit":
        key = {name: row[name] for name in ("group", "topic", "partition")}
        value = {
            "offset": row["committed_offset"], "leader_epoch": row["leader_epoch"],
            "metadata": row["metadata"], "commit_timestamp": ms(row["commit_timestamp"]),
            "expire_timestamp": ms(row["expire_timestamp"]),
            "topic_id": row["topic_id"] or uuid_text(ZERO_UUID),
        }  # fmt: skip
        return fact | {"key": key, "value": value}
    names = ("protocol_type", "generation", "protocol", "leader")
    members = [
        {n: v for n, v in member.items() if n not in ("subscription", "assignment")}
        for member in row["members"]
    ]
    value = {name: row[name] for name in names} | {
        "current_state_timestamp": ms(row["current_state_timestamp"]), "members": members,
    }  # fmt: skip
    return fact | {"key": {"group": row["group"]}, "value": value}


def without_bytes(fact: dict[str, Any]) -> dict[str, Any]:
    if fact["type"] == "GroupMetadata":
        for member in fact["value"]["members"]:
            del member["subscription"], member["assignment"]
    return fact


def test_groups_are_the_last_records_that_dump_prints(stopped: Path) -> None:
    found = rows("groups", log_dirs=stopped)
    by_key = {
        (
            row["type"],
            row["group"],
            *((row["topic"], row["partition"]) if row["topic"] else ()),
        ): row
        for row in found
    }
    assert len(by_key) == len(found)
    expected = {key: without_bytes(fact) for key, fact in dumped(stopped).items()}
    assert {key: as_dumped(row) for key, row in by_key.items()} == expected
    commits = {
        (row["group"], row["partition"], row["committed_offset"], row["metadata"])
        for row in found
        if row["type"] == "OffsetCommit"
    }
    # The client ends the text with a zero byte.
    assert commits == {
        (group, p, 7, "why\0" if p else "") for group in ("one", "two") for p in (0, 1)
    }


# ------------------------------------------------------------------------------ written by hand


def commit(partition: int, offset: int | None, *, group: str = "g") -> NewRecord:
    key = g.encode_key(g.OffsetCommitKey(group=group, topic="t", partition=partition))
    value = g.OffsetCommitValue(offset=offset or 0, commit_timestamp=NOW)
    return NewRecord(key, None if offset is None else g.encode_value(value, 3), NOW)


def marker(kind: ControlType, offset: int) -> bytes:
    row = NewRecord(encode_key(kind), encode_value(EndTxnMarker(coordinator_epoch=0)), NOW)
    made = build_batch(
        [row], base_offset=offset, leader_epoch=0, is_control=True, is_transactional=True,
        producer_id=5, producer_epoch=0,
    )  # fmt: skip
    return bytes(made)


def plain(offset: int, *made: NewRecord, epoch: int = 0) -> bytes:
    return bytes(build_batch(list(made), base_offset=offset, leader_epoch=epoch))


def in_transaction(offset: int, *made: NewRecord) -> bytes:
    return bytes(
        build_batch(
            list(made), base_offset=offset, leader_epoch=0, is_transactional=True, producer_id=5,
            producer_epoch=0, base_sequence=0,
        )
    )  # fmt: skip


def write(directory: Path, *batches: bytes, partition: int = 0) -> Path:
    file = directory / f"{OFFSETS_TOPIC}-{partition}" / f"{0:020d}.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(batches))
    return file


def committed(directory: Path | str) -> dict[tuple[str, int], int]:
    return {
        (row["group"], row["partition"]): row["committed_offset"]
        for row in rows("groups", log_dirs=directory)
    }


def test_what_is_deleted_has_no_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, plain(0, commit(0, 1), commit(1, 2)), plain(2, commit(0, None)))
    assert committed(tmp_path) == {("g", 1): 2}
    assert not caplog.records


def test_commits_of_a_transaction_count_at_its_marker(tmp_path: Path) -> None:
    first = plain(0, commit(0, 1), commit(1, 1), commit(2, 1))
    held = in_transaction(3, commit(0, 50), commit(1, 60))
    later = plain(5, commit(1, 2))
    write(tmp_path, first, held, later)
    assert committed(tmp_path) == {("g", 0): 1, ("g", 1): 2, ("g", 2): 1}
    write(tmp_path, first, held, later, marker(ControlType.ABORT, 6))
    assert committed(tmp_path) == {("g", 0): 1, ("g", 1): 2, ("g", 2): 1}
    write(tmp_path, first, held, later, marker(ControlType.COMMIT, 6))
    assert committed(tmp_path) == {("g", 0): 50, ("g", 1): 60, ("g", 2): 1}


def test_a_compacted_log_may_have_gaps_and_no_offset_twice(tmp_path: Path) -> None:
    write(tmp_path, plain(3, commit(0, 1)), plain(90, commit(1, 2)))
    assert committed(tmp_path) == {("g", 0): 1, ("g", 1): 2}
    file = write(tmp_path, plain(90, commit(0, 1)), plain(3, commit(1, 2)), plain(91, commit(0, 2)))
    with pytest.raises(StorageError, match="begins before") as caught:
        rows("groups", log_dirs=tmp_path)
    assert caught.value.facts["path"] == str(file)


def test_records_before_0_9_are_replaced_by_later_ones_and_are_rows_until_then(
    tmp_path: Path,
) -> None:
    key = g.encode_key(g.LegacyOffsetCommitKey(group="g", topic="t", partition=0))
    value = g.encode_value(g.LegacyOffsetCommitValue(offset=4, commit_timestamp=NOW), 0)
    old = plain(0, NewRecord(key, value, NOW))
    write(tmp_path, old)
    (row,) = rows("groups", log_dirs=tmp_path)
    assert (row["type"], row["committed_offset"], row["leader_epoch"]) == (
        "LegacyOffsetCommit",
        4,
        None,
    )
    write(tmp_path, old, plain(1, commit(0, 9)))
    assert committed(tmp_path) == {("g", 0): 9}


def test_what_is_left_out_is_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = NewRecord(b"\x00\x03rest", b"value", NOW)
    broken = commit(7, 1)._replace(value=b"\x00\x03short")
    write(tmp_path, plain(0, other, other, NewRecord(b"\x00", b"", NOW), broken, commit(0, 1)))
    assert committed(tmp_path) == {("g", 0): 1}
    assert 'count=2 why="a type of another group protocol, 3"' in caplog.text
    assert caplog.text.count('why="undecodable: ') == 2


def test_of_several_replicas_the_one_that_reaches_furthest_is_read(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write(one, plain(0, commit(0, 1)), plain(1, commit(0, 2)))
    write(two, plain(0, commit(0, 1)))
    write(one, plain(0, commit(0, 1, group="h")), plain(1, commit(0, 5, group="h")), partition=3)
    write(two, plain(0, commit(0, 7, group="h"), epoch=1), partition=3)
    for dirs in (f"{one},{two}", f"{two},{one}"):
        assert len(plan_groups(tuple(dirs.split(",")))) == 2
        assert committed(dirs) == {("g", 0): 2, ("h", 0): 7}


def test_a_flipped_byte_is_an_error_with_file_and_position(tmp_path: Path) -> None:
    first, second = plain(0, commit(0, 1)), plain(1, commit(0, 2))
    file = write(tmp_path, first, second, plain(2, commit(0, 3)))
    good = file.read_bytes()
    for place in (16, 20, 70, len(first) + 70):
        broken = bytearray(good)
        broken[place] ^= 1
        file.write_bytes(broken)
        with pytest.raises(StorageError, match="damaged") as caught:
            rows("groups", log_dirs=tmp_path)
        assert caught.value.facts["path"] == str(file)
        assert caught.value.facts["position"] == (0 if place < len(first) else len(first))


def test_no_offsets_topic_and_options_without_use_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"no {OFFSETS_TOPIC} is in"):
        rows("groups", log_dirs=tmp_path)
    with pytest.raises(ConfigError, match="groups does not use the option asOfOffset"):
        rows("groups", log_dirs=tmp_path, asOfOffset=1)
    with pytest.raises(ConfigError, match=r"groups does not use the option tier\.uri"):
        rows("groups", log_dirs=tmp_path, tier_uri="/t")
