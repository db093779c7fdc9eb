"""Segments sorted by a key, so that queries do not sort after each change. PURE."""

from bisect import bisect_left
from typing import Generic, TypeVar

from firnline.base.ids import Uuid
from firnline.tiered.spi import RemoteSegment

# The last part is the segment id.
SortKey = TypeVar("SortKey", tuple[int, int, Uuid], tuple[int, int, int, Uuid])


class Ordered(Generic[SortKey]):
    """Two lists of one length: `rows[i]` is at `keys[i]`, and keys ascend."""

    __slots__ = ("keys", "rows")

    def __init__(self) -> None:
        self.keys: list[SortKey] = []
        self.rows: list[RemoteSegment] = []

    def put(self, key: SortKey, segment: RemoteSegment) -> None:
        if not self.keys or key > self.keys[-1]:  # the common case
            self.keys.append(key)
            self.rows.append(segment)
            return
        at = bisect_left(self.keys, key)
        if self.keys[at] == key:
            self.rows[at] = segment
        else:
            self.keys.insert(at, key)
            self.rows.insert(at, segment)

    def drop(self, key: SortKey) -> RemoteSegment | None:
        """Remove and return the segment at `key`."""
        at = bisect_left(self.keys, key)
        if at == len(self.keys) or self.keys[at] != key:
            return None
        del self.keys[at]
        return self.rows.pop(at)
