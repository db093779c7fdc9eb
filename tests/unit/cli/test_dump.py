"""`firnline dump`: every kind of file becomes text, and damage is named, not skipped."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from firnline.cli.main import cli
from firnline.coordinator import records as group_records
from firnline.log.offset_index import write_words
from firnline.log.producer_state import SnapshotEntry, encode_snapshot
from firnline.metadata import records as metadata_records
from firnline.records.build import NewRecord, build_batch

TIME_MS = 1_700_000_000_000
STEM = "00000000000000000100"


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["dump", *map(str, arguments)])


def facts(*arguments: object) -> list[dict[str, Any]]:
    result = dump(*arguments, "--format", "json")
    return [json.loads(line) for line in result.stdout.splitlines()]


def segment(tmp_path: Path, *batches: bytes, directory: str = "events-0") -> Path:
    path = tmp_path / directory / f"{STEM}.log"
    path.parent.mkdir()
    path.write_bytes(b"".join(batches))
    return path


def batch(*values: bytes, base_offset: int = 100, **options: Any) -> bytes:
    rows = [NewRecord(b"k", value, TIME_MS) for value in values]
    return bytes(build_batch(rows, base_offset=base_offset, leader_epoch=3, **options))


def test_a_segment_is_its_batches_and_records(tmp_path: Path) -> None:
    path = segment(tmp_path, batch(b"one", b"\xff\x00"), batch(b"three", base_offset=102))
    first, one, two, second, _ = facts(path)
    assert (first["batch"], first["position"], first["leader_epoch"]) == ("100-101", 0, 3)
    assert one == {"record": 100, "timestamp_ms": TIME_MS, "key": "k", "value": "one"}
    assert two["value"] == "0xff00"
    assert second["position"] == first["size_bytes"]
    text = dump(path).stdout.splitlines()
    assert text[0].startswith("batch=100-101 position=0 ")
    assert text[1] == "  record=100 timestamp_ms=2023-11-14T22:13:20.000+00:00 key='k' value='one'"
    assert len(facts(path, "--batches")) == 2


def test_a_wrong_crc_is_damage_and_the_rest_is_still_shown(tmp_path: Path) -> None:
    broken = bytearray(batch(b"one"))
    broken[-1] ^= 1
    path = segment(tmp_path, bytes(broken), batch(b"two", base_offset=101))
    found = facts(path)
    assert found[0]["damage"] == "the CRC is wrong"
    assert found[-1]["value"] == "two"
    assert dump(path).exit_code == 1


def test_a_torn_tail_is_named_with_its_place(tmp_path: Path) -> None:
    whole = batch(b"one")
    path = segment(tmp_path, whole, whole[:-5])
    found = facts(path)
    assert found[-1]["position"] == len(whole)
    assert f"{len(whole) - 5} bytes after the last whole batch" in found[-1]["damage"]


def test_bytes_that_are_no_batch_are_damage(tmp_path: Path) -> None:
    path = segment(tmp_path, batch(b"one"), bytes(100))
    assert "damage" in facts(path)[-1]


def test_an_empty_segment_is_empty(tmp_path: Path) -> None:
    result = dump(segment(tmp_path))
    assert (result.exit_code, result.stdout) == (0, "")


def test_metadata_records_are_decoded(tmp_path: Path) -> None:
    record = metadata_records.TopicRecord(name="events", topic_id=bytes(15) + b"\x05")
    value = metadata_records.encode(record, 0)
    path = segment(tmp_path, batch(value), directory="__cluster_metadata-0")
    assert facts(path)[1]["type"] == "TopicRecord"
    assert facts(path)[1]["value"] == {"name": "events", "topic_id": "AAAAAAAAAAAAAAAAAAAABQ"}


def test_committed_offsets_are_decoded(tmp_path: Path) -> None:
    key = group_records.OffsetCommitKey(group="g", topic="events", partition=0)
    value = group_records.OffsetCommitValue(offset=42, metadata="", commit_timestamp=TIME_MS)
    row = NewRecord(group_records.encode_key(key), group_records.encode_value(value, 3), TIME_MS)
    path = segment(tmp_path, bytes(build_batch([row])), directory="__consumer_offsets-7")
    found = facts(path)[1]
    assert found["type"] == "OffsetCommit"
    assert found["key"] == {"group": "g", "topic": "events", "partition": 0}
    assert found["value"]["offset"] == 42


def test_a_record_that_cannot_be_decoded_is_shown_as_it_is(tmp_path: Path) -> None:
    path = segment(tmp_path, batch(b"nonsense"), directory="__cluster_metadata-0")
    found = facts(path)[1]
    assert found["value"] == "nonsense"
    assert found["damage"]


@pytest.mark.parametrize("more", ["", "-QR_OYIX1RrGEm20Nn9fk0Q"])
def test_an_offset_index_counts_from_its_segment(tmp_path: Path, more: str) -> None:
    from array import array

    path = tmp_path / f"{STEM}{more}.index"
    path.write_bytes(write_words(array("I", [4, 1000, 9, 2000, 0, 0])))
    assert facts(path) == [{"offset": 104, "position": 1000}, {"offset": 109, "position": 2000}]


def test_producers_of_a_snapshot_are_listed(tmp_path: Path) -> None:
    entry = SnapshotEntry(7, 1, 9, 109, 9, TIME_MS, -1, -1)
    path = tmp_path / f"{STEM}.snapshot"
    path.write_bytes(encode_snapshot([entry]))
    assert facts(path) == [entry._asdict()]
    path.write_bytes(b"\0\1nonsense")
    assert "damage" in facts(path)[0]
    assert dump(path).exit_code == 1


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        f"{STEM}-id.leader_epoch_checkpoint",
        "0-1.jsonl",
        "x.live",
    ],
)
def test_text_files_are_printed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("0\n1\nevents 0 5\n")
    assert dump(path).stdout == "0\n1\nevents 0 5\n"


def test_a_file_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"x")
    result = dump(path)
    assert result.exit_code == 1
    assert "does not say what kind of file" in str(result.exception)


@pytest.mark.parametrize("name", ["x.index", "x.timeindex"])
def test_an_index_without_its_offset_in_the_name_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(bytes(8))
    assert "20 digits" in facts(path)[0]["damage"]
