"""Rows of a catalog: compiled code reads what the general way reads, and refuses nothing itself."""

import json
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from firnline.base.units import INT64_MAX
from firnline.spark.planning.plan import SEGMENTS, Segment, segment_of
from firnline.tiered.catalog import format as catalog_format
from firnline.tiered.catalog.format import (
    CatalogCorrupt,
    CatalogSegment,
    PartRef,
    Split,
    decode_part_as,
    encode_part,
)
from firnline.tiered.catalog.values import line_value
from firnline.tiered.objects.fingerprint import Fingerprint, ObjectSum
from firnline.tiered.objects.layout import SUFFIXES
from tests.unit.native.compiled import Guarded, native, needs_native

pytestmark = [pytest.mark.slow, needs_native]

TOPIC = bytes(15) + b"\x07"
# What a number may be written as, right and wrong.
NUMBERS = (
    "0", "-1", "-0", "00", "01", "1.0", "1e3", "true", "null", '"1"', "[1]", "", "-", "+1", " 1", "NaN",
    str(10**18 - 1), str(-(10**18) + 1), str(10**18), str(INT64_MAX), str(INT64_MAX + 1), str(-INT64_MAX - 1),
)  # fmt: skip
numbers = st.integers(-(10**18) + 1, 10**18 - 1)
crcs = st.integers(0, 2**32 - 1)
# As a writer may write them: with what JSON escapes, and with what is no ASCII, too.
plain = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\'))
any_text = st.text(st.characters(blacklist_categories=["Cs"]), max_size=8)


known_suffixes = st.sampled_from(SUFFIXES)


@st.composite
def segments(
    draw: st.DrawFn, texts: st.SearchStrategy[str], names: st.SearchStrategy[str]
) -> CatalogSegment:
    """A row that is not to be refused. `names`: of its checksums."""
    base, size = draw(st.integers(0, 2**40)), draw(st.integers(0, 2**40))
    splits, at_ms = [], -1
    offset, position = base, 0
    for steps in draw(st.lists(st.tuples(*[st.integers(0, 2**33)] * 3), max_size=4)):
        offset, position, at_ms = offset + steps[0] + 1, position + steps[1] + 1, at_ms + steps[2]
        splits.append(Split(offset, position, at_ms))
    suffixes = draw(st.lists(texts | known_suffixes, min_size=1, max_size=6, unique=True))
    summed = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    sums = tuple((suffix, ObjectSum(draw(crcs), draw(crcs))) for suffix in summed)
    known = Fingerprint(draw(st.booleans()), draw(crcs), draw(crcs), sums)
    return CatalogSegment(
        draw(st.binary(min_size=16, max_size=16)),
        base,
        offset + draw(st.integers(0, 9)),
        max(size, position + 1),
        draw(numbers),
        tuple(draw(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=3))),
        draw(texts),
        tuple(suffixes),
        fingerprint=draw(st.sampled_from([None, known])),
        min_timestamp_ms=draw(st.none() | numbers),
        splits=tuple(splits),
    )


def lines_of(*rows: CatalogSegment) -> list[bytes]:
    return encode_part(TOPIC, 0, rows, 0).splitlines(keepends=True)[:-1]


def outcome(lines: list[bytes], *, compiled: bool, level: int = 0) -> Any:
    """What a part with these lines is decoded into, or the complete error."""
    body = b"".join(lines)
    footer = json.dumps({"lines": body.count(b"\n"), "crc32c": crc32c(body)}).encode() + b"\n"
    data = body + footer
    ref = PartRef("k", level, body.count(b"\n") - 1, 0, len(data), crc32c(data))
    assert SEGMENTS.common is not None
    try:
        return decode_part_as(SEGMENTS if compiled else SEGMENTS._replace(common=None), data, ref)
    except CatalogCorrupt as problem:
        return str(problem)


def common(body: bytes | memoryview, at: int = 0) -> tuple[list[Segment], int]:
    found: tuple[list[Segment], int] = native.common_rows(body, at, Segment, SUFFIXES)
    return found


@given(
    rows=st.lists(segments(plain, known_suffixes), max_size=4),
    before=st.binary(max_size=9),
    twice=st.booleans(),
)
def test_rows_of_our_writer_are_common(
    rows: list[CatalogSegment], before: bytes, twice: bool
) -> None:
    """A row that follows another with the same epochs and objects is that row, and no other."""
    rows = [each for row in rows for each in [row] * (1 + twice)]
    body = b"".join([before, *lines_of(*rows)[1:]])
    found, after = common(body, len(before))
    assert found == [segment_of(row) for row in rows]
    assert all(type(each) is Segment for each in found)
    assert after == len(body)


def test_the_first_row_that_is_not_common_ends_them() -> None:
    body = b"".join(lines_of(ROW, ROW._replace(stem="ä"), ROW)[1:])
    found, after = common(body)
    assert found == [segment_of(ROW)]
    assert common(body, after) == ([], after)
    assert common(body, body.index(b"\n", after) + 1) == ([segment_of(ROW)], len(body))


@pytest.mark.parametrize(
    ("kind", "known"),
    [(dict, SUFFIXES), (Segment, list(SUFFIXES)), (Segment, SUFFIXES * 2), (3, ())],
)
def test_what_is_no_tuple_and_no_suffixes_is_refused(kind: Any, known: Any) -> None:
    with pytest.raises(TypeError, match="common_rows"):
        native.common_rows(b"", 0, kind, known)


def test_nothing_but_the_first_line_is_read_by_the_general_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fears that it is compiled and not used."""
    read: list[int] = []

    def counted(text: str, at: int) -> Any:
        read.append(at)
        return line_value(text, at)

    monkeypatch.setattr(catalog_format, "line_value", counted)
    row = CatalogSegment(bytes(16), 0, 9, 100, 5, ((0, 0),), "data/x", (".log",))
    assert outcome(lines_of(row, row, row), compiled=True)[0] == [segment_of(row)] * 3
    assert read == [0]


@settings(max_examples=300)
@given(
    rows=st.lists(
        segments(plain | any_text, known_suffixes) | segments(any_text, any_text | known_suffixes),
        min_size=1,
        max_size=3,
    ),
    data=st.data(),
)
def test_whatever_a_line_is_both_ways_say_the_same(
    rows: list[CatalogSegment], data: st.DataObject
) -> None:
    """Whatever bytes of a row are replaced by others, or by other forms of a number, or left out."""
    first, *lines = lines_of(*rows)
    for _ in range(data.draw(st.integers(0, 2))):
        which = data.draw(st.integers(0, len(lines) - 1))
        line = lines[which]
        low = data.draw(st.integers(0, len(line) - 1))
        high = data.draw(st.integers(low, min(low + 12, len(line))))
        put = data.draw(st.binary(max_size=3) | st.sampled_from([n.encode() for n in NUMBERS]))
        lines[which] = line[:low] + put + line[high:]
    assert outcome([first, *lines], compiled=True) == outcome([first, *lines], compiled=False)


ROW = CatalogSegment(
    bytes(range(16)), 10, 19, 100, 5, ((0, 0), (3, 14)), "data/x", (".index", ".log"), None,
    Fingerprint(True, 1, 2, ((".log", ObjectSum(100, 7)), (".index", ObjectSum(8, 9)))), 3,
    (Split(12, 30, -1), Split(15, 60, 5)),
)  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
def test_however_a_number_is_written_both_ways_say_the_same(number: str) -> None:
    first, line = lines_of(ROW)
    text, at, tried = line.decode(), 0, 0
    while at < len(text):
        end = at
        while text[end].isdigit() or (end == at and text[end] == "-"):
            end += 1
        if end > at:
            lines = [first, (text[:at] + number + text[end:]).encode()]
            assert outcome(lines, compiled=True) == outcome(lines, compiled=False), lines
            tried += 1
        at = max(end, at + 1)
    assert tried > 20


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"epochs":[[0,0],[3,14]]', '"epochs":[]'),
        ('"objects":[".index",".log"]', '"objects":[]'),
        ('"splits":[[12,30,-1],[15,60,5]]', '"splits":[]'),
        ('"splits":[[12,30,-1],[15,60,5]]', '"splits":[[12,30,-1],[12,60,5]]'),
        ('"splits":[[12,30,-1],[15,60,5]]', '"splits":[[12,30,-1],[15,30,5]]'),
        ('"splits":[[12,30,-1],[15,60,5]]', '"splits":[[12,30,5],[15,60,4]]'),
        ('"splits":[[12,30,-1],[15,60,5]]', '"splits":[[12,30,5],[15,60,5]]'),
        ('"splits":[[12,30,-1],[15,60,5]]', '"splits":[[10,30,5]]'),
        ('"splits":[[12,30,-1],[15,60,5]]', '"splits":[[12,0,5]]'),
        ('"splits":[[12,30,-1],[15,60,5]]', '"splits":[[12,30,-2]]'),
        ('"splits":[[12,30,-1],[15,60,5]]', '"splits":[[20,30,5]]'),
        ('"splits":[[12,30,-1],[15,60,5]]', '"splits":[[19,99,5]]'),
        ('"splits":[[12,30,-1],[15,60,5]]', '"splits":[[12,100,5]]'),
        ('".log":[100,7],".index"', '".log":[100,7],".log"'),
        ('".log":[100,7],".index":[8,9]', ""),
        ('"mayHaveGaps":true', '"mayHaveGaps":1'),
        ('"mayHaveGaps":true', '"mayHaveGaps":false'),
        ('"base":10,"end":19', '"base":20,"end":19'),
        ('"base":10', '"base":-1'),
        ('"bytes":100', '"bytes":-1'),
        ('"stem":"data/x"', '"stem":"data\\u002fx"'),
        ('"stem":"data/x"', '"stem":"data\\/x"'),
        ('"stem":"data/x"', '"stem":"data\x7fx"'),
        ('"stem":"data/x"', '"stem":"data\tx"'),
        ('"stem":"data/x"', '"stem":"dataäx"'),
        ('"stem":"data/x"', '"stem":""'),
        ('"id":"AAECAwQFBgcICQoLDA0ODw"', '"id":"AAECAwQFBgcICQoLDA0OD-"'),
        ('"id":"AAECAwQFBgcICQoLDA0ODw"', '"id":"AAECAwQFBgcICQoLDA0OD_"'),
        ('"id":"AAECAwQFBgcICQoLDA0ODw"', '"id":"AAECAw+FBgcICQoLDA0ODw"'),
        ('"id":"AAECAwQFBgcICQoLDA0ODw"', '"id":"AAECAw!FBgcICQoLDA0ODw"'),
        ('"id":"AAECAwQFBgcICQoLDA0ODw"', '"id":"AAECAwQFBgcICQoLDA0ODw=="'),
        ('"id":"AAECAwQFBgcICQoLDA0ODw"', '"id":"AAECAwQFBgcICQoLDA0OD"'),
        ('"id"', '"later":{"a":1.5},"id"'),
        ("}}\n", "}} \n"),
        ("}}\n", '},"later":1}\n'),
        ("}}\n", '},"base":11}\n'),
    ],
)
def test_whatever_is_unusual_both_ways_say_the_same(old: str, new: str) -> None:
    """Fears that one way takes what the other refuses, or takes it for another row."""
    first, line = lines_of(ROW)
    assert line.decode().count(old) == 1
    lines = [first, line.decode().replace(old, new).encode()]
    assert outcome(lines, compiled=True) == outcome(lines, compiled=False)


def test_positions_behind_what_is_no_ascii_are_those_of_the_text() -> None:
    """A stem with as many bytes more than characters as the next row has: that row is not read again."""
    first, line, last = lines_of(ROW, ROW._replace(stem="data/y"))
    other = lines_of(ROW._replace(stem="ä" * len(line)))[1]
    lines = [first, other, line, last]
    assert outcome(lines, compiled=True) == outcome(lines, compiled=False)


def test_a_row_among_references_is_refused_both_ways() -> None:
    first, line = encode_part(TOPIC, 0, [ROW], 1).splitlines(keepends=True)[:-1]
    refused = outcome([first, line], compiled=False, level=1)
    assert "a part reference lacks a field" in refused
    assert outcome([first, line], compiled=True, level=1) == refused


@pytest.mark.parametrize("change", [{"base_offset": 20}, {"base_offset": -1}, {"size_bytes": -1}])
def test_a_row_without_splits_is_of_a_segment_too(change: dict[str, Any]) -> None:
    lines = lines_of(ROW._replace(splits=(), **change))
    assert "of no segment" in outcome(lines, compiled=False)
    assert outcome(lines, compiled=True) == outcome(lines, compiled=False)


@pytest.mark.parametrize(
    "change",
    [
        {"stem": "dataä"},
        {"custom_metadata": b"own", "fingerprint": None},
        {"fingerprint": Fingerprint(False, 1, 2, ((".later", ObjectSum(1, 1)),))},
        {"fingerprint": Fingerprint(False, 1, 2**32, ((".log", ObjectSum(1, 1)),))},
        {"fingerprint": Fingerprint(False, -1, 2, ((".log", ObjectSum(1, 1)),))},
        {"fingerprint": Fingerprint(False, 1, 2, ((".log", ObjectSum(2**32, 1)),))},
    ],
    ids=lambda change: "-".join(map(str, change)),
)
def test_what_is_not_common_is_left_to_the_general_way(change: dict[str, Any]) -> None:
    """Text that is no ASCII, what a later version may write, and checksums that cannot be."""
    lines = lines_of(ROW, ROW._replace(**change))
    assert common(lines[1]) == ([segment_of(ROW)], len(lines[1]))
    assert common(lines[2]) == ([], 0)
    assert outcome(lines, compiled=True) == outcome(lines, compiled=False)


@given(
    rows=st.lists(segments(plain, known_suffixes), min_size=1, max_size=2),
    cut=st.integers(0, 200),
    data=st.data(),
)
@example(rows=[ROW], cut=0, data=None)
def test_nothing_behind_the_bytes_is_read(
    rows: list[CatalogSegment], cut: int, data: st.DataObject | None
) -> None:
    body = b"".join(lines_of(*rows)[1:])
    body = body[: len(body) - min(cut, len(body))]
    at = 0 if data is None else data.draw(st.integers(-2, len(body) + 2))
    assert common(GUARDED.at_the_end(body), at) == common(body, at)


GUARDED = Guarded()
