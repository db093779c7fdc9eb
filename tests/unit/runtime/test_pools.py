"""Threads that are busy hold up no end of the node, unless they store something."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from firnline.base.effects import Pool as PoolName
from firnline.base.effects import Submit
from firnline.runtime.poll import PollLoop
from firnline.runtime.threads.doorbell import Doorbell
from firnline.runtime.threads.pool import Pool

DEADLINE_S = 20.0


@pytest.fixture
def bell() -> Iterator[Doorbell]:
    loop = PollLoop()
    made = Doorbell(loop, lambda then, result: None)
    yield made
    loop.close()


def submit(pool: PoolName, work: Any, owner: str = "", path: str = "/a") -> Submit:
    return Submit(
        name="work", pool=pool, work=work, then=lambda result, now_ms: [], owner=owner, path=path
    )


@pytest.mark.parametrize("name", ["codec", "read", "index", "pages"])
def test_work_that_only_the_loop_wants_holds_up_no_end(bell: Doorbell, name: PoolName) -> None:
    """96 batches that waited for zstd at level 22 kept a node from its end for more than a minute."""
    pool = Pool(name, 1, bell)
    begun, may_end = threading.Event(), threading.Event()
    done: list[int] = []

    def long() -> None:
        begun.set()
        may_end.wait(DEADLINE_S)

    pool.add(submit(name, long))
    for number in range(5):
        pool.add(submit(name, lambda number=number: done.append(number)))
    assert begun.wait(DEADLINE_S)
    before = time.monotonic()
    pool.close(time.monotonic() + DEADLINE_S)
    bell.close()
    assert time.monotonic() - before < DEADLINE_S / 2
    [thread] = [worker.thread for worker in pool._workers]
    assert thread.is_alive()
    may_end.set()
    thread.join(DEADLINE_S)
    assert not thread.is_alive(), "it ends by itself, and rings no bell that is gone"
    assert done == []


@pytest.mark.parametrize("name", ["disk", "copy", "expire", "votes"])
def test_what_is_stored_is_stored_before_the_end(bell: Doorbell, name: PoolName) -> None:
    pool = Pool(name, 2, bell)
    done: list[int] = []
    for number in range(5):
        pool.add(submit(name, lambda number=number: (time.sleep(0.02), done.append(number))))
    pool.close(time.monotonic() + DEADLINE_S)
    bell.close()
    assert sorted(done) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["disk", "votes"])
def test_a_disk_that_hangs_keeps_no_node_from_its_end(bell: Doorbell, name: PoolName) -> None:
    """And what it held up is never begun: another process may have the directory by then."""
    pool = Pool(name, 1, bell)
    begun, answers = threading.Event(), threading.Event()
    done: list[str] = []

    def hangs() -> None:
        begun.set()
        answers.wait(DEADLINE_S)

    pool.add(submit(name, hangs))
    pool.add(submit(name, lambda: done.append("begun after the end")))
    assert begun.wait(DEADLINE_S)
    assert not pool.close(time.monotonic() + 0.1), "the process is to end without it"
    bell.close()
    answers.set()
    [thread] = [worker.thread for worker in pool._workers]
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert done == []


def test_who_has_much_to_be_done_keeps_nobody_waiting_for_all_of_it(bell: Doorbell) -> None:
    """A client with hundreds of connections had hundreds of batches compressed before anybody else's."""
    pool = Pool("disk", 1, bell)
    begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> None:
        begun.set()
        may_end.wait(DEADLINE_S)

    pool.add(submit("disk", first, "many"))
    assert begun.wait(DEADLINE_S)
    for owner, count in (("many", 5), ("few", 2), ("one", 1), ("many", 2)):
        for number in range(count):
            work = f"{owner} {number}"
            pool.add(submit("disk", lambda work=work: done.append(work), owner))
    may_end.set()
    pool.close(time.monotonic() + DEADLINE_S)
    bell.close()
    assert done == [
        *("many 0", "few 0", "one 0", "many 1", "few 1"),
        *("many 2", "many 3", "many 4", "many 0", "many 1"),
    ]
    assert pool._waiting == {}
