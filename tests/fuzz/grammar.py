"""Bursts of requests of every API at every version, drawn from what a node knows, and then spoilt a little.

A burst, what one connection sends at once, is a function of its seed, its number and of what was learned.
Most fields say what exists; in some requests one or two, in few every third, say what nobody would. Bytes are
flipped, cut, doubled and swapped. Half of the bursts are one request and siblings of it, each with other
values in a few fields; every fourth burst is for the controllers' listener.
"""

import struct
from random import Random
from typing import Any, NamedTuple

from firnline.protocol.messages import messages_of
from firnline.protocol.versions import (
    CONTROLLER_PRIVATE,
    CONTROLLER_SERVED,
    PRIVATE,
    SERVED,
    ServedApi,
)
from tests.fuzz.drawer import CLIENT_IDS, Drawer, request_head, spoil
from tests.fuzz.known import UNREGISTER_BROKER, Known

ROWS: tuple[ServedApi, ...] = (*SERVED, *PRIVATE)
CONTROLLER_ROWS: tuple[ServedApi, ...] = (*CONTROLLER_SERVED, *CONTROLLER_PRIVATE)
# What is asked more often than the rest: each finds state, or makes it.
_OFTEN = {"produce": 6, "fetch": 5, "join_group": 4, "sync_group": 2, "metadata": 2, "envelope": 3}
_WEIGHTS = {
    rows: [
        _OFTEN.get(row.name, 2 if row.name.startswith(("offset_", "heart")) else 1) for row in rows
    ]
    for rows in (ROWS, CONTROLLER_ROWS)
}
SIBLINGS = 24
# Topics and partitions are made and deleted, the disk is written: few of these at a time.
_COSTLY = {"create_topics", "delete_topics", "create_partitions", "tier_flush", "take_snapshot"}
_COSTLY_SIBLINGS = 4
PLACES = 64  # numbers of requests that a burst may take
_TWICE = 2


class Asked(NamedTuple):
    """One request of a burst.

    correlation_id   None where its head was spoilt: what comes is not known
    is_read          its answer is decoded, and learned from where it has a focus
    """

    key: int
    version: int
    correlation_id: int | None
    focus: dict[str, Any] | None
    is_read: bool = True


class Burst(NamedTuple):
    """What one connection sends at once.

    pieces           sent one after the other, each in a turn of its own
    closes           the connection is closed when all is sent, whatever comes
    is_last          nothing may follow on that connection: it would be read as the rest of this
    """

    number: int
    pieces: list[bytes]
    asked: list[Asked]
    closes: bool
    is_last: bool


def is_controllers(number: int) -> bool:
    """Whether the burst of that number is for the listener of controllers."""
    return number % 4 == 3


def burst(seed: int, number: int, known: Known) -> Burst:
    """Draw the burst of that number."""
    rng = Random(f"{seed}.{number}")
    frames: list[bytes] = []
    asked: list[Asked] = []
    if rng.random() < 0.5:
        _siblings(rng, known, number, frames, asked)
    else:
        for place in range(rng.choice((1, 1, 2, 4, 8))):
            drawn = _Request(rng, known, number)
            frame, one = drawn.first(number * PLACES + place)
            frames.append(frame)
            asked.append(one)
    return _sent(rng, number, frames, asked)


def _siblings(
    rng: Random, known: Known, number: int, frames: list[bytes], asked: list[Asked]
) -> None:
    """Draw a request, and some that differ from it in a few fields."""
    drawn = _Request(rng, known, number)
    for place in range(drawn.siblings):
        frame, one = drawn.sibling(number * PLACES + place)
        frames.append(frame)
        asked.append(one)
    frame, one = drawn.first(number * PLACES + drawn.siblings)
    frames.append(frame)
    asked.append(one)


def _sent(rng: Random, number: int, frames: list[bytes], asked: list[Asked]) -> Burst:
    """Say how these are sent: whole, twice, in halves, or with nothing behind them."""
    how = rng.random()
    if how < 0.02:
        frames = [data for frame in frames for data in [frame] * _TWICE]
        asked = [one for one in asked for _ in range(_TWICE)]
    # One whose head was spoilt may say any number, that of its neighbours too.
    if any(one.correlation_id is None for one in asked):
        asked = [one._replace(correlation_id=None) for one in asked]
    data = b"".join(frames)
    closes = how > 0.98
    is_last = closes
    if 0.02 <= how < 0.03:  # half a frame
        data, is_last = data[: rng.randrange(1, len(data))], True
        closes = rng.random() < 0.7
    elif 0.03 <= how < 0.035:
        data, is_last = rng.randbytes(rng.choice((1, 4, 8, 40, 400))), True
    elif 0.035 <= how < 0.04:
        size = rng.choice((-1, 0, 1, 3, 4, 7, 8, 1 << 20, 95 << 20, (1 << 31) - 1, -(1 << 31)))
        data, is_last = struct.pack(">i", size) + data[4:], True
    pieces = [data]
    if rng.random() < 0.05 and len(data) > 2:
        cut = rng.randrange(1, len(data))
        pieces = [data[:cut], data[cut:]]
    return Burst(number, pieces, [] if is_last else asked, closes, is_last)


class _Request:
    """One request, drawn, and what its siblings have of it."""

    def __init__(self, rng: Random, known: Known, number: int) -> None:
        is_of_controllers = is_controllers(number)
        rows = CONTROLLER_ROWS if is_of_controllers else ROWS
        self._rng = rng
        self._row = row = rng.choices(rows, _WEIGHTS[rows])[0]
        version = rng.randint(row.advertised_min, row.advertised_max)
        request = messages_of(row.key)[0]
        if version not in request.valid:  # Produce is advertised from 0
            version = row.advertised_max
        self._version = version
        self._drawer = Drawer(rng, known, row.key, version, is_controllers=is_of_controllers)
        head = request_head(row.key, version, 0, rng.choice(CLIENT_IDS))
        if version in request.flexible:
            head = head[:-1] + self._drawer.tags([])
        self._start, self._rest = head[:4], head[8:]
        self._body = self._drawer.body()

    @property
    def siblings(self) -> int:
        """How many of them are worth their cost."""
        if self._row.key == UNREGISTER_BROKER:
            return 0
        return _COSTLY_SIBLINGS if self._row.name in _COSTLY else SIBLINGS

    def first(self, number: int) -> tuple[bytes, Asked]:
        """Return what was drawn, sometimes with spoilt bytes."""
        rng, body = self._rng, self._body.joined()
        if self._drawer.may_be_spoilt and rng.random() < 0.12:
            body = spoil(rng, body)
        head, spoilt = self._start + struct.pack(">i", number) + self._rest, False
        if self._drawer.may_be_spoilt and rng.random() < 0.01:
            head, spoilt = spoil(rng, head), True
        frame = struct.pack(">i", len(head) + len(body)) + head + body
        said = None if spoilt else number
        return frame, Asked(self._row.key, self._version, said, self._drawer.focus)

    def sibling(self, number: int) -> tuple[bytes, Asked]:
        """Return it with other values in a few fields. Of each fourth the answer is decoded."""
        rng = self._rng
        body = self._body.sibling(rng)
        size = len(self._start) + 4 + len(self._rest) + len(body)
        frame = (
            struct.pack(">i", size) + self._start + struct.pack(">i", number) + self._rest + body
        )
        return frame, Asked(self._row.key, self._version, number, None, rng.random() < 0.25)
