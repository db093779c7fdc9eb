"""Folds the names that a request repeats, for the APIs where Apache Kafka 4.3.1 does so. PURE.

Kafka keeps the names of some requests in a map or a set, and answers each once. In other requests it answers
every mention, or refuses a repeated name. For the APIs that answer every mention nothing is folded; the bound
on responses (runtime/bounds/answers) protects the node. Compared with Kafka: tests/compat/test_duplicates.py.
"""

from collections.abc import Callable, Generator, Hashable, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, TypeVar

from firnline.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID

T = TypeVar("T")
# Each step is a slice, and yields a large container that is not needed any more, or None.
FoldSteps = Generator[Any, None, T]
Fold = Callable[[Any], FoldSteps[None]]
KeyFunction = Callable[[Any], Hashable]
# A slice of a large request: a fraction of a millisecond.
_ROWS_PER_SLICE = 1_000


class Rule(Enum):
    """What an API does with a name that a request repeats."""

    FOLDED = "answers it once"
    EACH = "answers each mention"
    REFUSED = "its handler returns an error for it"
    NOT_NAMES = "its arrays contain no names that it answers"


def _itself(row: Any) -> Hashable:
    found: Hashable = row
    return found


def _once(rows: Sequence[Any]) -> FoldSteps[list[Any]]:
    """Return each value once, at its first position."""
    return list((yield from _by_key(rows, _itself)))


def _last_of(rows: list[Any], key: KeyFunction) -> FoldSteps[list[Any]]:
    """Return the last row of each key, at the position of its first row."""
    found = yield from _by_key(rows, key)
    return rows if len(found) == len(rows) else list(found.values())


def _by_key(rows: Sequence[Any], key: KeyFunction) -> FoldSteps[dict[Hashable, Any]]:
    found: dict[Hashable, Any] = {}
    for first in range(0, len(rows), _ROWS_PER_SLICE):
        if first:
            yield rows if first == _ROWS_PER_SLICE else found
        some = rows[first : first + _ROWS_PER_SLICE]
        found.update(zip(map(key, some), some, strict=True))  # a dict keeps the first position
    return found


def _joined(rows: list[Any], key: KeyFunction, field: str) -> FoldSteps[list[Any]]:
    """Return one row for each key, with the arrays `field` of all its rows joined."""
    found = yield from _by_key(rows, key)
    if len(found) == len(rows):
        return rows  # the common case
    joined: dict[Hashable, tuple[Any, list[Any]]] = {}
    for count, row in enumerate(rows, 1):
        joined.setdefault(key(row), (row, []))[1].extend(getattr(row, field))
        if count % _ROWS_PER_SLICE == 0:
            yield joined
    once: list[Any] = []
    for row, inner in joined.values():
        setattr(row, field, inner)
        once.append(row)
        if len(once) % _ROWS_PER_SLICE == 0:
            yield
    return once


def _fold_topics(
    topics: list[Any], topic_key: KeyFunction, number: str = ""
) -> FoldSteps[list[Any]]:
    """Return each topic once, and in it each partition once.

    number  the field of a partition's row that has its number; empty: the rows are numbers
    """
    folded = yield from _joined(topics, topic_key, "partitions")
    for count, topic in enumerate(folded, 1):
        parts = topic.partitions
        steps = _last_of(parts, attrgetter(number)) if number else _once(parts)
        topic.partitions = yield from steps
        if count % _ROWS_PER_SLICE == 0:
            yield
    return folded


def _fetch(request: Any) -> FoldSteps[None]:
    for count, topic in enumerate(request.topics, 1):
        if topic.topic == METADATA_TOPIC or topic.topic_id == METADATA_TOPIC_ID:
            return  # the handler refuses a metadata partition that is named twice
        if count % _ROWS_PER_SLICE == 0:
            yield
    key = attrgetter("topic", "topic_id")
    request.topics = yield from _fold_topics(request.topics, key, "partition")


def _metadata(request: Any) -> FoldSteps[None]:
    if request.topics is not None:
        request.topics = yield from _last_of(request.topics, attrgetter("name", "topic_id"))


def _delete_records(request: Any) -> FoldSteps[None]:
    key = attrgetter("name")
    request.topics = yield from _fold_topics(request.topics, key, "partition_index")


def _move_to_directories(request: Any) -> FoldSteps[None]:
    request.dirs = yield from _joined(request.dirs, attrgetter("path"), "topics")
    for count, directory in enumerate(request.dirs, 1):
        if count % _ROWS_PER_SLICE == 0:
            yield
        directory.topics = yield from _fold_topics(directory.topics, attrgetter("name"))


def _describe_directories(request: Any) -> FoldSteps[None]:
    if request.topics is not None:
        request.topics = yield from _fold_topics(request.topics, attrgetter("topic"))


def _delete_groups(request: Any) -> FoldSteps[None]:
    request.groups_names = yield from _once(request.groups_names)


def _topic_names(request: Any) -> FoldSteps[None]:
    if request.topics is not None:
        request.topics = yield from _once(request.topics)


def _flush_tier(request: Any) -> FoldSteps[None]:
    request.topics = yield from _last_of(request.topics, attrgetter("name"))
    for count, topic in enumerate(request.topics, 1):
        if count % _ROWS_PER_SLICE == 0:
            yield
        topic.partitions = yield from _once(topic.partitions)


_FOLDS: dict[int, Fold] = {
    1: _fetch,
    3: _metadata,
    21: _delete_records,
    34: _move_to_directories,
    35: _describe_directories,
    42: _delete_groups,
    32001: _topic_names,
    32002: _flush_tier,
    32003: _topic_names,
}
# By API key, for each API whose request has an array.
RULES: dict[int, Rule] = {
    **dict.fromkeys(_FOLDS, Rule.FOLDED),
    # Produce is one of them: each mention has its own records. Kafka appends the last and drops the others.
    **dict.fromkeys((0, 8, 9, 10, 13, 15, 23, 32, 43, 45, 46, 47, 55, 56, 73), Rule.EACH),
    **dict.fromkeys((2, 19, 20, 33, 37, 44, 57), Rule.REFUSED),
    # Arrays of members, endpoints and filters, and of the single metadata partition.
    **dict.fromkeys((11, 14, 16, 52, 53, 54, 59, 62, 63, 68, 70, 82), Rule.NOT_NAMES),
}


def folding(key: int, request: Any) -> FoldSteps[None]:
    """Fold the repeated names of a request of the API `key`, in slices, if its rule is FOLDED."""
    act = _FOLDS.get(key)
    if act is not None:
        yield from act(request)
