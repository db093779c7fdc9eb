"""Which topics the members of a consumer group subscribe to. PURE. Source: ConsumerProtocolSubscription.

A member may name millions of topics, so names are read in slices, and only the wanted ones are kept.
"""

from collections.abc import Container, Generator, Iterable, Iterator
from itertools import count
from typing import NamedTuple

from firnline.coordinator.group import Group
from firnline.coordinator.membership import CONSUMERS

# Half a millisecond.
_NAMES_PER_SLICE = 1_000


class Subscribed(NamedTuple):
    """Which of some topics the members of a group subscribe to; None if that is unknown.

    generation  the group's generation when the search began
    """

    generation: int
    topics: frozenset[str] | None


def find_subscribed(
    group: Group, among: Container[str], names_read: Iterator[int] | None = None
) -> Generator[None, None, Subscribed]:
    """Find which topics of `among` the members of a group subscribe to; yields between slices.

    `names_read` carries the count over when several calls share a slice.
    """
    if group.protocol_type != CONSUMERS:
        return Subscribed(group.generation, None)
    generation, name = group.generation, group.protocol_name
    data = [member.metadata_for(name) for member in group.members.by_id.values()]
    topics = yield from _subscribed_topics(data, among, names_read or count(1))
    return Subscribed(generation, topics)


def _subscribed_topics(
    subscriptions: Iterable[bytes], among: Container[str], names_read: Iterator[int]
) -> Generator[None, None, frozenset[str] | None]:
    """Return the wanted topics; None if the bytes of a member are no subscription.

    Layout in every version: version int16, then an array of strings.
    """
    found: set[str] = set()
    for data in subscriptions:
        left = int.from_bytes(data[2:6], "big", signed=True)
        if len(data) < 6 or not 0 <= left * 2 <= len(data) - 6:
            return None
        position = 6
        for _ in range(left):
            start = position + 2
            position = start + int.from_bytes(data[position:start], "big")
            if position > len(data):
                return None
            try:
                topic = data[start:position].decode()
            except UnicodeDecodeError:
                return None
            if topic in among:
                found.add(topic)
            if next(names_read) % _NAMES_PER_SLICE == 0:
                yield
    return frozenset(found)
