"""How offset ranges are divided among tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.spark.division import divide


@pytest.mark.parametrize(
    ("parts_min", "records_max", "counts"),
    [
        (1, None, [1, 1]),
        (3, None, [2, 1]),
        (4, None, [2, 2]),
        (8, None, [4, 4]),
        (2, 40, [4, 4]),
        # What Spark's connector 4.2.0 made of the same ranges, in tasks altogether: 21 and 88.
        (20, 40, [11, 10]),
        (90, 7, [44, 44]),
    ],
)
def test_ranges_are_divided_as_the_connector_divides_them(
    parts_min: int, records_max: int | None, counts: list[int]
) -> None:
    found = divide([151, 150], parts_min=parts_min, records_max=records_max)
    assert [len(each) for each in found] == counts


def test_a_small_range_stays_whole_and_does_not_take_from_the_others() -> None:
    assert divide([1000, 1], parts_min=4) == [[333, 333, 334], [1]]


def test_nothing_to_read_is_divided_into_nothing() -> None:
    assert divide([], parts_min=9, records_max=1) == []


@given(
    sizes=st.lists(st.integers(1, 500), max_size=6),
    parts_min=st.integers(1, 50),
    records_max=st.none() | st.integers(1, 300),
)
def test_every_offset_is_in_one_part_and_no_part_is_too_large(
    sizes: list[int], parts_min: int, records_max: int | None
) -> None:
    found = divide(sizes, parts_min=parts_min, records_max=records_max)
    assert [sum(parts) for parts in found] == sizes
    parts = [part for each in found for part in each]
    assert all(0 < part <= (records_max or part) for part in parts)
    undivided = len(sizes) if records_max is None else sum(-(-s // records_max) for s in sizes)
    assert len(parts) >= undivided
