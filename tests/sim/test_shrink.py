"""A failure is reduced to the faults that matter, and to nothing that fails otherwise."""

from typing import Any

from firnline.sim.checkers import Violation
from firnline.sim.faults import Injected
from firnline.sim.options import draw_options
from firnline.sim.report import format_mask, parse_mask
from firnline.sim.run import QUORUM, Outcome
from firnline.sim.shrink import shrink


class Plays:
    """Fails with `rel-A` when the faults of `needed` are there, with `rel-B` when fault 5 is there alone."""

    def __init__(self, needed: set[int]) -> None:
        self.needed = needed
        self.count = 0

    def __call__(self, seed: int, *, seconds: int, mask: frozenset[int], **rest: Any) -> Outcome:
        self.count += 1
        if self.needed <= mask:
            return outcome(mask, "rel-A", seconds)
        return outcome(mask, "rel-B" if 5 in mask else None, seconds)


def outcome(mask: frozenset[int], invariant: str | None, seconds: int = 60) -> Outcome:
    faults = [Injected(number, number, "kill", "x") for number in sorted(mask)]
    found = [] if invariant is None else [Violation(invariant, 5, 1, "broken")]
    return Outcome(
        seed=1,
        mode="budget",
        form=QUORUM,
        exempt=0,
        options=draw_options(1)._replace(chaos_s=seconds),
        digest="",
        simulated_s=1.0,
        wall_s=1.0,
        cpu_s=1.0,
        events=0,
        faults=faults,
        beyond_budget=[],
        committed=0,
        acknowledged=0,
        violations=found,
        story=[],
    )


def test_what_is_left_are_the_faults_that_it_takes() -> None:
    everything = frozenset(range(1, 41))
    plays = Plays({7, 31})
    small = shrink(outcome(everything, "rel-A"), seconds_max=60, play=plays)
    assert small.numbers == [7, 31]
    assert small.outcome.options.chaos_s == 1
    assert plays.count < 200


def test_another_failure_is_not_taken_for_the_same() -> None:
    plays = Plays({3, 5})
    small = shrink(outcome(frozenset(range(1, 10)), "rel-A"), seconds_max=60, play=plays)
    assert small.numbers == [3, 5], "fault 5 alone fails too, but not like this"


def test_a_failure_without_any_fault_is_found_out_first() -> None:
    small = shrink(outcome(frozenset(range(1, 9)), "rel-A"), seconds_max=60, play=Plays(set()))
    assert small.numbers == []


def test_shrinking_ends_when_its_time_is_up() -> None:
    plays = Plays({1})
    small = shrink(outcome(frozenset(range(1, 9)), "rel-A"), seconds_max=0, play=plays)
    assert plays.count == 0
    assert small.numbers == list(range(1, 9))


def test_a_mask_reads_as_it_is_written() -> None:
    for numbers in ([], [4], [1, 2, 3, 9], [2, 4, 5, 6, 11]):
        assert sorted(parse_mask(format_mask(numbers))) == numbers
    assert format_mask([1, 2, 3, 9]) == "1-3,9"
