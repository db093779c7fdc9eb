"""The record of a group's generation, which is written and read by byte positions: as its schema says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.base.background import run_to_completion
from firnline.base.errors import ProtocolError
from firnline.base.units import MIB
from firnline.coordinator.generation import (
    Generation,
    generation_value,
    generation_value_in_slices,
    read_generation,
    value_front,
)
from firnline.coordinator.membership import Member, Protocol
from firnline.coordinator.records import (
    GROUP_METADATA_VALUE_VERSION,
    GroupMember,
    GroupMetadataKey,
    GroupMetadataValue,
    decode_value,
    encode_value,
)

KEY = GroupMetadataKey(group="g")
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=20)
ROW = st.builds(
    GroupMetadataValue,
    protocol_type=TEXT,
    generation=INT32,
    protocol=st.none() | TEXT,
    leader=st.none() | TEXT,
    current_state_timestamp=st.integers(-1, 2**62),
    members=st.lists(
        st.builds(
            GroupMember,
            member_id=TEXT,
            group_instance_id=st.none() | TEXT,
            client_id=TEXT,
            client_host=TEXT,
            rebalance_timeout=INT32,
            session_timeout=INT32,
            subscription=st.binary(max_size=20),
            assignment=st.binary(max_size=20),
        ),
        max_size=4,
    ),
)


def read(value: bytes) -> Generation:
    steps = read_generation(value)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Generation = end.value
            return found


def reported(found: Generation) -> tuple[Any, ...]:
    return (
        found.generation,
        found.protocol_type,
        found.protocol_name,
        found.leader,
        found.state_since_ms,
        [
            (
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.rebalance_timeout_ms,
                m.session_timeout_ms,
                m.protocols,
                m.assignment,
            )
            for m in found.members
        ],
    )


def said(row: GroupMetadataValue) -> tuple[Any, ...]:
    return (
        row.generation,
        row.protocol_type,
        row.protocol,
        row.leader,
        row.current_state_timestamp,
        [
            (
                m.member_id,
                m.group_instance_id,
                m.client_id,
                m.client_host,
                m.session_timeout if m.rebalance_timeout < 0 else m.rebalance_timeout,
                m.session_timeout,
                (Protocol(row.protocol or "", bytes(m.subscription)),),
                bytes(m.assignment),
            )
            for m in row.members
        ],
    )


@given(ROW, st.sampled_from([0, 1, 2, 3, 4]))
def test_a_generation_is_read_as_its_schema_says(row: GroupMetadataValue, version: int) -> None:
    value = encode_value(row, version)
    row_again = decode_value(KEY, value)
    assert isinstance(row_again, GroupMetadataValue)
    assert reported(read(value)) == said(row_again)


@given(ROW)
def test_a_generation_is_written_as_its_schema_says(row: GroupMetadataValue) -> None:
    members = [
        Member(
            m.member_id,
            instance_id=m.group_instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
            session_timeout_ms=m.session_timeout,
            rebalance_timeout_ms=m.rebalance_timeout,
            protocols=[
                Protocol("another", b"x"),
                *([] if row.protocol is None else [Protocol(row.protocol, m.subscription)]),  # type: ignore[arg-type]
            ],
        )
        for m in row.members
    ]
    if row.protocol is None or row.protocol == "another":
        for m in row.members:
            m.subscription = b"x" if row.protocol == "another" else b""
    value = generation_value(
        generation=row.generation,
        protocol_type=row.protocol_type,
        protocol_name=row.protocol,
        leader=row.leader,
        state_since_ms=row.current_state_timestamp,
        members=[(member, m.assignment) for member, m in zip(members, row.members, strict=True)],
    )
    assert value == encode_value(row, GROUP_METADATA_VALUE_VERSION)
    for member, m in zip(members, row.members, strict=True):
        member.assignment = m.assignment
    front = value_front(
        row.generation, row.protocol_type, row.protocol, row.leader, row.current_state_timestamp
    )
    steps = generation_value_in_slices(front, row.protocol, len(members), iter(members))
    assert b"".join(run_to_completion(steps)) == value


@given(ROW, st.data())
def test_damaged_bytes_are_refused_where_the_schema_refuses_them(
    row: GroupMetadataValue, data: Any
) -> None:
    value = bytearray(encode_value(row, 3))
    if data.draw(st.booleans()):
        del value[data.draw(st.integers(0, len(value) - 1)) :]
    else:
        at = data.draw(st.integers(2, len(value) - 1))
        value[at] ^= data.draw(st.integers(1, 255))
    try:
        row_again = decode_value(KEY, bytes(value))
    except ProtocolError:
        with pytest.raises(ProtocolError):
            read(bytes(value))
        return
    assert isinstance(row_again, GroupMetadataValue)
    assert reported(read(bytes(value))) == said(row_again)


def test_a_large_generation_is_read_in_slices() -> None:
    members = [
        GroupMember(
            member_id=f"m{n}",
            client_id="c",
            client_host="/h",
            session_timeout=1,
            subscription=b"s",
            assignment=b"a",
        )
        for n in range(1_000)
    ]
    row = GroupMetadataValue(
        protocol_type="consumer", generation=1, protocol="range", leader="m0", members=members
    )
    steps = read_generation(encode_value(row, 3))
    assert sum(1 for _ in steps) == 5


def test_a_large_generation_is_written_in_parts_of_a_megabyte() -> None:
    """A leader may give each member very much: no step copies all of it."""
    members = [
        Member(
            f"m{n}",
            instance_id=None,
            client_id="c",
            client_host="/h",
            session_timeout_ms=1,
            rebalance_timeout_ms=1,
            protocols=[Protocol("range", bytes(50_000))],
            assignment=bytes(50_000),
        )
        for n in range(100)
    ]
    parts = run_to_completion(generation_value_in_slices(b"", "range", 100, members))
    assert len(parts) > 9
    assert max(map(len, parts)) < 1.2 * MIB
