"""Flushes: what waits for the disk is synced together. WORLD."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence

from firnline.base.effects import SYNC_THREADS, Effects, Flush
from firnline.base.errors import StorageError
from firnline.base.ports import File
from firnline.runtime.disk import RealFile
from firnline.runtime.poll import PollLoop
from firnline.runtime.threads.doorbell import Doorbell
from firnline.runtime.threads.pools import Directories, have_ended
from firnline.runtime.threads.sync_threads import SyncThreads

# Called for each Flush when it is over, with what went wrong.
Flushed = Callable[[Flush, StorageError | None], object]
_Problems = dict[str, StorageError]  # by path


class FlushGroup:
    """One run of syncs in flight; whoever asks meanwhile waits for the next one, together.

    A run begins when the turn of the loop ends: all that the turn has appended is in it. The files of a run
    are synced side by side: the file system commits once for those that wait at the same time, and once for
    each where they come one after the other. Nothing is believed before all are done, so their order does not
    matter.
    """

    def __init__(self, loop: PollLoop, doorbell: Doorbell, flushed: Flushed) -> None:
        self._loop = loop
        self._flushed = flushed
        self._waiting: list[Flush] = []
        self._in_flight: list[Flush] = []
        self._is_due = False
        self._files: dict[int, RealFile] = {}  # that are being synced, by the number of the sync
        self._last_number = 0
        self._names_left = 0
        self._problems: _Problems = {}
        self._threads = SyncThreads(loop, self._on_synced)
        self._names = _NameThreads(doorbell, self._on_names_synced)

    def add(self, flush: Flush) -> None:
        """Have it carried out in the next run."""
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
        if self._waiting:
            self._begin_soon()
        if len(finished) == 1:
            self._flushed(finished[0], problem_of(finished[0], self._problems))
        else:
            self._loop.take_in_turns(self._tell(finished, self._problems))

    def _tell(self, finished: list[Flush], problems: _Problems) -> Iterator[None]:
        for flush in finished:
            self._flushed(flush, problem_of(flush, problems))
            yield

    def close(self, until_s: float) -> bool:
        """End the threads after what they are at; at `until_s` leave those that a disk holds: False."""
        ended = self._threads.close(until_s), self._names.close(until_s)
        return all(ended)


class _NameThreads:
    """Threads for what has to be opened to be synced: directories, and files that nobody keeps open."""

    def __init__(self, doorbell: Doorbell, synced: Callable[[_Problems], object]) -> None:
        self._doorbell = doorbell
        self._synced = synced
        self._work: queue.SimpleQueue[list[File] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def sync(self, files: list[File]) -> int:
        """Have them synced side by side; return how often `synced` will be called."""
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
            self._doorbell.ring(self._told, problems)
            # A thread that waits keeps no file open: it may be of a topic that is deleted meanwhile.
            del share, file

    def _told(self, problems: _Problems, now_ms: int) -> Effects:
        self._synced(problems)
        return []

    def close(self, until_s: float) -> bool:
        """See `FlushGroup.close`."""
        for _ in self._threads:
            self._work.put(None)
        return have_ended(self._threads, until_s)


def problem_of(flush: Flush, problems: dict[str, StorageError]) -> StorageError | None:
    """What went wrong with the files of one flush: those of others in its run are not its own.

    problems  by path, of the whole run; the log of a topic that was deleted meanwhile may be among them
    """
    if not problems:
        return None
    return _worst([problems[file.path] for file in flush.files if file.path in problems])


def _worst(problems: Sequence[StorageError]) -> StorageError | None:
    """A failed disk counts before a want of descriptors."""
    return min(problems, key=lambda problem: problem.has_lost_nothing, default=None)


class FlushGroups:
    """A FlushGroup for each log directory: none waits for the disk of another one."""

    def __init__(
        self, loop: PollLoop, doorbell: Doorbell, flushed: Flushed, directories: Directories
    ) -> None:
        self._loop = loop
        self._doorbell = doorbell
        self._flushed = flushed
        self._directories = directories
        self._groups: dict[str, FlushGroup] = {}

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
            found = self._groups[directory] = FlushGroup(self._loop, self._doorbell, self._flushed)
        return found

    def close(self, until_s: float) -> bool:
        """See `FlushGroup.close`."""
        ended = [group.close(until_s) for group in self._groups.values()]
        return all(ended)


class _Joined:
    """A Flush of files in several directories: what went wrong in any did so for who asked."""

    def __init__(self, flush: Flush, shares: int) -> None:
        self._flush = flush
        self._left = shares
        self._problems: list[StorageError] = []

    def one_is_done(self, problem: StorageError | None, now_ms: int) -> Effects:
        self._left -= 1
        self._problems += [] if problem is None else [problem]
        return [] if self._left else self._flush.then(_worst(self._problems), now_ms)
