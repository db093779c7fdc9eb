"""Varints, tagged sections and the checks on lengths and counts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.base.errors import ProtocolError
from firnline.base.limits import TAGGED_FIELDS_MAX
from firnline.protocol.primitives import (
    NO_TAGS,
    FieldReader,
    check_count,
    check_length,
    read_tags,
    read_uvarint,
    read_varint,
    uvarint,
    varint,
)

# (value, bytes) as KIP-482 and the Protocol Buffers guide give them.
KNOWN = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (150, "9601"),
    (300, "ac02"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2**31 - 1, "ffffffff07"),
    (2**32 - 1, "ffffffff0f"),
]


@pytest.mark.parametrize(("value", "encoded"), KNOWN)
def test_known_varints(value: int, encoded: str) -> None:
    assert uvarint(value).hex() == encoded
    assert read_uvarint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (-1, "01"), (1, "02"), (-2, "03"), (2**31 - 1, "feffffff0f")]
)
def test_known_zigzag_varints(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(st.integers(0, 2**64 - 1))
def test_any_unsigned_number_comes_back(value: int) -> None:
    assert read_uvarint(b"\xff" + uvarint(value), 1, bits=64)[0] == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_signed_number_comes_back(value: int) -> None:
    data = varint(value)
    assert read_varint(data, 0, bits=64) == (value, len(data))


@pytest.mark.parametrize("data", [b"\x80" * 5 + b"\x01", b"\xff" * 5, b"\x80" * 10, b"\xff" * 64])
def test_a_varint_that_never_ends_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_uvarint(data, 0)


def test_a_number_of_more_than_32_bits_is_refused() -> None:
    with pytest.raises(ProtocolError):
        read_uvarint(uvarint(2**32), 0)
    with pytest.raises(ProtocolError):
        read_uvarint(b"\xff" * 9 + b"\x7f", 0, bits=64)


def test_a_length_may_reach_the_end_and_not_pass_it() -> None:
    assert check_length(3, 5, 8) == 8
    for length in (4, -1, 2**31 - 1):
        with pytest.raises(ProtocolError):
            check_length(length, 5, 8)


def test_a_count_is_bounded_by_the_bytes_that_are_left() -> None:
    assert check_count(4, 2, 8, [100]) == 4
    for count in (5, -1, -2, -(2**31), 2**31 - 1):
        with pytest.raises(ProtocolError):
            check_count(count, 2, 8, [100])


def test_a_count_is_taken_from_the_budget_of_the_message() -> None:
    budget = [5]
    check_count(3, 1, 100, budget)
    assert budget == [2]
    with pytest.raises(ProtocolError):
        check_count(3, 1, 100, budget)


class Target:
    name = b""


def _read_rest(buffer: Any, position: int, end: int, budget: list[int]) -> tuple[bytes, int]:
    return bytes(buffer[position:end]), end


def _read_one(buffer: Any, position: int, end: int, budget: list[int]) -> tuple[bytes, int]:
    return bytes(buffer[position : position + 1]), position + 1


KNOWN_TAGS: dict[int, tuple[str, FieldReader]] = {1: ("name", _read_rest), 2: ("name", _read_one)}


def section(*tags: tuple[int, bytes]) -> bytes:
    rows = (uvarint(tag) + uvarint(len(body)) + body for tag, body in tags)
    return uvarint(len(tags)) + b"".join(rows)


def test_unknown_tags_are_skipped_and_known_ones_set() -> None:
    data = section((0, b"new"), (1, b"ours"), (900, b"x" * 200)) + b"next"
    target = Target()
    assert read_tags(data, 0, len(data), [9], KNOWN_TAGS, target) == len(data) - 4
    assert target.name == b"ours"


@pytest.mark.parametrize(
    "data",
    [
        section((1, b"a"), (1, b"b")),
        section((5, b"a"), (3, b"b")),
        section((2, b"two")),
        section((1, b"cut"))[:-1],
        uvarint(2**32 - 1) + b"\0\0",
        uvarint(TAGGED_FIELDS_MAX + 1) + b"\0\0" * (TAGGED_FIELDS_MAX + 1),
        uvarint(3) + b"\0\0",
        uvarint(1) + uvarint(0) + uvarint(2**32 - 1),
    ],
    ids=["twice", "unsorted", "wrong size", "cut", "endless", "too many", "too few", "huge"],
)
def test_a_tagged_section_that_cannot_be_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_tags(data, 0, len(data), [9], KNOWN_TAGS, Target())


def test_as_many_tags_as_allowed_are_read() -> None:
    data = section(*((tag, b"") for tag in range(TAGGED_FIELDS_MAX)))
    assert read_tags(data, 0, len(data), [0], NO_TAGS, None) == len(data)
