"""A pool goes on whatever its work does: raise, hang, come back late; and what was cancelled is not done."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from firnline.base.effects import CancelSubmit, Effects, Submit
from firnline.base.effects import Pool as PoolName
from firnline.base.errors import Code, KafkaError, WorkFailed, WorkTimedOut
from firnline.runtime.poll import PollLoop
from firnline.runtime.threads.pool import ABANDONED_PER_THREAD, Pool
from firnline.runtime.threads.pools import Directories, Pools

PATIENCE_S = 20.0
THREADS = 2


class PanicException(BaseException):
    """What native code in Rust raises where it panics."""


class Bell:
    """The doorbell, in the test's hands: `deliver` is a turn of the event loop."""

    def __init__(self) -> None:
        self.rings: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()

    def ring(self, then: Any, result: Any) -> None:
        self.rings.put((then, result))

    def deliver(self, count: int = 1) -> None:
        for _ in range(count):
            then, result = self.rings.get(timeout=PATIENCE_S)
            then(result, 0)


class Store:
    """Calls of it hang until `answers`."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.answers = threading.Event()

    def hang(self) -> str:
        self.begun.release()
        self.answers.wait(PATIENCE_S)
        return "late"

    def await_begun(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=PATIENCE_S)


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.answers.set()


@pytest.fixture
def loop() -> Iterator[PollLoop]:
    made = PollLoop()
    yield made
    made.close()


@pytest.fixture
def bell() -> Bell:
    return Bell()


@pytest.fixture
def pool(bell: Bell) -> Iterator[Pool]:
    doorbell: Any = bell
    made = Pool("read", THREADS, doorbell, queue_max=1_000)
    yield made
    made.close(time.monotonic() + 0.1)


class Answers(list[Any]):
    """Results, in order, as continuations get them."""

    def submit(self, work: Callable[[], Any], pool: PoolName = "read", **more: Any) -> Submit[Any]:
        return Submit(name="work", pool=pool, work=work, then=self.then, **more)

    def then(self, result: Any, now_ms: int) -> Effects:
        self.append(result)
        return []


def overdue(pool: Pool) -> None:
    """The time of all work that runs now is over."""
    pool.abandon_overdue(time.monotonic() + PATIENCE_S)


def test_work_that_takes_long_is_slow_once_for_each_time_and_what_waits_is_not(
    pool: Pool, bell: Bell, store: Store
) -> None:
    answers, slow = Answers(), Answers()

    def is_slow(now_ms: int) -> Effects:
        slow.append(now_ms)
        return []

    for _ in range(THREADS + 1):
        pool.add(answers.submit(store.hang, run_timeout_ms=60_000, slow_ms=1_000, slow=is_slow))
    store.await_begun(THREADS)
    began_s = time.monotonic()
    for later_s in (0.5, 1.5, 1.7, 3.5):
        pool.abandon_overdue(began_s + later_s)
    bell.deliver(2 * THREADS)
    assert len(slow) == 2 * THREADS, "after one second, and after three; not the one that waits"
    store.answers.set()
    bell.deliver(THREADS + 1)
    assert answers == ["late"] * (THREADS + 1)
    pool.abandon_overdue(began_s + 30)
    assert bell.rings.empty()


def test_the_next_work_of_a_thread_is_slow_by_its_own_time(bell: Bell, store: Store) -> None:
    doorbell: Any = bell
    answers, slow = Answers(), Answers()

    def is_slow(now_ms: int) -> Effects:
        slow.append(now_ms)
        return []

    made = Pool("read", 1, doorbell)
    for count in (1, 2):
        store.answers.clear()
        made.add(answers.submit(store.hang, run_timeout_ms=60_000, slow_ms=1_000, slow=is_slow))
        store.await_begun(1)
        made.abandon_overdue(time.monotonic() + 1.5)
        bell.deliver()
        assert len(slow) == count
        store.answers.set()
        bell.deliver()
    made.close(time.monotonic() + 1)


def test_probes_that_hang_are_not_logged_by_their_pool(
    bell: Bell, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """The circuits log what they show, once."""
    doorbell: Any = bell
    for name, lines in (("probe", 0), ("read", 1)):
        made = Pool(name, THREADS, doorbell)
        made.add(Answers().submit(store.hang, run_timeout_ms=1))
        store.await_begun(1)
        caplog.clear()
        overdue(made)
        assert len([row for row in caplog.records if row.levelname == "WARNING"]) == lines
        made.close(time.monotonic() + 0.1)


@pytest.mark.parametrize("kind", [PanicException, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_work_may_raise_what_is_no_exception(
    pool: Pool, bell: Bell, kind: type[BaseException]
) -> None:
    """hdfs-native panics: the thread ended, and a copy was under way for ever."""
    answers = Answers()

    def fail() -> None:
        raise kind("called `unwrap` on a `None` value")

    for _ in range(2 * THREADS):
        pool.add(answers.submit(fail))
    pool.add(answers.submit(lambda: "goes on"))
    bell.deliver(2 * THREADS + 1)
    assert sorted(map(type, answers), key=str) == [WorkFailed] * 2 * THREADS + [str]
    failed = next(each for each in answers if isinstance(each, WorkFailed))
    assert kind.__name__ in str(failed)
    assert "unwrap" in str(failed)


def test_an_exception_stays_what_it_is_and_one_without_a_text_is_named(
    pool: Pool, bell: Bell
) -> None:
    class Mute(BaseException):
        def __str__(self) -> str:
            raise ValueError("no text")

    answers, problem = Answers(), MemoryError()

    def fail(raised: BaseException) -> None:
        raise raised

    pool.add(answers.submit(lambda: fail(problem)))
    bell.deliver()
    pool.add(answers.submit(lambda: fail(Mute())))
    bell.deliver()
    assert answers[0] is problem
    assert "Mute" in str(answers[1])


def test_work_that_does_not_end_in_time_has_failed_and_its_thread_is_replaced(
    pool: Pool, bell: Bell, store: Store
) -> None:
    answers, ended = Answers(), list[int]()

    def end(now_ms: int) -> Effects:
        ended.append(now_ms)
        return []

    for _ in range(THREADS):
        pool.add(answers.submit(store.hang, run_timeout_ms=50, ended=end))
    pool.add(answers.submit(lambda: "next"))
    store.await_begun(THREADS)
    pool.abandon_overdue(time.monotonic())
    assert answers == []
    overdue(pool)
    bell.deliver(THREADS + 1)
    assert [type(each) for each in answers] == [WorkTimedOut] * THREADS + [str]
    assert pool.abandoned == THREADS
    assert ended == []
    store.answers.set()
    bell.deliver(THREADS)
    assert (len(answers), len(ended), pool.abandoned) == (THREADS + 1, THREADS, 0)


def test_time_counts_from_when_the_work_begins(pool: Pool, bell: Bell, store: Store) -> None:
    answers = Answers()
    for _ in range(THREADS):
        pool.add(answers.submit(store.hang))  # it may take for ever
    store.await_begun(THREADS)
    pool.add(answers.submit(lambda: "waited", run_timeout_ms=1))
    overdue(pool)
    assert answers == []
    store.answers.set()
    bell.deliver(THREADS + 1)
    assert sorted(answers) == ["late"] * THREADS + ["waited"]


def test_too_many_hung_threads_are_no_more_and_the_pool_recovers(
    pool: Pool, bell: Bell, store: Store
) -> None:
    """All that waits is refused too: nobody is left to do it."""
    others = threading.active_count()  # of this process, whatever ran in it before
    answers = Answers()
    most = ABANDONED_PER_THREAD * THREADS
    for _ in range(most + 500):
        pool.add(answers.submit(store.hang, run_timeout_ms=1))
    while pool.abandoned < most:
        store.await_begun(THREADS)
        overdue(pool)
        bell.deliver(THREADS)
    assert pool.abandoned == most
    bell.deliver(500)
    kinds = [getattr(each, "code", type(each)) for each in answers]
    assert kinds == [WorkTimedOut] * most + [Code.THROTTLING_QUOTA_EXCEEDED] * 500
    refusal = pool.add(answers.submit(lambda: "new"))
    assert isinstance(refusal, KafkaError)
    assert refusal.is_retriable
    store.answers.set()
    bell.deliver(most)
    assert pool.abandoned == 0
    assert pool.add(answers.submit(lambda: "new")) is None
    bell.deliver()
    assert answers[-1] == "new"
    patience_end = time.monotonic() + PATIENCE_S
    while threading.active_count() > others + THREADS and time.monotonic() < patience_end:
        time.sleep(0.01)
    assert threading.active_count() <= others + THREADS


def test_a_system_without_threads_refuses_work(
    pool: Pool, bell: Bell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    answers = Answers()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        assert isinstance(pool.add(answers.submit(lambda: 1)), KafkaError)
    assert pool.add(answers.submit(lambda: 2)) is None
    bell.deliver()
    assert answers == [2]


def test_work_that_waited_too_long_is_not_begun(pool: Pool, bell: Bell, store: Store) -> None:
    answers, begun = Answers(), []
    for _ in range(THREADS):
        pool.add(answers.submit(store.hang))
    pool.add(answers.submit(lambda: begun.append("in vain"), queue_timeout_ms=1))
    pool.add(answers.submit(lambda: "has time", queue_timeout_ms=60_000))
    store.await_begun(THREADS)
    time.sleep(0.01)
    store.answers.set()
    bell.deliver(THREADS + 2)
    assert begun == []
    assert {type(each) for each in answers} == {str, WorkTimedOut}
    assert answers.count("has time") == 1


# ------------------------------------------------------------------------------------ keys, cancel


def test_work_of_a_key_is_done_once(pool: Pool, bell: Bell, store: Store) -> None:
    answers = Answers()
    for _ in range(20):
        pool.add(answers.submit(store.hang, key="k"))
    store.await_begun(1)
    store.answers.set()
    then, result = bell.rings.get(timeout=PATIENCE_S)
    pool.add(answers.submit(store.hang, key="k"))  # its result is on its way
    then(result, 0)
    assert answers == ["late"]
    pool.add(answers.submit(lambda: "again", key="k"))
    bell.deliver()
    assert answers == ["late", "again"]


def test_work_that_is_cancelled_while_it_waits_is_not_done(
    pool: Pool, bell: Bell, store: Store
) -> None:
    answers, done = Answers(), list[int]()
    for _ in range(THREADS):
        pool.add(answers.submit(store.hang))
    store.await_begun(THREADS)
    for number in range(1_000):
        assert pool.add(answers.submit(partial(done.append, number), key=number)) is None
    assert isinstance(pool.add(answers.submit(lambda: 0)), KafkaError)
    for number in range(999):
        pool.cancel(number, only_waiting=True)
    pool.cancel("nobody's")
    store.answers.set()
    bell.deliver(THREADS + 1)
    assert (done, sorted(answers, key=str)) == ([999], [None] + ["late"] * THREADS)
    assert (pool._unfinished, pool._waiting, pool._by_key) == (0, {}, {})


def test_work_that_is_cancelled_while_it_runs_has_no_result(
    pool: Pool, bell: Bell, store: Store
) -> None:
    answers = Answers()
    pool.add(answers.submit(store.hang, key="k"))
    store.await_begun(1)
    pool.cancel("k", only_waiting=True)
    pool.add(answers.submit(lambda: "ignored", key="k"))
    pool.cancel("k")
    pool.add(answers.submit(lambda: "anew", key="k"))
    bell.deliver()
    assert answers == ["anew"]
    store.answers.set()
    bell.deliver()
    assert answers == ["anew"]


def test_work_that_runs_is_not_cancelled_with_what_waits(
    pool: Pool, bell: Bell, store: Store
) -> None:
    answers = Answers()
    pool.add(answers.submit(store.hang, key="k"))
    store.await_begun(1)
    pool.cancel("k", only_waiting=True)
    store.answers.set()
    bell.deliver()
    assert answers == ["late"]


def test_work_that_is_cancelled_while_its_result_is_on_its_way_has_none(
    pool: Pool, bell: Bell
) -> None:
    answers = Answers()
    pool.add(answers.submit(lambda: "done", key="k"))
    then, result = bell.rings.get(timeout=PATIENCE_S)
    pool.cancel("k")
    then(result, 0)
    assert answers == []


# ---------------------------------------------------------------------------------- the event loop


def test_the_event_loop_looks_at_threads_while_there_is_work_with_a_limit(
    loop: PollLoop, store: Store
) -> None:
    bell, answers = Bell(), Answers()
    doorbell: Any = bell
    pools = Pools({"read": 1, "copy": 1}, doorbell, Directories([]), loop.call_later, {"read": 1})
    pools.add(answers.submit(store.hang))
    assert pools._look is None, "work without a limit costs nothing"
    store.await_begun(1)
    pools.add(answers.submit(store.hang, run_timeout_ms=10, key="waits"))
    assert isinstance(pools.add(answers.submit(store.hang)), KafkaError), "the queue has room for 1"
    pools.cancel(CancelSubmit(pool="read", key="waits"))
    work = Submit(name="w", pool="copy", work=store.hang, then=answers.then, run_timeout_ms=10)
    pools.add(work)
    store.await_begun(1)

    def look() -> None:
        loop.call_later(0.01, look) if bell.rings.empty() else loop.stop()

    look()
    loop.run()
    bell.deliver()
    assert [type(each) for each in answers] == [WorkTimedOut]
    assert pools.abandoned == 1
    store.answers.set()
    bell.deliver(2)
    pools._abandon_overdue()
    assert pools._look is None, "nothing runs any more"
    assert pools.close(time.monotonic() + PATIENCE_S)


def test_all_pools_end_at_the_same_time(loop: PollLoop, store: Store) -> None:
    """However many of them hang; and the process is to end without their threads."""
    doorbell: Any = Bell()
    names: tuple[PoolName, ...] = ("read", "ahead", "index", "copy", "expire", "names", "pages")
    pools = Pools(dict.fromkeys((*names, "disk"), 1), doorbell, Directories([]), loop.call_later)
    answers, done = Answers(), list[str]()
    for each in names:
        pools.add(answers.submit(store.hang, pool=each, path="/a"))
        pools.add(answers.submit(lambda: done.append("late"), pool=each, path="/a"))

    def sync() -> None:
        time.sleep(0.01)
        done.append("synced")

    for _ in range(10):
        pools.add(answers.submit(sync, pool="disk", path="/a"))
    store.await_begun(7)
    began = time.monotonic()
    assert not pools.close(began + 10)
    assert time.monotonic() - began < 4
    assert done == ["synced"] * 10
    store.answers.set()
    for worker in [each for pool in pools._pools.values() for each in pool._workers]:
        worker.thread.join(PATIENCE_S)
    assert done == ["synced"] * 10, "what a hung thread held up is never begun"


def test_work_whose_result_nobody_needs_any_more_is_not_begun(pool: Pool, store: Store) -> None:
    answers, done = Answers(), list[str]()
    for _ in range(THREADS):
        pool.add(answers.submit(store.hang))
    pool.add(answers.submit(lambda: done.append("in vain")))
    store.await_begun(THREADS)
    pool.begin_close()
    store.answers.set()
    assert pool.end_close(time.monotonic() + PATIENCE_S)
    assert done == []


def test_a_thread_that_was_abandoned_is_not_waited_for(
    pool: Pool, bell: Bell, store: Store
) -> None:
    pool.add(Answers().submit(store.hang, run_timeout_ms=1))
    store.await_begun(1)
    overdue(pool)
    bell.deliver()
    assert not pool.close(time.monotonic() + 0.1)
