"""Many requests to a store at the same time. SPARK.

A plan of many partitions waits for requests, not for the processor: one after the other, 10,000 requests of
20 ms are more than three minutes.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import TypeVar

from firnline.stores.port import ObjectStore
from firnline.stores.side_by_side import run_side_by_side

T = TypeVar("T")
R = TypeVar("R")

# Partitions that are planned at the same time: the requests of 10,000 heads take two seconds at 20 ms each.
# Further threads would only wait for the interpreter, and each looks for it every 5 ms.
PARTITIONS_AT_ONCE = 96
# Further requests of them all at the same time.
REQUESTS_AT_ONCE = 32
# With fewer, there is little to gain from one core.
_MANY_PARTITIONS = 256


class Calls:
    """Two sets of threads: some in which partitions are planned, a pool for the requests inside them.

    So a partition that waits for its requests never occupies a thread that they need. A store whose calls
    take no time, such as a directory, gets no threads. Use as a context manager.
    """

    def __init__(self, store: ObjectStore | None) -> None:
        self._inner: ThreadPoolExecutor | None = None
        if store is not None and store.is_distant:
            cores = _cores()
            self._inner = ThreadPoolExecutor(
                REQUESTS_AT_ONCE, "plan-request", initializer=lambda: _stay_on(cores)
            )

    def __enter__(self) -> "Calls":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._inner is not None:
            self._inner.shutdown(cancel_futures=True)

    def each_partition(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Return the results in the order of `items`, or raise the first failure in that order."""
        found: dict[int, R] = {}

        def add(number: int, item: T) -> None:
            found[number] = function(item)

        # Threads that take the next partition themselves: a pool has a future and a queue for each, and its
        # waiting for 10,000 of them takes a second.
        calls = [partial(add, number, item) for number, item in enumerate(items)]
        if self._inner is None or len(calls) < _MANY_PARTITIONS:
            run_side_by_side(calls, 1 if self._inner is None else PARTITIONS_AT_ONCE)
        else:
            with _one_core():
                run_side_by_side(calls, PARTITIONS_AT_ONCE)
        return [found[number] for number in range(len(calls))]

    def each(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """As `each_partition`, for requests. May be called from `each_partition`, not from itself.

        After a failure, leaving the context drops what has not begun.
        """
        items = list(items)
        if self._inner is None or len(items) < 2:
            return [function(item) for item in items]
        futures = [self._inner.submit(function, item) for item in items]
        return [future.result() for future in futures]


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    """Keep this thread, and those that it starts, on one core.

    Only one of them runs Python at a time. On several cores each goes on where the caches have nothing of
    what it needs, and a plan takes half as much CPU time again. The process id chooses the core, so that
    several planners do not all choose the same one.
    """
    cores = _cores()
    _stay_on({sorted(cores)[os.getpid() % len(cores)]} if cores else cores)
    try:
        yield
    finally:
        _stay_on(cores)


def _cores() -> set[int]:
    """Return the cores that this thread may use; empty if the system does not say."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def _stay_on(cores: set[int]) -> None:
    if cores:
        with contextlib.suppress(OSError):  # some were taken from us meanwhile
            os.sched_setaffinity(0, cores)
