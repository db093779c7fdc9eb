"""What a row of a catalog may be: what is refused, and that a plan and a broker decode the same."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from firnline.base.units import INT64_MAX
from firnline.tiered.catalog.format import (
    CatalogCorrupt,
    CatalogSegment,
    PartRef,
    RowFields,
    RowForm,
    Split,
    catalog_segment,
    decode_part,
    decode_part_as,
    encode_part,
    fields_of,
    reference,
)
from firnline.tiered.objects.fingerprint import (
    Fingerprint,
    ObjectSum,
    decode_fingerprint,
    encode_fingerprint,
    pack_fingerprint,
)

TOPIC = bytes(15) + b"\x07"
SUMS = ((".log", ObjectSum(100, 7)), (".index", ObjectSum(8, 9)))
ROW = CatalogSegment(
    bytes(16), 10, 19, 100, 5, ((0, 0), (3, 14)), "data/x", (".index", ".log"), b"m",
    Fingerprint(True, 1, 2, SUMS), 3, (Split(12, 30, -1), Split(15, 60, 5)),
)  # fmt: skip
BARE = ROW._replace(custom_metadata=None, fingerprint=None, min_timestamp_ms=None, splits=())


def part_of(lines: list[str]) -> tuple[bytes, PartRef]:
    """A part with these lines, and a reference that says nothing of its rows, as one of version 1."""
    body = "".join(line + "\n" for line in lines).encode()
    footer = json.dumps({"lines": len(lines), "crc32c": crc32c(body)}).encode() + b"\n"
    data = body + footer
    return data, PartRef("k", 0, len(lines) - 1, 0, len(data), crc32c(data))


def lines_of(*rows: CatalogSegment) -> list[str]:
    return encode_part(TOPIC, 0, rows, 0).decode().splitlines()[:-1]


def changed(change: Callable[[dict[str, Any]], object]) -> tuple[bytes, PartRef]:
    first, line = lines_of(ROW)
    row = json.loads(line)
    change(row)
    return part_of([first, json.dumps(row)])


def test_what_is_flat_is_the_row_again() -> None:
    for row in (ROW, BARE):
        assert catalog_segment(fields_of(row)) == row
    data = encode_part(TOPIC, 0, [ROW, BARE], 0)
    ref = reference("k", 0, [ROW, BARE], data)
    rows, below = decode_part(data, ref)
    assert (rows, below) == ([ROW, BARE], [])
    flat, _ = decode_part_as(RowForm(lambda fields: fields), data, ref)
    assert flat == [fields_of(ROW), fields_of(BARE)]


def test_what_a_plan_makes_of_a_part_is_compared_with_its_reference() -> None:
    """The plan skips parts by what references say, whoever decodes them."""
    data = encode_part(TOPIC, 0, [ROW], 0)
    ref = reference("k", 0, [ROW], data)

    def of_another(fields: RowFields) -> RowFields:
        return fields._replace(end_offset=fields.end_offset + 1)

    with pytest.raises(CatalogCorrupt, match="another one than its reference says"):
        decode_part_as(RowForm(of_another), data, ref)


@pytest.mark.parametrize("number", [1.0, "1", True, None, INT64_MAX + 1, -INT64_MAX - 1, [1]])
@pytest.mark.parametrize(
    "put",
    [
        lambda row, n: row.update(base=n),
        lambda row, n: row.update(bytes=n),
        lambda row, n: row.update(maxTimestampMs=n),
        lambda row, n: row.update(firstCrc32c=n),
        lambda row, n: row.update(headsCrc32c=n),
        lambda row, n: row["epochs"].insert(0, [n, 0]),
        lambda row, n: row["splits"].insert(0, [11, 20, n]),
        lambda row, n: row["sums"].update({".log": [n, 7]}),
        lambda row, n: row.update(minTimestampMs=[n]),
    ],
)
def test_a_number_of_a_row_is_an_integer_of_64_bits(
    put: Callable[[dict[str, Any], Any], object], number: object
) -> None:
    data, ref = changed(lambda row: put(row, number))
    with pytest.raises(CatalogCorrupt, match="a catalog row lacks a field"):
        decode_part(data, ref)


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row["splits"].append([16, 70]),
        lambda row: row["splits"].extend([[16, 70], [5, 17, 80, 5]]),
        lambda row: row["epochs"].append([4]),
        lambda row: row["sums"].update({".log": [100]}),
        lambda row: row["sums"].update({".log": [100, 7, 8]}),
        lambda row: row.update(sums=[1]),
        lambda row: row.update(objects=[1]),
        lambda row: row.update(objects=["\ud800"]),
        lambda row: row["sums"].update({"\ud800": [1, 1]}),
        lambda row: row.update(stem="\ud800"),
        lambda row: row.update(id="AAAA"),
    ],
)
def test_an_entry_of_a_row_has_its_shape(change: Callable[[dict[str, Any]], object]) -> None:
    data, ref = changed(change)
    with pytest.raises(CatalogCorrupt, match="a catalog row lacks a field"):
        decode_part(data, ref)


@pytest.mark.parametrize(
    "splits",
    [
        [[10, 30, 5]],  # the first batch
        [[12, 0, 5]],
        [[12, 30, -2]],
        [[20, 30, 5]],  # behind the last one
        [[12, 100, 5]],
        [[12, 30, 5], [12, 40, 5]],
        [[12, 30, 5], [13, 30, 5]],
        [[12, 30, 5], [13, 40, 4]],
    ],
)
def test_splits_are_inside_their_segment_and_in_order(splits: list[list[int]]) -> None:
    data, ref = changed(lambda row: row.update(splits=splits))
    with pytest.raises(CatalogCorrupt, match="a catalog row is of no segment"):
        decode_part(data, ref)


def test_each_line_is_one_value() -> None:
    first, one, other = lines_of(ROW, BARE)
    assert decode_part(*part_of([first, one + " ", other]))[0] == [ROW, BARE]
    for damaged in (
        [first, f"{one} {other}", ""],
        [first, f"{one}{other}"],
        [first, f"{one}, {other}"],
        [first, one, ""],
        [first, one[:50], one[50:]],
        [first, one.replace(',"end"', ',\n"end"', 1)],
    ):
        with pytest.raises(CatalogCorrupt):
            decode_part(*part_of(damaged))
    split = one.replace(',"end"', ',\n"end"', 1)
    body = f"{first}\n{split}\n".encode()
    footer = json.dumps({"lines": 3, "crc32c": crc32c(body)}).encode() + b"\n"
    data = body + footer
    for rows in (1, 2):
        with pytest.raises(CatalogCorrupt, match="not a catalog object"):
            decode_part(data, PartRef("k", 0, rows, 0, len(data), crc32c(data)))


def test_a_part_has_as_many_rows_as_its_reference_says() -> None:
    data, ref = part_of(lines_of(ROW, BARE))
    for rows in (1, 3):
        with pytest.raises(CatalogCorrupt, match="another one than its reference says"):
            decode_part(data, ref._replace(rows=rows))


def test_a_fingerprint_is_packed_in_the_order_of_its_format_whatever_the_catalog_has() -> None:
    """Sums of objects that the metadata has no bit for are left out."""
    known = Fingerprint(False, 1, 2, (*SUMS, (".other", ObjectSum(1, 1))))
    packed = encode_fingerprint(known)
    again = decode_fingerprint(packed)
    assert again is not None
    assert again.sums == tuple((suffix, dict(SUMS)[suffix]) for suffix in (".index", ".log"))
    assert pack_fingerprint(False, 1, 2, (".log", ".index"), [100, 7, 8, 9]) == packed
    assert encode_fingerprint(Fingerprint(True, 1, 2, ())) == bytes.fromhex(
        "464c0101000000010000000200"
    )
