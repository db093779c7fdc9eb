"""Copies that nobody will finish: found after their time, and deleted, late puts included. F2; rel-T13."""

import pytest

from firnline.base.effects import Append
from firnline.tiered.objects.layout import segment_stem
from firnline.tiered.objects.storage import stem_of
from firnline.tiered.spi import DeleteState, SegmentState
from tests.worlds.tier import TOPIC_ID, WHERE, Cluster, Node


def data_keys(cluster: Cluster) -> list[str]:
    return [key for key in cluster.store.objects if key.startswith("data/")]


def with_a_copy_under_way(cluster: Cluster) -> Node:
    """A leader whose copy was announced, and whose objects do not come to the store."""
    node = Node(cluster, 1).start().lead(0)
    node.produce(0, "a")
    node.held = lambda effect: getattr(effect, "name", "").startswith("copy ")
    node.pass_time(1000)
    return node


def test_a_dangling_copy_of_our_own_last_run_is_deleted_at_once() -> None:
    """F2; and once more later: a put of the process that was killed may still have been on its way."""
    cluster = Cluster()
    node = with_a_copy_under_way(cluster)
    (late,) = node.segments()
    again = Node(cluster, 1, fs=node.crash(), rng=node.rng)
    again.log.advance_high_watermark(1)
    again.start().lead(1)
    again.pass_time(2000)
    assert [s.state.name for s in again.segments()] == ["DELETE_STARTED", "COPY_FINISHED"]
    assert len(data_keys(cluster)) == 5
    key = segment_stem(TOPIC_ID, 0, base_offset=0, segment_id=late.segment_id) + ".index"
    cluster.store.put(key, [b"late"], size_bytes=4)
    again.pass_time(60_000)
    assert [s.state.name for s in again.segments()] == ["COPY_FINISHED"]
    assert len(data_keys(cluster)) == 5


def test_a_clock_that_jumped_before_a_start_does_not_shorten_the_wait_for_a_late_put() -> None:
    """rel-T13: the put arrived after what was taken for its end, and nobody looked at the segment again."""
    cluster = Cluster()
    node = with_a_copy_under_way(cluster)
    (late,) = node.segments()
    second = Node(cluster, 1, fs=node.crash(), rng=node.rng)
    second.log.advance_high_watermark(1)
    second.start().lead(1)
    second.pass_time(2000)
    assert late.segment_id in {s.segment_id for s in second.segments() if s.is_abandoned}
    cluster.now_ms += 5 * 24 * 3_600_000
    third = Node(cluster, 1, fs=second.crash(), rng=second.rng)
    third.log.advance_high_watermark(1)
    third.start().lead(2)
    third.pass_time(2000)
    cluster.store.put(stem_of(late) + ".index", [b"late"], size_bytes=4)
    third.pass_time(60_000)
    assert [s.state.name for s in third.segments()] == ["COPY_FINISHED"]
    assert len(data_keys(cluster)) == 5


@pytest.mark.parametrize("ahead_ms", [0, 5 * 24 * 3_600_000])
def test_a_dangling_copy_of_a_dead_broker_is_deleted_after_its_time_by_whatever_clock(
    ahead_ms: int,
) -> None:
    """rel-T13; shipped Kafka leaves it until retention. Its clock may have been days ahead."""
    cluster = Cluster()
    cluster.now_ms += ahead_ms
    node = with_a_copy_under_way(cluster)
    cluster.now_ms -= ahead_ms
    other = Node(cluster, 2).start()
    other.follow(node)
    other.log.roll(cluster.now_ms)
    other.lead(1)
    other.pass_time(30_000)
    assert [s.state.name for s in other.segments()] == ["COPY_STARTED", "COPY_FINISHED"]
    other.pass_time(50_000)
    assert [s.state.name for s in other.segments()] == ["COPY_FINISHED"]
    assert other.tier._tasks[WHERE].expiry._first_seen_ms == {}, "what is over is forgotten"


@pytest.mark.parametrize(("is_restarted", "jump_ms"), [(False, 0), (True, 0), (True, 10**9)])
def test_a_put_that_a_store_completes_after_the_topic_was_deleted_leaves_no_object(
    *, is_restarted: bool, jump_ms: int
) -> None:
    """rel-T13: the broker was killed during the put, and nobody looks at a deleted topic again.

    `jump_ms`: how far the wall clock jumps before the restart.
    """
    cluster = Cluster()
    node = with_a_copy_under_way(cluster)
    (late,) = node.segments()
    cluster.topics.clear()
    other = Node(cluster, 2).start()
    metadata = other.tier.services.metadata
    while metadata.delete_state(WHERE) != DeleteState.STARTED:
        other.pass_time(1_000)
    other.pass_time(1_000)
    assert (other.tier.remover.pending, other.tier.problem) == (1, None), "it only waits"
    if is_restarted:
        cluster.now_ms += jump_ms
        other = Node(cluster, 2).start()
        other.pass_time(2_000)
        metadata = other.tier.services.metadata
        assert metadata.delete_state(WHERE) == DeleteState.STARTED
    cluster.store.put(stem_of(late) + ".index", [b"late"], size_bytes=4)
    other.pass_time(60_000)
    assert cluster.store.objects == {}
    assert metadata.delete_state(WHERE) == DeleteState.FINISHED
    assert (other.tier.remover.pending, other.tier.remover._waiting) == (0, {})


def test_a_copy_that_is_finished_before_its_deletion_is_committed_stays() -> None:
    """rel-T2: its leader may have deleted the local segment by then. Goal: the later record is refused."""
    cluster = Cluster()
    node = with_a_copy_under_way(cluster)
    other = Node(cluster, 2).start()
    other.follow(node)
    other.lead(1)
    other.held = lambda effect: isinstance(effect, Append)
    other.pass_time(80_000)
    assert len(other.on_hold) == 1, "the record of the deletion"
    node.held = lambda effect: False
    node.release()
    assert list(cluster.known().values()) == [SegmentState.COPY_FINISHED]
    other.held = lambda effect: False
    other.release()
    other.pass_time(80_000)
    assert list(cluster.known().values()) == [SegmentState.COPY_FINISHED]
    assert len(data_keys(cluster)) == 5
