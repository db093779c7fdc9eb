"""A request in slices tells whoever keeps its bytes when the last of them is done, however it ends."""

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from firnline.api.context import RequestContext
from firnline.api.slices import Slices, a_step_a_slice, in_slices
from firnline.base.background import Background, SlicedTask
from firnline.base.effects import CloseConnection, Effects
from tests.worlds.slices import sliced


def asking() -> RequestContext:
    connection = SimpleNamespace(listener="PLAIN", closed=False)
    return RequestContext(connection, 0, 1, 7, "test", 0)


class Node:
    def __init__(self) -> None:
        self.sliced_tasks = Background("test", is_round_robin=True)


def steps(count: int, problem: Exception | None = None) -> Slices:
    for _ in range(count):
        yield []
    if problem is not None:
        raise problem
    return []


@pytest.mark.parametrize("case", ["done", "failed", "gone", "gone, to the end"])
def test_the_end_of_the_slices_is_reported_once(case: str) -> None:
    node, context, ends = Node(), asking(), []
    problem = KeyError("a bug") if case == "failed" else None
    to_the_end = case.endswith("end")
    effects = in_slices(node, context, steps(3, problem), 0, to_the_end=to_the_end)  # type: ignore[arg-type]
    assert context.has_slices_left
    context.on_end = lambda: ends.append(1)
    if case.startswith("gone"):
        context.connection.closed = True  # type: ignore[attr-defined]
    reported = sliced(effects)
    assert ends == [1]
    assert [type(each) for each in reported] == ([CloseConnection] if problem else [])
    sliced(in_slices(node, context, steps(3), 0))  # type: ignore[arg-type]
    assert ends == [1], "an answer in slices, too, holds nothing"


def test_what_is_done_in_its_first_slice_is_no_request_in_slices() -> None:
    context = asking()
    assert in_slices(Node(), context, steps(0), 0) == []  # type: ignore[arg-type]
    assert not context.has_slices_left


def test_work_goes_on_though_the_timer_of_one_was_lost_with_a_request_that_failed() -> None:
    """Goal: a bug in one request does not end groups, or all large requests, for good and without a word."""
    done: list[str] = []

    def work(name: str) -> Generator[Effects, int, None]:
        yield []
        done.append(name)

    background = Background("test")
    background.begin(
        work("lost"), 0
    )  # whoever began it failed, and what it returned is not carried out
    sliced(background.begin(work("next"), 1), 1)
    assert done == ["lost", "next"]


def test_a_work_that_fails_is_not_passed_over_in_silence() -> None:
    """It ends the node (`runtime.loop`): one that goes on without its expiry would not say so."""

    def work() -> SlicedTask:
        yield []
        raise KeyError("a bug")

    background = Background("test")
    with pytest.raises(KeyError):
        sliced(background.begin(work(), 0))


_MANY = range(1_000)


@pytest.mark.parametrize(
    ("table", "is_kept"),
    [
        (list(_MANY), True),
        (dict.fromkeys(_MANY), True),
        (set(_MANY), True),
        (list(_MANY[1:]), False),  # as each of 100,000 directories has one
        ("no table" * len(_MANY), False),
    ],
)
def test_a_large_table_that_steps_lead_to_is_freed_in_portions(table: Any, is_kept: bool) -> None:
    """Whoever makes one need not say so. Method: see what is kept for the request."""
    context, kept = asking(), list[Any]()
    context.connection.response_memory = SimpleNamespace(keeps=kept.append)  # type: ignore[attr-defined]

    def steps() -> Generator[Any, None, Any]:
        yield "made so far"
        yield None
        return table

    slices = a_step_a_slice(steps(), 0, context)
    next(slices)
    slices.send(1)
    with pytest.raises(StopIteration) as done:
        slices.send(2)
    assert done.value.value == (table, 2)
    assert kept == ["made so far", *([table] if is_kept else [])]
