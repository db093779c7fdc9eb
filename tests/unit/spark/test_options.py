"""Options: what is refused and with which words, and what is read."""

import pytest

from firnline.base.errors import ConfigError
from firnline.spark.options import EARLIEST, LATEST, ByTimestamp, Options, parse_options

GOOD = {"tier.uri": "/t", "subscribe": "flights"}


def parsed(**more: str) -> Options:
    return parse_options(GOOD | {k.replace("__", "."): v for k, v in more.items()})


def test_names_are_read_in_any_case_and_defaults_are_the_official_source_s() -> None:
    options = parse_options({"TIER.URI": "/t", "SubScribe": "a, b", "INCLUDEHEADERS": "True"})
    assert options == Options(tier_uri="/t", topics=("a", "b"), include_headers=True)
    assert (options.starting, options.ending, options.fail_on_data_loss) == (EARLIEST, LATEST, True)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("subscrib", "did you mean subscribe?"),
        ("startingOffset", "did you mean startingOffsets?"),
        ("verifyCRCs", "did you mean verifyCrc?"),
        ("zzz", "known are tier.uri, subscribe"),
        ("kafka.bootstrap.servers", "reads only the tier"),
        ("kafka.group.id", "only kafka.isolation.level"),
        ("maxOffsetsPerTrigger", "streaming"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused_with_what_helps(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(GOOD | {name: "1"})
    assert name in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "tier.uri is missing"),
        ({"tier.uri": "/t"}, "exactly one of subscribe"),
        ({**GOOD, "assign": "{}"}, "exactly one of subscribe"),
        ({"tier.uri": "/t", "subscribe": " , "}, "is empty"),
        ({"tier.uri": "/t", "subscribePattern": "("}, "not a regular expression"),
        ({"tier.uri": "/t", "assign": "[1]"}, "assign is not like"),
        ({"tier.uri": "/t", "assign": '{"a": ["0"]}'}, "assign is not like"),
        ({"tier.uri": "/t", "assign": '{"a": [true]}'}, "assign is not like"),
        ({**GOOD, "startingOffsets": "latest"}, "cannot be latest"),
        ({**GOOD, "endingOffsets": "earliest"}, "cannot be earliest"),
        ({**GOOD, "startingOffsets": '{"flights": {"0": -1}}'}, "cannot hold -1"),
        ({**GOOD, "endingOffsets": '{"flights": {"0": -2}}'}, "cannot hold -2"),
        ({**GOOD, "startingOffsets": '{"flights": {"0": -3}}'}, "cannot hold -3"),
        ({**GOOD, "startingOffsets": '{"flights": 3}'}, "startingOffsets is not like"),
        ({**GOOD, "startingOffsets": '{"flights": {"x": 3}}'}, "startingOffsets is not like"),
        ({**GOOD, "startingOffsets": "newest"}, "startingOffsets is not like"),
        ({**GOOD, "startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({**GOOD, "endingTimestamp": "99999999999999999999"}, "milliseconds since 1970"),
        ({**GOOD, "failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({**GOOD, "splitBytes": "0"}, "splitBytes must be a number"),
        ({**GOOD, "chunkBytes": "2g"}, "chunkBytes must be a number"),
        ({**GOOD, "kafka.isolation.level": "serializable"}, "one of read_uncommitted"),
        ({**GOOD, "decoder": "c"}, "decoder must be one of"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_refused_by_name(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_options(given)


def test_a_time_comes_before_times_by_partition_and_those_before_offsets() -> None:
    by_time = '{"flights": {"0": 7}}'
    assert parsed(
        startingTimestamp="5", startingOffsetsByTimestamp=by_time, startingOffsets="earliest"
    ).starting == ByTimestamp(5)
    assert parsed(endingOffsetsByTimestamp=by_time, endingOffsets="latest").ending == {
        "flights": {0: ByTimestamp(7)}
    }


def test_offsets_and_sizes_are_read() -> None:
    options = parsed(
        startingOffsets='{"flights": {"0": -2, "1": 9}}',
        splitBytes="8m",
        chunkBytes="1024",
        windowBytes="1 MB",
        kafka__isolation__level="read_committed",
    )
    assert options.starting == {"flights": {0: EARLIEST, 1: 9}}
    assert (options.split_bytes, options.chunk_bytes, options.window_bytes) == (
        8 << 20,
        1024,
        1 << 20,
    )
    assert options.read_committed


def test_settings_of_the_store_are_passed_on_without_their_prefix() -> None:
    options = parse_options(GOOD | {"tier.store.endpoint": "http://x", "TIER.STORE.region": "r"})
    assert options.store_settings == {"endpoint": "http://x", "region": "r"}
    with pytest.raises(ConfigError, match=r"unknown option tier\.store\."):
        parse_options(GOOD | {"tier.store.": "x"})
