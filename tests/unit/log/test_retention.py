"""Retention as a table of views and decisions, and what a log does about one. Spec T3, T4, T12-T16, X34."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from firnline.base.effects import Effects, SetTimer
from firnline.config.topic import TopicConfig
from firnline.log import segments
from firnline.log.checkpoint import LEADER_EPOCHS
from firnline.log.epochs import LeaderEpochs
from firnline.log.log import Log
from firnline.log.retention import (
    SEGMENTS_AT_ONCE,
    Decision,
    LogView,
    SegmentAge,
    decide,
    is_tiered,
    local_retention,
)
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.effects import carried_out
from tests.worlds.log import NOW, PATH, append, batch, fill, flush, found_headers, opened, small

HOUR = 3_600_000


def config(**changes: object) -> TopicConfig:
    base: dict[str, object] = {"retention_ms": -1, "retention_bytes": -1}
    return replace(TopicConfig(), **(base | changes))  # type: ignore[arg-type]


def view(*ages_ms: int, size: int = 100, **changes: Any) -> LogView:
    """Segments of ten offsets each, with these ages at NOW, the last one active."""
    segments = [
        SegmentAge(number * 10, number * 10 + 10, size, partial(int, NOW - age))
        for number, age in enumerate(ages_ms)
    ]
    complete = LogView(segments, 0, 0, len(ages_ms) * 10, -1, False, lambda: size * len(segments))
    return complete._replace(**changes)


def test_age_is_breached_when_it_is_greater_than_the_limit_not_at_it() -> None:
    """T12: the remote tier deletes at the limit, one tick earlier."""
    rules = config(retention_ms=HOUR)
    assert decide(view(HOUR, 0), rules, NOW) == Decision()
    assert decide(view(HOUR + 1, 0), rules, NOW) == Decision(1, "age")


def test_the_oldest_go_first_and_the_first_that_stays_protects_the_rest() -> None:
    rules = config(retention_ms=HOUR)
    assert decide(view(HOUR * 2, HOUR * 3, 0, HOUR * 4, 0), rules, NOW) == Decision(2, "age")
    assert decide(view(0, HOUR * 3, 0), rules, NOW) == Decision()


def test_the_times_of_segments_that_stay_anyway_are_not_read() -> None:
    """A thousand segments are a thousand index files; the first one that stays decides."""
    asked: list[int] = []

    def time_of(number: int) -> int:
        asked.append(number)
        return NOW - (HOUR * 2 if number < 2 else 0)

    segments = [
        SegmentAge(number, number + 1, 100, partial(time_of, number)) for number in range(9)
    ]
    complete = LogView(segments, 0, 0, 9, -1, False, lambda: 900)
    assert decide(complete, config(retention_ms=HOUR), NOW) == Decision(2, "age")
    assert asked == [0, 1, 2]


def test_size_removes_no_more_than_the_excess() -> None:
    five = view(0, 0, 0, 0, 0)
    assert decide(five, config(retention_bytes=500), NOW) == Decision()
    assert decide(five, config(retention_bytes=499), NOW) == Decision()
    assert decide(five, config(retention_bytes=400), NOW) == Decision(1, "size")
    assert decide(five, config(retention_bytes=150), NOW) == Decision(3, "size")


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    rules = config(retention_ms=HOUR)
    old = view(HOUR * 2, HOUR * 2, HOUR * 2, high_watermark=19)
    assert decide(old, rules, NOW) == Decision(1, "age")


def test_minus_one_is_no_limit() -> None:
    assert decide(view(HOUR * 10**6, 0, size=10**12), config(), NOW) == Decision()


def leased(until_ms: int, **changes: object) -> TopicConfig:
    return config(firnline_retention_leases=(f"a-cut:{until_ms}",), **changes)


@pytest.mark.parametrize("limit", [{"retention_ms": HOUR}, {"retention_bytes": 1}])
def test_nothing_expires_while_a_lease_runs(limit: dict[str, int]) -> None:
    old = view(HOUR * 2, HOUR * 2, 0)
    assert decide(old, leased(NOW + 1, **limit), NOW) == Decision()
    assert decide(old, leased(NOW, **limit), NOW).segments == 2, "it has ended"


def test_a_lease_holds_for_eight_days_at_most_whatever_its_end() -> None:
    old = view(HOUR * 2, 0)
    bound_ms = NOW + 8 * 24 * HOUR
    assert decide(old, leased(bound_ms, retention_ms=HOUR), NOW) == Decision()
    assert decide(old, leased(bound_ms + 1, retention_ms=HOUR), NOW) == Decision(1, "age")


def test_a_lease_does_not_keep_what_was_deleted_by_request() -> None:
    rules = leased(NOW + 1, retention_ms=HOUR)
    old = view(HOUR * 2, HOUR * 2, 0, log_start_offset=10)
    assert decide(old, rules, NOW) == Decision(1, "log start")


def test_a_lease_does_not_keep_local_files_that_the_tier_has() -> None:
    """Else the disk of a tiered topic fills as long as somebody reads its history."""
    rules = leased(NOW + 1, local_retention_ms=HOUR, remote_storage_enable=True)
    old = view(HOUR * 2, HOUR * 2, 0, is_tiered=True, highest_remote_offset=19)
    assert decide(old, rules, NOW) == Decision(2, "age")


def test_an_old_active_segment_is_rolled_before_it_goes() -> None:
    rules = config(retention_ms=HOUR)
    assert decide(view(HOUR * 2, HOUR * 2), rules, NOW) == Decision(1, "age", roll_active=True)
    empty = view(HOUR * 2)
    empty = empty._replace(segments=[empty.segments[0]._replace(size_bytes=0)])
    assert decide(empty, rules, NOW) == Decision()


def test_below_the_log_start_goes_without_any_policy() -> None:
    rules = config(cleanup_policy=("compact",), retention_ms=1)
    assert decide(view(HOUR, HOUR, HOUR, log_start_offset=19), rules, NOW) == Decision(
        1, "log start"
    )
    assert decide(view(HOUR, HOUR, HOUR, log_start_offset=30), rules, NOW) == Decision(
        2, "log start"
    )


def test_a_compacted_topic_has_no_limits() -> None:
    rules = config(cleanup_policy=("compact",), retention_ms=1, retention_bytes=1)
    assert decide(view(HOUR, HOUR), rules, NOW) == Decision()
    both = config(cleanup_policy=("compact", "delete"), retention_ms=1)
    assert decide(view(HOUR, 0), both, NOW) == Decision(1, "age")


TIERED = {"remote_storage_enable": True, "local_retention_ms": HOUR, "retention_ms": HOUR * 100}


def test_local_limits_rule_a_tiered_topic_and_only_what_is_remote_goes() -> None:
    """T14: the segment's last offset is at most the highest remote one."""
    rules = config(**TIERED)
    old = view(HOUR * 2, HOUR * 2, 0, is_tiered=True)
    assert decide(old, rules, NOW) == Decision()
    assert decide(old._replace(highest_remote_offset=8), rules, NOW) == Decision()
    assert decide(old._replace(highest_remote_offset=9), rules, NOW) == Decision(1, "age")
    assert decide(old._replace(highest_remote_offset=99), rules, NOW) == Decision(2, "age")


def test_deleted_records_need_no_copy_before_they_go() -> None:
    """X34: a log start past data that was not uploaded must not block local deletion for ever."""
    rules = config(**TIERED)
    old = view(HOUR * 2, HOUR * 2, 0, is_tiered=True, log_start_offset=10)
    assert decide(old, rules, NOW) == Decision(), "a crash may take that log start back"
    old = old._replace(local_log_start_offset=10)
    assert decide(old, rules, NOW) == Decision(1, "log start")
    young = view(0, 0, 0, is_tiered=True, log_start_offset=10, local_log_start_offset=10)
    assert decide(young, rules, NOW) == Decision(1, "log start")


def test_an_idle_active_segment_of_a_tiered_topic_is_rolled_to_be_copied() -> None:
    """T15, X34: idle topics drain completely, through the tier."""
    rules = config(**TIERED)
    idle = view(HOUR * 2, is_tiered=True)
    assert decide(idle, rules, NOW) == Decision(0, "age", roll_active=True)
    waiting = view(HOUR * 2, HOUR * 2, is_tiered=True)
    assert decide(waiting, rules, NOW) == Decision(), "the older one has to be copied first"


def test_the_total_limits_rule_where_copying_is_disabled() -> None:
    rules = config(**TIERED | {"remote_log_copy_disable": True, "retention_ms": HOUR * 5})
    assert decide(view(HOUR * 2, 0, is_tiered=True), rules, NOW) == Decision()
    old = view(HOUR * 6, 0, is_tiered=True)
    assert decide(old, rules, NOW) == Decision(), (
        "what the tier lacks goes by the tier's expiry alone"
    )
    assert decide(old._replace(highest_remote_offset=9), rules, NOW) == Decision(1, "age")
    begun = old._replace(log_start_offset=10, local_log_start_offset=10)
    assert decide(begun, rules, NOW) == Decision(1, "log start")


@pytest.mark.parametrize(
    ("changes", "is_copied", "limits"),
    [
        ({}, True, (100, 200)),
        ({"local_retention_ms": -2, "local_retention_bytes": -2}, True, (1000, 2000)),
        ({"local_retention_ms": -1, "local_retention_bytes": 7}, True, (-1, 7)),
        ({}, False, (1000, 2000)),
    ],
)
def test_which_limits_count(
    changes: dict[str, object], is_copied: bool, limits: tuple[int, int]
) -> None:
    base: dict[str, object] = {
        "retention_ms": 1000,
        "retention_bytes": 2000,
        "local_retention_ms": 100,
        "local_retention_bytes": 200,
    }
    assert local_retention(config(**base | changes), is_copied=is_copied) == limits


def test_when_the_remote_log_counts_as_enabled() -> None:
    """T4."""
    on = config(remote_storage_enable=True)
    assert is_tiered("t", on)
    assert not is_tiered("t", config())
    both = config(remote_storage_enable=True, cleanup_policy=("compact", "delete"))
    assert not is_tiered("t", both)
    for topic in (
        "__consumer_offsets",
        "__transaction_state",
        "__remote_log_metadata",
        "__cluster_metadata",
    ):
        assert not is_tiered(topic, on)


def test_no_more_segments_are_checked_than_may_go_in_one_step() -> None:
    """The time of each may be a read of its index: a log of 20,000 that are all over is 360 ms."""
    ages = [HOUR * 2] * (SEGMENTS_AT_ONCE * 3)
    assert decide(view(*ages, 0), config(retention_ms=HOUR), NOW) == Decision(
        SEGMENTS_AT_ONCE, "age"
    )
    assert decide(view(*ages), config(retention_bytes=0), NOW) == Decision(SEGMENTS_AT_ONCE, "size")


# -- what the log does -----------------------------------------------------------------------------


def filled(rules: TopicConfig, fs: CrashableFs | None = None, **more: bool) -> Log:
    log = opened(fs or CrashableFs(), rules, **more)
    for number in range(60):
        append(log, batch("x" * 40, time_ms=NOW + number))
    log.advance_high_watermark(60)
    log.sync_now()
    return log


def test_a_log_of_very_many_segments_costs_a_look_those_that_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = opened(CrashableFs(), small(segment_bytes=120))
    fill(log, SEGMENTS_AT_ONCE * 6)
    log.advance_high_watermark(log.log_end_offset)
    assert len(log.closed_segments()) > SEGMENTS_AT_ONCE * 4
    checked: list[int] = []

    def counted(*args: Any) -> SegmentAge:
        checked.append(args[0])
        return SegmentAge(*args)

    monkeypatch.setattr(segments, "SegmentAge", counted)
    assert log.delete_due_segments(NOW) == []
    assert len(checked) <= 3, "nothing is due: the first one of each rule"
    log.config = replace(log.config, retention_bytes=0)
    while log.closed_segments():
        checked.clear()
        assert log.delete_due_segments(NOW)
        assert len(checked) <= SEGMENTS_AT_ONCE * 3
    assert log.log_start_offset == log.log_end_offset


def carry_out(effects: Effects) -> None:
    """Remove the files of what was deleted, to the end."""
    assert not carried_out(effects, NOW, for_ms=100_000).timers


def test_deleted_segments_are_renamed_at_once_and_removed_after_the_delay() -> None:
    fs = CrashableFs()
    log = filled(small(retention_bytes=2000), fs)
    bases = [segment.base_offset for segment in log.closed_segments()]
    effects = log.delete_due_segments(NOW)
    assert isinstance(effects[0], SetTimer)
    assert effects[0].at_ms == NOW + 60_000
    left = [segment.base_offset for segment in log.closed_segments()]
    gone = len(bases) - len(left)
    assert gone >= 2
    assert left == bases[gone:]
    assert log.log_start_offset == log.local_log_start_offset == left[0]
    assert log.epochs.entries() == ((0, left[0]),)
    condemned = [name for name in fs.list_dir(PATH) if name.endswith(".deleted")]
    assert len(condemned) == gone * 4 - 1, "log, two indexes, and a snapshot but for the first"
    carry_out(effects)
    assert not any(name.endswith(".deleted") for name in fs.list_dir(PATH))
    assert [h.base_offset for h in found_headers(log)] == list(range(left[0], 60))
    assert log.delete_due_segments(NOW) == []


def test_no_file_of_a_segment_that_went_before_it_was_synced_comes_back_with_a_flush() -> None:
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 30)
    first, _, third, *_ = log.closed_segments()
    log.advance_high_watermark(30)
    log.advance_log_start(third.base_offset)
    log.delete_due_segments(NOW)
    flush(log)
    assert log.recovery_point == 30
    assert not fs.exists(first.stem_path + ".index")


def test_a_reader_keeps_what_it_was_given_of_a_deleted_segment() -> None:
    log = filled(small(retention_bytes=2000))
    held = log.read(0, max_bytes=300, upto_offset=60)
    before = held.read()
    carry_out(log.delete_due_segments(NOW))
    assert log.log_start_offset > 0
    assert held.read() == before


def test_everything_old_goes_and_the_offsets_go_on() -> None:
    log = filled(small(retention_ms=1000))
    carry_out(log.delete_due_segments(NOW + 5000))
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (60, 60, 0)
    assert append(log, batch("y")).base_offset == 60


def test_a_tiered_topic_keeps_its_log_start_when_local_files_go() -> None:
    """T3, T16: only DeleteRecords and the remote tier move the log start."""
    log = filled(
        small(remote_storage_enable=True, local_retention_bytes=2000),
    )
    assert log.is_tiered
    assert log.delete_due_segments(NOW) == [], "nothing is remote yet"
    log.set_highest_remote(39)
    carry_out(log.delete_due_segments(NOW))
    assert log.log_start_offset == 0
    assert 10 < log.local_log_start_offset <= 40
    assert log.epochs.entries() == ((0, 0),)


@pytest.mark.parametrize("changes", [{}, {"remote_log_copy_disable": True}])
def test_files_that_go_never_move_the_start_of_a_tiered_log(changes: dict[str, object]) -> None:
    """What lies below them is in the tier, whether or not more is copied there."""
    log = filled(small(remote_storage_enable=True, retention_bytes=2000, **changes))
    assert log.delete_due_segments(NOW) == [], "nothing is known to be remote"
    log.set_highest_remote(39)
    carry_out(log.delete_due_segments(NOW))
    assert log.local_log_start_offset > 0
    assert log.log_start_offset == 0


def test_an_idle_tiered_topic_drains_through_the_tier() -> None:
    rules = small(remote_storage_enable=True, local_retention_ms=1000)
    log = filled(rules)
    log.set_highest_remote(log.closed_segments()[-1].end_offset)
    carry_out(log.delete_due_segments(NOW + 5000))
    (rolled,) = log.closed_segments()
    assert rolled.end_offset == 59
    log.set_highest_remote(59)
    carry_out(log.delete_due_segments(NOW + 5000))
    assert (log.log_start_offset, log.local_log_start_offset, log.size_bytes) == (0, 60, 0)


def test_a_segment_without_times_is_as_old_as_its_file() -> None:
    fs = CrashableFs(clock_ms=lambda: NOW)
    log = opened(fs, small(retention_ms=1000))
    for _ in range(30):
        append(log, batch("x" * 40, time_ms=-1))
    log.advance_high_watermark(30)
    assert log.delete_due_segments(NOW + 1000) == []
    assert log.delete_due_segments(NOW + 1001) != []
    assert log.log_start_offset == 30


def test_a_segment_stays_until_its_epoch_survives_without_it() -> None:
    """rel-T2: what went to the tier says its epoch nowhere else than in the file of the lineage."""
    fs = CrashableFs()
    rules = small(remote_storage_enable=True, local_retention_ms=1)
    log = opened(fs, rules)
    for directory in ("/", "/data"):
        fs.sync_dir(directory)
    fill(log, 3)
    log.roll(NOW)
    flush(log)  # the data; the file of the lineage has its name, which a power cut may undo
    log.advance_high_watermark(3)
    log.set_highest_remote(2)
    assert log.delete_due_segments(NOW + 10) == []
    flush(log)
    assert log.delete_due_segments(NOW + 10) != []
    after = fs.crash(SeededRng(), keep="none")
    assert LeaderEpochs(after, f"{PATH}/{LEADER_EPOCHS}").entries() == ((0, 0),)
