"""One run of syncs serves many; what fails in it fails for whom it is."""

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from firnline.base.effects import SYNC_THREADS, Flush
from firnline.base.errors import StorageError
from firnline.runtime.disk import RealFile, RealFs
from firnline.runtime.threads import sync_threads
from firnline.runtime.threads.flushes import FlushGroup, problem_of
from firnline.runtime.threads.sync_threads import serve_syncs_python
from tests.unit.native.compiled import native, needs_native
from tests.unit.runtime.turning import DEADLINE_S, Turning, turning


@pytest.fixture
def turns() -> Iterator[Turning]:
    with turning() as made:
        yield made


class Named:
    def __init__(self, path: str) -> None:
        self.path = path


def flush(*paths: str) -> Flush:
    return flush_of(*(Named(path) for path in paths))


def flush_of(*files: Any) -> Flush:
    return Flush(files=list(files), then=lambda error, now_ms: [])


def group_of(turns: Turning) -> FlushGroup:
    return FlushGroup(turns.loop, turns.doorbell, turns.on_flushed)


def test_a_topic_that_is_deleted_under_a_sync_costs_its_neighbours_nothing() -> None:
    """Its directory is gone when the run comes to it; others in the run have not failed, nor has the disk."""
    gone = StorageError("no such directory", path="/data/t-0")
    problems = {"/data/t-0": gone}
    assert problem_of(flush("/data/t-0/0.log", "/data/t-0"), problems) is gone
    assert problem_of(flush("/data/u-0/0.log", "/data/u-0"), problems) is None
    assert problem_of(flush("/data/u-0/0.log"), {}) is None


class Meeting:
    """A directory whose sync waits for as many others as can be under way."""

    def __init__(self, path: str, barrier: threading.Barrier) -> None:
        self.path = path
        self._barrier = barrier

    def sync(self) -> None:
        with suppress(threading.BrokenBarrierError):
            self._barrier.wait(20)


class Failing(Named):
    def sync(self) -> None:
        raise StorageError("cannot sync", path=self.path)


def test_the_names_of_a_run_are_synced_side_by_side(turns: Turning) -> None:
    """A file system commits once for those that wait together: a thousand logs take one tenth of the time."""
    barrier = threading.Barrier(SYNC_THREADS)
    group = group_of(turns)
    asked = flush_of(*(Meeting(str(number), barrier) for number in range(2 * SYNC_THREADS)))
    group.add(asked)
    turns.until(lambda: bool(turns.flushed))
    assert turns.flushed == [(asked, None)]
    assert group.close(time.monotonic() + 60)


def test_a_run_is_over_when_all_of_it_is_and_says_what_failed(turns: Turning) -> None:
    group = group_of(turns)
    bad, good = flush_of(Failing("bad"), Named("x")), flush_of(Meeting("y", threading.Barrier(1)))
    bad.files[1].sync = lambda: None  # type: ignore[method-assign]
    group.add(bad)
    group.add(good)
    turns.until(lambda: bool(turns.flushed))
    [(_, problem), (_, nothing)] = turns.flushed
    assert problem is not None
    assert problem.facts["path"] == "bad"
    assert nothing is None, "each is told of its own files"
    turns.for_a_while()
    assert len(turns.flushed) == 2, "once"
    assert group.close(time.monotonic() + 60)


def test_a_sync_that_a_disk_holds_for_ever_keeps_no_node_from_its_end(turns: Turning) -> None:
    never = threading.Barrier(2)
    group = group_of(turns)
    group.add(flush_of(Meeting("held", never)))
    turns.for_a_while()
    try:
        assert not group.close(time.monotonic() + 0.1)
    finally:
        never.abort()


# ------------------------------------------------------------------- files that are open


class Disk:
    """Stands in for fdatasync: notes what is synced, and may hold or fail it."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.together: list[int] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.error = 0
        self._under_way = 0
        self._lock = threading.Lock()

    def fdatasync(self, fd: int) -> None:
        with self._lock:
            self._under_way += 1
            self.together.append(self._under_way)
            self.synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        self.may_go_on.wait(DEADLINE_S)
        with self._lock:
            self._under_way -= 1
        if self.error:
            raise OSError(self.error, "as the test says")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk()
    monkeypatch.setattr(sync_threads, "serve_syncs", serve_syncs_python)
    monkeypatch.setattr(os, "fdatasync", made.fdatasync)
    yield made
    made.may_go_on.set()


def opened(path: Path) -> RealFile:
    file = RealFs().open(str(path), create=True)
    file.append(b"x")
    return file


@pytest.mark.parametrize(
    "serve", [serve_syncs_python, pytest.param("compiled", marks=needs_native)]
)
def test_what_a_thread_syncs_and_what_it_cannot_is_reported(
    serve: Any, tmp_path: Path, turns: Turning, monkeypatch: pytest.MonkeyPatch
) -> None:
    if serve == "compiled":
        serve = native.serve_syncs
    monkeypatch.setattr(sync_threads, "serve_syncs", serve)
    notified: dict[int, int] = {}
    threads = sync_threads.SyncThreads(turns.loop, notified.__setitem__)
    file = opened(tmp_path / "file")
    reading, writing = os.pipe()
    for number in range(1000):
        threads.sync(file.fileno(), number)
    threads.sync(writing, 1000)  # a pipe cannot be synced
    threads.sync(987_654, 1001)
    turns.until(lambda: len(notified) == 1002)
    assert {notified[number] for number in range(1000)} == {0}
    assert (notified[1000], notified[1001]) == (errno.EINVAL, errno.EBADF)
    assert len(threads._threads) == SYNC_THREADS
    assert threads.close(time.monotonic() + DEADLINE_S)
    os.close(reading)
    os.close(writing)


def test_what_one_turn_of_the_loop_appended_is_synced_together_and_what_comes_later_in_one_more_run(
    disk: Disk, tmp_path: Path, turns: Turning
) -> None:
    group = group_of(turns)
    one, two = opened(tmp_path / "one"), opened(tmp_path / "two")
    disk.may_go_on.clear()
    for file in (one, two, one):
        group.add(flush_of(file))
    turns.until(lambda: len(disk.synced) == 2)
    for _ in range(5):
        group.add(flush_of(one))
    turns.for_a_while()
    assert sorted(disk.synced) == ["one", "two"]
    disk.may_go_on.set()
    turns.until(lambda: len(turns.flushed) == 8)
    assert sorted(disk.synced) == ["one", "one", "two"]
    assert max(disk.together) == 2
    assert group.close(time.monotonic() + DEADLINE_S)


def test_a_file_whose_sync_failed_is_lost_to_all_who_ask_again(
    disk: Disk, tmp_path: Path, turns: Turning
) -> None:
    """The kernel marks dirty pages clean after a failed sync: a second one would lie (rel-P9)."""
    group = group_of(turns)
    bad, good = opened(tmp_path / "bad"), opened(tmp_path / "good")
    disk.error = errno.EIO
    group.add(flush_of(bad))
    turns.until(lambda: len(turns.flushed) == 1)
    disk.error = 0
    group.add(flush_of(bad, good))
    group.add(flush_of(good))
    turns.until(lambda: len(turns.flushed) == 3)
    first, again, other = (problem for _, problem in turns.flushed)
    assert first is not None
    assert first.facts["error"] == "EIO"
    assert again is not None
    assert "earlier sync" in str(again)
    assert other is None
    assert disk.synced == ["bad", "good"]
    assert group.close(time.monotonic() + DEADLINE_S)


def test_a_file_that_is_closed_under_its_sync_keeps_its_descriptor_until_that_is_over(
    disk: Disk, tmp_path: Path, turns: Turning
) -> None:
    """Else the thread would sync whichever file has the number next, and say that this one is on disk."""
    group = group_of(turns)
    file = opened(tmp_path / "file")
    fd = file.fileno()
    disk.may_go_on.clear()
    group.add(flush_of(file))
    turns.until(lambda: len(disk.synced) == 1)
    file.close()
    assert os.fstat(fd).st_size == 1
    disk.may_go_on.set()
    turns.until(lambda: bool(turns.flushed))
    assert turns.flushed[0][1] is None
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)
    group.add(flush_of(file))
    turns.until(lambda: len(turns.flushed) == 2)
    assert turns.flushed[1][1] is not None, "nobody can say that it is on disk"
    assert group.close(time.monotonic() + DEADLINE_S)


def test_a_file_that_a_disk_holds_for_ever_keeps_no_node_from_its_end(
    disk: Disk, tmp_path: Path, turns: Turning
) -> None:
    group = group_of(turns)
    disk.may_go_on.clear()
    group.add(flush_of(opened(tmp_path / "file")))
    turns.until(lambda: len(disk.synced) == 1)
    assert not group.close(time.monotonic() + 0.1)


def test_flushes_that_end_together_are_reported_a_few_milliseconds_at_a_time(
    tmp_path: Path, turns: Turning
) -> None:
    """Each renames a file, perhaps, or completes requests: hundreds of them are no one step."""
    group = group_of(turns)
    file = opened(tmp_path / "file")
    notified: list[float] = []

    def slow(error: object, now_ms: int) -> list[Any]:
        time.sleep(0.001)
        notified.append(time.monotonic())
        return []

    for _ in range(20):
        group.add(Flush(files=[file], then=slow))
    between: list[int] = []

    def look() -> None:
        between.append(len(notified))
        turns.loop.call_soon(look)

    turns.loop.call_soon(look)
    turns.until(lambda: len(notified) == 20)
    assert len({count for count in between if 0 < count < 20}) >= 3
    assert group.close(time.monotonic() + DEADLINE_S)
