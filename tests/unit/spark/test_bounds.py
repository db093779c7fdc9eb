"""What of the requested offsets a read leaves out, and what a task keeps of a segment."""

from hypothesis import given
from hypothesis import strategies as st

from firnline.spark.gaps.causes import EXPIRED_OR_DELETED, Missing
from firnline.spark.planning.bounds import Ends
from firnline.spark.planning.plan import Segment, slim

offsets = st.integers(0, 6)


@given(low=offsets, length=offsets, start=offsets, more=offsets, decided=st.none() | offsets)
def test_what_is_there_is_not_left_out_and_all_else_is(
    low: int, length: int, start: int, more: int, decided: int | None
) -> None:
    """Each offset outside of [log start, end) is in one of the reasons, in order, and no other is."""
    ends = Ends("t", 0, low, low + length, "the tier", decided)
    found = ends.left_out(start, start + more)
    asked = range(start, start + more)
    told = [n for each in found for n in range(each.start_offset, each.end_offset)]
    assert told == [n for n in asked if not low <= n < low + length]
    below: list[Missing] = [each for each in found if each.cause == EXPIRED_OR_DELETED]
    assert all(each.end_offset <= low for each in below)


def test_a_task_keeps_what_it_reads_by() -> None:
    segment = Segment(bytes(16), 1, 2, 3, ((4, 1),), "stem", (".log",), b"copied", 5, 6, bytes(24))
    assert slim(segment) == segment._replace(suffixes=(), min_timestamp_ms=None, splits=b"")
