"""Fair shares of a bounded table: no owner can fill the whole of it. PURE.

An owner is a client address, or something else that one client cannot have thousands of. When the table is
full, its user evicts the oldest entry of the owner that has the most, so a flood evicts itself.
"""

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Thing = TypeVar("Thing")

# The heap is rebuilt when it has more outdated entries than this.
_STALE_MAX = 1_000


class Owners(Generic[Thing]):
    """Things by owner, oldest first, each with a size. Every method is cheap however many there are."""

    __slots__ = ("_largest", "_of", "_sizes", "count", "size")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self._of: dict[str, dict[Thing, int]] = {}
        self._sizes: dict[str, int] = {}
        # (-size, owner): each owner has an entry with its present size, or with an earlier, larger one.
        self._largest: list[tuple[int, str]] = []

    def add(self, owner: str, thing: Thing, size: int = 1) -> None:
        """Add a thing, which the owner must not have yet."""
        self._of.setdefault(owner, {})[thing] = size
        self.count += 1
        self.size += size
        grown = self._sizes[owner] = self._sizes.get(owner, 0) + size
        heappush(self._largest, (-grown, owner))
        if len(self._largest) > 2 * len(self._sizes) + _STALE_MAX:
            self._largest = [(-size, owner) for owner, size in self._sizes.items()]
            heapify(self._largest)

    def remove(self, owner: str, thing: Thing) -> int:
        """Remove a thing and return its size. KeyError where the owner does not have it."""
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
        """Return the total size of an owner's things."""
        return self._sizes.get(owner, 0)

    def things_of(self, owner: str) -> list[Thing]:
        """Return an owner's things, oldest first."""
        return list(self._of.get(owner, ()))

    def largest(self) -> str | None:
        """Return the owner with the largest total size, None where the table is empty."""
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
        """Return the owner with the largest total size, and its oldest thing."""
        owner = self.largest()
        return None if owner is None else (owner, next(iter(self._of[owner])))
