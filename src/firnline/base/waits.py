"""What an opening log waits for, and how it is done: here and now, or while others have the loop. PURE."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from firnline.base.effects import Effects, Pool, SetTimer, Submit
from firnline.base.errors import KafkaError

Done = Callable[[Exception | None, int], Effects]
_FULL_POOL_MS = 100


class At(NamedTuple):
    """What follows is done in that log directory, and nothing is begun yet.

    Where too much waits for its disk, the steps may be closed here, and taken anew later.
    """

    path: str


class Wait(NamedTuple):
    """Something that the disk is asked for.

    at_once()            does it, and waits; raises StorageError
    begin(then, now_ms)  has it done; `then(problem or None, now_ms)` is called exactly once
    """

    at_once: Callable[[], object]
    begin: Callable[[Done, int], Effects]


def off_loop(name: str, work: Callable[[], object], *, path: str = "", pool: Pool = "disk") -> Wait:
    """Return how `work`, which waits for the disk of `path`, is done in a pool; a full one is asked again."""
    return Wait(work, partial(_submit, name, work, path, pool))


def _submit(
    name: str, work: Callable[[], object], path: str, pool: Pool, then: Done, now_ms: int
) -> Effects:
    def done(result: object, at_ms: int) -> Effects:
        if isinstance(result, KafkaError):  # the pool is full
            again = partial(_submit, name, work, path, pool, then)
            return [SetTimer(key=(name, "full"), at_ms=at_ms + _FULL_POOL_MS, then=again)]
        return then(result if isinstance(result, Exception) else None, at_ms)

    return [Submit(name=name, pool=pool, path=path, work=work, then=done)]
