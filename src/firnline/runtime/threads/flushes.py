"""Group commit: Flush effects of the same time are synced together. WORLD.

Each log directory has a FlushGroup, which runs one round of syncs at a time. A Flush joins the next round. A
round begins at the end of the turn, so it contains all that the turn has appended. Threads sync its files at
the same time: the file system then commits its journal once for all of them, instead of once for each. When
all are done, each Flush of the round gets the errors of its own files.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from firnline.base.counting.times import Times
from firnline.base.effects import SYNC_THREADS, Effects, Flush
from firnline.base.errors import StorageError
from firnline.base.ports import File
from firnline.runtime.disk import RealFile
from firnline.runtime.poll import PollLoop
from firnline.runtime.threads.doorbell import Doorbell
from firnline.runtime.threads.pool import have_ended
from firnline.runtime.threads.pools import Directories
from firnline.runtime.threads.sync_threads import SyncThreads

# Called once for each Flush, with its error or None.
Flushed = Callable[[Flush, StorageError | None], object]
_Problems = dict[str, StorageError]  # by path


class FlushGroup:
    """The rounds of syncs of one log directory: one runs, and new Flush effects wait for the next.

    No Flush is reported before the whole round is done, so the order of the syncs does not matter. `times`
    counts how long rounds took.
    """

    def __init__(
        self, loop: PollLoop, doorbell: Doorbell, flushed: Flushed, times: Times | None = None
    ) -> None:
        self._loop = loop
        self._times, self._began_s = times or Times(), 0.0
        self._flushed = flushed
        self._waiting: list[Flush] = []
        self._in_flight: list[Flush] = []
        self._is_due = False
        self._files: dict[int, RealFile] = {}  # being synced, by the number of the sync
        self._last_number = 0
        self._names_left = 0
        self._problems: _Problems = {}
        self._threads = SyncThreads(loop, self._on_synced)
        self._names = _NameThreads(doorbell, self._on_names_synced)

    def add(self, flush: Flush) -> None:
        """Sync the files of `flush` in the next round."""
        self._waiting.append(flush)
        if not self._in_flight:
            self._begin_soon()

    def _begin_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._is_due = False
        self._in_flight, self._waiting, self._problems = self._waiting, [], {}
        self._began_s = time.monotonic()
        files = {file.path: file for flush in self._in_flight for file in flush.files}
        names: list[File] = []
        for path, file in files.items():
            if type(file) is not RealFile:
                names.append(file)
                continue
            try:
                fd = file.begin_sync()
            except StorageError as problem:
                self._problems[path] = problem
                continue
            number = self._last_number = self._last_number + 1 & 0x7FFF_FFFF
            self._files[number] = file
            self._threads.sync(fd, number)
        self._names_left = self._names.sync(names)
        self._end_if_done()

    def _on_synced(self, number: int, failed: int) -> None:
        file = self._files.pop(number)
        problem = file.end_sync(failed)
        if problem is not None:
            self._problems[file.path] = problem
        self._end_if_done()

    def _on_names_synced(self, problems: _Problems) -> None:
        self._problems.update(problems)
        self._names_left -= 1
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._files or self._names_left or not self._in_flight:
            return
        finished, self._in_flight = self._in_flight, []
        self._times.add((time.monotonic() - self._began_s) * 1000)
        if self._waiting:
            self._begin_soon()
        if len(finished) == 1:
            self._flushed(finished[0], problem_of(finished[0], self._problems))
        else:
            self._loop.run_in_slices(self._report_finished(finished, self._problems))

    def _report_finished(self, finished: list[Flush], problems: _Problems) -> Iterator[None]:
        for flush in finished:
            self._flushed(flush, problem_of(flush, problems))
            yield

    def close(self, until_s: float) -> bool:
        """End the threads after their present sync; False where one still waits for a disk at `until_s`."""
        ended = self._threads.close(until_s), self._names.close(until_s)
        return all(ended)


class _NameThreads:
    """Threads that open, sync and close: for directories and for files that are not kept open."""

    def __init__(self, doorbell: Doorbell, synced: Callable[[_Problems], object]) -> None:
        self._doorbell = doorbell
        self._synced = synced
        self._work: queue.SimpleQueue[list[File] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def sync(self, files: list[File]) -> int:
        """Sync the files on several threads; return how often `synced` will be called."""
        shares = min(len(files), SYNC_THREADS)
        while len(self._threads) < shares:
            name = f"firnline-flush-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
            self._threads[-1].start()
        for first in range(shares):
            self._work.put(files[first::shares])
        return shares

    def _run(self) -> None:
        while (share := self._work.get()) is not None:
            problems: _Problems = {}
            for file in share:
                try:
                    file.sync()
                except StorageError as problem:
                    problems[file.path] = problem
            self._doorbell.ring(self._on_synced, problems)
            # An idle thread must not keep files open: their topic may be deleted meanwhile.
            del share, file

    def _on_synced(self, problems: _Problems, now_ms: int) -> Effects:
        self._synced(problems)
        return []

    def close(self, until_s: float) -> bool:
        """See `FlushGroup.close`."""
        for _ in self._threads:
            self._work.put(None)
        return have_ended(self._threads, until_s)


def problem_of(flush: Flush, problems: dict[str, StorageError]) -> StorageError | None:
    """Return the worst error of the files of one flush, None where all were synced.

    problems  the errors of the whole round, by path; some may concern a topic that was deleted meanwhile
    """
    if not problems:
        return None
    return _worst([problems[file.path] for file in flush.files if file.path in problems])


def _worst(problems: Sequence[StorageError]) -> StorageError | None:
    """A failed disk is worse than a lack of descriptors."""
    return min(problems, key=lambda problem: problem.has_lost_nothing, default=None)


class FlushGroups:
    """A FlushGroup for each log directory, so that none waits for another directory's disk."""

    def __init__(
        self, loop: PollLoop, doorbell: Doorbell, flushed: Flushed, directories: Directories
    ) -> None:
        self._loop = loop
        self._doorbell = doorbell
        self._flushed = flushed
        self._directories = directories
        self._groups: dict[str, FlushGroup] = {}
        self.times = Times()  # of rounds

    def add(self, flush: Flush) -> None:
        if self._directories.is_one:
            self._group("").add(flush)
            return
        shares: dict[str, list[File]] = {}
        for file in flush.files:
            shares.setdefault(self._directories.of(file.path), []).append(file)
        if len(shares) > 1:
            joined = _Joined(flush, len(shares))
            for directory, files in shares.items():
                self._group(directory).add(Flush(files=files, then=joined.one_is_done))
        else:
            self._group(next(iter(shares), "")).add(flush)

    def _group(self, directory: str) -> FlushGroup:
        found = self._groups.get(directory)
        if found is None:
            found = self._groups[directory] = FlushGroup(
                self._loop, self._doorbell, self._flushed, self.times
            )
        return found

    def close(self, until_s: float) -> bool:
        """See `FlushGroup.close`."""
        ended = [group.close(until_s) for group in self._groups.values()]
        return all(ended)


class _Joined:
    """A Flush of files in several directories: its result is the worst error of all."""

    def __init__(self, flush: Flush, shares: int) -> None:
        self._flush = flush
        self._left = shares
        self._problems: list[StorageError] = []

    def one_is_done(self, problem: StorageError | None, now_ms: int) -> Effects:
        self._left -= 1
        self._problems += [] if problem is None else [problem]
        return [] if self._left else self._flush.then(_worst(self._problems), now_ms)
