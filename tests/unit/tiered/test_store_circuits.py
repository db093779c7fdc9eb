"""The circuits of a store by themselves: what counts, what is let through, and that no work evades them."""

import ast
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from firnline.base.effects import Effects, Submit
from firnline.base.errors import Code, KafkaError, StorageError, WorkTimedOut
from firnline.stores.memory import MemoryStore
from firnline.stores.port import RemoteStorageError
from firnline.tiered.circuits import (
    FAILURES_TO_OPEN,
    OPERATIONS,
    StoreCircuits,
    StoreUnavailable,
)
from firnline.tiered.objects.probe import Operation
from firnline.tiered.settings import store_timeout_ms
from tests.worlds.effects import World, only

TIERED = Path(__file__).parents[3] / "src" / "firnline" / "tiered"


def submitted(
    circuits: StoreCircuits, operation: Operation, now_ms: int, **changes: Any
) -> Effects:
    values: dict[str, Any] = {
        "name": "work",
        "pool": "read",
        "work": lambda: None,
        "then": lambda result, at_ms: [],
        "run_timeout_ms": 1000,
    }
    return circuits.submit(operation, now_ms, **{**values, **changes})


def test_what_began_before_a_circuit_opened_does_not_open_it_again() -> None:
    circuits, world = StoreCircuits(MemoryStore(), None, lambda failures, max_ms: 100), World(0)
    world.held = lambda effect: isinstance(effect, Submit)
    for number in range(2 * FAILURES_TO_OPEN):
        world.run(submitted(circuits, "read", 0, name=str(number)))
    *works, last = list(world.on_hold)
    for effect in works[:FAILURES_TO_OPEN]:
        world.complete_with(effect, WorkTimedOut("60 s"))
    assert circuits.refusal("read", 0) is not None
    world.complete(world.on_hold.pop())  # the probe
    assert circuits.refusal("read", 0) is None
    for effect in (*works[FAILURES_TO_OPEN:], last):
        world.complete_with(effect, WorkTimedOut("60 s"))
    assert circuits.refusal("read", 0) is None


def test_work_that_may_have_waited_for_a_thread_says_nothing_about_the_store() -> None:
    circuits = StoreCircuits(MemoryStore(), None, lambda failures, max_ms: 100)
    refused = KafkaError(Code.THROTTLING_QUOTA_EXCEEDED, "the pool is full")
    for _ in range(10):
        search = only(submitted(circuits, "read", 0, queue_timeout_ms=30_000), Submit)
        assert search.then(WorkTimedOut("30 s"), 0) == []
        assert only(submitted(circuits, "read", 0), Submit).then(refused, 0) == []
        assert only(submitted(circuits, "copy", 0), Submit).then(StorageError("local"), 0) == []
    assert all(each is None for each in circuits.open_ms(0).values())


@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_operation_of_a_plugin_is_let_through(operation: Operation) -> None:
    circuits = StoreCircuits(None, None, lambda failures, max_ms: 100 * failures)
    failed, fine = RemoteStorageError("503"), None
    for _ in range(FAILURES_TO_OPEN):
        only(submitted(circuits, operation, 0), Submit).then(failed, 0)
    answers: list[Any] = []
    refuse: Callable[[int], Effects] = partial(
        submitted, circuits, operation, then=lambda result, now_ms: [*map(answers.append, [result])]
    )
    refuse(99)
    first = only(submitted(circuits, operation, 100), Submit)
    refuse(100)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
    first.then(failed, 101)
    refuse(300)
    assert len(answers) == 3, "the wait has grown"
    second = only(submitted(circuits, operation, 301), Submit)
    refuse(301)
    second.then(fine, 302)
    assert len(answers) == 4
    assert only(submitted(circuits, operation, 302), Submit)
    assert only(submitted(circuits, operation, 302), Submit)


def test_one_that_was_let_through_and_never_began_blocks_nobody_for_ever() -> None:
    circuits = StoreCircuits(None, None, lambda failures, max_ms: 100)
    for _ in range(FAILURES_TO_OPEN):
        only(submitted(circuits, "copy", 0), Submit).then(RemoteStorageError("503"), 0)
    assert not isinstance(circuits.admit("copy", 100), StoreUnavailable)
    assert isinstance(circuits.admit("copy", 101), StoreUnavailable)
    assert not isinstance(circuits.admit("copy", 100 + 3 * store_timeout_ms()), StoreUnavailable)


def test_a_refusal_has_the_error_of_the_store_at_its_end_and_not_within_other_brackets() -> None:
    """It stands in `firnline tier status` for each partition."""
    circuits = StoreCircuits(MemoryStore(), None, lambda failures, max_ms: 100)
    circuits.open("write", StorageError("the directory is not there", path="/t"), 0)
    assert str(circuits.refusal("write", 0)) == (
        "the store of the tier fails (write), and is not used until it answers:"
        " the directory is not there [path=/t]"
    )


def test_all_work_for_the_store_goes_through_its_circuits() -> None:
    """The only work that a module of the tier submits itself is local, and has no limit of time."""
    found: dict[str, list[bool]] = {}
    for path in sorted(TIERED.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Submit":
                has_limit = any(each.arg == "run_timeout_ms" for each in node.keywords)
                found.setdefault(path.name, []).append(has_limit)
    assert found.pop("circuits.py") == [True, True]
    assert found == {
        "keeper.py": [False],  # a comparison in memory
        "copier.py": [False],  # a check of local files
        "index_cache.py": [False],  # a local copy of indexes
    }


def test_circuits_that_open_one_after_the_other_share_a_probe() -> None:
    circuits, world = StoreCircuits(MemoryStore(), None, lambda failures, max_ms: 100), World(0)
    world.held = lambda effect: isinstance(effect, Submit)
    opened: list[Operation] = ["delete", "write", "read"]
    for operation in opened:
        world.run(circuits.open(operation, RemoteStorageError("503"), 0))
    assert len(world.on_hold) == 1
    world.complete(world.on_hold.pop())  # of deletions; then one of the two others
    world.complete(only(world.on_hold, Submit))
    assert all(since_ms is None for since_ms in circuits.open_ms(0).values())


def test_a_probe_without_an_answer_is_told_in_words_of_the_store() -> None:
    """`work did not end in time [work=probe the store of the tier limit_ms=5000]` is about a thread."""
    circuits, world = StoreCircuits(MemoryStore(), None, lambda failures, max_ms: 100), World(0)
    world.held = lambda effect: isinstance(effect, Submit)
    world.run(circuits.open("read", RemoteStorageError("503"), 0))
    late = WorkTimedOut("work did not end in time", work="probe", limit_ms=5000)
    world.complete_with(world.on_hold.pop(), late)
    (found,) = circuits.problems()
    assert str(found.problem) == "the store has not answered within 5 s"
