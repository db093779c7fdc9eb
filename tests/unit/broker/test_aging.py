"""A node that starts with a clock ten years ahead: fears that all that is kept for a time is gone at once."""

from typing import Any

import pytest

from firnline.base.counting.aging import DOUBTED_MS, NOT_DOUBTED, SURPRISE_MS, Aging, aging_since
from firnline.base.units import DAY_MS
from firnline.log import retention
from firnline.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from firnline.protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.records.build import NewRecord, build_batch
from firnline.stores.memory import MemoryStore
from tests.worlds.harness import START_MS, Harness, batch

TEN_YEARS_MS = 3_652 * DAY_MS
AHEAD_MS = START_MS + TEN_YEARS_MS
WEEK: dict[str, Any] = {"retention_ms": str(7 * DAY_MS), "segment_bytes": "1048576"}
JOBS: dict[str, Any] = {
    "log_retention_check_interval_ms": "1000",
    "offsets_retention_check_interval_ms": "1000",
    "producer_id_expiration_check_interval_ms": "1000",
    "log_cleaner_backoff_ms": "500",
    "log_cleaner_min_cleanable_ratio": "0.01",
}
SIZE = 600_000


def test_a_weekend_is_no_surprise_and_a_week_is_one() -> None:
    assert aging_since(None, AHEAD_MS) == NOT_DOUBTED
    for off_ms in (0, SURPRISE_MS, -SURPRISE_MS):
        assert aging_since(START_MS, START_MS + off_ms) == NOT_DOUBTED
    for off_ms in (SURPRISE_MS + 1, -SURPRISE_MS - 1):
        now_ms = START_MS + off_ms
        found = aging_since(START_MS, now_ms)
        assert found == Aging(START_MS, off_ms, now_ms + DOUBTED_MS)


def test_doubt_is_over_after_a_day_and_does_not_begin_again() -> None:
    aging = aging_since(START_MS, AHEAD_MS)
    assert aging.time_ms(AHEAD_MS) == START_MS
    assert aging.time_ms(AHEAD_MS + DOUBTED_MS - 1) == START_MS + DOUBTED_MS - 1
    assert aging.time_ms(AHEAD_MS + DOUBTED_MS) == AHEAD_MS + DOUBTED_MS
    assert not aging.is_doubted(AHEAD_MS + DOUBTED_MS)


def test_a_clock_that_is_behind_makes_nothing_older() -> None:
    behind_ms = START_MS - TEN_YEARS_MS
    aging = aging_since(START_MS, behind_ms)
    assert aging.is_doubted(behind_ms)
    assert aging.time_ms(behind_ms) == behind_ms


def started_again(first: Harness, aging: Aging, **more: Any) -> Harness:
    """Stop the node, and start it with a clock ten years ahead; give its jobs some time."""
    again = Harness(first.stop(), now_ms=AHEAD_MS, aging=aging, **JOBS, **more)
    again.pass_time(20_000)
    return again


def fill(harness: Harness, topic: str, key: bytes | None = None) -> None:
    for number in range(6):
        record = NewRecord(key, f"{number}:".ljust(SIZE, "x").encode(), START_MS + number)
        assert harness.produced(topic=topic, data=build_batch([record])).error_code == 0


DOUBTED = aging_since(START_MS, AHEAD_MS)


@pytest.mark.parametrize(("aging", "start_offset"), [(DOUBTED, 0), (NOT_DOUBTED, 6)])
def test_records_of_a_topic(aging: Aging, start_offset: int) -> None:
    first = Harness(**JOBS)
    first.create_topic(**WEEK)
    fill(first, "t")
    assert started_again(first, aging).offset(-2) == (0, start_offset)


@pytest.mark.parametrize(("aging", "start_offset"), [(DOUBTED, 0), (NOT_DOUBTED, 6)])
def test_records_in_the_tier(aging: Aging, start_offset: int) -> None:
    store = MemoryStore()
    first = Harness(store=store, **JOBS)
    first.create_topic(remote_storage_enable="true", local_retention_bytes="1", **WEEK)
    fill(first, "t")
    first.pass_time(30_000)
    assert first.offset(-4)[1] > 0, "nothing is in the tier alone, so nothing is tried"
    again = started_again(first, aging, store=store)
    again.pass_time(60_000)
    assert again.offset(-2) == (0, start_offset)
    copies = [info for info in store.list_prefix("data/") if info.key.endswith(".log")]
    assert bool(copies) == (aging is DOUBTED)


def test_a_limit_of_bytes_holds_all_the_same() -> None:
    first = Harness(**JOBS)
    first.create_topic(retention_bytes="1048576", segment_bytes="1048576", retention_ms="-1")
    fill(first, "t")
    assert started_again(first, DOUBTED).offset(-2)[1] > 0


@pytest.mark.parametrize(("aging", "offset"), [(DOUBTED, 3), (NOT_DOUBTED, -1)])
def test_committed_offsets_of_a_group_without_members(aging: Aging, offset: int) -> None:
    first = Harness(**JOBS)
    first.create_topic()
    first.produced("a", "b", "c")
    first.pass_time(5_000)
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[part])]
    request = OffsetCommitRequest(group_id="g", topics=topics)
    first.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    first.pass_time(5_000)
    assert first.ask(request, 8).topics[0].partitions[0].error_code == 0
    again = started_again(first, aging)
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    [group] = again.ask(asked, 8).groups
    assert group.error_code == 0
    found = [part.committed_offset for topic in group.topics for part in topic.partitions]
    assert (found or [-1]) == [offset]


@pytest.mark.parametrize(("aging", "count"), [(DOUBTED, 1), (NOT_DOUBTED, 0)])
def test_producers_whose_duplicates_are_known(aging: Aging, count: int) -> None:
    first = Harness(**JOBS)
    first.create_topic()
    data = batch("a", producer_id=7, producer_epoch=0, base_sequence=0)
    assert first.produced(data=data).error_code == 0
    again = started_again(first, aging)
    [partition] = [p for p in again.node.hosted if p.topic_partition.topic == "t"]
    assert len(partition.log.producers) == count


@pytest.mark.parametrize(("aging", "age_ms"), [(DOUBTED, 0), (NOT_DOUBTED, TEN_YEARS_MS)])
def test_tombstones_that_no_consumer_may_have_seen(
    monkeypatch: pytest.MonkeyPatch, aging: Aging, age_ms: int
) -> None:
    """Method: at which time a round is planned, and run."""
    from firnline.log.compaction.state import Compaction

    first = Harness(**JOBS)
    first.create_topic(cleanup_policy="compact", segment_bytes="1048576", min_compaction_lag_ms="0")
    fill(first, "t", key=b"k")
    planned: list[int] = []
    run: list[int] = []
    to_clean, steps = Compaction.log_to_clean, Compaction.job_steps

    def log_to_clean(self: Compaction, now_ms: int, **more: Any) -> Any:
        planned.append(now_ms)
        return to_clean(self, now_ms, **more)

    def job_steps(self: Compaction, log: Any, rules: Any, now_ms: int) -> Any:
        run.append(now_ms)
        return steps(self, log, rules, now_ms)

    monkeypatch.setattr(Compaction, "log_to_clean", log_to_clean)
    monkeypatch.setattr(Compaction, "job_steps", job_steps)
    started_again(first, aging)
    assert planned
    assert run
    for time_ms in (*planned, *run):
        assert 0 <= time_ms - age_ms - START_MS < DAY_MS


def test_the_rest_of_a_round_of_retention_ages_as_its_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fears that a limit of bytes deletes in steps, and the second step looks at the clock."""
    monkeypatch.setattr(retention, "NAMES_AT_ONCE", 1)
    monkeypatch.setattr(retention, "SEGMENTS_AT_ONCE", 1)
    first = Harness(**JOBS)
    first.create_topic(retention_bytes="2500000", **WEEK)
    fill(first, "t")
    again = started_again(first, DOUBTED)
    assert again.offset(-2) == (0, 1)
