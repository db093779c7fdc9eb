"""Which topics the members of a consumer group subscribe to. PURE. Source: ConsumerProtocolSubscription.

A member may name millions: their names are read some at a time, and none is kept that nobody asks for.
"""

from collections.abc import Container, Generator, Iterable, Iterator
from itertools import count
from typing import NamedTuple

# Half a millisecond.
_NAMES_PER_SLICE = 1_000


class Subscribed(NamedTuple):
    """Which of some topics the members of a group subscribed to; None when that is not known.

    generation  the group's when their subscriptions began to be read
    """

    generation: int
    topics: frozenset[str] | None


# Yields between two slices.
FindSubscribed = Generator[None, None, Subscribed]


def subscribed_topics(
    subscriptions: Iterable[bytes], among: Container[str], names_read: Iterator[int] | None = None
) -> Generator[None, None, frozenset[str] | None]:
    """Return which topics of `among` the subscriptions name; None when the bytes of one are no such thing.

    Layout of every version: version int16, then an array of strings. `names_read` goes on counting where
    several calls share a slice.
    """
    names_read = names_read or count(1)
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
