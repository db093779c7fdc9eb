"""What a reader has found in the catalog stays: for `file.delete.delay.ms`, or as long as it has a lease."""

from typing import Any

import pytest

from firnline.tiered.objects.catalog_reader import read_catalog
from firnline.tiered.spi import DeleteState
from tests.worlds.tier import TOPIC_ID, WHERE, Cluster, Node, topic_config

DELAY_MS = 10_000


def objects(cluster: Cluster) -> int:
    return sum(key.endswith(".log") for key in cluster.store.objects)


def listed(cluster: Cluster) -> list[int]:
    catalog = read_catalog(cluster.store, TOPIC_ID, 0)
    assert catalog is not None
    return [segment.base_offset for segment in catalog.segments]


def with_expired_segments(cluster: Cluster, **settings: Any) -> Node:
    """A leader whose two segments expire at its next run."""
    config = topic_config(file_delete_delay_ms=DELAY_MS)
    node = Node(cluster, config=config, **settings).start().lead(0)
    for text in "ab":
        node.produce(0, text)
    node.pass_time(2_000)
    assert (listed(cluster), objects(cluster)) == ([0, 1], 2)
    node.log.config = topic_config(file_delete_delay_ms=DELAY_MS, retention_ms=0)
    return node


def test_objects_of_expired_segments_stay_for_the_delay_after_the_catalog_is_without_them() -> None:
    cluster = Cluster()
    node = with_expired_segments(cluster)
    node.pass_time(2_000)
    assert (listed(cluster), node.log.log_start_offset) == ([], 2)
    assert {each.state.name for each in node.segments()} == {"DELETE_STARTED"}
    node.pass_time(DELAY_MS - 3_000)
    assert objects(cluster) == 2
    unlisted = node.tier._tasks[WHERE].expiry._unlisted
    assert len(unlisted) == 2
    node.pass_time(4_000)
    assert (objects(cluster), node.segments()) == (0, [])
    assert not unlisted, "what is deleted is forgotten"


def test_a_catalog_that_cannot_be_written_does_not_use_up_the_delay() -> None:
    """Goal: the delay counts from the catalog, and not from the decision."""
    cluster = Cluster()
    node = with_expired_segments(cluster)
    node.held = lambda effect: getattr(effect, "name", "").startswith("write catalog")
    node.pass_time(2 * DELAY_MS)
    assert listed(cluster) == [0, 1]
    node.release()
    node.pass_time(DELAY_MS - 3_000)
    assert (listed(cluster), objects(cluster)) == ([], 2)
    node.pass_time(5_000)
    assert objects(cluster) == 0


def test_the_delay_begins_again_with_the_next_leader() -> None:
    """It does not know since when the catalog is without the segments."""
    cluster = Cluster()
    node = with_expired_segments(cluster)
    node.pass_time(DELAY_MS - 1_000)
    node.lead(1)
    node.pass_time(DELAY_MS - 1_000)
    assert objects(cluster) == 2
    node.pass_time(4_000)
    assert objects(cluster) == 0


def test_a_clock_that_is_set_back_does_not_keep_the_objects_until_it_is_there_again() -> None:
    cluster = Cluster()
    cluster.now_ms += 5 * 24 * 3_600_000
    node = with_expired_segments(cluster)
    node.pass_time(2_000)
    unlisted = node.tier._tasks[WHERE].expiry._unlisted
    (segment, _) = node.segments()
    assert unlisted.for_ms(segment, cluster.now_ms) >= 0
    cluster_ms = cluster.now_ms - 4 * 24 * 3_600_000
    assert unlisted.for_ms(segment, cluster_ms) == 0
    assert unlisted.for_ms(segment, cluster_ms + DELAY_MS) == DELAY_MS


def test_without_a_catalog_nobody_can_hold_a_segment() -> None:
    """A storage plug-in has no catalog, and is told at once, as by Kafka."""
    cluster = Cluster()
    config = topic_config(file_delete_delay_ms=DELAY_MS)
    node = Node(cluster, config=config, is_plugin=True).start().lead(0)
    node.produce(0, "a")
    node.pass_time(2_000)
    assert len(node.segments()) == 1
    node.log.config = topic_config(file_delete_delay_ms=DELAY_MS, retention_ms=0)
    node.pass_time(2_000)
    assert node.segments() == []


def test_objects_of_a_deleted_topic_stay_for_the_delay_after_its_marker() -> None:
    cluster = Cluster()
    node = with_expired_segments(cluster, delete_delay_ms=DELAY_MS)
    cluster.topics.clear()
    node.run(node.tier.on_topic_deleted(TOPIC_ID, "t", 1, was_tiered=True, now_ms=node.now_ms))
    node.pass_time(DELAY_MS - 1_000)
    assert any(key.endswith(".deleted") for key in cluster.store.objects)
    assert objects(cluster) == 2
    assert (node.tier.remover.pending, node.tier.problem) == (1, None), "it only waits"
    node.pass_time(2_000)
    assert node.tier.services.metadata.delete_state(WHERE) == DeleteState.FINISHED
    assert cluster.store.objects == {}
    assert (node.tier.remover._waiting, node.tier.remover._marked_ms) == ({}, {})


def test_nothing_expires_while_a_lease_runs_and_then_it_does() -> None:
    cluster = Cluster()
    node = Node(cluster, config=topic_config()).start().lead(0)
    for text in "abcd":
        node.produce(0, text)
    node.pass_time(2_000)
    lease = f"a-cut:{cluster.now_ms + 20_000}"
    node.log.config = topic_config(retention_ms=0, firnline_retention_leases=(lease,))
    node.pass_time(18_000)
    assert (len(node.segments()), node.log.log_start_offset) == (4, 0)
    assert listed(cluster) == [0, 1, 2, 3]
    node.log.advance_log_start(1)  # DeleteRecords
    node.pass_time(1_000)
    assert [each.base_offset for each in node.segments()] == [1, 2, 3], (
        "what is deleted by request goes"
    )
    node.pass_time(3_000)
    assert (node.segments(), node.log.log_start_offset) == ([], 4)


@pytest.mark.parametrize("delay_ms", [0, DELAY_MS])
def test_a_copy_that_was_never_finished_does_not_wait(delay_ms: int) -> None:
    cluster = Cluster()
    node = Node(cluster, config=topic_config(file_delete_delay_ms=delay_ms)).start().lead(0)
    node.produce(0, "a")
    node.held = lambda effect: getattr(effect, "name", "").startswith("copy ")
    node.pass_time(1_000)
    again = Node(cluster, 1, fs=node.crash(), config=node.log.config, rng=node.rng)
    again.log.advance_high_watermark(1)
    again.start().lead(1)
    again.pass_time(2_000)
    assert [s.is_abandoned for s in again.segments()] == [True, False], "its objects are deleted"
