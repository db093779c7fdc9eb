"""What the tier's metadata says of offsets below a log start."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.spark.gaps.causes import Missing
from firnline.spark.gaps.history import History, Limits, limits_of
from firnline.tiered.spi import RemoteSegment, SegmentState, SegmentUpdate

TOPIC_ID = bytes([1]) * 16
HOUR_MS = 3_600_000


class Writer:
    """Writes the records of a partition's segments; segment n is copied at n minutes."""

    def __init__(self) -> None:
        self.history = History()
        self.number = 0

    def copy(
        self, base: int, end: int, *, newest_ms: int = 0, size_bytes: int = 100, done: bool = True
    ) -> bytes:
        """Copy offsets [base, end)."""
        self.number += 1
        segment_id = self.number.to_bytes(16, "big")
        begun_ms = self.number * 60_000
        self.history.note(
            RemoteSegment(
                TOPIC_ID, "t", 0, segment_id, base, end - 1, size_bytes, newest_ms, ((0, base),), 1,
                begun_ms,
            )
        )  # fmt: skip
        if done:
            self.change(segment_id, SegmentState.COPY_FINISHED, begun_ms)
        return segment_id

    def change(self, segment_id: bytes, state: SegmentState, at_ms: int) -> None:
        self.history.note(SegmentUpdate(TOPIC_ID, "t", 0, segment_id, state, 1, at_ms))

    def remove(self, segment_id: bytes, at_ms: int) -> None:
        self.change(segment_id, SegmentState.DELETE_STARTED, at_ms)
        self.change(segment_id, SegmentState.DELETE_FINISHED, at_ms + 5)

    def explain(self, start: int, log_start: int, *limits: int) -> list[tuple[int, int, str]]:
        return [m[:3] for m in self.rows(start, log_start, *limits)]

    def rows(self, start: int, log_start: int, *limits: int) -> list[Missing]:
        below = Missing(start, log_start, "expired_or_deleted", "below")
        return list(self.history.explain(below, Limits(*limits)))


@pytest.mark.parametrize(
    ("limits", "cause"),
    [
        ((HOUR_MS, -1), "retention_time"),
        ((HOUR_MS, 0), "retention_time"),
        ((HOUR_MS + 1, 100), "retention_size"),
        ((-1, 100), "retention_size"),
        ((-1, 101), "expired_or_deleted"),
        ((HOUR_MS + 1, -1), "expired_or_deleted"),
        ((-1, -1), "expired_or_deleted"),
        ((), "expired_or_deleted"),
    ],
)
def test_age_and_size_at_the_removal_are_compared_with_the_limits(
    limits: tuple[int, ...], cause: str
) -> None:
    """A segment an hour old is removed while 100 bytes of later ones are in the tier."""
    writer = Writer()
    first, _ = writer.copy(0, 50, newest_ms=10 * HOUR_MS), writer.copy(50, 90)
    writer.remove(first, 11 * HOUR_MS)
    (row,) = writer.rows(5, 50, *limits)
    assert row[:3] == (5, 50, cause)
    assert row.segment_id == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert f"its newest record was {HOUR_MS} ms old and 100 bytes of later segments" in row.detail
    assert ("DeleteRecords, or limits that were changed" in row.detail) == (cause[0] == "e")


def test_a_segment_that_was_copied_after_the_removal_does_not_explain_it() -> None:
    writer = Writer()
    first = writer.copy(0, 50)
    writer.remove(first, 61_000)
    writer.copy(50, 90, size_bytes=10**6)
    assert writer.explain(0, 50, -1, 1000) == [(0, 50, "expired_or_deleted")]


def test_offsets_of_a_segment_that_stays_were_deleted_by_request() -> None:
    writer = Writer()
    first, kept = writer.copy(0, 50), writer.copy(50, 90)
    writer.remove(first, 5 * HOUR_MS)
    rows = writer.rows(10, 70, 1000, -1)
    assert [row[:3] for row in rows] == [(10, 50, "retention_time"), (50, 70, "delete_records")]
    assert rows[1].segment_id is not None
    assert kept.endswith(b"\2")
    assert writer.explain(60, 70, 1000, -1) == [(60, 70, "delete_records")]


def test_what_no_segment_had_and_what_is_about_to_go_is_not_guessed() -> None:
    """Retention raises the log start before it writes that a removal begins."""
    writer = Writer()
    writer.copy(20, 50)
    assert writer.explain(0, 50, 1000, -1) == [(0, 50, "expired_or_deleted")]
    assert writer.explain(0, 60, 1000, -1) == [(0, 60, "expired_or_deleted")]
    assert "no segment that was removed" in writer.rows(0, 60, 1000, -1)[0].detail
    assert Writer().explain(3, 9) == [(3, 9, "expired_or_deleted")]


def test_an_abandoned_copy_removed_nothing() -> None:
    writer = Writer()
    abandoned = writer.copy(0, 50, done=False)
    writer.remove(abandoned, 5 * HOUR_MS)
    assert writer.explain(0, 50, 1000, -1)[0] == (0, 50, "expired_or_deleted")
    again = writer.copy(0, 50)
    writer.remove(again, 5 * HOUR_MS)
    assert writer.explain(0, 50, 1000, -1) == [(0, 50, "retention_time")]


@given(seed=st.integers(0, 10**9))
def test_whatever_the_metadata_has_each_offset_has_one_cause(seed: int) -> None:
    rnd = Random(seed)
    writer = Writer()
    ids = []
    for _ in range(rnd.randint(0, 8)):
        base = rnd.randint(0, 60)
        ids.append(writer.copy(base, base + rnd.randint(1, 30), done=rnd.random() < 0.8))
    for segment_id in ids:
        if rnd.random() < 0.6:
            writer.remove(segment_id, rnd.randint(0, 10) * HOUR_MS)
    start = rnd.randint(0, 60)
    log_start = rnd.randint(start + 1, 100)
    found = writer.explain(start, log_start, rnd.choice((-1, HOUR_MS)), rnd.choice((-1, 50, 500)))
    assert [o for low, high, _ in found for o in range(low, high)] == list(range(start, log_start))


def test_limits_that_a_broker_does_not_say_are_unknown() -> None:
    assert limits_of({}) == Limits(None, None)
    assert limits_of({"retention.ms": "-1", "retention.bytes": "x"}) == Limits(-1, None)
    assert Limits(None, 5).text == "now retention.ms=unknown and retention.bytes=5"
