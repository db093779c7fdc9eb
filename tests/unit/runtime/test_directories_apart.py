"""Threads of a node with several log directories: a disk that hangs holds up no other one."""

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from firnline.base.effects import BY_DIRECTORY, SYNC_THREADS, Flush, Submit
from firnline.base.effects import Pool as PoolName
from firnline.base.errors import StorageError
from firnline.runtime.threads.flushes import FlushGroups
from firnline.runtime.threads.pools import POOL_QUEUE_MAX, Directories, Pools
from tests.unit.runtime.turning import Turning, turning

DEADLINE_S = 20.0
BOTH = Directories(["/a", "/b"])


class Bell:
    """The doorbell, in the test's hands."""

    def __init__(self) -> None:
        self.rings: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()

    def ring(self, then: Any, result: Any) -> None:
        self.rings.put((then, result))


class Disk:
    """Threads that wait for it are held until `answers`."""

    def __init__(self) -> None:
        self.answers = threading.Event()

    def wait(self) -> None:
        self.answers.wait(DEADLINE_S)


class OnDisk:
    """A file; its disk may hang, or its sync fail."""

    def __init__(self, path: str, disk: Disk | None = None, error: str | None = None) -> None:
        self.path = path
        self._disk = disk
        self._error = error

    def sync(self) -> None:
        if self._disk is not None:
            self._disk.wait()
        if self._error is not None:
            raise StorageError("cannot sync", path=self.path, error=self._error)


@pytest.fixture
def hung() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.answers.set()


def no_timer(delay_s: float, call: Any) -> Any:
    raise AssertionError("no work has a time limit here")


def pools(bell: Bell, directories: Directories = BOTH) -> Pools:
    doorbell: Any = bell
    threads = {"disk": SYNC_THREADS, "pages": 4, "codec": 1}
    return Pools(threads, doorbell, directories, no_timer)


def submit(pool: PoolName, path: str, work: Any) -> Submit:
    return Submit(name="work", pool=pool, path=path, work=work, then=lambda result, now_ms: [])


@pytest.mark.parametrize("pool", sorted(BY_DIRECTORY))
def test_works_that_a_hung_directory_holds_keep_no_work_of_another_one_waiting(
    hung: Disk, pool: PoolName
) -> None:
    """However many they are: the pool refuses what is too much of that directory alone."""
    bell = Bell()
    made = pools(bell)
    refusals = [
        made.add(submit(pool, "/a/t-0", hung.wait)) for _ in range(POOL_QUEUE_MAX[pool] + 99)
    ]
    assert refusals[-1] is not None
    assert made.add(submit(pool, "/b/t-1/0.log", lambda: "done")) is None
    _, result = bell.rings.get(timeout=DEADLINE_S / 2)
    assert result == "done"
    hung.answers.set()
    made.close(time.monotonic() + DEADLINE_S)


def test_a_node_with_one_directory_has_no_more_threads_than_before() -> None:
    bell = Bell()
    made = pools(bell, Directories(["/a", "/a"]))
    for path in ("/a/t-0", "/a", "/elsewhere/u-0"):
        made.add(submit("disk", path, lambda: None))
        bell.rings.get(timeout=DEADLINE_S)
    assert len(made._pools) == 3
    assert len(made["disk"]._workers) <= 3
    assert made.close(time.monotonic() + DEADLINE_S)


def test_a_directory_within_another_one_or_beside_it_with_a_longer_name_is_one_of_its_own() -> None:
    known = Directories(["/data", "/data/inner", "/data2"])
    paths = ("/data", "/data/t-0", "/data/inner/t-0", "/data2/t-0", "/data/innermost-0", "/x")
    assert [known.of(path) for path in paths] == [
        *("/data/", "/data/", "/data/inner/", "/data2/", "/data/", "")
    ]


def flush_of(*files: OnDisk, notified: list[Any]) -> Flush:
    some: Any = list(files)
    return Flush(files=some, then=lambda problem, now_ms: notified.append(problem) or [])  # type: ignore[func-returns-value]


@pytest.fixture
def turns() -> Iterator[Turning]:
    with turning() as made:
        yield made


def groups(turns: Turning) -> FlushGroups:
    return FlushGroups(turns.loop, turns.doorbell, turns.on_flushed, BOTH)


def test_what_is_acknowledged_in_one_directory_does_not_wait_for_a_sync_in_another_one(
    hung: Disk, turns: Turning
) -> None:
    flushes = groups(turns)
    notified: list[Any] = []
    flushes.add(flush_of(OnDisk("/a/t-0/0.log", hung), notified=[]))
    flushes.add(flush_of(OnDisk("/b/t-1/0.log"), notified=notified))
    turns.until(lambda: bool(notified), DEADLINE_S / 2)
    assert notified == [None]
    hung.answers.set()
    assert flushes.close(time.monotonic() + DEADLINE_S)


@pytest.mark.parametrize("errors", [(None, None), ("EMFILE", None), ("EMFILE", "EIO")])
def test_who_waits_for_files_in_two_directories_is_notified_once_and_of_what_is_worst(
    hung: Disk, turns: Turning, errors: tuple[str | None, str | None]
) -> None:
    flushes = groups(turns)
    notified: list[Any] = []
    files = OnDisk("/a/t-0/0.log", hung, errors[0]), OnDisk("/b/t-1/0.log", None, errors[1])
    flushes.add(flush_of(*files, notified=notified))
    turns.until(lambda: bool(turns.flushed))
    assert notified == [], "one of them is not on disk"
    hung.answers.set()
    turns.until(lambda: bool(notified))
    [problem] = notified
    assert (problem and problem.facts["error"]) == (errors[1] or errors[0])
    assert flushes.close(time.monotonic() + DEADLINE_S)


def test_no_work_for_a_disk_can_be_asked_for_without_a_word_of_which_one() -> None:
    """It would wait behind those of whichever directory hangs."""
    with pytest.raises(AssertionError):
        submit("disk", "", lambda: None)
