"""Segments that go to the tier and are removed from it are logged at debug."""

from firnline.base.ids import uuid_text
from tests.worlds.tier import Cluster, Node, topic_config


def test_a_segment_is_copied_and_removed_again() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(3)
    node.produce(3, "a", "b")
    node.pass_time(1000)
    (segment,) = node.segments()
    where = f"topic={segment.topic} partition=0 base_offset=0 end_offset=1"
    name = f"segment_id={uuid_text(segment.segment_id)}"
    copied = f"firnline.tiered debug segment copied {where} bytes={segment.size_bytes} {name} leader_epoch=3"
    assert [line for line in node.logged if "segment copied" in line] == [copied]
    age_ms = cluster.now_ms - segment.max_timestamp_ms
    node.log.config = topic_config(retention_ms=age_ms - 1)
    node.pass_time(120_000)
    assert node.segments() == []
    removed = f"firnline.tiered debug segment removed from the tier {where} {name}"
    assert [line for line in node.logged if "segment removed" in line] == [removed]
