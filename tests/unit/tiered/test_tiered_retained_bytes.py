"""Which bytes retention.bytes counts: each once, and none below the log start. rel-T15; F33."""

from firnline.base.errors import StorageError
from firnline.tiered.spi import SegmentState, SegmentUpdate
from tests.worlds.tier import (
    TOPIC_ID,
    Cluster,
    Node,
    topic_config,
    with_ten_of_which_six_may_stay,
)


def test_files_below_the_log_start_do_not_expire_those_above_it_before_they_are_deleted() -> None:
    """F33, rel-T15: the local log deletes every five minutes; the limits are applied every half minute."""
    node = with_ten_of_which_six_may_stay(Cluster())
    for _ in range(10):
        node.pass_time(1000)
    assert node.log.log_start_offset == 4
    assert len(node.log.closed_segments()) == 10, "the files are all there"


def test_a_local_segment_of_which_the_tier_has_a_part_expires_nothing() -> None:
    """rel-T15: the segments of a leader that was a follower begin elsewhere than those in the tier.

    Here it has one, of which the tier has all but the last record in four.
    """
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    for number in range(4):
        node.produce(0, f"m{number}")
    node.pass_time(1000)
    each_bytes = node.segments()[0].size_bytes
    other = Node(cluster, 2, config=topic_config(retention_bytes=6 * each_bytes)).start()
    whole = Node(cluster, 3).start().lead(0)
    for number in range(4):
        whole.produce(0, f"m{number}", roll=False)
    other.follow(whole)
    other.lead(1)
    other.produce(1, "m4", roll=False)
    other.pass_time(10_000)
    assert other.log.size_bytes == 5 * each_bytes
    assert other.log.log_start_offset == 0


def test_a_segment_deleted_from_the_tier_does_not_have_those_after_it_counted_twice() -> None:
    """rel-T15: a crash took the log start back below the segment that had expired, which is there locally."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    for number in range(6):
        node.produce(0, f"m{number}")
    node.pass_time(1000)
    each_bytes = node.segments()[0].size_bytes
    assert [s.state.name for s in node.segments()] == ["COPY_FINISHED"] * 6
    node.storage.fail("copy", StorageError("503"), times=10_000)  # it cannot be copied again yet
    first = node.segments()[0]
    node.storage.delete_segment(first)
    for state in (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED):
        change = SegmentUpdate(TOPIC_ID, "t", 0, first.segment_id, state, 1, cluster.now_ms)
        node.run(node.tier.services.metadata.update(change, lambda *_: [], cluster.now_ms))
    node.log.config = topic_config(retention_bytes=6 * each_bytes)
    node.pass_time(31_000)
    finished = [s for s in node.segments() if s.state == SegmentState.COPY_FINISHED]
    assert [s.base_offset for s in finished] == [1, 2, 3, 4, 5]
    assert len(node.log.closed_segments()) == 6
    assert node.log.log_start_offset == 0
