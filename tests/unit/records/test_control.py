"""Control records as Kafka 4.3.1 writes them; later ones are read as far as they are known."""

import pytest

from firnline.base.errors import ProtocolError
from firnline.records.control import (
    ControlRecord,
    ControlType,
    EndTxnMarker,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

ID = bytes(range(16))
ONE = [LeaderChangeVoter(voter_id=1)]
FROM_KAFKA: list[tuple[ControlType, ControlRecord, str]] = [
    (ControlType.ABORT, EndTxnMarker(coordinator_epoch=5), "000000000005"),
    (ControlType.COMMIT, EndTxnMarker(coordinator_epoch=5), "000000000005"),
    (
        ControlType.LEADER_CHANGE,
        LeaderChangeMessage(leader_id=1, voters=ONE, granting_voters=ONE),
        "00000000000102000000010002000000010000",
    ),
    (
        ControlType.SNAPSHOT_HEADER,
        SnapshotHeaderRecord(last_contained_log_timestamp=9),
        "0000000000000000000900",
    ),
    (ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(), "000000"),
    (ControlType.KRAFT_VERSION, KRaftVersionRecord(kraft_version=1), "0000000100"),
    (
        ControlType.KRAFT_VOTERS,
        VotersRecord(
            voters=[
                Voter(
                    voter_id=1,
                    voter_directory_id=ID,
                    endpoints=[VoterEndpoint(name="CONTROLLER", host="h", port=9093)],
                    kraft_version_feature=KRaftVersionFeature(max_supported_version=1),
                )
            ]
        ),
        f"00000200000001{ID.hex()}020b434f4e54524f4c4c4552026823850000000001000000",
    ),
]
EACH = pytest.mark.parametrize(
    ("control_type", "record", "value"), FROM_KAFKA, ids=[row[0].name for row in FROM_KAFKA]
)


@EACH
def test_a_control_record_is_the_bytes_that_kafka_wrote(
    control_type: ControlType, record: ControlRecord, value: str
) -> None:
    assert encode_key(control_type).hex() == f"0000{control_type:04x}"
    assert decode_key(encode_key(control_type)) == control_type
    assert encode_value(record).hex() == value
    assert decode_value(control_type, bytes.fromhex(value)) == record


@EACH
def test_a_control_record_cut_anywhere_is_refused(
    control_type: ControlType, record: ControlRecord, value: str
) -> None:
    complete = bytes.fromhex(value)
    for size in range(len(complete)):
        with pytest.raises(ProtocolError):
            decode_value(control_type, complete[:size])


def test_a_type_we_do_not_know_is_a_number_and_no_error() -> None:
    """Goal: a newer quorum's control record must not stop us (Q8). Method: key of type 99."""
    assert decode_key(bytes.fromhex("00000063")) == 99


def test_a_later_key_and_a_later_value_are_read_as_far_as_known() -> None:
    assert decode_key(bytes.fromhex("00010001beef")) == ControlType.COMMIT
    marker = decode_value(ControlType.COMMIT, bytes.fromhex("000100000005" + "beef"))
    assert marker == EndTxnMarker(coordinator_epoch=5)


def test_leader_changes_with_directory_ids_are_read_at_their_version() -> None:
    voters = [LeaderChangeVoter(voter_id=1, voter_directory_id=ID)]
    change = LeaderChangeMessage(version=1, leader_id=1, voters=voters)
    assert decode_value(ControlType.LEADER_CHANGE, encode_value(change, 1)) == change


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\1"])
def test_bytes_that_are_no_control_key_are_refused(key: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode_key(key)


@pytest.mark.parametrize("value", [None, b"", b"\0", b"\xff\xff\0\0\0\5", b"\0\0\0\0\0\5\0"])
def test_bytes_that_are_no_marker_are_refused(value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode_value(ControlType.COMMIT, value)
