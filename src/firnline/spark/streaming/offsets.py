"""The offsets of a stream, as Spark keeps them in the checkpoint. PURE.

    {"flights": {"0": 23}, "#ids": {"flights": "..."}, "#epochs": {"flights": {"0": 4}},
     "#begins": {"flights": {"0": 0}}}

As those of Spark's own Kafka source, with three more keys; `#` is in no name of a topic. A checkpoint of the
official source can be read, too. Source: Spark's `JsonUtils.partitionOffsets`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from firnline.base.errors import ConfigError
from firnline.base.ids import Uuid, uuid_from_text, uuid_text
from firnline.base.units import INT32_MAX, INT64_MAX

Key = tuple[str, int]  # topic and partition
Json = dict[str, Any]
_IDS, _EPOCHS, _BEGINS, _INITIAL = "#ids", "#epochs", "#begins", "#initial"


class StreamOffsets(NamedTuple):
    """Where a micro-batch ends.

    ends    the offset after the last one, by topic and partition
    ids     the topic's id, which another topic of the same name does not have; empty if not known
    begins  where the micro-batch begins in partitions that the one before it does not have, or not there
    epochs  a leader epoch that no record below the end exceeds; missing if not known
    """

    ends: Mapping[Key, int]
    ids: Mapping[str, Uuid] = {}
    begins: Mapping[Key, int] = {}
    epochs: Mapping[Key, int] = {}

    def json(self) -> Json:
        """Return what Spark writes to the checkpoint."""
        found: Json = dict(by_topic(self.ends))
        if self.ids:
            found[_IDS] = {topic: uuid_text(id_) for topic, id_ in sorted(self.ids.items())}
        if self.epochs:
            found[_EPOCHS] = by_topic(self.epochs)
        if self.begins:
            found[_BEGINS] = by_topic(self.begins)
        return found


def initial() -> Json:
    """Return what stands for the start of a new query: the same at each start of Python.

    Spark asks for it again until the first micro-batch is committed, but does not keep it. Its numbers are in
    the `begins` of that micro-batch, which Spark writes to the checkpoint before it reads anything.
    """
    return {_INITIAL: True}


def parse(given: Mapping[str, Any]) -> StreamOffsets | None:
    """Read offsets; None for those of `initial`. Raises ConfigError if they are not like offsets."""
    if given == initial():
        return None
    try:
        ids = {str(topic): uuid_from_text(text) for topic, text in given.get(_IDS, {}).items()}
        begins = _by_key(given.get(_BEGINS, {}).items())
        epochs = _by_key(given.get(_EPOCHS, {}).items(), most=INT32_MAX)
        named = ((topic, row) for topic, row in given.items() if not topic.startswith("#"))
        unknown = [k for k in given if k.startswith("#") and k not in (_IDS, _EPOCHS, _BEGINS)]
        if unknown:
            raise ValueError(f"unknown key {unknown[0]}")
        return StreamOffsets(_by_key(named), ids, begins, epochs)
    except (ValueError, TypeError, AttributeError) as problem:
        raise ConfigError(
            'the offsets in the checkpoint are not like {"topic": {"0": 23}}',
            given=str(given)[:500], problem=problem,
        ) from None  # fmt: skip


def by_topic(offsets: Mapping[Key, int]) -> dict[str, dict[str, int]]:
    """Return offsets, or other numbers of partitions, as the official source writes offsets."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _by_key(
    rows: Iterable[tuple[str, Mapping[str, int]]], *, most: int = INT64_MAX
) -> dict[Key, int]:
    return {
        (topic, _number(int(partition), INT32_MAX)): _number(offset, most)
        for topic, row in rows
        for partition, offset in row.items()
    }


def _number(value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r} is no whole number from 0 to {most}")
    return value
