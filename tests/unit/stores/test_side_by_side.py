"""Calls of a store side by side: all end before the caller goes on, and failures are never lost."""

import threading
from collections.abc import Callable
from functools import partial

import pytest

from firnline.stores.memory import MemoryStore
from firnline.stores.port import RemoteStorageError
from firnline.stores.side_by_side import run_side_by_side, run_within

PATIENCE_S = 30.0


@pytest.mark.parametrize("at_once", [1, 2, 6, 100])
def test_every_call_is_made_once(at_once: int) -> None:
    done: list[int] = []
    run_side_by_side([partial(done.append, n) for n in range(20)], at_once)
    assert sorted(done) == list(range(20))


def test_calls_overlap_up_to_the_bound_and_no_further() -> None:
    met = threading.Barrier(3)
    change = threading.Lock()
    now = most = 0

    def call() -> None:
        nonlocal now, most
        with change:
            now += 1
            most = max(most, now)
        met.wait(PATIENCE_S)
        with change:
            now -= 1

    run_side_by_side([call] * 9, 3)
    assert most == 3


def test_a_failure_is_raised_only_after_the_calls_in_progress_have_ended() -> None:
    """Or a put would end after the copy was undone, and leave an object that nobody deletes."""
    store = MemoryStore()
    has_failed, may_go_on = threading.Event(), threading.Event()

    def fails() -> None:
        has_failed.set()
        raise ValueError("the store is full")

    def slow() -> None:
        assert may_go_on.wait(PATIENCE_S)
        store.put("slow", (b"x",), size_bytes=1)

    def release() -> None:
        assert has_failed.wait(PATIENCE_S)
        may_go_on.set()

    threading.Thread(target=release).start()
    with pytest.raises(ValueError, match="full"):
        run_side_by_side([slow, fails], 2)
    assert "slow" in store.objects


def test_nothing_begins_after_a_failure() -> None:
    begun: list[int] = []

    def fails() -> None:
        raise ValueError("first")

    calls: list[Callable[[], object]] = [fails, *(partial(begun.append, n) for n in range(50))]
    with pytest.raises(ValueError, match="first"):
        run_side_by_side(calls, 1)
    assert begun == []
    both = threading.Barrier(2)

    def fails_with_another() -> None:
        both.wait(PATIENCE_S)
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        run_side_by_side(
            [fails_with_another] * 2 + [partial(begun.append, n) for n in range(50)], 2
        )
    assert begun == []


def test_what_is_no_exception_is_raised_too() -> None:
    """The client of HDFS raises panics, which are no Exception."""

    class Panic(BaseException):
        pass

    def panics() -> None:
        raise Panic

    with pytest.raises(Panic):
        run_side_by_side([lambda: None, panics, lambda: None], 3)


def test_a_call_that_hangs_is_left_alone_and_one_that_fails_raises() -> None:
    ends = threading.Event()
    with pytest.raises(RemoteStorageError, match=r"not answered within 0\.05 s"):
        run_within(0.05, lambda: ends.wait(PATIENCE_S))
    ends.set()
    run_within(PATIENCE_S, lambda: None)
    with pytest.raises(ZeroDivisionError):
        run_within(PATIENCE_S, lambda: 1 / 0)
