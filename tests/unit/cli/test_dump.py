"""`firnline dump`: every kind of file becomes text, and damage is named, not skipped."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from firnline.cli.main import cli
from firnline.coordinator import records as group_records
from firnline.formats.producer_snapshot import SnapshotEntry, encode_snapshot
from firnline.formats.words import write_words
from firnline.metadata import records as metadata_records
from firnline.metadata.snapshot_file import snapshot_batches
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.tiered.metadata import records as tier_records
from tests.raw_batches import raw_batch

TIME_MS = 1_700_000_000_000
STEM = "00000000000000000100"


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["dump", *map(str, arguments)])


def facts(*arguments: object) -> list[dict[str, Any]]:
    result = dump(*arguments, "--format", "json")
    return [_without_file(each) for each in lines_of(result)]


def lines_of(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def _without_file(fact: dict[str, Any]) -> dict[str, Any]:
    """Each line names its file, also if there is one: see `test_programs_learn_which_file_a_fact_is_of`."""
    assert fact.pop("file")
    return fact


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
    assert dump(path).exit_code == 3


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_body_that_cannot_be_read_is_damage_and_the_rest_is_still_shown(
    tmp_path: Path, codec: int
) -> None:
    poison = raw_batch(b"this is no compressed data", codec=codec, base_offset=100)
    path = segment(tmp_path, bytes(poison), batch(b"two", base_offset=101))
    head, damage, second, record = facts(path)
    assert (head["batch"], damage["position"], second["batch"]) == ("100-100", 0, "101-101")
    assert "damage" in damage
    assert record["value"] == "two"
    assert dump(path).exit_code == 3


def test_a_torn_tail_is_named_with_its_place(tmp_path: Path) -> None:
    complete = batch(b"one")
    path = segment(tmp_path, complete, complete[:-5])
    found = facts(path)
    assert found[-1]["position"] == len(complete)
    assert f"{len(complete) - 5} bytes after the last complete batch" in found[-1]["damage"]


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
    assert facts(path)[1] == {
        "record": 100,
        "timestamp_ms": TIME_MS,
        "epoch": 3,
        "type": "TopicRecord",
        "version": 0,
        "value": {"name": "events", "topic_id": "AAAAAAAAAAAAAAAAAAAABQ"},
    }
    assert (
        dump(path)
        .stdout.splitlines()[1]
        .endswith(
            " epoch=3 type=TopicRecord version=0 value={name=events, topic_id=AAAAAAAAAAAAAAAAAAAABQ}"
        )
    )


def test_a_metadata_record_is_shown_as_its_version_has_it(tmp_path: Path) -> None:
    """And no tagged field that says nothing."""
    records = [
        metadata_records.PartitionRecord(topic_id=bytes(16), replicas=[1], isr=[1], leader=1),
        metadata_records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=1),
    ]
    values = [metadata_records.encode(record, 0) for record in records]
    path = segment(tmp_path, batch(*values), directory="__cluster_metadata-0")
    _, partition, change = facts(path)
    assert "directories" not in partition["value"]
    assert "leader_recovery_state" not in partition["value"]
    assert change["value"] == {"broker_id": 1, "broker_epoch": 5, "fenced": 1}


def test_no_secret_is_shown(tmp_path: Path) -> None:
    """rel-X4: a dump is mailed to people."""
    secret = b"S" * 16
    records = [
        metadata_records.UserScramCredentialRecord(
            name="u", mechanism=1, salt=secret, stored_key=secret, server_key=secret
        ),
        *(
            metadata_records.ConfigRecord(resource_type=kind, resource_name="1", name=name, value=v)
            for kind, name, v in (
                (4, "ssl.keystore.password", "SSSS"),
                (4, "listener.name.x.sasl.jaas.config", "SSSS"),
                (4, "log.retention.ms", "5"),
                (2, "retention.ms", "6"),
            )
        ),
    ]
    values = [metadata_records.encode(record, 0) for record in records]
    path = segment(tmp_path, batch(*values), directory="__cluster_metadata-0")
    for text in (dump(path).stdout, dump(path, "--format", "json").stdout):
        assert "SSSS" not in text
        assert secret.hex() not in text
    shown = [fact["value"].get("value") for fact in facts(path)[2:]]
    assert shown == ["[hidden]", "[hidden]", "5", "6"]


def a_snapshot(tmp_path: Path, cut: int = 0) -> Path:
    records = [metadata_records.TopicRecord(name="events", topic_id=bytes(16))]
    batches = snapshot_batches(
        records, epoch=3, metadata_version=30, last_contained_ms=TIME_MS, now_ms=TIME_MS
    )
    path = tmp_path / "00000000000000000042-0000000003.checkpoint"
    data = b"".join(batches)
    path.write_bytes(data[: len(data) - cut])
    return path


def test_a_snapshot_says_where_it_ends_and_what_its_control_records_are(tmp_path: Path) -> None:
    first, *rows = facts(a_snapshot(tmp_path))
    assert (first["end_offset"], first["epoch"]) == (42, 3)
    records = [row for row in rows if "record" in row]
    assert [row.get("control", row.get("type")) for row in records] == [
        "SNAPSHOT_HEADER",
        "TopicRecord",
        "SNAPSHOT_FOOTER",
    ]
    assert records[0]["value"] == {"version": 0, "last_contained_log_timestamp": TIME_MS}
    assert rows[-1] == {"verdict": "whole"}
    assert len(facts(a_snapshot(tmp_path), "--batches")) == 5


def test_a_snapshot_without_its_footer_is_damaged(tmp_path: Path) -> None:
    footer_bytes = 75
    path = a_snapshot(tmp_path, cut=footer_bytes)
    last = facts(path)[-1]
    assert last["verdict"] == "not whole"
    assert "no footer" in last["damage"]
    assert dump(path).exit_code == 3
    path = a_snapshot(tmp_path, cut=5)
    assert "bytes after the last complete batch" in facts(path)[-2]["damage"]
    assert facts(path)[-1] == {"verdict": "not whole"}


def test_a_snapshot_without_its_header_is_damaged(tmp_path: Path) -> None:
    """As the node has it that would load it."""
    path = a_snapshot(tmp_path)
    data = path.read_bytes()
    first = next(headers(data))
    path.write_bytes(data[first.size_bytes :])
    last = facts(path)[-1]
    assert last["verdict"] == "not whole"
    assert "before the header" in last["damage"]
    assert dump(path).exit_code == 3


def test_batches_that_lie_over_one_another_are_damage(tmp_path: Path) -> None:
    """The offset of a batch is outside of its CRC."""
    path = segment(tmp_path, batch(b"one", b"two"), batch(b"three", base_offset=101))
    found = [row for row in facts(path) if "damage" in row]
    assert [row["batch"] for row in found] == ["101-101"]
    assert dump(path).exit_code == 3


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
    assert dump(path).exit_code == 3


def test_a_checkpoint_and_a_catalog_are_facts_for_programs_too(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text("0\n1\nevents 0 5\n")
    assert dump(path).stdout == "topic=events partition=0 offset=5\n"
    assert facts(path) == [{"topic": "events", "partition": 0, "offset": 5}]
    catalog = tmp_path / "0-1.jsonl"
    catalog.write_text('{"kind":"head","writtenMs":1700000000000,"parts":[]}\n{"lines":1}\n')
    assert facts(catalog)[1] == {"lines": 1}
    assert dump(catalog).stdout.splitlines()[0] == (
        "kind=head writtenMs=2023-11-14T22:13:20.000+00:00 parts=[]"
    )


def test_programs_learn_which_file_a_fact_is_of(tmp_path: Path) -> None:
    paths = [segment(tmp_path, batch(b"x"), directory=f"t-{number}") for number in range(2)]
    for some in (paths, paths[:1]):
        found = lines_of(dump(*some, "--batches", "--format", "json"))
        assert [fact["file"] for fact in found] == list(map(str, some))


@pytest.mark.parametrize(
    ("state", "name"),
    list(
        enumerate(
            (
                "COPY_SEGMENT_STARTED",
                "COPY_SEGMENT_FINISHED",
                "DELETE_SEGMENT_STARTED",
                "DELETE_SEGMENT_FINISHED",
            )
        )
    ),
)
def test_states_of_the_tier_have_kafkas_names(tmp_path: Path, state: int, name: str) -> None:
    record = tier_records.RemoteLogSegmentMetadataUpdateRecord(remote_log_segment_state=state)
    value = tier_records.encode(record)
    path = segment(tmp_path, batch(value), directory="__remote_log_metadata-3")
    assert facts(path)[1]["value"]["remote_log_segment_state"] == name
    assert f"remote_log_segment_state={name}" in dump(path).stdout


@pytest.mark.parametrize(
    ("state", "name"),
    [
        (0, "DELETE_PARTITION_MARKED"),
        (1, "DELETE_PARTITION_STARTED"),
        (2, "DELETE_PARTITION_FINISHED"),
        (9, 9),
    ],
)
def test_states_of_a_deletion_have_kafkas_names(tmp_path: Path, state: int, name: object) -> None:
    record = tier_records.RemotePartitionDeleteMetadataRecord(remote_partition_delete_state=state)
    value = tier_records.encode(record)
    path = segment(tmp_path, batch(value), directory="__remote_log_metadata-3")
    assert facts(path)[1]["value"]["remote_partition_delete_state"] == name


def test_lists_in_records_are_readable_and_times_are_times(tmp_path: Path) -> None:
    key = group_records.GroupMetadataKey(group="g")
    member = group_records.GroupMember(member_id="m", client_id="c", client_host="/h")
    value = group_records.GroupMetadataValue(
        protocol_type="consumer", leader="m", current_state_timestamp=TIME_MS, members=[member]
    )
    row = NewRecord(group_records.encode_key(key), group_records.encode_value(value, 3), TIME_MS)
    path = segment(tmp_path, bytes(build_batch([row])), directory="__consumer_offsets-7")
    text = dump(path).stdout
    assert "members=[{member_id=m, group_instance_id=null, client_id=c" in text
    assert "current_state_timestamp=2023-11-14T22:13:20.000+00:00" in text


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
