"""Asks a distant store for the next bytes of segments while the last ones are decoded. SPARK, without Spark.

A request to such a store takes tens of milliseconds, and a task would wait so long for each window of each
segment. Source: spark section 4 'Reader loop'.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import NamedTuple, Protocol

from firnline.base.ports import Buffer
from firnline.base.units import MIB
from firnline.stores.port import ObjectStore, view

# What may be in memory or on its way beyond the window that is read; at least one block.
AHEAD_BYTES = 16 * MIB
# An abandoned read waits so long for its requests, which cannot be taken back. They end at their deadline.
CLOSE_S = 2.0


class Source(Protocol):
    """What a reader asks for bytes: a store, or what reads ahead in one."""

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        """See `ObjectStore`."""
        ...


class Range(NamedTuple):
    """Bytes of an object that will be read, `end` exclusive."""

    key: str
    begin: int
    end: int


@contextmanager
def reading_ahead(
    store: ObjectStore, ranges: Sequence[Range], block_bytes: int
) -> Iterator[Source]:
    """Yield what gives the bytes of `ranges`, which are read in this order; it ends with the block.

    A store that is near is yielded itself: there a thread would cost more than it gains.
    """
    if not store.is_distant:
        yield store
        return
    ahead = ReadAhead(store, ranges, block_bytes)
    try:
        yield ahead
    finally:
        ahead.close()


class ReadAhead:
    """Gives the bytes of ranges in their order; the blocks behind them are on their way meanwhile.

    A range may be left before its end. What is in no range, or before a block that was dropped, comes from
    the store. The failure of a request is raised when its bytes are needed, not before.
    """

    def __init__(self, store: ObjectStore, ranges: Sequence[Range], block_bytes: int) -> None:
        self._store, self._ranges, self._block_bytes = store, ranges, block_bytes
        self._blocks: deque[_Block] = deque()
        self._dropped: list[_Block] = []  # perhaps still on their way
        self._range = 0  # that of the last bytes given
        self._next = (0, ranges[0].begin if ranges else 0)  # range and position of the next request

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        """See `ObjectStore`."""
        if size_bytes is None or not self._come_to(key, position):
            return self._store.get(key, position, size_bytes)
        parts: list[Buffer] = []
        at, end, used = position, position + size_bytes, 0
        while at < end:
            used += 1
            self._ask(used)
            if used > len(self._blocks) or self._blocks[used - 1].number != self._range:
                break
            block = self._blocks[used - 1]
            part = memoryview(block.data())[at - block.position : end - block.position]
            parts.append(part)
            at += len(part)
            if block.is_short:
                break
        return b"".join(parts)

    def close(self) -> None:
        """Drop what was not read. Requests on their way are awaited, for CLOSE_S at most."""
        self._next = (len(self._ranges), 0)
        until = time.monotonic() + CLOSE_S
        for block in (*self._dropped, *self._blocks):
            block.thread.join(max(until - time.monotonic(), 0))
        self._blocks.clear()
        self._dropped.clear()

    def _come_to(self, key: str, position: int) -> bool:
        """Drop the blocks before a position. False if its bytes are in no block, nor will be."""
        number = next(
            (
                n
                for n in range(self._range, len(self._ranges))
                if self._ranges[n].key == key
                and self._ranges[n].begin <= position < self._ranges[n].end
            ),
            None,
        )
        if number is None:
            return False
        while self._blocks and (self._blocks[0].number, self._blocks[0].end) <= (number, position):
            self._dropped.append(self._blocks.popleft())
        self._dropped = [block for block in self._dropped if block.thread.is_alive()]
        self._range = number
        if self._blocks:
            return self._blocks[0].number == number and self._blocks[0].position <= position
        if self._next <= (number, position):
            self._next = (number, position)
        return self._next == (number, position)

    def _ask(self, used: int) -> None:
        """Send requests for the blocks that are used, and for those behind them that may be."""
        most = used + max(self._store.calls_at_once - len(self._dropped), 1)
        while len(self._blocks) < most and self._next[0] < len(self._ranges):
            number, position = self._next
            one = self._ranges[number]
            size = min(self._block_bytes, one.end - position)
            ahead = sum(block.size for block in list(self._blocks)[used:])
            if len(self._blocks) > used and ahead + size > AHEAD_BYTES:
                return
            self._blocks.append(_Block(self._store, number, one.key, position, size))
            is_last = position + size >= one.end
            following = number + 1
            if not is_last:
                self._next = (number, position + size)
            else:
                begins = following < len(self._ranges)
                self._next = (following, self._ranges[following].begin if begins else 0)


class _Block:
    """Bytes of one range, asked for on a thread of its own."""

    def __init__(self, store: ObjectStore, number: int, key: str, position: int, size: int) -> None:
        self.number, self.position, self.size, self.end = number, position, size, position + size
        self._data: Buffer = b""
        self._problem: BaseException | None = None
        self.thread = Thread(
            target=self._get, args=(store, key), name="firnline-read-ahead", daemon=True
        )
        self.thread.start()

    def _get(self, store: ObjectStore, key: str) -> None:
        try:
            self._data = view(store, key, self.position, self.size)
        except BaseException as problem:  # noqa: BLE001 - raised where the bytes are needed
            self._problem = problem

    def data(self) -> Buffer:
        """Wait for the bytes; fewer than asked for only at the end of the object."""
        self.thread.join()
        if self._problem is not None:
            raise self._problem
        return self._data

    @property
    def is_short(self) -> bool:
        """Whether the object ends within the block."""
        return len(self._data) < self.size
