"""Offsets and groups as Kafka 4.3.1 writes them into `__consumer_offsets`, and what is refused."""

import pytest

from firnline.base.errors import ProtocolError
from firnline.coordinator.records import (
    GroupMember,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecordKey,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

ID = bytes(range(16))
OFFSET_KEY = OffsetCommitKey(group="g", topic="firn", partition=2)
OFFSET = OffsetCommitValue(offset=7, leader_epoch=1, metadata="m", commit_timestamp=99, topic_id=ID)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m1",
    current_state_timestamp=5,
    members=[
        GroupMember(
            member_id="m1",
            client_id="c",
            client_host="/h",
            rebalance_timeout=6,
            session_timeout=7,
            subscription=b"s",
            assignment=b"a",
        )
    ],
)


def test_the_keys_are_the_bytes_that_kafka_wrote() -> None:
    keys: list[tuple[GroupRecordKey, str]] = [
        (OFFSET_KEY, "000100016700046669726e00000002"),
        (GroupMetadataKey(group="g"), "0002000167"),
        (
            LegacyOffsetCommitKey(group="g", topic="firn", partition=2),
            "000000016700046669726e00000002",
        ),
    ]
    for key, encoded in keys:
        assert encode_key(key).hex() == encoded
        assert decode_key(bytes.fromhex(encoded)) == key


@pytest.mark.parametrize(
    ("version", "encoded"),
    [
        (1, "0001000000000000000700016d0000000000000063ffffffffffffffff"),
        (3, "000300000000000000070000000100016d0000000000000063"),
        (4, f"0004000000000000000700000001026d00000000000000630100100{ID.hex()[1:]}"),
    ],
)
def test_an_offset_is_the_bytes_that_kafka_wrote(version: int, encoded: str) -> None:
    assert encode_value(OFFSET, version).hex() == encoded
    read = decode_value(OFFSET_KEY, bytes.fromhex(encoded))
    assert isinstance(read, OffsetCommitValue)
    assert (read.offset, read.metadata, read.commit_timestamp) == (7, "m", 99)
    assert read.leader_epoch == (1 if version >= 3 else -1)
    assert read.topic_id == (ID if version == 4 else bytes(16))


def test_a_group_is_the_bytes_that_kafka_wrote() -> None:
    encoded = (
        "00030008636f6e73756d657200000003000572616e676500026d3100000000000000050000000100026d31"
        "ffff00016300022f68000000060000000700000001730000000161"
    )
    assert encode_value(GROUP, 3).hex() == encoded
    assert decode_value(GroupMetadataKey(group="g"), bytes.fromhex(encoded)) == GROUP


def test_a_type_of_a_newer_group_protocol_is_left_to_others() -> None:
    """Goal: a topic shared with newer brokers can be loaded. Method: a consumer group's key, type 3."""
    assert decode_key(bytes.fromhex("0003" + "000167")) is None
    assert decode_key(bytes.fromhex("7fff")) is None


@pytest.mark.parametrize("encoded", ["", "00", "0001", "000100016700046669726e", "000200016700"])
def test_bytes_that_are_no_key_are_refused(encoded: str) -> None:
    with pytest.raises(ProtocolError):
        decode_key(bytes.fromhex(encoded))


@pytest.mark.parametrize("encoded", ["", "00", "0003", "0005" + "00" * 40, "ffff" + "00" * 40])
def test_bytes_that_are_no_value_are_refused(encoded: str) -> None:
    with pytest.raises(ProtocolError):
        decode_value(OFFSET_KEY, bytes.fromhex(encoded))


def test_bytes_after_a_value_are_refused() -> None:
    with pytest.raises(ProtocolError, match="bytes after"):
        decode_value(OFFSET_KEY, encode_value(OFFSET, 3) + b"\0")
