"""The decision of the expiration task as a function: spec 3.7, one rule a test. No effects."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from firnline.base.errors import StorageError
from firnline.config.topic import TopicConfig
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.tiered.expiry import _begun
from firnline.tiered.segment_removal import CHECKED_IN_STEP
from firnline.tiered.spi import RemoteSegment, SegmentState
from tests.tier_decisions import Listed, decided
from tests.worlds.tier import TOPIC_ID, topic_config

NOW = 1_000_000
STARTED, FINISHED, DELETING, _ = SegmentState


@dataclass
class Epochal:
    history: Epochs

    def entries(self) -> Epochs:
        return self.history


@dataclass
class LogWith:
    """Just what `decide` asks of a log."""

    history: Epochs = ((0, 0),)
    log_start_offset: int = 0
    log_end_offset: int = 1000
    high_watermark: int = 1000
    size_bytes: int = 0
    config: TopicConfig = field(default_factory=topic_config)

    @property
    def epochs(self) -> Epochal:
        return Epochal(self.history)

    closed: tuple[Any, ...] = ()

    def bytes_beginning_at(self, offset: int) -> int:
        return self.size_bytes - sum(s.size_bytes for s in self.closed if s.end_offset < offset)

    def closed_segments(self) -> list[Any]:
        return list(self.closed)


def seg(
    number: int,
    base: int,
    end: int,
    *epochs: tuple[int, int],
    state: SegmentState = FINISHED,
    age_ms: int = 0,
    size: int = 100,
) -> RemoteSegment:
    return RemoteSegment(
        topic_id=TOPIC_ID,
        topic="t",
        partition=0,
        segment_id=number.to_bytes(16, "big"),
        base_offset=base,
        end_offset=end,
        size_bytes=size,
        max_timestamp_ms=NOW - age_ms,
        epochs=epochs or ((0, base),),
        broker_id=1,
        event_timestamp_ms=1,
        state=state,
    )


def go(
    log: LogWith,
    *segments: RemoteSegment,
    copying: int = -1,
    dangling: bool = False,
    covered: int = 999,
) -> tuple[list[int], int]:
    tier = Listed(
        segments,
        covered,
        is_copying=lambda s: s.segment_id == copying.to_bytes(16, "big", signed=True),
        is_dangling=lambda s: dangling,
        now_ms=NOW,
    )
    decision = decided(log, tier, now_ms=NOW)
    numbers = [int.from_bytes(s.segment_id, "big") for s in decision.segments]
    return numbers, decision.log_start_offset


def test_no_limit_deletes_nothing() -> None:
    assert go(LogWith(), seg(1, 0, 9, age_ms=10**9)) == ([], 0)


def test_age_is_checked_from_the_oldest_and_stops_at_the_first_that_stays() -> None:
    log = LogWith(config=topic_config(retention_ms=100))
    old, young = seg(1, 0, 9, age_ms=100), seg(2, 10, 19, age_ms=99)
    assert go(log, old, young, seg(3, 20, 29, age_ms=500)) == ([1], 10)


def test_size_stops_when_what_is_left_of_the_breach_is_smaller_than_the_segment() -> None:
    log = LogWith(config=topic_config(retention_bytes=250), size_bytes=30)
    segments = [seg(n, 10 * n, 10 * n + 9) for n in range(4)]
    assert go(log, *segments) == ([0], 10)  # 430 bytes: breach 180


def test_a_local_segment_whose_age_is_not_known_yet_stays_and_so_do_those_after_it() -> None:
    """An index of it is built again meanwhile; whoever asks at the next look is told."""

    def unknown() -> int:
        raise StorageError("an index of a segment has to be rebuilt")

    def local(end: int, time_ms: Callable[[], int]) -> SimpleNamespace:
        return SimpleNamespace(end_offset=end, size_bytes=1, largest_time_ms=time_ms)

    log = LogWith(config=topic_config(retention_ms=100))
    log.closed = local(9, lambda: 1), local(19, lambda: 1), local(29, lambda: NOW)
    assert go(log, covered=-1) == ([], 20)
    log.closed = local(9, lambda: 1), local(19, unknown), local(29, lambda: 1)
    assert go(log, covered=-1) == ([], 10)


def test_a_copy_under_way_stops_the_walk() -> None:
    """X32: nothing from it on is looked at, whatever its age."""
    log = LogWith(config=topic_config(retention_ms=100))
    copied = seg(1, 0, 9, age_ms=500, state=STARTED)
    assert go(log, copied, seg(2, 10, 19, age_ms=500), copying=1) == ([], 0)
    assert go(log, copied, seg(2, 10, 19, age_ms=500)) == ([2], 20)


def test_bytes_of_copies_and_deletes_under_way_do_not_count() -> None:
    log = LogWith(config=topic_config(retention_bytes=200))
    going = [seg(1, 0, 9, state=STARTED), seg(2, 0, 9, state=DELETING)]
    assert go(log, *going, seg(3, 10, 19), seg(4, 20, 29)) == ([2], 0)


def test_a_segment_of_another_history_is_neither_counted_nor_checked() -> None:
    """X31, spec S5: its age and size are nobody's, and it never moves the log start."""
    log = LogWith(
        history=((0, 0), (2, 5)), config=topic_config(retention_bytes=200, retention_ms=100)
    )
    lost = seg(9, 0, 3, (0, 0), (1, 2), age_ms=10**6, size=10**6)
    assert go(log, seg(1, 0, 3), lost, seg(2, 4, 5, (0, 4), (2, 5))) == ([], 0)
    assert go(log, seg(1, 0, 3, age_ms=100), lost, seg(2, 4, 5, (0, 4), (2, 5))) == ([1], 4)


def test_what_ends_below_the_log_start_goes_whatever_its_history() -> None:
    log = LogWith(history=((2, 50),), log_start_offset=50)
    lost = seg(1, 0, 49, (1, 0))
    holds_start = seg(2, 40, 60, (2, 40))
    assert go(log, lost, holds_start) == ([1], 50)


def test_orphans_below_every_known_epoch_go_without_moving_the_log_start() -> None:
    log = LogWith(history=((5, 10),), log_start_offset=10)
    orphan = seg(1, 0, 30, (3, 0))
    assert go(log, orphan) == ([1], 10)


def test_an_epoch_cache_that_knows_nothing_decides_nothing() -> None:
    """rel-T14."""
    log = LogWith(history=(), config=topic_config(retention_ms=1))
    assert go(log, seg(1, 0, 9, age_ms=10**6)) == ([], 0)


def test_what_was_begun_to_be_deleted_is_taken_up_again_wherever_it_lies() -> None:
    """F22."""
    log = LogWith(history=((5, 10),), log_start_offset=10)
    assert go(log, seg(1, 40, 60, (7, 40), state=DELETING)) == ([1], 10)


def test_a_dangling_copy_goes_and_a_living_one_stays() -> None:
    living = seg(1, 0, 9, state=STARTED)
    assert go(LogWith(), living) == ([], 0)
    assert go(LogWith(), living, dangling=True) == ([1], 0)


def test_overlapping_segments_of_two_leaders_all_reach_deletion() -> None:
    """F32."""
    log = LogWith(config=topic_config(retention_ms=100))
    segments = [seg(1, 0, 9, age_ms=100), seg(2, 5, 14, age_ms=100), seg(3, 0, 14, age_ms=100)]
    numbers, start = go(log, *segments, seg(4, 15, 20))
    assert sorted(numbers) == [1, 2, 3]
    assert start == 15


def test_a_segment_whose_time_nobody_knows_is_as_old_as_its_copy() -> None:
    """Earlier releases said -1 of records without timestamps."""
    log = LogWith(config=topic_config(retention_ms=1000))
    unknown = seg(1, 0, 9)._replace(max_timestamp_ms=-1)
    assert go(log, unknown._replace(event_timestamp_ms=NOW - 999)) == ([], 0)
    assert go(log, unknown._replace(event_timestamp_ms=NOW - 1000)) == ([1], 10)


def test_very_many_copies_under_way_are_looked_at_in_steps_of_many() -> None:
    """Neither all at once nor each in a turn of the loop: copies that failed may be left by the thousand."""
    looked_at: list[int] = [0]

    def is_dangling(_segment: RemoteSegment) -> bool:
        looked_at[-1] += 1
        return True

    left = [seg(n, n, n, state=STARTED) for n in range(1, 2 * CHECKED_IN_STEP + 10)]
    steps = _begun(Listed(left, is_dangling=is_dangling), late_put_ms=0)
    for _ in steps:
        looked_at.append(0)
    assert sum(looked_at) == len(left)
    assert len(looked_at) == 3
    assert max(looked_at) <= CHECKED_IN_STEP


def test_copies_of_the_same_offsets_by_two_leaders_count_once_and_expire_together() -> None:
    """rel-T15: the second one, counted, had records expire that retention.bytes keeps."""
    segments = [seg(1, 0, 9), seg(2, 0, 9), seg(3, 10, 19), seg(4, 20, 29)]
    assert go(LogWith(config=topic_config(retention_bytes=300)), *segments) == ([], 0)
    assert go(LogWith(config=topic_config(retention_bytes=299)), *segments) == ([], 0)
    assert go(LogWith(config=topic_config(retention_bytes=200)), *segments) == ([1, 2], 10)


def test_shorter_segments_inside_one_that_goes_do_not_count_as_left() -> None:
    """rel-T15: a follower had fetched all in one segment, and another leader had rolled often."""
    segments = (
        seg(1, 0, 9, size=300),
        seg(2, 2, 3, size=100),
        seg(3, 4, 5, size=100),
        seg(4, 10, 19, size=200),
    )
    assert go(LogWith(config=topic_config(retention_bytes=250)), *segments) == ([], 0)
    assert go(LogWith(config=topic_config(retention_bytes=200)), *segments) == ([1, 2, 3], 10)
