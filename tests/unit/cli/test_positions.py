"""Where consume begins and ends, as it is written on the command line."""

import pytest

from firnline.cli.records.positions import Span, Start, partitions_of, span_of
from firnline.cli.records.times import time_ms

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Start("beginning")),
        ("earliest", Start("beginning")),
        ("end", Start("end")),
        ("latest", Start("end")),
        ("stored", Start("stored")),
        ("0", Start("offset", 0)),
        ("17", Start("offset", 17)),
        ("-17", Start("last", 17)),
        ("@1700000000000", Start("time", 1_700_000_000_000)),
        ("s@-1h", Start("time", NOW_MS - 3_600_000)),
        ("@2023-11-14T22:13:20Z", Start("time", 1_700_000_000_000)),
    ],
)
def test_where_to_begin(text: str, start: Start) -> None:
    assert span_of([text], NOW_MS) == Span(start, None)


def test_where_to_end() -> None:
    assert span_of([], NOW_MS) == Span(None, None)
    assert span_of(["e@-1d", "@-2d"], NOW_MS) == Span(
        Start("time", NOW_MS - 2 * 86_400_000), NOW_MS - 86_400_000
    )


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["nonsense"], "'nonsense' is not a place to begin"),
        (["--1"], "'--1' is not a place"),
        (["+1"], "'+1' is not a place"),
        (["9223372036854775808"], "is not a place"),
        (["@soon"], "'soon' is not a time"),
        (["@-1y"], "'-1y' is not a time"),
        (["e@"], "'' is not a time"),
        (["@9999999999999999999999"], "is not a time"),
        (["1", "2"], "one place to begin"),
        (["e@1", "e@2"], "one place to begin"),
    ],
)
def test_what_is_no_place_is_refused(texts: list[str], said: str) -> None:
    with pytest.raises(ValueError) as problem:
        span_of(texts, NOW_MS)
    assert said in str(problem.value)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("now", NOW_MS),
        ("0", 0),
        ("-1500ms", NOW_MS - 1_500),
        ("-1.5s", NOW_MS - 1_500),
        ("-5m", NOW_MS - 300_000),
        ("-5min", NOW_MS - 300_000),
        ("-9999999d", 0),
        ("2023-11-14T23:13:20.123+01:00", 1_700_000_000_123),
        ("1969-12-31T23:59:59.999Z", 0),
    ],
)
def test_points_in_time(text: str, expected_ms: int) -> None:
    assert time_ms(text, NOW_MS) == expected_ms


def test_partitions() -> None:
    assert partitions_of(()) == []
    assert partitions_of(("3", "0,2", "5-7")) == [0, 2, 3, 5, 6, 7]
    for text in ("a", "-1", "7-5", "1-", "0-99999999", "2147483648", ""):
        with pytest.raises(ValueError, match="partition"):
            partitions_of((text,))
