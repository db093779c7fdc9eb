"""Lineage: which segment belongs to the history, and up to where. Vectors: spec 3.5, 3.6, 3.20."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.tiered.lineage import (
    Lineage,
    epoch_at,
    highest_remote,
    plan_ranges,
    segment_epochs,
    shared_end,
)


class Seg(NamedTuple):
    base_offset: int
    end_offset: int
    epochs: Epochs


LONG = ((5, 10), (7, 15), (9, 100))


@pytest.mark.parametrize(
    ("segment", "history", "log_end", "expected"),
    [
        (Seg(14, 150, ((5, 14), (7, 15), (9, 100))), LONG, 210, True),
        (Seg(14, 150, ((5, 14), (7, 15), (9, 100))), ((7, 51), (9, 100)), 210, True),
        (Seg(0, 3, ((0, 0), (1, 2))), ((0, 0), (2, 5)), 100, False),
        (Seg(14, 150, ((5, 14), (7, 15), (9, 100))), LONG, 150, False),  # reaches the log end
        (Seg(14, 150, ((5, 14), (7, 15), (9, 100))), LONG, 151, True),
        (Seg(14, 120, ((5, 14), (8, 15))), LONG, 210, False),  # an epoch we never had
        (Seg(12, 20, ((7, 12),)), LONG, 210, False),  # epoch 7 began later here
        (Seg(16, 100, ((7, 16),)), LONG, 210, False),  # and ended earlier
        (Seg(16, 99, ((7, 16),)), LONG, 210, True),
        (Seg(14, 99, ((5, 14), (7, 16))), LONG, 210, False),  # the fork is elsewhere
        (Seg(0, 9, ((3, 0),)), LONG, 210, False),  # below every epoch we know
        (Seg(0, 9, ((11, 0),)), LONG, 210, False),  # above every one
        (Seg(14, 150, ((5, 14), (6, 15), (7, 15), (9, 100))), LONG, 210, True),  # 6 is empty
        (Seg(0, 9, ()), LONG, 210, False),
        (Seg(0, 9, ((5, 0),)), (), 210, False),
    ],
)
def test_only_segments_of_our_history_count(
    segment: Seg, history: Epochs, log_end: int, expected: bool
) -> None:
    assert Lineage(history).holds(segment, log_end) is expected


def test_epochs_without_records_are_left_out() -> None:
    """Spec 3.5: {...,5:60,6:60,...} is the same history without 5."""
    history = ((0, 0), (1, 10), (2, 20), (3, 30), (4, 40), (5, 60), (6, 60), (7, 70))
    segment = Seg(45, 75, ((4, 45), (6, 60), (7, 70)))
    assert Lineage(history).holds(segment, 100)
    assert epoch_at(history, 60) == 6


@pytest.mark.parametrize(
    ("base", "end", "expected"),
    [
        (6, 8, ((2, 6), (3, 7))),  # the seed prints (2,5): shipped clamps (spec 3.4-4)
        (0, 2, ((0, 0),)),
        (3, 5, ((1, 3), (2, 5))),
        (7, 7, ((3, 7),)),
        (8, 9, ((3, 8),)),
    ],
)
def test_the_first_epoch_of_a_segment_is_clamped_to_its_base(
    base: int, end: int, expected: Epochs
) -> None:
    assert segment_epochs(((0, 0), (1, 3), (2, 5), (3, 7)), base, end) == expected


def test_a_history_cut_inside_the_segment_is_taken_as_it_is() -> None:
    assert segment_epochs(((2, 6),), 4, 8) == ((2, 6),)
    assert segment_epochs(((2, 9),), 4, 8) == ()


@pytest.mark.parametrize(
    ("remote", "log_end", "expected"),
    [
        ({0: 2, 1: 4}, 10, (4, 1)),  # S6: copy on from the segment that holds 5
        ({}, 10, (-1, -1)),
        ({3: 8}, 10, (8, 3)),
        ({3: 20}, 10, (9, 3)),  # the tier has more of epoch 3 than this lineage does
        ({1: 9}, 10, (5, 1)),
    ],
)
def test_the_highest_copied_offset_is_found_from_the_newest_epoch_down(
    remote: dict[int, int], log_end: int, expected: tuple[int, int]
) -> None:
    history = ((0, 0), (1, 3), (2, 6), (3, 7))
    assert highest_remote(history, log_end, remote.get) == expected


def test_a_segment_is_served_up_to_the_fork() -> None:
    """S3: message 1 of epoch 0 was thrown away; segment 0-1#1 may serve offset 0 only."""
    history = ((0, 0), (1, 1))
    first = Seg(0, 1, ((0, 0),))
    assert shared_end(first, history, 0) == 1
    assert shared_end(first, history, 1) == 1
    assert shared_end(Seg(1, 1, ((1, 1),)), history, 1) == 2


SCENARIOS = {
    # spec 3.20: remote segments, history, [start, end) -> who serves what
    "S3": (
        {1: Seg(0, 1, ((0, 0),)), 2: Seg(1, 1, ((0, 0), (1, 1)))},
        ((0, 0), (1, 1)),
        (0, 2),
        [(1, 0, 1), (2, 1, 2)],
    ),
    "S4": (
        {1: Seg(0, 2, ((0, 0),)), 2: Seg(0, 1, ((0, 0), (1, 1)))},
        ((0, 0), (1, 1)),
        (0, 2),
        [(2, 0, 2)],
    ),
    "S5": (
        {
            1: Seg(0, 3, ((0, 0),)),
            2: Seg(0, 3, ((0, 0), (1, 2))),
            3: Seg(4, 5, ((0, 4), (2, 5))),
        },
        ((0, 0), (2, 5)),
        (0, 6),
        [(1, 0, 4), (3, 4, 6)],
    ),
    "overlap": (
        {1: Seg(0, 9, ((0, 0),)), 2: Seg(5, 14, ((0, 5),)), 3: Seg(12, 20, ((0, 12),))},
        ((0, 0),),
        (3, 18),
        [(1, 3, 10), (2, 10, 15), (3, 15, 18)],
    ),
    "hole": (
        {1: Seg(0, 4, ((0, 0),)), 2: Seg(8, 9, ((0, 8),))},
        ((0, 0),),
        (0, 12),
        [(1, 0, 5), (2, 8, 10)],
    ),
    "joins our history inside": (
        {1: Seg(0, 9, ((0, 0), (1, 5)))},
        ((1, 0),),
        (0, 10),
        [(1, 5, 10)],
    ),
    # Of a log that was compacted before it was tiered: its replica saw the epoch begin with what was left.
    "our epoch begins above theirs": (
        {1: Seg(0, 9, ((0, 0), (1, 3)))},
        ((0, 0), (1, 5)),
        (0, 10),
        [(1, 0, 3), (1, 5, 10)],
    ),
    "log start inside": ({1: Seg(0, 9, ((0, 0),))}, ((0, 4),), (4, 10), [(1, 4, 10)]),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_plan_is_without_overlap_and_off_lineage_offsets(name: str) -> None:
    segments, history, (start, end), expected = SCENARIOS[name]
    plan = plan_ranges(segments.values(), history, start_offset=start, end_offset=end)
    names = {segment: number for number, segment in segments.items()}
    assert [(names[s], a, b) for s, a, b in plan] == expected


def reach_slowly(segment: Seg, history: Epochs, offset: int) -> int:
    """`shared_end`, an offset after the other."""
    at = offset
    while segment.base_offset <= at <= segment.end_offset:
        epoch = epoch_at(history, at)
        if epoch is None or epoch != epoch_at(segment.epochs, at):
            break
        at += 1
    return at


def ranges_slowly(
    segments: Sequence[Seg], history: Epochs, start: int, end: int
) -> Iterator[tuple[Seg, int, int]]:
    """`plan_ranges`, with all segments at each offset. Of two that serve as far, the later one does."""
    at = start
    ordered = sorted(segments, key=lambda s: (s.base_offset, s.end_offset))
    while at < end:
        reaches = [(reach_slowly(s, history, at), number) for number, s in enumerate(ordered)]
        best, number = max(reaches, default=(at, -1))
        if best > at:
            yield ordered[number], at, min(best, end)
        at = max(best, at + 1)


epoch_steps = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 6)), min_size=1, max_size=4)
histories = epoch_steps.map(
    lambda steps: tuple(
        (sum(s[0] for s in steps[: i + 1]), sum(s[1] for s in steps[:i])) for i in range(len(steps))
    )
)


@settings(max_examples=500)
@given(
    history=histories,
    others=st.lists(histories, max_size=2),
    spans=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 9)), max_size=6),
    start=st.integers(0, 12),
    end=st.integers(0, 30),
)
def test_ranges_are_those_of_a_look_at_each_offset(
    history: Epochs, others: list[Epochs], spans: list[tuple[int, int, int]], start: int, end: int
) -> None:
    owners = [history, *others]
    segments = [
        Seg(base, base + length, segment_epochs(owners[who % len(owners)], base, base + length))
        for who, base, length in spans
    ]
    for segment in segments:
        for offset in range(start, end):
            reached = shared_end(segment, history, offset)
            assert reached == reach_slowly(segment, history, offset)
    found = plan_ranges(segments, history, start_offset=start, end_offset=end)
    assert found == list(ranges_slowly(segments, history, start, end))
