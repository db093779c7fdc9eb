"""`firnline tier metadata` on files: all records, in Kafka's words; what cannot be read is named."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from firnline.cli.main import cli
from firnline.records.build import NewRecord, build_batch
from firnline.tiered.metadata.changes import delete_record, segment_record, update_record
from firnline.tiered.metadata.records import encode
from firnline.tiered.spi import (
    DeleteState,
    PartitionDelete,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)

TOPIC_ID, SEGMENT_ID = bytes(range(16)), bytes(range(16, 32))
SEGMENT = RemoteSegment(
    topic_id=TOPIC_ID,
    topic="orders",
    partition=3,
    segment_id=SEGMENT_ID,
    base_offset=10,
    end_offset=19,
    size_bytes=1234,
    max_timestamp_ms=1000,
    epochs=((2, 10), (5, 15)),
    broker_id=7,
    event_timestamp_ms=2000,
)
UPDATE = SegmentUpdate(
    topic_id=TOPIC_ID,
    topic="orders",
    partition=3,
    segment_id=SEGMENT_ID,
    state=SegmentState.COPY_FINISHED,
    broker_id=7,
    event_timestamp_ms=3000,
    custom_metadata=b"xy",
)
DELETE = PartitionDelete(
    topic_id=TOPIC_ID,
    topic="other",
    partition=0,
    state=DeleteState.MARKED,
    broker_id=8,
    event_timestamp_ms=4000,
)
VALUES = [
    encode(segment_record(SEGMENT)),
    encode(update_record(UPDATE)),
    encode(delete_record(DELETE)),
]
WHERE = "AAECAwQFBgcICQoLDA0ODw:orders-3"
KAFKA = [
    "partition: 4, offset: 0, value: RemoteLogSegmentMetadata{remoteLogSegmentId=RemoteLogSegmentId{"
    f"topicIdPartition={WHERE}, id=EBESExQVFhcYGRobHB0eHw}}, startOffset=10, endOffset=19, brokerId=7,"
    " maxTimestampMs=1000, eventTimestampMs=2000, segmentLeaderEpochs={2=10, 5=15},"
    " segmentSizeInBytes=1234, customMetadata=Optional.empty, state=COPY_SEGMENT_STARTED,"
    " txnIdxEmpty=false}",
    "partition: 4, offset: 1, value: RemoteLogSegmentMetadataUpdate{remoteLogSegmentId=RemoteLogSegmentId{"
    f"topicIdPartition={WHERE}, id=EBESExQVFhcYGRobHB0eHw}}, "
    "customMetadata=Optional[CustomMetadata{2 bytes}],"
    " state=COPY_SEGMENT_FINISHED, eventTimestampMs=3000, brokerId=7}",
    "partition: 4, offset: 2, value: RemotePartitionDeleteMetadata{topicPartition="
    "AAECAwQFBgcICQoLDA0ODw:other-0, state=DELETE_PARTITION_MARKED, eventTimestampMs=4000, brokerId=8}",
]


def batch(offset: int, *values: bytes) -> bytes:
    made = build_batch([NewRecord(None, each, 5) for each in values], base_offset=offset)
    return bytes(made)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "__remote_log_metadata-4"
    made.mkdir()
    (made / f"{0:020d}.log").write_bytes(batch(0, *VALUES[:2]))
    (made / f"{2:020d}.log").write_bytes(batch(2, VALUES[2]))
    return made


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, ["tier", "metadata", *map(str, words)])


def test_a_directory_is_printed_as_kafka_prints_the_topic(directory: Path) -> None:
    result = run(directory)
    assert (result.exit_code, result.stdout.splitlines()) == (0, KAFKA)
    assert run(directory / f"{2:020d}.log").stdout.splitlines() == KAFKA[2:]


def test_records_of_one_partition_can_be_chosen(directory: Path) -> None:
    assert run(directory, "--of", "orders-3").stdout.splitlines() == KAFKA[:2]
    assert run(directory, "--of", "other").stdout.splitlines() == KAFKA[2:]
    assert run(directory, "--of", "orders-1").stdout == ""


def test_the_form_of_the_proposal_shows_what_was_asked_for(directory: Path) -> None:
    none = run(directory, "--property", "print.partition=false").stdout.splitlines()
    where = "topicId:AAECAwQFBgcICQoLDA0ODw,topicName:orders,partition:3"
    of_segment = f"remote-log-segment-id:{{id:EBESExQVFhcYGRobHB0eHw,{where}}}"
    assert none == [
        f"type:RemoteLogSegmentMetadata,event-value:{{{of_segment},start-offset:10,end-offset:19,"
        "leader-epoch:5,remote-log-segment-state:COPY_SEGMENT_STARTED}",
        f"type:RemoteLogSegmentMetadataUpdate,event-value:{{{of_segment},"
        "remote-log-segment-state:COPY_SEGMENT_FINISHED}",
        "type:DeletePartitionState,event-value:{topic-id-partition:"
        "{topicId:AAECAwQFBgcICQoLDA0ODw,topicName:other,partition:0},"
        "remote-partition-delete-state:DELETE_PARTITION_MARKED}",
    ]
    names = (
        "print.partition",
        "print.message.offset",
        "print.version",
        "print.all.event.value.fields",
    )
    chosen = [word for name in names for word in ("--property", f"{name}=true")]
    _, update, delete = run(directory, *chosen, "--property", "separator=|").stdout.splitlines()
    assert update.startswith(
        "partition:4|message-offset:1|type:RemoteLogSegmentMetadataUpdate|version:0|event-value:{"
    )
    assert update.endswith("|broker-id:7|event-timestamp-ms:3000|custom-metadata:7879}")
    assert delete.endswith("|broker-id:8|event-timestamp-ms:4000}")


@pytest.mark.parametrize("text", ["print.all=true", "print.version=yes", "print.version"])
def test_a_property_that_cannot_be_meant_is_wrong_usage(directory: Path, text: str) -> None:
    result = run(directory, "--property", text)
    assert result.exit_code == 2
    assert "--property" in result.stderr


def test_a_record_that_cannot_be_decoded_is_named_and_the_others_are_shown(directory: Path) -> None:
    (directory / f"{2:020d}.log").write_bytes(batch(2, b"\x63\x00", VALUES[2]))
    result = run(directory)
    assert result.exit_code == 3
    lines = result.stdout.splitlines()
    assert lines == [*KAFKA[:2], KAFKA[2].replace("offset: 2", "offset: 3")]
    assert result.stderr.startswith("__remote_log_metadata-4, offset 2: it cannot be decoded: ")


def test_a_flipped_byte_is_named_and_never_printed_as_a_record(directory: Path) -> None:
    path = directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    result = run(directory)
    assert (result.exit_code, result.stdout.splitlines()) == (3, KAFKA[2:])
    assert "offset 0: the CRC of this batch is wrong" in result.stderr


def test_a_damaged_length_does_not_hide_the_records_behind_it(directory: Path) -> None:
    """It makes the rest of the file look like a batch that is still being written."""
    path = directory / f"{0:020d}.log"
    data = bytearray(batch(0, VALUES[0]) + batch(1, VALUES[1]))
    data[8] = 0x40
    path.write_bytes(bytes(data))
    result = run(directory)
    assert (result.exit_code, result.stdout.splitlines()) == (3, KAFKA[2:])
    assert f"offset 0: records from here on: {len(data)} bytes of {path}" in result.stderr
    path.write_bytes(batch(0, VALUES[0]) + batch(1, VALUES[1])[:-1])
    result = run(directory)
    assert (result.exit_code, result.stdout.splitlines()) == (3, [KAFKA[0], KAFKA[2]])
    assert "offset 1: records from here on" in result.stderr


def test_a_cut_file_or_one_of_another_topic_is_an_error_that_names_it(
    directory: Path, tmp_path: Path
) -> None:
    (directory / f"{9:020d}.log").write_bytes(b"\xff" * 100)
    result = run(directory)
    assert result.exit_code == 3
    assert f"offset 9: records from here on in {directory}" in result.stderr
    other = tmp_path / "orders-0"
    other.mkdir()
    (other / f"{0:020d}.log").touch()
    assert "does not lie in a directory of __remote_log_metadata" in str(run(other).exception)
    assert "no segment" in str(run(tmp_path).exception)
