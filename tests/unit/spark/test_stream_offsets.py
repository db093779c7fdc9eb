"""The offsets of a stream as JSON: those of Spark's own Kafka source, and two keys more."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.base.errors import ConfigError
from firnline.spark.streaming.offsets import StreamOffsets, initial, parse

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=8)
OFFSETS = st.dictionaries(
    st.tuples(TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=6
)
IDS = st.dictionaries(TOPICS, st.binary(min_size=16, max_size=16), max_size=4)


@given(ends=OFFSETS, ids=IDS, begins=OFFSETS)
def test_offsets_come_back_from_the_checkpoint(
    ends: dict[tuple[str, int], int],
    ids: dict[str, bytes],
    begins: dict[tuple[str, int], int],
) -> None:
    written = json.dumps(StreamOffsets(ends, ids, begins).json())
    assert parse(json.loads(written)) == StreamOffsets(ends, ids, begins)


@given(ends=OFFSETS)
def test_the_same_offsets_are_the_same_text_whatever_their_order_is(
    ends: dict[tuple[str, int], int],
) -> None:
    """Spark compares offsets as text, to see whether there is something new."""
    backwards = dict(reversed(ends.items()))
    assert json.dumps(StreamOffsets(ends).json()) == json.dumps(StreamOffsets(backwards).json())


def test_offsets_of_the_official_source_are_read() -> None:
    found = parse(json.loads('{"flights":{"0":23,"1":7},"others":{"2":0}}'))
    assert found == StreamOffsets({("flights", 0): 23, ("flights", 1): 7, ("others", 2): 0})


def test_a_topic_may_have_any_name_that_kafka_allows() -> None:
    """`_ids` is a name of a topic; so the further keys begin with a character that is in none."""
    assert parse({"_ids": {"0": 1}}) == StreamOffsets({("_ids", 0): 1})


def test_the_start_of_a_new_query_has_no_numbers() -> None:
    assert parse(json.loads(json.dumps(initial()))) is None
    assert parse({}) == StreamOffsets({})


@pytest.mark.parametrize(
    "text",
    [
        '{"t": 5}', '{"t": {"x": 5}}', '{"t": {"0": -1}}', '{"t": {"0": "5"}}', '{"t": {"0": 5.0}}',
        '{"t": {"-1": 5}}', '{"t": {"0": true}}', '{"#ids": {"t": "short"}}', '{"#ids": []}',
        '{"#later": {}}', '{"t": {"0": 9223372036854775808}}', '{"t": null}',
    ],
)  # fmt: skip
def test_what_is_like_no_offsets_is_refused_and_shown(text: str) -> None:
    with pytest.raises(ConfigError, match=r"the offsets in the checkpoint are not like.*given="):
        parse(json.loads(text))
