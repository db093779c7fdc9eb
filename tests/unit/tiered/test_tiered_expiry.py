"""What the tier no longer keeps, and deleted topics. Spec 3.7, 3.13; F20-F24, F31-F33; rel-T12-T15."""

from collections.abc import Sequence
from typing import Any

import pytest

from firnline.base.effects import Appended
from firnline.base.errors import KafkaError, StorageError
from firnline.base.ids import TopicIdPartition
from firnline.records.build import NewRecord, build_batch
from firnline.tiered import expiry, retained, segment_removal
from firnline.tiered.copier import task_key
from firnline.tiered.objects.catalog_reader import list_topics, read_catalog, resolve_topic
from firnline.tiered.segment_removal import SegmentRemoval
from firnline.tiered.spi import DeleteState, RemoteSegment, SegmentState
from tests.worlds.tier import TOPIC_ID, WHERE, Cluster, Node, topic_config


def spans(node: Node) -> list[tuple[int, int]]:
    return [(s.base_offset, s.end_offset) for s in node.segments()]


def data_keys(cluster: Cluster) -> list[str]:
    return [key for key in cluster.store.objects if key.startswith("data/")]


def catalog_bases(cluster: Cluster) -> list[int]:
    catalog = read_catalog(cluster.store, TOPIC_ID, 0)
    assert catalog is not None
    return [s.base_offset for s in catalog.segments]


def tiered(cluster: Cluster, count: int = 4, **settings: Any) -> Node:
    node = Node(cluster, **settings).start().lead(0)
    for number in range(count):
        node.produce(0, f"m{number}")
        cluster.now_ms += 1000
    node.pass_time(1000)
    node.expire_local()
    assert spans(node) == [(n, n) for n in range(count)]
    return node


def test_time_retention_deletes_from_the_oldest_and_moves_the_log_start() -> None:
    cluster = Cluster()
    node = tiered(cluster)
    oldest = node.segments()[0].max_timestamp_ms
    node.log.config = topic_config(retention_ms=cluster.now_ms - oldest - 1000)
    node.pass_time(1000)
    assert node.log.log_start_offset == 3
    assert spans(node) == [(3, 3)]
    assert len(data_keys(cluster)) == 5
    assert catalog_bases(cluster) == [3]


@pytest.mark.parametrize(("age", "left"), [(-1, 4), (0, 3), (1, 3)])
def test_remote_age_breaches_one_tick_before_local_age_would(age: int, left: int) -> None:
    """T12: now - timestamp >= retention."""
    cluster = Cluster()
    node = tiered(cluster)
    retention_ms = cluster.now_ms - node.segments()[0].max_timestamp_ms - age
    node.log.config = topic_config(retention_ms=retention_ms)
    tasks = node.tier._tasks[WHERE]
    del node.timers[task_key("expire", WHERE)]
    node.run(tasks.expiry.run(cluster.now_ms, lambda error, now: []))
    assert len(node.segments()) == left


def test_records_without_a_time_are_as_old_as_their_file() -> None:
    """As local retention takes them, and Kafka: with -1 they would expire in the minute they came."""
    cluster = Cluster()
    node = Node(cluster, config=topic_config(retention_ms=60_000)).start().lead(0)
    node.fs.clock_ms = lambda: cluster.now_ms
    for _ in range(2):
        data = build_batch([NewRecord(None, b"x", -1)])
        made = node.log.append_as_leader(
            data, leader_epoch=0, now_ms=cluster.now_ms, origin="client"
        )
        assert isinstance(made, Appended), made
        node.log.advance_high_watermark(node.log.log_end_offset)
        node.log.roll(cluster.now_ms)
    written_ms = cluster.now_ms
    node.pass_time(5_000)
    assert [s.max_timestamp_ms for s in node.segments()] == [written_ms, written_ms]
    node.pass_time(50_000)
    assert (len(node.segments()), node.log.log_start_offset) == (2, 0)
    node.pass_time(10_000)
    assert (node.segments(), node.log.log_start_offset) == ([], 2)


def test_total_limits_may_be_applied_less_often_than_tasks_run() -> None:
    cluster = Cluster()
    config = topic_config(retention_ms=1000, retention_bytes=10)
    node = Node(cluster, config=config, retention_interval_ms=300_000).start().lead(0)
    for text in "abc":
        node.produce(0, text)
    node.pass_time(290_000)
    assert (len(node.segments()), node.log.log_start_offset) == (3, 0)
    node.log.advance_log_start(1)  # DeleteRecords
    node.pass_time(2_000)
    assert spans(node) == [(1, 1), (2, 2)], "what lies below the log start goes with the next task"
    node.pass_time(10_000)
    assert (node.segments(), node.log.log_start_offset) == ([], 3)


def test_size_retention_keeps_as_much_as_fits() -> None:
    cluster = Cluster()
    node = tiered(cluster)
    size = node.segments()[0].size_bytes
    node.log.config = topic_config(retention_bytes=2 * size)
    node.pass_time(2000)
    assert spans(node) == [(2, 2), (3, 3)]
    node.log.config = topic_config(retention_bytes=2 * size - 1)
    node.pass_time(2000)
    assert spans(node) == [(2, 2), (3, 3)], "a segment goes only if the breach is as large as it is"
    node.log.config = topic_config(retention_bytes=size)
    node.pass_time(2000)
    assert spans(node) == [(3, 3)]


def test_bytes_that_are_in_both_tiers_count_once() -> None:
    """rel-T15."""
    cluster = Cluster()
    node = Node(cluster, config=topic_config(local_retention_bytes=-1)).start().lead(0)
    for number in range(4):
        node.produce(0, f"m{number}")
    node.pass_time(1000)
    size = node.segments()[0].size_bytes
    node.log.config = topic_config(local_retention_bytes=-1, retention_bytes=4 * size)
    node.pass_time(2000)
    assert len(node.segments()) == 4
    assert node.log.local_log_start_offset == 0


def test_a_copy_that_only_began_counts_no_bytes() -> None:
    """F31, X32."""
    cluster = Cluster()
    node = tiered(cluster)
    size = node.segments()[0].size_bytes
    node.produce(0, "m4")
    node.held = lambda effect: getattr(effect, "name", "").startswith("copy ")
    node.pass_time(1000)
    assert len(node.segments()) == 5
    node.log.config = topic_config(retention_bytes=5 * size)
    node.pass_time(3000)
    assert len(node.segments()) == 5
    assert node.log.log_start_offset == 0


def test_the_log_start_moves_before_anything_is_deleted() -> None:
    """X33: whoever takes over sees a log start breach, not a decision to be made again."""
    cluster = Cluster()
    node = tiered(cluster)
    order: list[tuple[str, int, list[int]]] = []
    one, many = node.storage.delete_segment, node.storage.delete_segments

    def look(segments: Sequence[RemoteSegment]) -> None:
        for segment in segments:
            order.append(("delete", node.log.log_start_offset, catalog_bases(cluster)))
            known = node.tier.services.metadata.get(WHERE, segment.segment_id)
            assert known is not None
            assert known.state == SegmentState.DELETE_STARTED
        one(segments[0]) if len(segments) == 1 else many(segments)

    node.storage.delete_segment = lambda segment: look([segment])  # type: ignore[method-assign]
    node.storage.delete_segments = look  # type: ignore[method-assign]
    node.log.config = topic_config(retention_ms=1)
    node.pass_time(1000)
    assert order == [("delete", 4, [])] * 4, "and the catalog is without them by then"


def test_delete_records_removes_what_lies_below() -> None:
    """F30, rel-T18; the segment that holds the log start stays."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a", "b")
    node.produce(0, "c", "d")
    node.pass_time(1000)
    node.expire_local()
    node.log.advance_log_start(3)
    node.pass_time(2000)
    assert spans(node) == [(2, 3)]
    assert isinstance(node.read(2), KafkaError)
    assert not isinstance(node.read(3), KafkaError)


def test_readers_of_the_store_learn_of_a_log_start_within_a_segment() -> None:
    """Nothing is copied and nothing deleted then; they would read records that were deleted by order."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a", "b")
    node.pass_time(1000)
    node.log.advance_log_start(1)
    node.pass_time(1000)
    catalog = read_catalog(cluster.store, TOPIC_ID, 0)
    assert catalog is not None
    assert catalog.log_start_offset == 1


def test_a_segment_of_a_lost_history_neither_moves_the_log_start_nor_stays_for_ever() -> None:
    """X31, F26: B's 0-1#2 of epoch 1 never was ours."""
    cluster = Cluster()
    a = Node(cluster, 1).start().lead(0)
    a.produce(0, "a", "b")
    b = Node(cluster, 2).start()
    b.follow(a)
    b.log.truncate_to(1)
    b.log.roll(cluster.now_ms)
    a.pass_time(1000)
    a.role(is_leader=False, epoch=1)
    b.lead(1)
    b.produce(1, "x")
    b.pass_time(1000)
    b.role(is_leader=False, epoch=2)
    a.lead(2)
    a.produce(2, "c")
    a.pass_time(2000)
    lost = [s for s in a.segments() if s.epochs[-1][0] == 1]
    assert [(s.base_offset, s.end_offset) for s in lost] == [(1, 1)]
    a.log.config = topic_config(retention_bytes=2 * a.segments()[0].size_bytes)
    a.pass_time(2000)
    assert a.log.log_start_offset == 0
    a.log.config = topic_config()
    a.expire_local()
    a.log.advance_log_start(2)
    a.pass_time(3000)
    assert [s.epochs[-1][0] for s in a.segments()] == [2]


def test_a_delete_that_fails_is_tried_again_and_does_not_hold_up_the_others() -> None:
    """F21."""
    cluster = Cluster()
    node = tiered(cluster)
    node.storage.fail("delete", StorageError("403"))
    node.log.config = topic_config(retention_ms=1)
    node.pass_time(0)
    node.pass_time(1000)
    assert node.tier.services.counters.delete_errors == 1
    node.pass_time(5000)
    assert spans(node) == []
    assert data_keys(cluster) == []


def test_deletes_that_keep_failing_are_tried_less_and_less_often() -> None:
    cluster = Cluster()
    node = tiered(cluster, count=1, retry_backoff_max_ms=30_000)
    node.storage.fail("delete", StorageError("403"), times=1000)
    node.log.config = topic_config(retention_ms=1)
    node.pass_time(60_000)
    tries = node.storage.calls.count("delete")
    assert 5 <= tries <= 12
    node.storage.faults.clear()
    node.pass_time(60_000)
    assert node.storage.calls.count("delete") == tries + 1
    assert data_keys(cluster) == []


def test_without_the_metadata_nothing_is_deleted() -> None:
    """F13."""
    cluster = Cluster()
    node = tiered(cluster)
    node.append_faults = ["refused"] * 1000
    node.log.config = topic_config(retention_ms=1)
    node.pass_time(5000)
    assert node.storage.calls.count("delete") == 0
    assert len(data_keys(cluster)) == 20


def test_while_the_catalog_cannot_be_written_nothing_is_deleted() -> None:
    """A reader without a broker must not be sent to objects that are gone."""
    cluster = Cluster()
    node = tiered(cluster)
    put = cluster.store.put

    def failing(key: str, chunks: object, *, size_bytes: int) -> None:
        raise StorageError("503")

    cluster.store.put = failing  # type: ignore[method-assign]
    node.log.config = topic_config(retention_ms=1)
    node.pass_time(3000)
    assert len(data_keys(cluster)) == 20
    cluster.store.put = put  # type: ignore[method-assign]
    node.pass_time(60_000)
    assert data_keys(cluster) == []
    assert catalog_bases(cluster) == []


def test_what_outlives_the_total_retention_before_it_is_copied_is_not_kept() -> None:
    """F33: the store is down longer than the retention; the disk stays bounded, nothing is half there."""
    cluster = Cluster()
    node = Node(cluster, config=topic_config(retention_ms=5_000)).start().lead(0)
    node.storage.fail("copy", StorageError("503"), times=10_000)
    for number in range(10):
        node.produce(0, f"m{number}")
        node.pass_time(1000)
        node.expire_local()
    assert 3 <= node.log.log_start_offset <= 6
    assert node.log.local_log_start_offset == node.log.log_start_offset
    assert data_keys(cluster) == []


def test_an_expired_log_start_is_not_moved_past_the_high_watermark() -> None:
    cluster = Cluster()
    node = Node(cluster, config=topic_config(retention_ms=1)).start().lead(0)
    node.storage.fail("copy", StorageError("503"), times=10_000)
    node.produce(0, "a")
    node.log.high_watermark = 0
    cluster.now_ms += 1000
    node.pass_time(1000)
    assert node.log.log_start_offset == 0


def test_switching_off_with_delete_empties_the_tier_and_keeps_the_local_tail() -> None:
    """T49."""
    cluster = Cluster()
    node = tiered(cluster)
    node.produce(0, "tail", roll=False)
    node.log.config = topic_config(
        remote_storage_enable=False, remote_log_delete_on_disable=True, local_retention_bytes=-2
    )
    node.role(is_leader=True, epoch=0)
    node.pass_time(3000)
    assert data_keys(cluster) == []
    assert node.log.log_start_offset == 4
    assert list(node.read_all()) == [4]


# ---------------------------------------------------------------------------------- deleted topics


def delete_topic(node: Node, partitions: int = 1, was_tiered: bool = True) -> None:
    node.cluster.topics.pop(TOPIC_ID, None)
    node.run(
        node.tier.on_topic_deleted(
            TOPIC_ID, "t", partitions, was_tiered=was_tiered, now_ms=node.cluster.now_ms
        )
    )


def test_a_deleted_topic_leaves_nothing_in_the_tier() -> None:
    cluster = Cluster()
    node = tiered(cluster)
    delete_topic(node)
    node.pass_time(1000)
    assert cluster.store.objects == {}
    metadata = node.tier.services.metadata
    assert metadata.delete_state(WHERE) == DeleteState.FINISHED
    assert metadata.segments_to_remove(WHERE) == []
    assert node.tier.remover.pending == 0


def test_a_deleted_topic_does_not_wait_for_the_next_scan_when_its_node_was_a_record_behind() -> (
    None
):
    """The scan comes every hour; records of the metadata come all the time."""
    cluster = Cluster()
    node = tiered(cluster, remover_interval_ms=3_600_000)
    node.pass_time(120_000)  # past the first scan, which is soon
    (partition,) = (number for number, batches in cluster.metadata.items() if batches)
    cluster.append(partition, bytearray(cluster.metadata[partition][-1]))
    delete_topic(node)
    assert cluster.store.objects, "the node knew all: nothing is tried"
    node.pass_time(5000)
    assert cluster.store.objects == {}
    assert node.tier.remover.pending == 0


def test_a_tiered_topic_that_was_never_copied_leaves_no_catalog_either() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.pass_time(1000)
    assert cluster.store.objects
    delete_topic(node)
    node.pass_time(1000)
    assert cluster.store.objects == {}


def test_a_topic_deleted_while_its_remover_was_down_leaves_no_catalog_though_it_has_no_segment() -> (
    None
):
    """rel-T13: its only copy failed, so that no segment tells the next remover of it."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.storage.fail("copy", StorageError("503"))
    node.produce(0, "a")
    node.run(node.tier._tasks[WHERE].copier.run(cluster.now_ms, lambda error, now: []))
    assert cluster.metadata
    assert node.segments() == []
    cluster.topics.clear()
    other = Node(cluster, 2).start()
    other.pass_time(30_000)
    assert cluster.store.objects == {}


def test_a_deleted_topic_leaves_nothing_where_the_tier_has_no_catalog() -> None:
    cluster = Cluster()
    node = Node(cluster)
    node.tier.services.catalog = None
    assert node.tier.problem is None
    node.start().lead(0)
    node.produce(0, "a")
    node.pass_time(1000)
    assert cluster.store.objects
    delete_topic(node)
    node.pass_time(1000)
    assert cluster.store.objects == {}
    assert node.tier.services.metadata.delete_state(WHERE) == DeleteState.FINISHED
    assert (node.tier.remover.pending, node.tier.problem) == (0, None)


def test_a_topic_that_never_was_tiered_says_nothing_to_the_metadata() -> None:
    cluster = Cluster()
    node = Node(cluster).start()
    delete_topic(node, was_tiered=False)
    node.pass_time(20_000)
    assert cluster.metadata == {}


def test_a_partition_without_a_leader_is_removed_too() -> None:
    """T55: the remover needs no replica of it."""
    cluster = Cluster()
    node = tiered(cluster)
    other = Node(cluster, 2).start()
    del node
    delete_topic(other)
    other.pass_time(1000)
    assert cluster.store.objects == {}


def test_marked_twice_is_effective_once() -> None:
    """F24, rel-T7."""
    cluster = Cluster()
    node = tiered(cluster)
    delete_topic(node)
    delete_topic(node)
    node.pass_time(10_000)
    delete_topic(node)
    node.pass_time(10_000)
    records = sum(len(batches) for batches in cluster.metadata.values())
    assert records == 4 * 2 + 3 + 4 * 2, "copies, one deletion, deletes"


def test_who_does_not_lead_the_metadata_partition_writes_nothing_of_a_deletion() -> None:
    cluster = Cluster()
    node = tiered(cluster)
    cluster.leads = dict.fromkeys(range(cluster.partitions), 2)
    said = dict(cluster.ends)
    delete_topic(node)
    node.pass_time(2000)
    assert cluster.ends == said
    assert node.tier.remover.pending == 1


def test_a_deletion_that_stopped_half_way_is_gone_on_with_by_the_next_leader_of_its_metadata() -> (
    None
):
    cluster = Cluster()
    node = tiered(cluster)
    cluster.leads = dict.fromkeys(range(cluster.partitions), 1)
    other = Node(cluster, 2).start()
    other.pass_time(1000)
    node.storage.fail("delete", StorageError("403"), times=100)
    delete_topic(node)
    cluster.leads = dict.fromkeys(range(cluster.partitions), 2)
    for partition in range(cluster.partitions):
        other.run(other.tier.on_metadata_leadership(partition, cluster.now_ms))
    other.pass_time(1000)
    assert cluster.store.objects == {}


def test_objects_of_a_deleted_topic_stay_until_readers_can_learn_of_it() -> None:
    cluster = Cluster()
    node = tiered(cluster)
    put, kept = cluster.store.put, data_keys(cluster)

    def failing(key: str, chunks: object, *, size_bytes: int) -> None:
        raise StorageError("503")

    cluster.store.put = failing  # type: ignore[method-assign, assignment]
    delete_topic(node)
    node.pass_time(2000)
    assert data_keys(cluster) == kept
    assert node.tier.problem is not None
    assert "503" in node.tier.problem
    cluster.store.put = put  # type: ignore[method-assign]
    node.pass_time(20_000)
    assert cluster.store.objects == {}


def test_only_the_leader_of_the_metadata_partition_removes() -> None:
    cluster = Cluster()
    node = tiered(cluster)
    partition = node.tier.services.metadata.applied_offset(WHERE)[0]
    cluster.leads[partition] = 2
    delete_topic(node)
    node.pass_time(3_000)
    assert len(data_keys(cluster)) == 20
    other = Node(cluster, 2).start()
    delete_topic(other)
    other.pass_time(3_000)
    assert cluster.store.objects == {}


def test_readers_learn_of_the_deletion_before_the_first_object_goes() -> None:
    cluster = Cluster()
    node = tiered(cluster)
    node.storage.fail("delete", StorageError("503"), times=1000)
    delete_topic(node)
    node.pass_time(3000)
    found = resolve_topic(cluster.store, "t")
    assert found is not None
    assert found.is_deleted
    assert [t.is_deleted for t in list_topics(cluster.store)] == [True]
    assert "503" in str(node.tier.problem)
    node.storage.faults.clear()
    node.pass_time(60_000)
    assert cluster.store.objects == {}
    assert node.tier.problem is None


@pytest.mark.loses_metadata  # its objects are made by hand
def test_a_topic_of_the_same_name_is_not_touched() -> None:
    """F23, X41."""
    cluster = Cluster()
    node = tiered(cluster)
    again = bytes(15) + b"\x55"
    cluster.topics[again] = "t"
    from firnline.tiered.objects.catalog_changes import begin_catalog

    begin_catalog(cluster.store, topic="t", topic_id=again, partition=0, now_ms=cluster.now_ms)
    cluster.store.put("data/x/0/y.log", (b"1",), size_bytes=1)
    delete_topic(node)
    node.pass_time(3000)
    left = sorted(cluster.store.objects)
    assert len(left) == 2
    found = resolve_topic(cluster.store, "t")
    assert found is not None
    assert (found.topic_id, found.is_deleted) == (again, False)


def test_segments_of_a_topic_that_nobody_saw_go_are_removed_by_the_scan() -> None:
    """The node that should have marked it was down; a topic is given two scans to appear."""
    cluster = Cluster()
    node = tiered(cluster)
    del node
    cluster.topics.clear()
    other = Node(cluster, 2).start()
    other.pass_time(4_000)
    assert len(data_keys(cluster)) == 20
    other.pass_time(10_000)
    assert cluster.store.objects == {}


def test_a_deletion_waits_for_a_copy_that_is_under_way_in_this_process() -> None:
    cluster = Cluster()
    node = tiered(cluster, 1)
    node.produce(0, "late")
    node.held = lambda effect: getattr(effect, "name", "").startswith("copy ")
    node.pass_time(1000)
    delete_topic(node)
    node.pass_time(3000)
    assert len(data_keys(cluster)) == 5
    node.release()
    node.pass_time(60_000)
    assert cluster.store.objects == {}


def test_a_segment_that_a_zombie_adds_after_the_end_is_removed_as_well() -> None:
    cluster = Cluster()
    node = tiered(cluster, 1)
    (old,) = node.segments()
    delete_topic(node)
    node.pass_time(1000)
    late = old._replace(segment_id=bytes(15) + b"\x99", state=SegmentState.COPY_STARTED)
    node.run(node.tier.services.metadata.add(late, lambda error, now: [], cluster.now_ms))
    node.pass_time(10_000)
    left = node.tier.services.metadata.segments_to_remove(TopicIdPartition(TOPIC_ID, 0))
    assert left == []


def test_a_replica_that_moves_away_deletes_nothing() -> None:
    """T28."""
    cluster = Cluster()
    node = tiered(cluster)
    node.run(node.tier.on_stop(WHERE, cluster.now_ms))
    node.pass_time(10_000)
    assert len(data_keys(cluster)) == 20


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained, "PLACED_IN_STEP", 2)
    monkeypatch.setattr(expiry, "CHECKED_IN_STEP", 2)
    monkeypatch.setattr(segment_removal, "CHECKED_IN_STEP", 2)


def deciding(cluster: Cluster, **config: Any) -> Node:
    """Nine segments, and an expiration that has begun to look at them; its next step is a timer."""
    node = tiered(cluster, 9)
    node.log.config = topic_config(**config)
    del node.timers[task_key("expire", WHERE)], node.timers[task_key("copy", WHERE)]
    node.run(node.tier._tasks[WHERE].expiry.run(cluster.now_ms, lambda error, now: []))
    assert ("tier", "background") in node.timers
    return node


@pytest.mark.usefixtures("small_steps")
def test_very_many_that_are_due_expire_in_steps() -> None:
    cluster = Cluster()
    node = deciding(cluster, retention_ms=1)
    assert node.log.log_start_offset == 0
    node.pass_time(0)
    assert (node.log.log_start_offset, node.segments(), data_keys(cluster)) == (9, [], [])


@pytest.mark.usefixtures("small_steps")
def test_whoever_resigns_while_it_decides_deletes_nothing() -> None:
    cluster = Cluster()
    node = deciding(cluster, retention_ms=1)
    node.role(is_leader=False, epoch=1)
    node.pass_time(0)
    assert (node.log.log_start_offset, len(node.segments())) == (0, 9)


@pytest.mark.usefixtures("small_steps")
def test_a_topic_that_is_tiered_again_while_its_tier_is_to_be_emptied_keeps_it() -> None:
    cluster = Cluster()
    off = {"remote_storage_enable": False, "remote_log_delete_on_disable": True}
    node = deciding(cluster, **off)
    node.log.config = topic_config()
    node.pass_time(0)
    assert (node.log.log_start_offset, len(node.segments())) == (0, 9)


@pytest.mark.usefixtures("small_steps")
def test_a_tier_that_is_emptied_is_emptied_in_steps() -> None:
    cluster = Cluster()
    node = deciding(cluster, remote_storage_enable=False, remote_log_delete_on_disable=True)
    node.pass_time(0)
    assert (node.segments(), data_keys(cluster)) == ([], [])


@pytest.mark.usefixtures("small_steps")
def test_what_cannot_be_read_while_it_is_decided_deletes_nothing() -> None:
    cluster = Cluster()
    node = deciding(cluster, retention_ms=1)
    node.tier.services.withheld = lambda where: StorageError("unreadable")
    node.pass_time(0)
    assert (node.log.log_start_offset, len(node.segments())) == (0, 9)


def test_a_copy_that_was_finished_after_all_is_not_deleted_for_an_older_decision() -> None:
    """Thousands are marked one after the other: it may be hours between the decision and the deed."""
    cluster = Cluster()
    node = tiered(cluster, 2)
    first, second = node.segments()
    begun = second._replace(state=SegmentState.COPY_STARTED)
    removal = SegmentRemoval(
        node.tier.services,
        [first, begun],
        may_go_on=lambda: True,
        between=lambda then, now_ms: then(None, now_ms),
    )
    node.run(removal.begin(lambda error, now_ms: [], cluster.now_ms))
    assert [s.segment_id for s in node.segments()] == [second.segment_id]


@pytest.mark.usefixtures("small_steps")
def test_deletions_that_were_begun_are_taken_up_in_steps() -> None:
    """Sixty thousand, of a leader that died: no step goes over all of them."""
    cluster = Cluster()
    node = tiered(cluster, 7)
    begun = [s._replace(state=SegmentState.DELETE_STARTED) for s in node.segments()]
    asked: list[int] = []
    removal = SegmentRemoval(
        node.tier.services,
        begun,
        may_go_on=lambda: not asked.append(len(removal._to_mark)),  # type: ignore[func-returns-value]
        between=lambda then, now_ms: [],
    )
    node.run(removal.begin(lambda error, now_ms: [], cluster.now_ms))
    assert asked == [7]
    node.pass_time(0)
    assert asked == [7, 5, 3, 1]
