"""What syncing many logs costs: the runs of `FlushGroup` beside one file after the other.

Each round appends 200 bytes to every one of so many files and syncs them all: by one thread in turn, which is
the baseline, and as the node does. --dir is where: on the disk that is to be judged.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from typing import Any

from bench.measure import median_and_min, report
from firnline.base.effects import Flush
from firnline.base.errors import StorageError
from firnline.runtime.disk import RealFs
from firnline.runtime.poll import PollLoop
from firnline.runtime.threads.doorbell import Doorbell, Then
from firnline.runtime.threads.flushes import FlushGroup

DATA = b"x" * 200


def in_turn(files: list[Any]) -> None:
    for file in files:
        file.sync()


def as_the_node(group: FlushGroup, loop: PollLoop, files: list[Any]) -> None:
    group.add(Flush(files=files, then=lambda error, now_ms: []))
    loop.run()


def seconds(files: list[Any], sync: Callable[[list[Any]], None]) -> float:
    """Append to each file, and sync all."""
    for file in files:
        file.append(DATA)
    began = time.perf_counter()
    sync(files)
    return time.perf_counter() - began


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    loop = PollLoop()

    def done(then: Then[Any], result: Any) -> None:
        then(result, 0)

    doorbell = Doorbell(loop, done)

    def flushed(flush: Flush, problem: StorageError | None) -> None:
        assert problem is None
        loop.stop()

    group = FlushGroup(loop, doorbell, flushed)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        fs = RealFs()
        for count in (1, 4, 16, 100, 1000):
            files: list[Any] = [
                fs.open(f"{directory}/{count}-{number}", create=True) for number in range(count)
            ]
            turns, ours = [], []
            for _ in range(options.rounds):
                turns.append(seconds(files, in_turn))
                ours.append(seconds(files, lambda some: as_the_node(group, loop, some)))
            (turn_s, _), (our_s, _) = median_and_min(turns), median_and_min(ours)
            rows.append(
                {
                    "files": count,
                    "in turn, ms": round(turn_s * 1000, 2),
                    "a run, ms": round(our_s * 1000, 2),
                    "ratio": round(our_s / turn_s, 3),
                }
            )
            for file in files:
                file.close()
    group.close(time.monotonic() + 60)
    doorbell.close()
    loop.close()
    report("Syncing what was appended to many files, median", rows)


if __name__ == "__main__":
    main()
