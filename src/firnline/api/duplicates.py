"""What a request names twice: folded where Apache Kafka 4.3.1 folds it, here for all APIs. PURE.

Kafka keeps what some requests name in a map or a set, and answers it once; of others it answers each mention,
or refuses what is named twice. Where each mention is answered nothing is folded, and the bound on answers
(runtime/bounds/answers) is what protects the node. Compared with Kafka: tests/compat/test_duplicates.py.
"""

from collections.abc import Callable, Generator, Hashable, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, TypeVar

from firnline.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID

T = TypeVar("T")
# They yield what was made of very many rows, once it is not needed any more, or nothing.
Steps = Generator[Any, None, T]
Fold = Callable[[Any], Steps[None]]
Key = Callable[[Any], Hashable]
# A slice of a large request: a fraction of a millisecond.
_ROWS_PER_SLICE = 1_000


class Rule(Enum):
    """What an API does with what is named again."""

    FOLDED = "answered once"
    EACH = "answered again"
    REFUSED = "an error of what is named twice; its handler's"
    NOT_NAMES = "its arrays name nothing that is answered"


def _itself(row: Any) -> Hashable:
    found: Hashable = row
    return found


def _once(rows: Sequence[Any]) -> Steps[list[Any]]:
    """Each value once, at the place where it was first."""
    return list((yield from _by_key(rows, _itself)))


def _last_of(rows: list[Any], key: Key) -> Steps[list[Any]]:
    """Each once, at the place where it was named first, as it was named last."""
    found = yield from _by_key(rows, key)
    return rows if len(found) == len(rows) else list(found.values())


def _by_key(rows: Sequence[Any], key: Key) -> Steps[dict[Hashable, Any]]:
    found: dict[Hashable, Any] = {}
    for first in range(0, len(rows), _ROWS_PER_SLICE):
        if first:
            yield rows if first == _ROWS_PER_SLICE else found
        some = rows[first : first + _ROWS_PER_SLICE]
        found.update(zip(map(key, some), some, strict=True))  # a map that keeps its order
    return found


def _joined(rows: list[Any], key: Key, field: str) -> Steps[list[Any]]:
    """Each once, with what all its mentions have in their array `field`."""
    found = yield from _by_key(rows, key)
    if len(found) == len(rows):
        return rows  # as nearly always
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


def _fold_topics(topics: list[Any], topic_key: Key, number: str = "") -> Steps[list[Any]]:
    """Each topic once, and each of its partitions: numbers, or rows whose number is in the field `number`."""
    folded = yield from _joined(topics, topic_key, "partitions")
    for count, topic in enumerate(folded, 1):
        parts = topic.partitions
        steps = _last_of(parts, attrgetter(number)) if number else _once(parts)
        topic.partitions = yield from steps
        if count % _ROWS_PER_SLICE == 0:
            yield
    return folded


def _fetch(request: Any) -> Steps[None]:
    for count, topic in enumerate(request.topics, 1):
        if topic.topic == METADATA_TOPIC or topic.topic_id == METADATA_TOPIC_ID:
            return  # the quorum's one partition may not be named twice
        if count % _ROWS_PER_SLICE == 0:
            yield
    key = attrgetter("topic", "topic_id")
    request.topics = yield from _fold_topics(request.topics, key, "partition")


def _metadata(request: Any) -> Steps[None]:
    if request.topics is not None:
        request.topics = yield from _last_of(request.topics, attrgetter("name", "topic_id"))


def _delete_records(request: Any) -> Steps[None]:
    key = attrgetter("name")
    request.topics = yield from _fold_topics(request.topics, key, "partition_index")


def _move_to_directories(request: Any) -> Steps[None]:
    request.dirs = yield from _joined(request.dirs, attrgetter("path"), "topics")
    for count, directory in enumerate(request.dirs, 1):
        if count % _ROWS_PER_SLICE == 0:
            yield
        directory.topics = yield from _fold_topics(directory.topics, attrgetter("name"))


def _describe_directories(request: Any) -> Steps[None]:
    if request.topics is not None:
        request.topics = yield from _fold_topics(request.topics, attrgetter("topic"))


def _delete_groups(request: Any) -> Steps[None]:
    request.groups_names = yield from _once(request.groups_names)


def _topic_names(request: Any) -> Steps[None]:
    if request.topics is not None:
        request.topics = yield from _once(request.topics)


def _flush_tier(request: Any) -> Steps[None]:
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
# By API key, of each API whose request has an array.
RULES: dict[int, Rule] = {
    **dict.fromkeys(_FOLDS, Rule.FOLDED),
    # Produce, too: each mention has records of its own. Kafka appends the last one's and drops the others'.
    **dict.fromkeys((0, 8, 9, 10, 13, 15, 23, 32, 43, 45, 46, 47, 55, 56, 73), Rule.EACH),
    **dict.fromkeys((2, 19, 20, 33, 37, 44, 57), Rule.REFUSED),
    # Of members, endpoints and filters; of the quorum's single partition.
    **dict.fromkeys((11, 14, 16, 52, 53, 54, 59, 62, 63, 70, 82), Rule.NOT_NAMES),
}


def folding(key: int, request: Any) -> Steps[None]:
    """Fold what `request`, of the API `key`, names twice, if that is how it is answered; in slices."""
    act = _FOLDS.get(key)
    if act is not None:
        yield from act(request)
