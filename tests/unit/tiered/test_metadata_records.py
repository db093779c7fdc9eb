"""Remote log metadata as Kafka 4.3.1 writes it, and what is refused."""

import pytest

from firnline.base.errors import ProtocolError
from firnline.tiered.metadata.changes import from_record, update_record
from firnline.tiered.metadata.records import (
    TYPES,
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
    decode,
    encode,
)
from firnline.tiered.spi import SegmentState, SegmentUpdate

ID = bytes(range(16))
PARTITION = TopicIdPartitionEntry(name="firn", id=ID, partition=1)
SEGMENT = RemoteLogSegmentMetadataRecord(
    remote_log_segment_id=RemoteLogSegmentIdEntry(topic_id_partition=PARTITION, id=bytes(16)),
    start_offset=5,
    end_offset=9,
    broker_id=1,
    max_timestamp_ms=70,
    event_timestamp_ms=80,
    segment_leader_epochs=[SegmentLeaderEpochEntry(leader_epoch=2, offset=5)],
    segment_size_in_bytes=100,
    custom_metadata=b"ice",
    remote_log_segment_state=1,
    txn_index_empty=True,
)
FROM_KAFKA = (
    "010000056669726e000102030405060708090a0b0c0d0e0f0000000100000000000000000000000000000000000000"
    "000000000000050000000000000009000000010000000000000046000000000000005002000000020000000000"
    "0000050000000064046963650101000101"
)


def test_a_segment_is_the_bytes_that_kafka_wrote() -> None:
    assert encode(SEGMENT).hex() == FROM_KAFKA
    assert decode(bytes.fromhex(FROM_KAFKA)) == SEGMENT


def test_only_the_deletion_of_a_copy_that_seems_abandoned_has_a_field_that_kafka_does_not_know() -> (
    None
):
    state = SegmentState.DELETE_STARTED
    change = SegmentUpdate(ID, "firn", 1, bytes(16), state, 1, 80)
    plain, bound = (
        update_record(change),
        update_record(change._replace(only_if_unfinished=True)),
    )
    assert encode(plain).hex().endswith("0200"), "the state, and no tagged field"
    assert encode(bound).hex() == encode(plain).hex()[:-2] + "01d21f0101"
    for record in (plain, bound):
        assert decode(encode(record)) == record
    found = [from_record(decode(encode(record))) for record in (plain, bound)]
    assert found == [change, change._replace(only_if_unfinished=True)]


def test_the_four_types() -> None:
    assert [TYPES[key].__name__ for key in range(4)] == [
        "RemoteLogSegmentMetadataRecord",
        "RemoteLogSegmentMetadataUpdateRecord",
        "RemotePartitionDeleteMetadataRecord",
        "RemoteLogSegmentMetadataSnapshotRecord",
    ]


def test_a_segment_without_the_newest_field_can_have_aborted_transactions() -> None:
    """Goal: what a peer before 4.0 wrote means "maybe not empty". Method: drop the tagged field."""
    old = decode(bytes.fromhex(FROM_KAFKA[: -len("01000101")] + "00"))
    assert isinstance(old, RemoteLogSegmentMetadataRecord)
    assert old.txn_index_empty is False


def test_a_segment_cut_anywhere_is_refused() -> None:
    complete = bytes.fromhex(FROM_KAFKA)
    for size in range(len(complete)):
        with pytest.raises(ProtocolError):
            decode(complete[:size])


def test_a_type_or_version_from_the_future_is_refused() -> None:
    value = encode(RemotePartitionDeleteMetadataRecord(topic_id_partition=PARTITION))
    assert decode(value).key == 2
    for frame in (b"\x01\x04\x00", b"\x01\x02\x01", b"\x00\x02\x00"):
        with pytest.raises(ProtocolError):
            decode(frame + value[3:])
