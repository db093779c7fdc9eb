"""Partitions, times and durations as people write them."""

import click
import pytest

from firnline.cli.operations.words import duration_ms_of, partitions_of, time_ms_of


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a"], {"a": None}),
        (["a:0,2-4"], {"a": {0, 2, 3, 4}}),
        (["a:0", "a:1", "b"], {"a": {0, 1}, "b": None}),
        (["a:0", "a"], {"a": None}),
        (["a", "a:0"], {"a": None}),
    ],
)
def test_partitions(words: list[str], expected: object) -> None:
    assert partitions_of(words, "X") == expected


@pytest.mark.parametrize("word", ["", ":0", "a:", "a:x", "a:-1", "a:3-2", "a:0-999999999", "a:²"])
def test_what_names_no_partition(word: str) -> None:
    with pytest.raises(click.BadParameter):
        partitions_of([word], "X")


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("90s", 90_000),
        ("250ms", 250),
        ("1h", 3_600_000),
        ("2d", 172_800_000),
        ("15m", 900_000),
        ("PT1H", 3_600_000),
        ("P1DT12H", 129_600_000),
        ("PT0.5S", 500),
        ("pt1m30s", 90_000),
    ],
)
def test_durations(text: str, expected_ms: int) -> None:
    assert duration_ms_of(text, "X") == expected_ms


@pytest.mark.parametrize("text", ["", "1", "P", "PT", "P1M", "-1h", "1.5h", "PT-5M", "1h30m"])
def test_what_is_no_duration(text: str) -> None:
    """P1M is a month, which has no fixed length."""
    with pytest.raises(click.BadParameter):
        duration_ms_of(text, "X")


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1000", 1000),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T00:00:01.000", 1000),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("1970-01-02", 86_400_000),
    ],
)
def test_times(text: str, expected_ms: int) -> None:
    assert time_ms_of(text, "X") == expected_ms


@pytest.mark.parametrize(
    "text", ["", "yesterday", "-5", "1969-12-31", "9" * 19, "2026-13-01T00:00Z"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(click.BadParameter):
        time_ms_of(text, "X")
