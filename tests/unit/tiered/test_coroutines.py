"""Coroutines: each operation answers once, now or later, and the sequence goes on with its result."""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.log_lines.line import Log
from firnline.tiered import coroutines
from firnline.tiered.coroutines import Begin, Run, Steps, together
from tests.worlds.effects import said, told

Then = Callable[[Any, int], Effects]


def note(line: str) -> Effects:
    return [told(line)]


class Later:
    """An operation that answers when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Then] = []

    def __call__(self, then: Then, now_ms: int) -> Effects:
        self.waiting.append(then)
        return note(f"begun at {now_ms}")


def at_once(then: Then, now_ms: int) -> Effects:
    return note("first") + then("answer", now_ms) + note("last")


def collect(into: list[Any]) -> Then:
    def done(result: Any, now_ms: int) -> Effects:
        into.append((result, now_ms))
        return note("done")

    return done


def test_a_sequence_waits_for_each_operation_and_has_the_time_of_its_answer() -> None:
    first, second, ends = Later(), Later(), list[Any]()

    def sequence(run: Run) -> Steps[str]:
        a = yield from run.call(first)
        between = run.now_ms
        b = yield from run.call(second)
        return f"{a} at {between}, {b}"

    assert coroutines.run(sequence, 5, collect(ends)) == note("begun at 5")
    assert first.waiting.pop()("one", 70) == note("begun at 70")
    assert not ends
    assert second.waiting.pop()("two", 80) == note("done")
    assert ends == [("one at 70, two", 80)]


def test_effects_keep_their_order_where_an_operation_answers_at_once() -> None:
    ends: list[Any] = []

    def sequence(run: Run) -> Steps[str]:
        run.emit(note("emitted"))
        result: str = yield from run.call(at_once)
        run.emit(note("after"))
        return result

    lines = [said(e) for e in coroutines.run(sequence, 0, collect(ends)) if isinstance(e, Log)]
    assert lines == ["emitted", "first", "last", "after", "done"]
    assert ends == [("answer", 0)]


def test_ten_thousand_answers_at_once_need_no_deep_stack() -> None:
    ends: list[Any] = []

    def sequence(run: Run) -> Steps[int]:
        for _ in range(10_000):
            yield from run.call(at_once)
        return 10_000

    coroutines.run(sequence, 0, collect(ends))
    assert ends == [(10_000, 0)]


def test_an_operation_that_answers_twice_is_a_bug_and_not_a_second_end() -> None:
    later, ends = Later(), list[Any]()

    def sequence(run: Run) -> Steps[None]:
        yield from run.call(later)

    coroutines.run(sequence, 0, collect(ends))
    (then,) = later.waiting
    then(None, 1)
    with pytest.raises(AssertionError, match="only once"):
        then(None, 2)
    assert len(ends) == 1


def test_an_operation_that_answers_twice_at_once_is_a_bug() -> None:
    def twice(then: Then, now_ms: int) -> Effects:
        return then(None, now_ms) + then(None, now_ms)

    def sequence(run: Run) -> Steps[None]:
        yield from run.call(twice)

    with pytest.raises(AssertionError, match="only once"):
        coroutines.run(sequence, 0, collect([]))


def test_a_late_second_answer_is_not_taken_for_that_of_the_next_operation() -> None:
    first, second = Later(), Later()

    def sequence(run: Run) -> Steps[None]:
        yield from run.call(first)
        yield from run.call(second)

    coroutines.run(sequence, 0, collect([]))
    (then,) = first.waiting
    then(None, 1)
    with pytest.raises(AssertionError, match="only once"):
        then(None, 2)


def test_several_operations_begin_together_and_their_results_keep_their_order() -> None:
    first, second, ends = Later(), Later(), list[Any]()

    def sequence(run: Run) -> Steps[Any]:
        none = yield from run.call(together([]))
        operations: list[Begin[Any]] = [first, at_once, second]
        some = yield from run.call(together(operations))
        return none, some

    begun = coroutines.run(sequence, 5, collect(ends))
    assert begun == [
        *note("begun at 5"),
        *note("first"),
        *note("last"),
        *note("begun at 5"),
    ]
    assert second.waiting.pop()("two", 6) == []
    assert first.waiting.pop()("one", 7) == note("done")
    assert ends == [(([], ["one", "answer", "two"]), 7)]


def test_none_of_several_operations_answers_twice() -> None:
    first, second = Later(), Later()
    coroutines.run(lambda run: run.call(together([first, second])), 0, collect([]))
    (then,) = first.waiting
    then("one", 1)
    with pytest.raises(AssertionError, match="only once"):
        then("again", 2)
