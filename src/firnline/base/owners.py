"""What each owner has of a table that all of them share, so that none can take all of it. PURE.

An owner is an address, or whatever else somebody cannot have thousands of. Where the table is full, the
oldest thing of the owner with most goes: a flood drives out itself. Where nothing may go, an owner is given
no more than what is left for the others.
"""

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Thing = TypeVar("Thing")

# Entries of the heap that are out of date, beyond which it is made anew.
_STALE_MAX = 1_000


class Owners(Generic[Thing]):
    """Things by owner, oldest first, each with a size. All questions cost next to nothing, however many."""

    __slots__ = ("_largest", "_of", "_sizes", "count", "size")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self._of: dict[str, dict[Thing, int]] = {}
        self._sizes: dict[str, int] = {}
        # (-size, owner): each owner is in it with its size, or a larger one of before.
        self._largest: list[tuple[int, str]] = []

    def add(self, owner: str, thing: Thing, size: int = 1) -> None:
        """The owner has one thing more; it must not have had it before."""
        self._of.setdefault(owner, {})[thing] = size
        self.count += 1
        self.size += size
        grown = self._sizes[owner] = self._sizes.get(owner, 0) + size
        heappush(self._largest, (-grown, owner))
        if len(self._largest) > 2 * len(self._sizes) + _STALE_MAX:
            self._largest = [(-size, owner) for owner, size in self._sizes.items()]
            heapify(self._largest)

    def remove(self, owner: str, thing: Thing) -> int:
        """The thing has gone; return its size. KeyError where the owner does not have it."""
        things = self._of[owner]
        size = things.pop(thing)
        self.count -= 1
        self.size -= size
        if things:
            self._sizes[owner] -= size
        else:
            del self._of[owner], self._sizes[owner]
        return size

    def size_of(self, owner: str) -> int:
        """Return the size of all that an owner has."""
        return self._sizes.get(owner, 0)

    def things_of(self, owner: str) -> list[Thing]:
        """Return what an owner has, oldest first."""
        return list(self._of.get(owner, ()))

    def largest(self) -> str | None:
        """Return the owner that has most, None where nobody has anything."""
        heap = self._largest
        while heap:
            size, owner = heap[0]
            has = self._sizes.get(owner, 0)
            if has == -size:
                return owner
            heappop(heap)
            if has:
                heappush(heap, (-has, owner))
        return None

    def oldest_of_largest(self) -> tuple[str, Thing] | None:
        """Return the owner that has most, and the oldest thing it has."""
        owner = self.largest()
        return None if owner is None else (owner, next(iter(self._of[owner])))

    def may_have_more(self, owner: str, size_max: int) -> bool:
        """Whether the owner has less than what is left: one alone gets half of `size_max`, two a third each.

        So there is room left for whoever comes next, and nobody has to be told apart from anybody.
        """
        return self._sizes.get(owner, 0) < size_max - self.size
