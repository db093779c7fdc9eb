"""Disk operations of a log that opens: done at once, or in a thread pool while the loop goes on. PURE."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from firnline.base.effects import Effects, Pool, SetTimer, Submit
from firnline.base.errors import KafkaError

WaitCallback = Callable[[Exception | None, int], Effects]
_FULL_POOL_MS = 100


class At(NamedTuple):
    """The following steps use that log directory; none has begun.

    Where too much waits for the directory's disk, the caller may close the steps here and start anew later.
    """

    path: str


class Wait(NamedTuple):
    """One operation that waits for the disk.

    at_once()            runs it here, and blocks; raises StorageError
    begin(then, now_ms)  runs it in a pool; `then(problem or None, now_ms)` is called exactly once
    """

    at_once: Callable[[], object]
    begin: Callable[[WaitCallback, int], Effects]


def off_loop(name: str, work: Callable[[], object], *, path: str = "", pool: Pool = "disk") -> Wait:
    """Return `work`, which waits for the disk of `path`, as a Wait. It retries while the pool is full."""
    return Wait(work, partial(_submit, name, work, path, pool))


def _submit(
    name: str, work: Callable[[], object], path: str, pool: Pool, then: WaitCallback, now_ms: int
) -> Effects:
    def done(result: object, at_ms: int) -> Effects:
        if isinstance(result, KafkaError):  # the pool is full
            again = partial(_submit, name, work, path, pool, then)
            return [SetTimer(key=(name, "full"), at_ms=at_ms + _FULL_POOL_MS, then=again)]
        return then(result if isinstance(result, Exception) else None, at_ms)

    return [Submit(name=name, pool=pool, path=path, work=work, then=done)]
