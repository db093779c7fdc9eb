"""Metadata records as Kafka 4.3.1 wrote them, and what is refused."""

import pytest

from firnline.base.errors import ProtocolError
from firnline.metadata.records import (
    TYPES,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    QuotaEntity,
    TopicRecord,
    decode,
    encode,
)
from firnline.protocol.schema import Message

ID = bytes(range(16))
ID_HEX = ID.hex()

# (record, version, value) as Kafka's own serde wrote it.
FROM_KAFKA: list[tuple[Message, int, str]] = [
    (TopicRecord(name="firn", topic_id=ID), 0, f"010200056669726e{ID_HEX}00"),
    (
        PartitionRecord(
            partition_id=1,
            topic_id=ID,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            leader_epoch=3,
            partition_epoch=4,
            directories=[ID, bytes(16)],
        ),
        1,
        f"01030100000001{ID_HEX}0300000001000000020200000001010100000001000000030000000403"
        f"{ID_HEX}0000000000000000000000000000000000",
    ),
    (
        PartitionChangeRecord(partition_id=1, topic_id=ID, isr=[], leader=-1),
        0,
        f"01050000000001{ID_HEX}020001010104ffffffff",
    ),
    (
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=9, fenced=-1),
        1,
        "011101000000020000000000000009010001ff",
    ),
    (
        ConfigRecord(resource_type=2, resource_name="firn", name="retention.ms", value=None),
        0,
        "01040002056669726e0d726574656e74696f6e2e6d730000",
    ),
    (
        ClientQuotaRecord(
            entity=[QuotaEntity(entity_type="user", entity_name=None)],
            quota_key="producer_byte_rate",
            value=1.5,
        ),
        0,
        "010e0002057573657200001370726f64756365725f627974655f726174653ff80000000000000000",
    ),
    (NoOpRecord(), 0, "01140000"),
]


@pytest.mark.parametrize(("record", "version", "value"), FROM_KAFKA, ids=lambda x: type(x).__name__)
def test_a_record_is_the_bytes_that_kafka_wrote(record: Message, version: int, value: str) -> None:
    assert encode(record, version).hex() == value
    assert decode(bytes.fromhex(value)) == record
    assert type(decode(bytes.fromhex(value))) is type(record)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "ends in its frame"),
        ("01", "ends in its frame"),
        ("0102", "ends in its frame"),
        ("000200056669726e" + ID_HEX + "00", "frame version"),
        ("020200056669726e" + ID_HEX + "00", "frame version"),
        ("01060000", "unknown record type"),
        ("01ffffffff0f00", "unknown record type"),
        ("010201056669726e" + ID_HEX + "00", "unknown record version"),
        ("010200056669726e" + ID_HEX + "0000", "bytes after"),
        ("010200056669726e" + ID_HEX, "not a TopicRecord"),
    ],
)
def test_a_value_that_is_no_metadata_record_is_refused(value: str, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        decode(bytes.fromhex(value))


def test_a_value_cut_anywhere_is_refused() -> None:
    for _, _, value in FROM_KAFKA:
        complete = bytes.fromhex(value)
        for size in range(len(complete)):
            with pytest.raises(ProtocolError):
                decode(complete[:size])


def test_the_numbers_of_the_types_are_those_of_the_release() -> None:
    """Source: spec Q14; 6, 13 and 16 were never released."""
    numbers = [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 14, 15, *range(17, 29)]
    assert sorted(TYPES) == numbers
    assert all(kind.key == number for number, kind in TYPES.items())
