"""The process of one round of compaction: `python -m firnline.runtime.compact_main`. WORLD.

It speaks over its standard streams, one JSON value a line. Input: the job, then for each group `true` if the
broker has swapped it in, else `false`. Output: `{"alive": bytes}` now and then, `{"group": [bases, bytes]}`,
and at the end `{"done": [...]}` or `{"problem": why, "facts": {...}, "is_damage": ...}`. The broker has
lowered its priority. It holds no lock, and ends when its standard input ends: with the broker.
"""

import json
import os
import queue
import sys
import threading
import time
from typing import Any

from firnline.base.counting.room import kept_bytes
from firnline.base.errors import StorageError
from firnline.log.compaction.cleaner import Damaged
from firnline.log.compaction.rounds import compact, job_from
from firnline.runtime.disk import RealFs

_ALIVE_S = 1.0


def main() -> int:
    """Run the round that standard input describes; return the exit code."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    job = job_from(json.loads(lines.get()))
    running = compact(RealFs(), job, _Throttler(job.bytes_per_second, job.path))
    try:
        while True:
            group = next(running)
            _say({"group": [group.bases, group.size_bytes]})
            if not json.loads(lines.get()):
                running.close()
                return 0
    except StopIteration as stop:
        _say({"done": stop.value})
        return 0
    except StorageError as problem:
        return _give_up(problem)
    except MemoryError:
        return _give_up(
            StorageError(
                "there is no memory for a round of compaction",
                path=job.path,
                map_bytes=job.map_bytes,
                remedy="lower log.cleaner.dedupe.buffer.size, or raise the memory of the server",
            )
        )


def _give_up(problem: StorageError) -> int:
    facts = {name: str(value) for name, value in problem.facts.items()}
    _say({"problem": problem.why, "facts": facts, "is_damage": isinstance(problem, Damaged)})
    return 1


def _listen(lines: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(2)  # no broker is left to swap anything in


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class _Throttler:
    """Keeps the round below its bytes per second, and reports now and then that it is alive.

    Raises StorageError where the round would take what the broker keeps for its metadata log.
    """

    def __init__(self, bytes_per_second: float, path: str) -> None:
        self._rate = bytes_per_second
        self._path = path
        self._done_bytes = 0
        self._looked_bytes = 0
        self._began_s = self._said_s = time.monotonic()

    def __call__(self, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        if self._done_bytes - self._looked_bytes < min(1 << 20, self._rate / 10):
            return
        self._looked_bytes = self._done_bytes
        self._check_room()
        while True:
            now = time.monotonic()
            if now - self._said_s >= _ALIVE_S:
                self._said_s = now
                _say({"alive": self._done_bytes})
            ahead_s = self._done_bytes / self._rate - (now - self._began_s)
            if ahead_s <= 0:
                return
            time.sleep(min(ahead_s, _ALIVE_S))

    def _check_room(self) -> None:
        """Half of what is kept may be used: a round that ends makes room."""
        total_bytes, free_bytes = RealFs().volume_bytes(self._path)
        if free_bytes < kept_bytes(total_bytes) // 2:
            raise StorageError(
                "there is no room for a round of compaction",
                path=self._path,
                error="ENOSPC",
                remedy="free space on this disk",
            )


if __name__ == "__main__":
    sys.exit(main())
