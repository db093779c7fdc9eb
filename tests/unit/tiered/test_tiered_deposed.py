"""A leader that was deposed and does not know it yet still deletes. Spec 3.4-1, X42; rel-T1."""

import pytest

from firnline.tiered.objects.catalog_reader import read_catalog
from firnline.tiered.spi import SegmentState, SegmentUpdate
from tests.worlds.tier import TOPIC_ID, Cluster, Node


def spans(node: Node) -> list[tuple[int, int]]:
    return [(s.base_offset, s.end_offset) for s in node.segments()]


@pytest.mark.parametrize("ends", [False, True])
def test_what_a_deposed_leader_deletes_late_raises_the_log_start_of_its_successor(
    ends: bool,
) -> None:
    """Fears a log that starts where nobody has records: a consumer from its start fails for ever.

    The deposed leader had been asked to delete records, and its successor had begun before it did so. `ends`:
    all its deletions are over before the successor looks.
    """
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    for text in "abcd":
        node.produce(0, text)
    node.pass_time(1000)
    node.expire_local()
    assert (spans(node), node.log.log_start_offset) == ([(n, n) for n in range(4)], 0)
    states = [SegmentState.DELETE_STARTED, *([SegmentState.DELETE_FINISHED] if ends else [])]
    for segment in node.segments()[:2]:
        if ends:
            node.storage.inner.delete_segment(segment)
        for state in states:
            change = SegmentUpdate(
                topic_id=segment.topic_id, topic=segment.topic, partition=segment.partition,
                segment_id=segment.segment_id, state=state, broker_id=9, event_timestamp_ms=1,
            )  # fmt: skip
            node.run(node.tier.services.metadata.update(change, lambda *_: [], 0))
    node.pass_time(2000)
    assert node.log.log_start_offset == 2
    assert spans(node) == [(2, 2), (3, 3)]
    catalog = read_catalog(cluster.store, TOPIC_ID, 0)
    assert catalog is not None
    assert [s.base_offset for s in catalog.segments] == [2, 3]
    assert list(node.read_all()) == [2, 3]
