"""Records as text: formats, JSON lines, lines with keys. What one command prints, the other reads."""

import json
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.cli.records.escapes import unescape
from firnline.cli.records.input_format import Format
from firnline.cli.records.json_lines import line_of, record_of
from firnline.cli.records.lines import Decoder, Lines, plain_line
from firnline.cli.records.record import InputError, NewRecord, Record
from firnline.cli.records.templates import FIELDS, printer

CONTENT = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
# librdkafka ends the name of a header at a NUL.
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
HEADERS = st.lists(st.tuples(NAMES, CONTENT), max_size=4)
RECORDS = st.builds(
    Record,
    topic=st.just("t"),
    partition=st.integers(0, (1 << 31) - 1),
    offset=st.integers(0, (1 << 63) - 1),
    timestamp_ms=st.just(-1) | st.integers(1, (1 << 63) - 1),
    key=CONTENT,
    value=CONTENT,
    headers=HEADERS,
)
RECORD = Record("t", 3, 7, 1_700_000_000_123, b"k", b"v", [("a", b"1"), ("b", None), ("a", b"")])


def fed(decoder: Decoder, data: bytes, cuts: list[int] = ()) -> list[NewRecord]:  # type: ignore[assignment]
    """What a decoder makes of data that arrives in pieces."""
    bounds = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    found = [one for a, b in pairwise(bounds) for one in decoder.feed(data[a:b])]
    found += decoder.end()
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    return [record for _, record in found]


CUTS = st.lists(st.integers(0, 10_000), max_size=4)


@given(st.lists(RECORDS, max_size=5), CUTS)
def test_json_lines_come_back_as_they_were(records: list[Record], cuts: list[int]) -> None:
    data = b"".join(map(line_of, records))
    assert data.count(b"\n") == len(records), "one line for each record"
    back = fed(Lines(record_of), data, cuts)
    for was, now in zip(records, back, strict=True):
        assert (now.key, now.value, now.partition) == (was.key, was.value, was.partition)
        assert list(now.headers) == list(was.headers)
        assert now.timestamp_ms == (None if was.timestamp_ms == -1 else was.timestamp_ms)


@given(RECORDS)
def test_a_string_in_json_means_its_characters(record: Record) -> None:
    """What is not UTF-8 is under another name: no string is base64 that somebody takes for text."""
    content = json.loads(line_of(record))
    for name, was in (("key", record.key), ("value", record.value)):
        if name in content:
            assert content[name] is None if was is None else content[name].encode() == was
        else:
            assert f"{name}_base64" in content


@given(st.lists(RECORDS.filter(lambda each: each.timestamp_ms > 0), max_size=5), CUTS)
def test_a_format_with_lengths_holds_any_bytes(records: list[Record], cuts: list[int]) -> None:
    template = r"%p %T %K %S %k%s\n"
    data = b"".join(map(printer(template), records))
    back = fed(Format(template), data, cuts)
    assert [(each.partition, each.timestamp_ms, each.key, each.value) for each in back] == [
        (each.partition, each.timestamp_ms, each.key, each.value) for each in records
    ]


@given(
    st.lists(st.binary(max_size=9), min_size=1, max_size=9),
    st.sampled_from([b"\n", b";;", b"ab"]),
    CUTS,
)
def test_lines_are_cut_where_the_delimiter_is(
    parts: list[bytes], delimiter: bytes, cuts: list[int]
) -> None:
    decode = plain_line(key=None, key_delimiter=None, null_if_empty=False)
    data = delimiter.join(parts)
    expected = data.split(delimiter)
    found = fed(Lines(decode, delimiter), data, cuts)
    assert [each.value for each in found] == expected[: len(expected) - (expected[-1] == b"")]


@pytest.mark.parametrize(
    ("line", "null_if_empty", "record"),
    [
        (b"a:b", False, NewRecord(b"a", b"b")),
        (b"a:b:c", False, NewRecord(b"a", b"b:c")),
        (b"alone", False, NewRecord(b"given", b"alone")),
        (b":v", False, NewRecord(b"", b"v")),
        (b":v", True, NewRecord(b"given", b"v")),
        (b"k:", True, NewRecord(b"k", None)),
        (b"", False, NewRecord(b"given", b"")),
        (b"", True, NewRecord(b"given", None)),
    ],
)
def test_a_line_with_a_key(line: bytes, null_if_empty: bool, record: NewRecord) -> None:
    decode = plain_line(key=b"given", key_delimiter=b":", null_if_empty=null_if_empty)
    assert decode(line) == record


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (r"%t [%p] at %o: %k=%s\n", b"t [3] at 7: k=v\n"),
        ("%v %V %S %K", b"v 1 1 1"),
        ("%R", b"\0\0\0\1"),
        ("%T %D", b"1700000000123 2023-11-14T22:13:20.123Z"),
        ("%h", b"a=1,b=NULL,a="),
        (r"100%% \x41\x42\\\0\t", b"100% AB\\\0\t"),
        ("%%s", b"%s"),
        ("", b""),
    ],
)
def test_what_a_format_prints(template: str, expected: bytes) -> None:
    assert printer(template)(RECORD) == expected


def test_what_a_format_prints_of_null() -> None:
    empty = Record("t", 0, 0, -1, None, None)
    assert printer("%k|%s|%K|%S|%T|%D|%h")(empty) == b"||-1|-1|-1|-|"
    assert printer("%k|%s", b"NULL")(empty) == b"NULL|NULL"
    assert printer("%R")(empty) == b"\xff\xff\xff\xff"
    far = RECORD._replace(timestamp_ms=1 << 60)
    assert printer("%D")(far) == b"%d" % (1 << 60), "a time that no calendar has"


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (printer, "%q", "%q is not a field; there are %s %v"),
        (printer, "100%", "a % at the end"),
        (printer, r"\q", r"\q is not an escape"),
        (unescape, r"\x4", r"\x4 is not an escape"),
        (unescape, r"\102", r"\1 is not an escape"),
        (unescape, r"\xzz", r"\xzz is not an escape"),
        (unescape, "a\\", "escapes nothing"),
        (Format, "%p", "needs %k or %v"),
        (Format, "%k%v", "%k and %v need something between them"),
        (Format, "%k %k %v", "%k is there twice"),
        (Format, "%v %S %k", "%S has to come before"),
    ],
)
def test_what_is_wrong_with_a_format_is_named(
    parse: Callable[[str], object], text: str, said: str
) -> None:
    with pytest.raises(ValueError) as problem:
        parse(text)
    assert said in str(problem.value)


def test_every_field_that_a_format_has_is_in_the_table() -> None:
    for letter in FIELDS:
        assert isinstance(printer(f"%{letter}")(RECORD), bytes)


@pytest.mark.parametrize(
    ("template", "data", "records"),
    [
        (r"%k=%v\n", b"a=1\nb=2\n", [NewRecord(b"a", b"1"), NewRecord(b"b", b"2")]),
        ("%k=%v", b"a=1\nb=2", [NewRecord(b"a", b"1"), NewRecord(b"b", b"2")]),
        ("%v", b"1\n\n2", [NewRecord(None, b"1"), NewRecord(None, b""), NewRecord(None, b"2")]),
        (r"%h;%v\n", b"a=1,b;x\n", [NewRecord(None, b"x", [("a", b"1"), ("b", None)])]),
        ("%t[%p]@%o %v", b"t[2]@5 x\n", [NewRecord(None, b"x", [], 2)]),
        ("%R%v", b"\0\0\0\2a\n\xff\xff\xff\xff", [NewRecord(None, b"a\n"), NewRecord(None, None)]),
    ],
)
def test_what_a_format_reads(template: str, data: bytes, records: list[NewRecord]) -> None:
    for cuts in ([], [1], [2, 3], list(range(len(data)))):
        found = [
            each._replace(headers=list(each.headers)) for each in fed(Format(template), data, cuts)
        ]
        assert found == [each._replace(headers=list(each.headers)) for each in records]


@pytest.mark.parametrize(
    ("template", "data", "said"),
    [
        (r"[%k] %v\n", b"[a] 1\nb 2\n", "record 2: '[' is expected, not 'b 2\\n'"),
        (r"%k=%v\n", b"a=1\nb", "record 2: the input ends within it"),
        ("%S %v", b"x y\n", "record 1: %S is not a length: 'x'"),
        ("%S %v", b"-2 y\n", "record 1: %S is not a length: -2"),
        ("%S %v", b"5 abc", "record 1: the input ends within it"),
        ("%p %v", b"z 1\n", "record 1: 'z' is not a partition"),
        ("%h %v", b"\xff=1 1\n", "record 1: the name of a header is not UTF-8"),
    ],
)
def test_input_that_is_not_in_the_format_is_named(template: str, data: bytes, said: str) -> None:
    with pytest.raises(InputError) as problem:
        fed(Format(template), data)
    assert said in str(problem.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"value":', "not JSON: Expecting value at character 10"),
        (b"\xff", "not JSON: bytes that are not UTF-8"),
        (b"[" * 100_000, "not JSON: too deeply nested"),
        (b"", "not JSON"),
        (b"[]", "a record is an object"),
        (b'{"vlaue":"x"}', "no field is called 'vlaue'"),
        (b'{"topic":"t"}', 'neither "key" nor "value" is there'),
        (b'{"value":{"a":1}}', '"value" is a string or null, not an object'),
        (b'{"value":true}', "not true or false"),
        (b'{"value":"a","value_base64":"YQ=="}', 'both "value" and "value_base64"'),
        (b'{"value_base64":"!"}', '"value_base64" is not base64'),
        (b'{"value_base64":7}', '"value_base64" is not base64'),
        (b'{"value":"\\ud800"}', "half a surrogate pair"),
        (b'{"value":"v","partition":-1}', '"partition" is a number from 0'),
        (b'{"value":"v","timestamp":0}', '"timestamp" is a number from 1'),
        (b'{"value":"v","timestamp":1.5}', '"timestamp" is a number from 1'),
        (b'{"value":"v","headers":{}}', '"headers" is a list'),
        (b'{"value":"v","headers":[["a","b"]]}', 'each of "headers" is an object'),
        (b'{"value":"v","headers":[{"name":"a","x":1}]}', "a header has no field 'x'"),
        (b'{"value":"v","headers":[{"name":"a\\u0000"}]}', "holds a NUL"),
    ],
)
def test_what_is_wrong_with_a_line_of_json_is_named(line: bytes, said: str) -> None:
    with pytest.raises(InputError) as problem:
        fed(Lines(record_of), b'{"value":"fine"}\n' * 16 + line + b"\n")
    assert str(problem.value).startswith("line 17: ")
    assert said in str(problem.value)


def test_json_that_people_write_is_enough() -> None:
    assert record_of(b'{"value":"v"}') == NewRecord(None, b"v")
    assert record_of(b' {"key" : "k"} ') == NewRecord(b"k", None)
    assert record_of(b'{"value":null}') == NewRecord(None, None)
