"""The copy task: what goes to the tier, in which order, and what a failure leaves. Spec 3.4; F1-F10."""

from typing import Any

import pytest

from firnline.base.effects import Submit
from firnline.base.errors import CannotGoOn, KafkaError, StorageError
from firnline.base.ids import uuid_text
from firnline.formats import leader_epoch_checkpoint
from firnline.log.recovery import open_log
from firnline.tiered import lineage
from firnline.tiered.catalog.writer import CatalogWriter
from firnline.tiered.objects.catalog_reader import read_catalog
from firnline.tiered.objects.layout import LEADER_EPOCHS, SUFFIXES, TXN_INDEX
from firnline.tiered.spi import SegmentState
from tests.worlds.effects import only
from tests.worlds.tier import TOPIC_ID, TP, WHERE, Cluster, Node, topic_config


def spans(node: Node) -> list[tuple[int, int]]:
    return [(s.base_offset, s.end_offset) for s in node.segments()]


def catalog_spans(cluster: Cluster) -> list[tuple[int, int]]:
    catalog = read_catalog(cluster.store, TOPIC_ID, 0)
    assert catalog is not None
    return [(s.base_offset, s.end_offset) for s in catalog.segments]


def data_keys(cluster: Cluster) -> list[str]:
    return [key for key in cluster.store.objects if key.startswith("data/")]


def test_closed_segments_go_to_the_tier_and_the_active_one_stays() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a", "b")
    node.produce(0, "c")
    node.produce(0, "d", roll=False)
    node.pass_time(1000)
    assert spans(node) == [(0, 1), (2, 2)]
    assert all(s.state == SegmentState.COPY_FINISHED for s in node.segments())
    assert node.log.highest_remote_offset == 2
    assert catalog_spans(cluster) == [(0, 1), (2, 2)]
    node.expire_local()
    assert node.log.local_log_start_offset == 3
    assert list(node.read_all()) == [0, 1, 2, 3]


def test_what_is_stored_is_byte_for_byte_the_local_files() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(3)
    node.produce(3, "a", "b")
    (local,) = node.log.closed_segments()
    node.pass_time(1000)
    (segment,) = node.segments()
    stem = f"data/{uuid_text(TOPIC_ID)}/0/{0:020d}-{uuid_text(segment.segment_id)}"
    for suffix in SUFFIXES:
        if suffix in (TXN_INDEX, LEADER_EPOCHS, ".snapshot"):
            continue
        file = node.fs.open(local.stem_path + suffix)
        assert cluster.store.objects[stem + suffix] == file.read(0, file.size()), suffix
    assert leader_epoch_checkpoint.decode(cluster.store.objects[stem + LEADER_EPOCHS]) == ((3, 0),)
    snapshot = node.fs.open(local.snapshot_path)
    assert cluster.store.objects[stem + ".snapshot"] == snapshot.read(0, snapshot.size())
    assert stem + TXN_INDEX not in cluster.store.objects


def test_nothing_at_or_above_the_last_stable_offset_is_copied() -> None:
    """Trap X30: an open transaction holds back its segment and all later ones."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a")
    node.produce(0, "open", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    node.produce(0, "c")
    node.pass_time(3000)
    assert node.log.last_stable_offset == 1
    assert spans(node) == [(0, 0)]


def test_the_epochs_of_a_segment_begin_at_its_base() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(2)
    node.produce(2, "a", "b", roll=False)
    node.lead(3)
    node.produce(3, "c")
    node.lead(5)
    node.produce(5, "d")
    node.pass_time(1000)
    assert [s.epochs for s in node.segments()] == [((2, 0), (3, 2)), ((5, 3),)]


def test_started_is_known_before_the_first_byte_leaves() -> None:
    """rel-T4. Method: the store looks at the metadata when it is called."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    seen = []
    copy = node.storage.copy_segment

    def looking(segment, data):  # type: ignore[no-untyped-def]
        seen.append([s.state for s in node.segments() if s.segment_id == segment.segment_id])
        return copy(segment, data)

    node.storage.copy_segment = looking  # type: ignore[method-assign]
    node.produce(0, "a")
    node.pass_time(1000)
    assert seen == [[SegmentState.COPY_STARTED]]


def test_a_failed_copy_is_taken_back_and_tried_under_another_id() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.storage.fail("copy", StorageError("503"), "after")
    node.produce(0, "a")
    node.pass_time(0)
    assert node.tier.services.counters.copy_errors == 1
    assert "503" in str(node.tier.status()[0].problem)
    assert spans(node) == []
    assert data_keys(cluster) == []
    node.pass_time(1000)
    (segment,) = node.segments()
    assert segment.segment_id[-1] == 2, "the first id is never used again"
    assert len(data_keys(cluster)) == 5
    assert node.tier.status()[0].problem is None


def test_a_copy_that_keeps_failing_backs_off_and_local_data_stays() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.storage.fail("copy", StorageError("503"), times=1000)
    node.produce(0, "a")
    node.pass_time(60_000)
    tries = node.storage.calls.count("copy")
    assert 5 <= tries <= 15, tries
    node.expire_local()
    assert node.log.local_log_start_offset == 0
    assert "503" in str(node.tier.status()[0].problem)
    assert spans(node) == []
    assert data_keys(cluster) == []


def test_a_plugin_that_raises_what_it_likes_stops_nothing() -> None:
    """F8, F34: an exception class nobody expects."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.storage.fail("copy", MemoryError("big"))
    node.produce(0, "a")
    node.pass_time(3000)
    assert spans(node) == [(0, 0)]


def test_too_much_custom_metadata_stops_the_task_until_the_next_role() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.storage.custom_metadata = bytes(129)
    node.produce(0, "a")
    node.pass_time(60_000)
    assert node.storage.calls.count("copy") == 1
    assert data_keys(cluster) == []
    node.storage.custom_metadata = bytes(128)
    node.lead(1)
    node.pass_time(1000)
    (segment,) = node.segments()
    assert segment.custom_metadata == bytes(128)


def test_a_started_record_that_is_refused_uploads_nothing() -> None:
    """F1."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.append_faults = ["refused"]
    node.produce(0, "a")
    node.pass_time(50)
    assert node.storage.calls == []
    node.pass_time(1000)
    assert spans(node) == [(0, 0)]


def test_a_finished_record_whose_answer_is_lost_counts_and_nothing_is_copied_twice() -> None:
    """F10."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.append_faults = ["none", "lost"]
    node.produce(0, "a")
    node.pass_time(5000)
    assert node.storage.calls.count("copy") == 1
    assert spans(node) == [(0, 0)]
    assert node.log.highest_remote_offset == 0


def test_a_finished_record_that_is_refused_is_published_again() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.append_faults = ["none", "refused"]
    node.produce(0, "a")
    node.pass_time(5000)
    assert node.storage.calls.count("copy") == 1
    assert [s.state for s in node.segments()] == [SegmentState.COPY_FINISHED]


def test_nothing_is_copied_before_the_metadata_is_loaded() -> None:
    """X36: an empty cache that is not loaded would mean: copy everything again."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a")
    node.pass_time(1000)
    other = Node(cluster, 2)
    other.follow(node)
    cluster.has_topic = False
    other.start().lead(1)
    other.pass_time(5000)
    assert other.storage.calls == []
    assert not other.tier.status()[0].is_ready
    covered = other.tier._tasks[WHERE].hosted.covered_offset(other.tier.services.metadata)
    assert isinstance(covered, KafkaError), "not known is not nothing"
    cluster.has_topic = True
    other.pass_time(5000)
    assert other.storage.calls == []
    assert spans(other) == [(0, 0)]


def test_a_metadata_topic_of_another_size_stops_the_node_with_a_reason() -> None:
    node = Node(Cluster(partitions=4))
    with pytest.raises(CannotGoOn, match="has 4 partitions"):
        node.start()
    assert node.storage.calls == []


def test_a_new_leader_goes_on_where_the_tier_ends() -> None:
    """rel-T11; spec 3.6 vector S6: overlap is fine, a gap is not."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a", "b")
    node.produce(0, "c", "d")
    other = Node(cluster, 2).start()
    other.follow(node)
    other.log.roll(cluster.now_ms)
    node.pass_time(1000)
    node.role(is_leader=False, epoch=1)
    other.lead(1)
    other.produce(1, "e")
    other.pass_time(2000)
    assert other.storage.calls.count("copy") == 1
    assert spans(other)[-1] == (4, 4)
    assert other.log.highest_remote_offset == 4


def test_a_deposed_leader_begins_no_other_copy() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a")
    node.produce(0, "b")
    node.held = lambda effect: getattr(effect, "name", "").startswith("copy ")
    node.pass_time(1000)
    node.role(is_leader=False, epoch=1)
    node.release()
    node.pass_time(5000)
    assert node.storage.calls.count("copy") == 1
    assert [(s.base_offset, s.state.name) for s in node.segments()] == [(0, "COPY_FINISHED")]


def test_a_leader_that_is_deposed_while_it_reads_a_segment_says_nothing_of_a_copy() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a")
    node.held = lambda effect: getattr(effect, "name", "").startswith("check ")
    node.pass_time(1000)
    assert node.on_hold
    node.role(is_leader=False, epoch=1)
    node.release()
    node.pass_time(5000)
    assert cluster.metadata == {}
    assert node.storage.calls == []


def test_tasks_with_nothing_to_do_run_once_in_an_interval() -> None:
    """There are thousands of partitions."""
    node = Node(Cluster()).start().lead(0)
    node.pass_time(1000)
    due = {key[1]: timer.at_ms for key, timer in node.timers.items()}
    assert (due["copy"], due["expire"]) == (node.cluster.now_ms + 1000,) * 2


def test_a_metadata_manager_that_does_not_say_what_it_applied_has_nothing_copied_twice() -> None:
    """One of the user's own."""
    node = Node(Cluster()).start().lead(0)
    node.tier.services.metadata.on_applied = None
    node.produce(0, "a")
    node.produce(0, "b")
    node.pass_time(2000)
    assert node.storage.calls.count("copy") == 2


def test_a_replica_that_moves_away_begins_no_other_copy() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a")
    node.produce(0, "b")
    node.held = lambda effect: getattr(effect, "name", "").startswith("copy ")
    node.pass_time(1000)
    node.run(node.tier.on_stop(WHERE, cluster.now_ms))
    node.release()
    node.pass_time(5000)
    assert node.storage.calls.count("copy") == 1
    assert [key for key in node.timers if key[1] == "copy"] == [], "no task is left"


def test_metadata_of_a_topic_that_says_the_same_role_again_changes_no_task() -> None:
    """A topic's configuration is changed while a segment is copied: no second copy of it is begun."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a")
    node.held = lambda effect: getattr(effect, "name", "").startswith("copy ")
    node.pass_time(1000)
    node.role(is_leader=True, epoch=0)
    node.pass_time(5000)
    assert len(node.on_hold) == 1
    node.release()
    assert node.storage.calls.count("copy") == 1


def test_a_log_that_was_opened_anew_is_copied_in_the_same_role() -> None:
    """After a failed directory came back: tasks of the old log would look at files that are closed."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.pass_time(1000)
    node.log = open_log(
        node.fs, "/data/t-0", TP, topic_id=TOPIC_ID, config=node.config, now_ms=0, was_clean=False
    )
    node.role(is_leader=True, epoch=0)
    node.produce(0, "a")
    node.pass_time(2000)
    assert spans(node) == [(0, 0)]


def test_a_segment_that_was_truncated_under_the_copy_is_not_finished() -> None:
    """An unclean election while the worker reads: what was stored is nobody's history."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a", "b")
    node.held = lambda effect: getattr(effect, "name", "").startswith("copy ")
    node.pass_time(1000)
    node.role(is_leader=False, epoch=1)
    held = only(node.on_hold, Submit)
    node.on_hold, node.held = [], lambda effect: False
    result = held.work()
    node.log.truncate_to(1)
    node.run(held.then(result, cluster.now_ms))
    assert spans(node) == []
    assert data_keys(cluster) == []


def test_a_missing_producer_snapshot_is_built_again_before_the_copy() -> None:
    """T60: shipped Kafka skips the segment for ever."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a", producer_id=5, producer_epoch=0, base_sequence=0)
    node.produce(0, "b", producer_id=5, producer_epoch=0, base_sequence=1)
    first, second = node.log.closed_segments()
    wanted = {}
    for local in (first, second):
        file = node.fs.open(local.snapshot_path)
        wanted[local.base_offset] = file.read(0, file.size())
        node.fs.remove(local.snapshot_path)
    node.pass_time(1000)
    stored = {
        s.base_offset: cluster.store.objects[
            f"data/{uuid_text(TOPIC_ID)}/0/{s.base_offset:020d}-{uuid_text(s.segment_id)}.snapshot"
        ]
        for s in node.segments()
    }
    assert stored == wanted


def test_copy_disable_stops_copies_and_keeps_reads() -> None:
    """T49."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a")
    node.pass_time(1000)
    node.log.config = topic_config(remote_log_copy_disable=True, local_retention_bytes=-2)
    node.produce(0, "b")
    node.pass_time(5000)
    assert spans(node) == [(0, 0)]
    assert node.tier.status()[0].copy_lag_segments == 0
    node.log.config = topic_config()
    node.pass_time(2000)
    assert spans(node) == [(0, 0), (1, 1)]


def test_what_waits_is_copied_at_once_when_copies_are_enabled() -> None:
    """Not in the next round, which is half a minute away by default."""
    cluster = Cluster()
    node = Node(cluster, task_interval_ms=60_000).start().lead(0)
    node.log.config = topic_config(remote_log_copy_disable=True, local_retention_bytes=-2)
    node.role(is_leader=True, epoch=0)
    node.pass_time(1000)
    node.produce(0, "a")
    node.pass_time(1000)
    assert spans(node) == []
    node.log.config = topic_config(remote_log_copy_disable=True, retention_ms=10**9)
    node.role(is_leader=True, epoch=0)
    node.pass_time(1000)
    assert spans(node) == []
    node.log.config = topic_config()
    node.role(is_leader=True, epoch=0)
    node.pass_time(1000)
    assert spans(node) == [(0, 0)]
    node.produce(0, "b")
    node.log.config = topic_config(retention_ms=10**9)
    node.role(is_leader=True, epoch=0)
    node.pass_time(1000)
    assert spans(node) == [(0, 0)], "other changes of the configuration begin nothing"


def test_the_copy_quota_makes_the_next_copy_wait() -> None:
    cluster = Cluster()
    node = Node(cluster, copy_bytes_per_second=20, copy_quota_windows=2).start().lead(0)
    node.produce(0, "a")
    node.produce(0, "b")
    node.pass_time(1000)
    assert spans(node) == [(0, 0)]
    assert node.tier.services.copy_throttle.look(node.now_ms).max_ms > 1000, "T48"
    node.pass_time(5000)
    assert spans(node) == [(0, 0), (1, 1)]


def test_a_topic_that_is_not_tiered_is_left_alone() -> None:
    """T4."""
    cluster = Cluster()
    for config in (
        topic_config(remote_storage_enable=False),
        topic_config(cleanup_policy=("compact",)),
    ):
        node = Node(cluster).start()
        node.produce(0, "a")
        node.log.config = config
        node.lead(0).pass_time(5000)
        assert node.storage.calls == []
    assert cluster.store.objects == {}


def test_status_says_what_lies_where() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a")
    node.produce(0, "b")
    node.pass_time(1000)
    node.expire_local()
    node.produce(0, "c", roll=False)
    (row,) = node.tier.status()
    assert (row.log_start_offset, row.local_start_offset) == (0, 2)
    assert (row.remote_end_offset, row.log_end_offset) == (2, 3)
    assert (row.remote_segments, row.unfinished_segments, row.holes) == (2, 0, ())
    assert row.remote_bytes == sum(s.size_bytes for s in node.segments())


@pytest.mark.loses_metadata
def test_status_names_a_hole() -> None:
    """F28: metadata that lost a segment which is nowhere else."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a")
    node.produce(0, "b")
    node.pass_time(1000)
    node.expire_local()
    cluster.metadata.clear()
    cluster.ends.clear()
    fresh = Node(cluster, fs=node.crash()).start().lead(1)
    fresh.pass_time(5000)
    (row,) = fresh.tier.status()
    assert row.holes == ((0, 2),)
    assert fresh.log.log_start_offset == 0, "a loss is reported, not acted on"


@pytest.mark.parametrize("lost", [True, False])
def test_the_log_start_comes_back_from_the_tier(lost: bool) -> None:
    """X42: checkpoints erased; what the tier still has decides."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    for text in "abc":
        node.produce(0, text)
    node.pass_time(1000)
    node.expire_local()
    node.log.advance_log_start(1)
    node.pass_time(2000)
    assert spans(node) == [(1, 1), (2, 2)]
    fresh = Node(cluster, fs=node.crash()).start()
    if not lost:
        fresh.log.advance_log_start(1)
    fresh.lead(1)
    fresh.pass_time(2000)
    assert fresh.log.log_start_offset == 1
    assert list(fresh.read_all()) == [1, 2]


def test_a_new_leader_searches_for_the_start_of_a_long_history_and_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who serves each of ten thousand segments is not asked for one number."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    for text in "abcdefghij":
        node.produce(0, text)
    node.pass_time(1000)
    node.expire_local()
    node.log.advance_log_start(1)
    node.pass_time(2000)
    looked_at: list[object] = []
    first_shared = lineage.Lineage.first_shared

    def counted(own: lineage.Lineage, segment: Any) -> int | None:
        looked_at.append(segment)
        return first_shared(own, segment)

    monkeypatch.setattr(lineage.Lineage, "first_shared", counted)
    fresh = Node(cluster, fs=node.crash()).start().lead(1)
    fresh.pass_time(2000)
    assert fresh.log.log_start_offset == 1
    assert len(looked_at) == 1


def test_the_log_start_comes_back_where_all_that_the_tier_had_expired() -> None:
    """What lay below local files was there, says the metadata, and went by order."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    for text in "abc":
        node.produce(0, text)
    node.pass_time(1000)
    node.expire_local()
    node.log.advance_log_start(3)
    node.pass_time(5000)
    assert spans(node) == []
    fresh = Node(cluster, fs=node.crash()).start().lead(1)
    assert fresh.log.log_start_offset == 0
    fresh.pass_time(2000)
    assert fresh.log.log_start_offset == 3


def test_a_new_leader_writes_all_history_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand rows take seconds: what is put is made where it is put."""
    made: list[int] = []
    prepare = CatalogWriter.prepare

    def counted(writer: CatalogWriter, *state: Any) -> Any:
        made.append(1)
        return prepare(writer, *state)

    monkeypatch.setattr(CatalogWriter, "prepare", counted)
    node = Node(Cluster()).start()
    node.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("write cat")
    node.lead(0)
    node.produce(0, "a")
    node.pass_time(5000)
    assert node.on_hold
    assert made == []
    node.release()
    node.pass_time(5000)
    assert made != []
    assert spans(node) == [(0, 0)]


def test_a_follower_that_was_behind_the_tier_gives_up_its_local_files_once_it_caught_up() -> None:
    """Nothing else may happen to the partition for months: its disk would keep them as long."""
    cluster = Cluster()
    leader = Node(cluster, 1).start().lead(0)
    follower = Node(cluster, 2).start()
    follower.role(is_leader=False, epoch=0)
    leader.produce(0, "a")
    follower.follow(leader)
    follower.log.roll(cluster.now_ms)
    leader.produce(0, "b")
    leader.pass_time(1000)
    assert spans(leader) == [(0, 0), (1, 1)]
    follower.pass_time(3000)
    assert follower.log.highest_remote_offset == 0, "it has no more than that"
    follower.follow(leader)
    follower.log.roll(cluster.now_ms)
    follower.pass_time(2000)
    assert follower.log.highest_remote_offset == 1
    follower.expire_local()
    assert follower.log.local_log_start_offset == 2


def test_a_flush_while_a_segment_is_copied_begins_no_second_copy() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("copy ")
    node.produce(0, "a")
    node.pass_time(1000)
    assert len(node.on_hold) == 1
    answers: list[dict[int, object]] = []
    node.run(node.tier.flush(TOPIC_ID, lambda found, now_ms: answers.append(found) or [], 0))  # type: ignore[arg-type, func-returns-value]
    assert len(node.on_hold) == 1
    node.release()
    node.pass_time(1000)
    assert answers == [{0: None}]
    assert node.storage.calls.count("copy") == 1


def test_a_segment_whose_time_index_is_built_again_is_copied_when_it_is() -> None:
    """It was built in the step that begins the copy."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    wanted: list[Any] = []
    node.log.have_indexes_built(lambda segment, steps: wanted.append(steps))
    node.produce(0, "a", "b")
    (local,) = node.log.closed_segments()
    sound = local.largest_time_ms()
    segment = node.log._segments.all()[0]
    segment.release()
    segment._max_time_ms = -2
    node.fs.remove(local.stem_path + ".timeindex")
    node.pass_time(1000)
    assert spans(node) == []
    assert data_keys(cluster) == []
    for _ in wanted[0]():
        pass
    node.pass_time(100_000)
    assert spans(node) == [(0, 1)]
    assert node.segments()[0].max_timestamp_ms == sound
