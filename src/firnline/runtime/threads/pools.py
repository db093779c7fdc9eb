"""Thread pools for long work, by name. WORLD.

The work spends its time in the kernel or in native code (performance page, section 7). Where it runs Python
after all, for instance to write the catalog of many remote segments, it keeps the interpreter lock from the
event loop for no longer than `doorbell.HOLD_S`.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from firnline.base.effects import BY_DIRECTORY, CancelSubmit, Submit
from firnline.base.errors import KafkaError
from firnline.runtime.threads.doorbell import Doorbell
from firnline.runtime.threads.pool import Pool
from firnline.runtime.timers import Timer

# How much work may wait in pools that have a limit of their own; more is refused at once (T36).
POOL_QUEUE_MAX = {
    "disk": 10_000,
    "copy": 10_000,
    "read": 100,  # a broker's is remote.log.reader.max.pending.tasks
    "ahead": 100,  # the tier begins no more than there are threads
    "index": 10_000,
    "expire": 10_000,
    "probe": 10,  # one is under way at a time; a pool of its own, so that work that hangs delays no probe
    "names": 1_000,
    "codec": 20_000,  # one for each connection
    "pages": 10_000,
    "votes": 10,  # one is under way at a time; a pool of its own, so that no other disk delays it
}

# How long `close` waits for pools that store something locally: a disk may hang, and the process must end
# all the same. Work not done by then is lost as after a kill. The lock of the directory is kept until the
# process has ended (`RealFs`).
END_S = 10.0
# The interval at which the time of work that runs is compared with its limit.
_LOOK_S = 0.25

# How many batches are recompressed at the same time; each may hold DECOMPRESSED_BATCH_BYTES_MAX.
CODEC_THREADS = max(1, min(4, os.cpu_count() or 1))


class Directories:
    """Maps a path to its log directory; on a node with a single log directory to ""."""

    def __init__(self, paths: Iterable[str]) -> None:
        known = sorted(set(paths), key=len, reverse=True)  # one may be inside of another
        self._prefixes = [f"{path}/" for path in known] if len(known) > 1 else []
        self.is_one = not self._prefixes

    def of(self, path: str) -> str:
        within = f"{path}/"
        return next((prefix for prefix in self._prefixes if within.startswith(prefix)), "")


class PoolFacts(NamedTuple):
    """The threads of the pools of one name: how many there may be, and work; and the work that waits."""

    threads: int = 0
    busy: int = 0
    waiting: int = 0

    @property
    def idle(self) -> float:
        """The part of the threads that do nothing."""
        return 1.0 - self.busy / self.threads if self.threads else 1.0


class Pools:
    """The pools of a node, by name; pools that wait for disks also by log directory.

    A directory's pool is made for its first work. A node with one log directory has one pool of each name.

    threads     the number of threads of each pool
    queue_max   how much work may wait in a pool, where it is not POOL_QUEUE_MAX
    call_later  sets a timer of the event loop
    """

    def __init__(
        self,
        threads: Mapping[str, int],
        doorbell: Doorbell,
        directories: Directories,
        call_later: Callable[[float, Callable[[], None]], Timer],
        queue_max: Mapping[str, int] | None = None,
    ) -> None:
        self._threads = threads
        self._queue_max = POOL_QUEUE_MAX | dict(queue_max or {})
        self._doorbell = doorbell
        self._directories = directories
        self._call_later = call_later
        self._pools = {(name, ""): self._made(name) for name in threads}
        self._timed: dict[Pool, None] = {}  # those with work that may have a time limit
        self._look: Timer | None = None

    def _made(self, name: str) -> Pool:
        return Pool(name, self._threads[name], self._doorbell, self._queue_max[name])

    def __getitem__(self, name: str) -> Pool:
        """Return the pool of that name that belongs to no directory."""
        return self._pools[name, ""]

    @property
    def abandoned(self) -> int:
        """The number of threads whose work has timed out and has not ended yet."""
        return sum(pool.abandoned for pool in self._pools.values())

    def facts(self) -> dict[str, PoolFacts]:
        """Return what the pools of each name do; those of all directories together."""
        found: dict[str, PoolFacts] = {}
        for (name, _), pool in self._pools.items():
            known, waiting, running = found.get(name, PoolFacts()), pool.waiting, pool.running
            found[name] = PoolFacts(
                known.threads + self._threads[name], known.busy + running, known.waiting + waiting
            )
        return found

    def add(self, submit: Submit[Any]) -> KafkaError | None:
        """See `Pool.add`."""
        name, directory = submit.pool, ""
        if submit.path and name in BY_DIRECTORY:
            directory = self._directories.of(submit.path)
        pool = self._pools.get((name, directory))
        if pool is None:
            pool = self._pools[name, directory] = self._made(name)
        if submit.run_timeout_ms:
            self._timed[pool] = None
            if self._look is None:
                self._look = self._call_later(_LOOK_S, self._abandon_overdue)
        return pool.add(submit)

    def cancel(self, effect: CancelSubmit) -> None:
        """See `Pool.cancel`; for pools that do not belong to a directory."""
        self[effect.pool].cancel(effect.key, only_waiting=effect.only_waiting)

    def _abandon_overdue(self) -> None:
        """Look at all threads that may run work with a time limit; again later, while there is work."""
        now_s = time.monotonic()
        for pool in list(self._timed):
            pool.abandon_overdue(now_s)
            if pool.is_idle:
                del self._timed[pool]
        self._look = self._call_later(_LOOK_S, self._abandon_overdue) if self._timed else None

    def close(self, until_s: float) -> bool:
        """End all threads, in all pools at the same time, until `until_s` of `time.monotonic` at the latest.

        False: a thread still waits for a disk or a store. The process is to end without it.
        """
        if self._look is not None:
            self._look.cancel()
        for pool in self._pools.values():
            pool.begin_close()
        ended = [pool.end_close(until_s) for pool in self._pools.values()]
        return all(ended)
