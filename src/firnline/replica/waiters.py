"""The purgatory of one partition: delayed fetches and delayed produce requests. PURE.

A delayed fetch waits for bytes (min.bytes), a delayed produce request for the high watermark (acks=all).
Kafka reads again at every append to see whether a delayed fetch has enough. Here an append subtracts its size
from what each waiter is missing: no read, and no work at all in a partition without waiters.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import islice

from firnline.base.effects import Effects
from firnline.base.errors import Bug, StorageError


class FetchWaiter:
    """One long-polling Fetch. `complete(now_ms)` answers it and unregisters it everywhere.

    missing_bytes    how many bytes must still arrive before it is answered early
    wants_committed  it reads up to the last stable offset only
    is_follower      it reads up to the log end offset
    wants_high       a follower that is to learn of a new high watermark at once (KIP-392)
    """

    __slots__ = (
        "complete",
        "is_done",
        "is_follower",
        "missing_bytes",
        "serial",
        "wants_committed",
        "wants_high",
    )

    def __init__(
        self,
        *,
        serial: int,
        missing_bytes: int,
        wants_committed: bool,
        complete: Callable[[int], Effects],
        is_follower: bool = False,
        wants_high: bool = False,
    ) -> None:
        assert missing_bytes > 0, "a Fetch that has enough does not wait"
        self.serial = serial
        self.missing_bytes = missing_bytes
        self.wants_committed = wants_committed
        self.complete = complete
        self.is_done = False
        self.is_follower = is_follower
        self.wants_high = wants_high


class FetchWaiters:
    """The delayed fetches of one partition, in order of arrival: `waiting`, by serial number."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: dict[int, FetchWaiter] = {}

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, waiter: FetchWaiter) -> None:
        self.waiting[waiter.serial] = waiter

    def discard(self, waiter: FetchWaiter) -> None:
        self.waiting.pop(waiter.serial, None)

    def grown(
        self, size_bytes: int, *, stable_bytes: int, now_ms: int, end_bytes: int = 0
    ) -> Effects:
        """Count new readable bytes, and answer the fetches that have enough now.

        size_bytes    new below the high watermark
        stable_bytes  new below the last stable offset
        end_bytes     new at the end of the log
        """
        due = []
        for waiter in self.waiting.values():
            if waiter.is_follower:
                waiter.missing_bytes -= (
                    size_bytes if waiter.wants_high and size_bytes else end_bytes
                )
            else:
                waiter.missing_bytes -= stable_bytes if waiter.wants_committed else size_bytes
            if waiter.missing_bytes <= 0:
                due.append(waiter)
        return self._complete(due, now_ms)

    def followers_at_once(self, now_ms: int) -> Effects:
        """Answer the followers now: they are to learn the new log start offset."""
        return self._complete([w for w in self.waiting.values() if w.is_follower], now_ms)

    def all_at_once(self, now_ms: int) -> Effects:
        """Answer every delayed fetch now: the partition moved, was removed or failed."""
        return self._complete(list(self.waiting.values()), now_ms)

    def _complete(self, due: list[FetchWaiter], now_ms: int) -> Effects:
        effects: Effects = []
        for waiter in due:
            if not waiter.is_done:
                effects += waiter.complete(now_ms)
        return effects


# To make room for one Fetch, at most so many others are answered in one step.
_ANSWERED_AT_ONCE = 100


class LargeWaiters:
    """The delayed fetches of very many partitions. Each holds memory, so their partitions are bounded.

    No address can use the whole bound: to admit a Fetch of another address, the oldest fetches of the address
    with the most are answered early, with the records there are (decision 0027).
    """

    def __init__(self, partitions_max: int) -> None:
        self.partitions, self.partitions_max = 0, partitions_max
        self._by_address: dict[str, dict[FetchWaiter, int]] = {}
        self._counts: Counter[str] = Counter()

    def add(self, address: str, waiter: FetchWaiter, partitions: int) -> None:
        self._by_address.setdefault(address, {})[waiter] = partitions
        self._counts[address] += partitions
        self.partitions += partitions

    def remove(self, address: str, waiter: FetchWaiter) -> None:
        """The Fetch waits no longer. No effect if it did not wait."""
        of_address = self._by_address.get(address, {})
        partitions = of_address.pop(waiter, 0)
        self.partitions -= partitions
        self._counts[address] -= partitions
        if not of_address:
            self._by_address.pop(address, None)
            del self._counts[address]

    def in_place_of(self, address: str, partitions: int) -> list[FetchWaiter] | None:
        """Return the fetches to answer so that one more of an address may wait; None if it may not."""
        over = self.partitions + partitions - self.partitions_max
        if over <= 0:
            return []
        most = max(self._counts, key=self._counts.__getitem__, default=address)
        if self._counts[address] + partitions > self._counts[most] - over:
            return None
        found = []
        for waiter, count in islice(self._by_address[most].items(), _ANSWERED_AT_ONCE):
            found.append(waiter)
            over -= count
            if over <= 0:
                return found
        return None


class ProduceWaiters:
    """The acks=all appends of one partition that the high watermark has not passed yet.

    Their callbacks run in the step of another request, for instance a follower's Fetch. A callback that fails
    stops the node: as a failed Fetch it would only close the follower's connection. Callbacks that answer a
    client handle their own failures (`RequestContext.makes_replies`), so only a coordinator's can fail here.
    """

    __slots__ = ("_heap", "_serial")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[int], Effects]]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, required_offset: int, then: Callable[[int], Effects]) -> None:
        """Call `then(now_ms)` once every offset below `required_offset` is committed."""
        self._serial += 1
        heappush(self._heap, (required_offset, self._serial, then))

    def passed(self, high_watermark: int, now_ms: int) -> Effects:
        """Call back, in offset order, the appends below `high_watermark`."""
        return _call_back(self._due(high_watermark), now_ms)

    def _due(self, high_watermark: int) -> Iterator[Callable[[int], Effects]]:
        while self._heap and self._heap[0][0] <= high_watermark:
            yield heappop(self._heap)[2]

    def all_at_once(self, now_ms: int) -> Effects:
        """Call back every append, committed or not: each looks at the partition and decides its answer."""
        heap, self._heap = self._heap, []
        return _call_back([then for _, _, then in sorted(heap, key=lambda item: item[:2])], now_ms)


def _call_back(due: Iterable[Callable[[int], Effects]], now_ms: int) -> Effects:
    effects: Effects = []
    try:
        for then in due:
            effects += then(now_ms)
    except (Bug, StorageError):
        raise
    except Exception as problem:
        raise Bug("a callback that waited for a commit failed", problem=problem) from problem
    return effects
