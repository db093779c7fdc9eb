"""The JSON text of a metadata record is that of its fields, written the short way."""

import json

import pytest

from firnline.metadata import records as r
from firnline.protocol.schema import Message
from firnline.spark.tables.record_facts import HIDDEN, metadata_fact, open_fields, versioned
from firnline.spark.tables.record_text import record_text

ID, OTHER = bytes(range(16)), bytes(range(16, 32))
RECORDS: list[Message] = [
    r.TopicRecord(name='a "topic"\\\u00e9', topic_id=ID),
    r.PartitionRecord(
        partition_id=3, topic_id=ID, replicas=[1, 2], isr=[2], leader=2, directories=[ID, OTHER]
    ),
    r.PartitionRecord(partition_id=3, topic_id=ID, leader_recovery_state=1),
    r.PartitionRecord(partition_id=3, topic_id=ID, eligible_leader_replicas=[], last_known_elr=[7]),
    r.PartitionChangeRecord(partition_id=3, topic_id=ID),
    r.PartitionChangeRecord(partition_id=3, topic_id=ID, isr=[]),
    r.PartitionChangeRecord(partition_id=3, topic_id=ID, isr=[1, 2], leader=1, directories=[ID]),
    r.NoOpRecord(),
    r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_the_text_is_that_of_the_fields(record: Message) -> None:
    for version in range(record.valid.first, record.valid.last + 1):
        again, found = versioned(r.encode(_in(record, version), version))
        assert found == version
        assert record_text(again, version) == json.dumps(open_fields(again, version))


def _in(record: Message, version: int) -> Message:
    """The record without the fields that the version cannot have."""
    fields = type(record).fields
    return type(record)(**{n: getattr(record, n) for n in fields if version in fields[n].versions})


def test_secrets_are_hidden() -> None:
    credential = r.UserScramCredentialRecord(name="u", mechanism=1, salt=b"secret")
    password = r.ConfigRecord(
        resource_type=4, resource_name="1", name="ssl.key.password", value="secret"
    )
    for record in (credential, password):
        text = record_text(record, 0)
        assert HIDDEN in text
        assert "secret" not in text


def test_a_version_of_two_bytes_is_an_error_of_the_record_and_not_of_the_frame() -> None:
    with pytest.raises(Exception, match="unknown record version"):
        metadata_fact(b"\x01\x02\x80\x01")
