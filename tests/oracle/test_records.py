"""Records of the metadata log, groups, remote segments and control batches, against Kafka's serdes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.coordinator import records as group
from firnline.metadata import records as metadata
from firnline.protocol.schema import Message
from firnline.records import control
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.record import records
from firnline.tiered.metadata import records as remote
from tests.oracle.generate import messages, versions
from tests.oracle.kafka_oracle import KafkaOracle, Refused, as_json, kafka_name

pytestmark = pytest.mark.peer
ORACLE = settings.get_profile("oracle")


def at_all_versions(classes: list[type[Message]]) -> list[tuple[type[Message], int]]:
    return [(cls, version) for cls in classes for version in versions(cls)]


def name_of(value: object) -> str:
    return getattr(value, "__name__", f"v{value}")


@pytest.mark.parametrize(
    ("cls", "version"), at_all_versions([*metadata.TYPES.values()]), ids=name_of
)
@given(data=st.data())
@settings(ORACLE, max_examples=20)
def test_a_metadata_record_is_framed_as_kafka_frames_it(
    oracle: KafkaOracle, cls: type[Message], version: int, data: st.DataObject
) -> None:
    record: Any = data.draw(messages(cls, version))
    ours = metadata.encode(record, version)
    again, seen = oracle.framed("metadata", ours)
    assert again == ours
    assert seen == as_json(record, version, records=False)
    built = oracle.build(cls.__name__, version, as_json(record, version, records=True))
    assert ours.endswith(built)
    assert metadata.decode(ours) == record


@pytest.mark.parametrize("cls", remote.TYPES.values(), ids=name_of)
@given(data=st.data())
@settings(ORACLE, max_examples=20)
def test_a_remote_log_record_is_framed_as_kafka_frames_it(
    oracle: KafkaOracle, cls: type[Message], data: st.DataObject
) -> None:
    record: Any = data.draw(messages(cls, 0))
    ours = remote.encode(record)
    again, seen = oracle.framed("remote", ours)
    assert again == ours
    assert seen == as_json(record, 0, records=False)
    assert remote.decode(ours) == record


# Kafka has no JSON for the pair, so each half is compared on its own and the frame as a whole.
GROUP_VALUES = at_all_versions([value for _, value in group.TYPES.values()])


@pytest.mark.parametrize(("cls", "version"), GROUP_VALUES, ids=name_of)
@given(data=st.data())
@settings(ORACLE, max_examples=20)
def test_a_group_record_is_what_the_group_coordinator_writes(
    oracle: KafkaOracle, cls: Any, version: int, data: st.DataObject
) -> None:
    key: Any = data.draw(messages(group.TYPES[cls.key][0], 0))
    value: Any = data.draw(messages(cls, version))
    our_key, our_value = group.encode_key(key), group.encode_value(value, version)
    assert oracle.group_record(our_key, our_value)[:2] == (our_key, our_value)
    assert oracle.group_record(our_key, None)[:2] == (our_key, None)
    _, seen = oracle.parse(cls.__name__, version, our_value[2:])
    assert seen == as_json(value, version, records=False)
    assert group.decode_key(our_key) == key
    assert group.decode_value(key, our_value) == value


CONTROL = sorted(control.TYPES)


@pytest.mark.parametrize("control_type", CONTROL, ids=lambda x: control.ControlType(x).name)
@given(data=st.data())
@settings(ORACLE, max_examples=20)
def test_a_control_record_means_the_same_to_both(
    oracle: KafkaOracle, control_type: int, data: st.DataObject
) -> None:
    kind = control.TYPES[control_type]
    record: Any = data.draw(messages(kind, 0))
    if "version" in kind.fields:
        record.version = 0
    wanted = as_json(record, 0, records=False)
    row = NewRecord(
        control.encode_key(control.ControlType(control_type)), control.encode_value(record)
    )
    is_marker = kind is control.EndTxnMarker
    batch = build_batch(
        [row],
        is_control=True,
        is_transactional=is_marker,
        producer_id=7 if is_marker else -1,
        producer_epoch=3 if is_marker else -1,
    )
    name = control.ControlType(control_type).name
    assert oracle.control_records(bytes(batch)) == [(name, wanted)]
    theirs = oracle.control_batch(kind.__name__, control_type, as_json(record, 0, records=True))
    (header,) = headers(theirs)
    (read,) = records(theirs, header)
    assert header.is_control
    assert control.decode_key(read.key) == control_type
    assert control.decode_value(control_type, read.value) == record
    assert (read.key, read.value) == (row.key, row.value)


# Voters are written with directory ids at version 1, which Kafka declares and does not write yet.
LATER = [(control.LeaderChangeMessage, 1)]


@pytest.mark.parametrize(("cls", "version"), LATER, ids=name_of)
@given(data=st.data())
@settings(ORACLE, max_examples=20)
def test_versions_that_kafka_declares_and_does_not_write_yet(
    oracle: KafkaOracle, cls: type[Message], version: int, data: st.DataObject
) -> None:
    record: Any = data.draw(messages(cls, version))
    ours = record.write(version)
    again, seen = oracle.parse(kafka_name(cls), version, ours)
    assert again == ours
    assert seen == as_json(record, version, records=False)


def test_every_type_of_record_that_the_release_has_is_declared(oracle: KafkaOracle) -> None:
    """Goal: a record type nobody noticed. Method: ask Kafka's serde for each number."""
    found = [kind for kind in range(64) if _known(oracle, "metadata", kind)]
    assert found == sorted(metadata.TYPES)
    assert [kind for kind in range(64) if _known(oracle, "remote", kind)] == sorted(remote.TYPES)


def _known(oracle: KafkaOracle, serde: str, kind: int) -> bool:
    try:
        oracle.framed(serde, bytes([1, kind, 0]))  # a frame without a message, at version 0
    except Refused as refusal:
        return "Unknown metadata id" not in str(refusal)
    return True
