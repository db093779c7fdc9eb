"""Many requests to a store at the same time. SPARK.

A plan of many partitions waits for requests, not for the processor: one after the other, 10,000 requests of
20 ms are more than three minutes.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

from firnline.stores.port import ObjectStore

T = TypeVar("T")
R = TypeVar("R")

# Partitions that are planned at the same time: 10,000 heads in two seconds at 20 ms each.
PARTITIONS_AT_ONCE = 96
# Further requests of them all at the same time.
REQUESTS_AT_ONCE = 32


class Calls:
    """Two sets of threads: one in which partitions are planned, one for the requests inside them.

    So a partition that waits for its requests never occupies a thread that they need. A store whose calls
    take no time, such as a directory, gets no threads. Use as a context manager.
    """

    def __init__(self, store: ObjectStore | None) -> None:
        self._outer: ThreadPoolExecutor | None = None
        self._inner: ThreadPoolExecutor | None = None
        if store is not None and store.is_distant:
            self._outer = ThreadPoolExecutor(PARTITIONS_AT_ONCE, "plan")
            self._inner = ThreadPoolExecutor(REQUESTS_AT_ONCE, "plan-request")

    def __enter__(self) -> "Calls":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pool in (self._outer, self._inner):
            if pool is not None:
                pool.shutdown(cancel_futures=True)

    def each_partition(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Return the results in the order of `items`, or raise the first failure in that order.

        After a failure, leaving the context drops what has not begun.
        """
        return _map(self._outer, function, items)

    def each(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """As `each_partition`, for requests. May be called from `each_partition`, not from itself."""
        return _map(self._inner, function, items)


def _map(
    pool: ThreadPoolExecutor | None, function: Callable[[T], R], items: Iterable[T]
) -> list[R]:
    items = list(items)
    if pool is None or len(items) < 2:
        return [function(item) for item in items]
    futures = [pool.submit(function, item) for item in items]
    return [future.result() for future in futures]
