"""Which bytes retention.bytes counts: each once, and none below the log start. rel-T15; F33."""

from firnline.base.errors import StorageError
from tests.worlds.tier import Cluster, Node, topic_config


def test_files_below_the_log_start_do_not_expire_those_above_it_before_they_are_deleted() -> None:
    """F33, rel-T15: the local log deletes every five minutes; the limits are applied every half minute."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.storage.fail("copy", StorageError("503"), times=10_000)
    for number in range(10):
        node.produce(0, f"m{number}")
    each_bytes = node.log.closed_segments()[0].size_bytes
    node.log.config = topic_config(retention_bytes=6 * each_bytes)
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
