"""What a request names twice: every API says what becomes of it, and those that fold it do."""

import struct
from typing import Any

import pytest

from firnline.api.dispatch import find_api, read_request
from firnline.api.duplicates import RULES, Rule, folding
from firnline.base.background import run_to_completion
from firnline.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from firnline.protocol.messages import messages_of
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.schema import Struct
from firnline.protocol.versions import (
    CONTROLLER_SERVED,
    PRIVATE,
    PRODUCE_VERSION_MIN,
    SERVED,
    ServedApi,
)
from tests.fuzz.shapes import Plan, frame

_FETCH = 1
ROWS = {row.key: row for row in (*SERVED, *PRIVATE, *CONTROLLER_SERVED)}


def _arrays(cls: type[Struct]) -> bool:
    return any(
        isinstance(each.kind, list) or (isinstance(each.kind, type) and _arrays(each.kind))
        for each in cls.fields.values()
    )


def test_every_api_says_what_becomes_of_what_is_named_twice() -> None:
    """An API that comes later fails here until it has a rule."""
    with_arrays = {key for key in ROWS if _arrays(messages_of(key)[0])}
    assert set(RULES) == with_arrays


def _elements(value: Any) -> int:
    """The elements of all arrays of structs and names; numbers of partitions, too."""
    count = 0
    for name in value.fields:
        one = getattr(value, name)
        if isinstance(one, Struct):
            count += _elements(one)
        elif isinstance(one, list | tuple):
            count += len(one) + sum(_elements(each) for each in one if isinstance(each, Struct))
    return count


def _read(row: ServedApi, version: int, plan: Plan) -> Any:
    data = frame(row.key, version, plan, "c")[4:]
    start = struct.calcsize(">hhi") + 3
    if version in messages_of(row.key)[0].flexible:
        start += 1
    rows = {row.key: row}
    return read_request(find_api(rows, row.key, version), data, start)


@pytest.mark.parametrize("key", sorted(RULES), ids=lambda key: ROWS[key].name)
def test_what_is_named_a_thousand_times_is_one_where_it_is_folded_and_kept_elsewhere(
    key: int,
) -> None:
    """Through the one place that reads requests, at the first and the last version."""
    row = ROWS[key]
    first = PRODUCE_VERSION_MIN if key == 0 else row.advertised_min
    for version in (first, row.advertised_max):
        for is_deep in (False, True):
            once, often = (
                _elements(_read(row, version, Plan("many", "a", count=count, is_deep=is_deep)))
                for count in (1, 1000)
            )
            if RULES[key] is not Rule.FOLDED:
                assert often > once or not once, (version, is_deep)
            elif key != _FETCH:  # which has rows of what is forgotten, too
                assert often == once, (version, is_deep)


def test_a_partition_that_is_fetched_twice_is_fetched_once_as_it_was_asked_for_last() -> None:
    rows = [FetchPartition(partition=p, fetch_offset=o) for p, o in ((0, 1), (1, 2), (0, 3))]
    request = FetchRequest(
        topics=[FetchTopic(topic="t", partitions=rows), FetchTopic(topic="t", partitions=rows[:1])]
    )
    body = request.write(12)
    found: Any = read_request(find_api(ROWS, 1, 12), body, 0)
    assert [
        (t.topic, [(p.partition, p.fetch_offset) for p in t.partitions]) for t in found.topics
    ] == [("t", [(0, 1), (1, 2)])]


@pytest.mark.parametrize("named", [{"topic": METADATA_TOPIC}, {"topic_id": METADATA_TOPIC_ID}])
def test_the_log_of_the_quorum_named_twice_is_for_the_quorum_to_refuse(named: Any) -> None:
    parts = [FetchPartition(partition=0), FetchPartition(partition=0)]
    request = FetchRequest(topics=[FetchTopic(partitions=parts, **named)])
    run_to_completion(folding(_FETCH, request))
    assert request.topics[0].partitions == parts
