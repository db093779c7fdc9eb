"""What held very much is freed a portion at a time, and what somebody still has stays."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from firnline.base import freeing
from firnline.base.freeing import BACKLOG, FEW, Distinct, Rows, Table

MANY = 20_000


class Row:
    alive = 0

    def __init__(self, inner: Any = ()) -> None:
        Row.alive += 1
        self.inner = inner

    def __del__(self) -> None:
        Row.alive -= 1


class Loop:
    """Whoever calls `free_some`; it counts what each portion frees."""

    def __init__(self) -> None:
        self.calls = 0
        self.freed: list[int] = []

    def wake(self) -> None:
        self.calls += 1

    def run(self) -> None:
        while self.calls:
            before = Row.alive
            self.calls = int(BACKLOG.free_some())
            self.freed.append(before - Row.alive)


@pytest.fixture
def loop() -> Iterator[Loop]:
    Row.alive = 0
    made = Loop()
    BACKLOG.begin(made.wake)
    yield made
    BACKLOG.end(made.wake)
    assert Row.alive == 0
    assert len(BACKLOG) == 0


def _of(kind: str, count: int) -> Any:
    rows = (Row() for _ in range(count))
    if kind == "list":
        return Rows(rows)
    return Distinct(rows) if kind == "set" else Table(enumerate(rows))


@pytest.mark.parametrize("kind", ["list", "table", "set"])
def test_no_step_frees_much(loop: Loop, kind: str) -> None:
    held = _of(kind, MANY)
    del held
    assert Row.alive == MANY, "not in the step that lets go of it"
    loop.run()
    assert Row.alive == 0
    assert max(loop.freed) <= 1_000


@pytest.mark.parametrize("width", [FEW, FEW + 1, 3_000])
def test_rows_of_rows_are_freed_in_portions_however_they_are_spread(loop: Loop, width: int) -> None:
    held = Rows(Row(_of("list", width)) for _ in range(MANY // width))
    count = Row.alive
    del held
    assert Row.alive >= count - FEW
    loop.run()
    assert Row.alive == 0
    assert max(loop.freed) <= 1_000 * (FEW + 1)


def test_an_answer_that_another_client_is_told_too_stays_whole(loop: Loop) -> None:
    cached = _of("list", MANY)
    message = Row(cached)
    del message
    loop.run()
    assert (len(cached), Row.alive) == (MANY, MANY)
    one = cached[7]
    del cached
    loop.run()
    assert Row.alive == 1
    assert one.inner == ()
    del one


def test_what_is_let_go_of_while_others_are_freed_is_freed_after_them(loop: Loop) -> None:
    first, second = _of("list", MANY), _of("list", MANY)
    del first
    BACKLOG.free_some()
    del second
    loop.run()
    assert Row.alive == 0
    third = _of("list", MANY)
    del third
    assert loop.calls == 1, "woken again"
    loop.run()


def test_few_rows_are_freed_at_once(loop: Loop) -> None:
    held = _of("list", FEW)
    del held
    assert (Row.alive, loop.calls) == (0, 0)


def test_what_failed_half_way_is_freed_in_portions_too(loop: Loop) -> None:
    def handler() -> Iterator[None]:
        rows = _of("list", MANY)
        yield
        raise KeyError(len(rows))

    for hangs_up in (True, False):
        steps = handler()
        next(steps)
        if hangs_up:
            steps.close()  # type: ignore[attr-defined]
        else:
            with pytest.raises(KeyError):
                next(steps)
        del steps
        assert Row.alive == MANY
        loop.run()


def test_where_nobody_frees_in_portions_it_is_freed_at_once() -> None:
    Row.alive = 0
    held = Rows([Row(_of("list", 100)) for _ in range(100)])
    del held
    assert (Row.alive, len(BACKLOG)) == (0, 0)


def test_a_loop_that_ends_leaves_nothing_behind(loop: Loop) -> None:
    """Another one may have come in its place meanwhile: that goes on."""
    held = Rows([Row(_of("list", 100)) for _ in range(100)])
    other = Loop()
    BACKLOG.begin(other.wake)
    BACKLOG.end(loop.wake)
    del held
    assert other.calls == 1
    BACKLOG.end(other.wake)
    assert (Row.alive, len(BACKLOG)) == (0, 0)


@pytest.mark.parametrize("kind", ["list", "table", "set"])
def test_the_collector_does_not_go_over_what_waits_to_be_freed(loop: Loop, kind: str) -> None:
    """It did, for 40 ms at 300,000 rows: what comes back from its end is young again."""
    held = _of(kind, MANY)
    assert gc.is_tracked(held) == (kind == "table")
    del held
    (left,) = BACKLOG._left
    assert not gc.is_tracked(left)
    del left
    loop.run()


def test_the_twin_in_python_hides_them_as_well(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freeing, "_untrack", freeing._untrack_python())
    held = Rows(range(100))
    assert not gc.is_tracked(held)
    del held
    loop.run()
