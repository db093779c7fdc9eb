"""firnline.remote.log.roll.idle.ms: an active segment is closed and copied although nothing is appended."""

from firnline.base.errors import StorageError
from firnline.tiered.copier import ROLL_AT_PAUSES, SEGMENTS_PER_PAUSE
from tests.unit.tiered.test_tiered_copy import catalog_spans
from tests.worlds.tier import Cluster, Node, topic_config

IDLE_MS = 10_000


def leading() -> tuple[Cluster, Node]:
    cluster = Cluster()
    node = Node(cluster, roll_idle_ms=IDLE_MS).start().lead(0)
    node.pass_time(2000)
    return cluster, node


def test_what_was_written_is_in_the_tier_when_nothing_was_appended_for_a_while() -> None:
    cluster, node = leading()
    node.produce(0, "a", "b", roll=False)
    node.pass_time(IDLE_MS - 1000)
    assert catalog_spans(cluster) == []
    node.produce(0, "c", roll=False)
    node.pass_time(IDLE_MS - 1000)
    assert catalog_spans(cluster) == [], "the third has begun the wait anew"
    node.pass_time(4000)
    assert catalog_spans(cluster) == [(0, 2)]
    segments = len(node.log.closed_segments())
    node.pass_time(5 * IDLE_MS)
    assert len(node.log.closed_segments()) == segments, "an empty segment is not closed"


def test_a_log_that_never_rests_is_copied_too() -> None:
    cluster, node = leading()
    for _ in range(ROLL_AT_PAUSES * 10 + 5):
        node.produce(0, "a", roll=False)
        node.pass_time(1000)
    assert len(catalog_spans(cluster)) == 1
    assert len(node.log.closed_segments()) == 1


def test_a_month_of_a_slow_topic_does_not_fill_the_tier_with_small_segments() -> None:
    """A record at a time, each followed by a pause: every one of them had a segment of its own."""
    cluster, node = leading()
    for _ in range(SEGMENTS_PER_PAUSE):
        node.produce(0, "a", roll=True)
    node.pass_time(5000)
    assert len(catalog_spans(cluster)) == SEGMENTS_PER_PAUSE
    node.produce(0, "a", roll=False)
    node.pass_time(IDLE_MS + 4000)
    assert len(catalog_spans(cluster)) == SEGMENTS_PER_PAUSE, "it waits twice as long now"
    node.pass_time(IDLE_MS)
    assert len(catalog_spans(cluster)) == SEGMENTS_PER_PAUSE + 1


def test_without_the_setting_it_stays_open_as_in_kafka() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a", roll=False)
    node.pass_time(100 * IDLE_MS)
    assert catalog_spans(cluster) == []


def test_nothing_is_closed_that_may_not_be_copied() -> None:
    cluster = Cluster()
    config = topic_config(remote_log_copy_disable=True)
    node = Node(cluster, roll_idle_ms=IDLE_MS, config=config).start().lead(0)
    node.produce(0, "a", roll=False)
    node.pass_time(10 * IDLE_MS)
    assert not node.log.closed_segments()


def test_a_disk_that_refuses_a_new_segment_fails_the_task_and_not_the_node() -> None:
    cluster, node = leading()
    node.produce(0, "a", roll=False)
    roll = node.log.roll

    def full(now_ms: int) -> bool:
        raise StorageError("no space left", error="ENOSPC")

    node.log.roll = full  # type: ignore[method-assign]
    node.pass_time(2 * IDLE_MS)
    [row] = node.tier.status()
    assert "no space left" in str(row.problem)
    node.log.roll = roll  # type: ignore[method-assign]
    node.pass_time(60_000)
    assert catalog_spans(cluster) == [(0, 0)]
