"""One run of syncs serves many; what fails in it fails for whom it is."""

import queue
import threading
import time
from contextlib import suppress
from typing import Any

from firnline.base.effects import SYNC_THREADS, Flush
from firnline.base.errors import StorageError
from firnline.runtime.workers import FlushGroup, problem_of


class Named:
    def __init__(self, path: str) -> None:
        self.path = path


def flush(*paths: str) -> Flush:
    files: Any = [Named(path) for path in paths]
    return Flush(files=files, then=lambda error, now_ms: [])


def test_a_topic_that_is_deleted_under_a_sync_costs_its_neighbours_nothing() -> None:
    """Its directory is gone when the run comes to it; others in the run have not failed, nor has the disk."""
    gone = StorageError("no such directory", path="/data/t-0")
    problems = {"/data/t-0": gone}
    assert problem_of(flush("/data/t-0/0.log", "/data/t-0"), problems) is gone
    assert problem_of(flush("/data/u-0/0.log", "/data/u-0"), problems) is None
    assert problem_of(flush("/data/u-0/0.log"), {}) is None


class Bell:
    """The doorbell, in the test's hands."""

    def __init__(self) -> None:
        self.rings: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()

    def ring(self, then: Any, result: Any) -> None:
        self.rings.put((then, result))


class Meeting:
    """A file whose sync waits for as many others as can be under way."""

    def __init__(self, path: str, barrier: threading.Barrier) -> None:
        self.path = path
        self._barrier = barrier

    def sync(self) -> None:
        with suppress(threading.BrokenBarrierError):
            self._barrier.wait(20)


class Failing(Named):
    def sync(self) -> None:
        raise StorageError("cannot sync", path=self.path)


def group_of(bell: Bell) -> FlushGroup:
    doorbell: Any = bell
    return FlushGroup(doorbell)


def test_the_files_of_a_run_are_synced_side_by_side() -> None:
    """A file system commits once for those that wait together: a thousand logs take one tenth of the time."""
    bell, barrier = Bell(), threading.Barrier(SYNC_THREADS)
    group = group_of(bell)
    files: Any = [Meeting(str(number), barrier) for number in range(2 * SYNC_THREADS)]
    flush = Flush(files=files, then=lambda error, now_ms: [])
    group.add(flush)
    then, problems = bell.rings.get(timeout=60)
    assert problems == {}
    assert then() == [flush]
    assert group.close(time.monotonic() + 60)


def test_a_run_is_over_when_all_of_it_is_and_says_what_failed() -> None:
    bell = Bell()
    group = group_of(bell)
    files: Any = [Failing("bad"), *(Meeting(str(n), threading.Barrier(1)) for n in range(20))]
    group.add(Flush(files=files, then=lambda error, now_ms: []))
    _, problems = bell.rings.get(timeout=60)
    assert list(problems) == ["bad"]
    assert group.close(time.monotonic() + 60)
    assert bell.rings.empty(), "once"


def test_a_sync_that_a_disk_holds_for_ever_keeps_no_node_from_its_end() -> None:
    bell, never = Bell(), threading.Barrier(2)
    group = group_of(bell)
    files: Any = [Meeting("held", never)]
    group.add(Flush(files=files, then=lambda error, now_ms: []))
    try:
        assert not group.close(time.monotonic() + 0.1)
    finally:
        never.abort()
