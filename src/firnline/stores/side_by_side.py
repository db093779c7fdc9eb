"""Runs several calls of a store side by side, because most of their time is latency. WORLD."""

import threading
from collections.abc import Callable, Sequence
from functools import partial

from firnline.stores.port import NewObject, ObjectStore, RemoteStorageError


def run_side_by_side(calls: Sequence[Callable[[], object]], at_once: int) -> None:
    """Run the calls, `at_once` at a time, in this thread and in others; return when all have ended.

    After a failure no further call begins. When those in progress have ended, the failure of the earliest
    call is raised, so a caller that undoes what was done finds no call still writing. The threads are daemons
    of their own, and not of a pool: calls that hang must not keep others from a thread, nor the process from
    ending.
    """
    if at_once <= 1 or len(calls) <= 1:
        for call in calls:
            call()
        return
    lock = threading.Lock()
    left = iter(enumerate(calls))
    failures: dict[int, BaseException] = {}

    def run() -> None:
        while True:
            with lock:
                number, call = next(left, (-1, None)) if not failures else (-1, None)
            if call is None:
                return
            try:
                call()
            except BaseException as problem:  # noqa: BLE001 - raised again below
                failures[number] = problem

    name = f"{threading.current_thread().name} beside"
    threads = [
        threading.Thread(target=run, name=name, daemon=True)
        for _ in range(min(at_once, len(calls)) - 1)
    ]
    for thread in threads:
        thread.start()
    run()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[min(failures)]


def run_within(limit_s: float, call: Callable[[], object]) -> None:
    """Run the call in a thread of its own, and wait for at most so many seconds; raise what it raises.

    Raises RemoteStorageError if it has not ended by then. It goes on, and nobody learns of its end.
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as problem:  # noqa: BLE001 - raised again below
            failures.append(problem)

    thread = threading.Thread(target=run, name="store", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        raise RemoteStorageError(f"the store has not answered within {limit_s:g} s")
    if failures:
        raise failures[0]


def put_last_alone(store: ObjectStore, objects: Sequence[NewObject]) -> None:
    """Do `put_together` where each put is visible when it ends: first all but the last, then the last."""
    *others, last = (
        partial(store.put, each.key, each.chunks, size_bytes=each.size_bytes) for each in objects
    )
    run_side_by_side(others, store.calls_at_once)
    last()
