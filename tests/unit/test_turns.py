"""What takes turns is left out by no commit for ever, and by no soak."""

from typing import Any, NamedTuple

import pytest

from tests.turns import SHARES, in_turns, number_of_commit


class Guard(NamedTuple):
    name: str
    find: str


def _left_out(cases: list[Any]) -> list[Any]:
    """Return the values of what has the mark `soak`."""
    marked = [case for case in cases if isinstance(case, type(pytest.param()))]
    assert all([mark.name for mark in case.marks] == ["soak"] for case in marked)
    return [case.values for case in marked]


@pytest.mark.parametrize("newest", [0, 8])
def test_each_case_has_one_turn_and_the_newest_have_all(newest: int) -> None:
    rows = [("cluster", seed) for seed in range(41)]
    turns = [in_turns(rows, newest, turn) for turn in range(SHARES)]
    for number, row in enumerate(rows):
        count = sum(row in turn for turn in turns)
        assert count == (SHARES if number >= len(rows) - newest else 1)
    for turn in turns:
        assert sorted([*(row for row in rows if row in turn), *_left_out(turn)]) == rows


def test_what_has_a_turn_again_after_all_had_theirs_is_the_same() -> None:
    assert in_turns(range(41), turn=3) == in_turns(range(41), turn=3 + 7 * SHARES)


def test_a_case_that_is_a_named_tuple_stays_one_value() -> None:
    guards = [Guard(f"rel-R{number}", "pass") for number in range(SHARES)]
    assert _left_out(in_turns(guards, turn=0)) == [(guard,) for guard in guards[1:]]


def test_a_seed_of_the_simulator_can_be_typed() -> None:
    assert 0 <= number_of_commit() < 1 << 32
