"""What a request names twice: folded where Apache Kafka 4.3.1 folds it, here for all APIs. PURE.

Kafka keeps what some requests name in a map or a set, and answers it once; of others it answers each mention,
or refuses what is named twice. Where each mention is answered nothing is folded, and the bound on answers
(runtime/bounds/answers) is what protects the node. Compared with Kafka: tests/compat/test_duplicates.py.
"""

from collections.abc import Callable, Hashable
from enum import Enum
from operator import attrgetter
from typing import Any

from firnline.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID

Fold = Callable[[Any], None]


class Rule(Enum):
    """What an API does with what is named again."""

    FOLDED = "answered once"
    EACH = "answered again"
    REFUSED = "an error of what is named twice; its handler's"
    NOT_NAMES = "its arrays name nothing that is answered"


def _last_of(rows: list[Any], key: Callable[[Any], Hashable]) -> list[Any]:
    """Each once, at the place where it was named first, as it was named last: a map that keeps its order."""
    if len(set(map(key, rows))) == len(rows):
        return rows  # as nearly always: a tenth of the time
    return list(dict(zip(map(key, rows), rows, strict=True)).values())


def _joined(rows: list[Any], key: Callable[[Any], Hashable], field: str) -> list[Any]:
    """Each once, with what all its mentions have in their array `field`."""
    if len(set(map(key, rows))) == len(rows):
        return rows
    found: dict[Hashable, tuple[Any, list[Any]]] = {}
    for row in rows:
        found.setdefault(key(row), (row, []))[1].extend(getattr(row, field))
    for row, inner in found.values():
        setattr(row, field, inner)
    return [row for row, _ in found.values()]


def _fold_topics(
    topics: list[Any], topic_key: Callable[[Any], Hashable], number: str = ""
) -> list[Any]:
    """Each topic once, and each of its partitions: numbers, or rows whose number is in the field `number`."""
    folded = _joined(topics, topic_key, "partitions")
    for topic in folded:
        parts = topic.partitions
        topic.partitions = (
            _last_of(parts, attrgetter(number)) if number else list(dict.fromkeys(parts))
        )
    return folded


def _fetch(request: Any) -> None:
    if any(t.topic == METADATA_TOPIC or t.topic_id == METADATA_TOPIC_ID for t in request.topics):
        return  # the quorum's one partition may not be named twice
    request.topics = _fold_topics(request.topics, attrgetter("topic", "topic_id"), "partition")


def _metadata(request: Any) -> None:
    if request.topics is not None:
        request.topics = _last_of(request.topics, attrgetter("name", "topic_id"))


def _delete_records(request: Any) -> None:
    request.topics = _fold_topics(request.topics, attrgetter("name"), "partition_index")


def _move_to_directories(request: Any) -> None:
    request.dirs = _joined(request.dirs, attrgetter("path"), "topics")
    for directory in request.dirs:
        directory.topics = _fold_topics(directory.topics, attrgetter("name"))


def _describe_directories(request: Any) -> None:
    if request.topics is not None:
        request.topics = _fold_topics(request.topics, attrgetter("topic"))


def _delete_groups(request: Any) -> None:
    request.groups_names = list(dict.fromkeys(request.groups_names))


def _topic_names(request: Any) -> None:
    if request.topics is not None:
        request.topics = list(dict.fromkeys(request.topics))


def _flush_tier(request: Any) -> None:
    request.topics = _last_of(request.topics, attrgetter("name"))
    for topic in request.topics:
        topic.partitions = list(dict.fromkeys(topic.partitions))


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


def fold(key: int, request: Any) -> None:
    """Fold what `request`, of the API `key`, names twice, if that is how it is answered."""
    act = _FOLDS.get(key)
    if act is not None:
        act(request)
