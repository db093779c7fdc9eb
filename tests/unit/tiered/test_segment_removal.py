"""Many segments are deleted in few requests, in the order that readers rely on. rel-T2, T12, T54; F21."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from firnline.base.effects import Submit
from firnline.tiered.objects.layout import catalog_folder
from firnline.tiered.remover import REMOVED_AT_ONCE
from firnline.tiered.segment_removal import (
    CALLS_AT_ONCE,
    DELETED_TOGETHER,
    MARKED_TOGETHER,
    SegmentRemoval,
)
from firnline.tiered.settings import store_timeout_ms
from firnline.tiered.spi import (
    DeletesSegments,
    DeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)
from tests.worlds.tier import TOPIC_ID, WHERE, Cluster, FaultyStorage, Node, topic_config

COUNT = 200


class Calls:
    """Counts the deletions that a storage is asked for; may refuse some segments for ever."""

    def __init__(self, storage: FaultyStorage) -> None:
        self.sizes: list[int] = []
        self.stuck: set[int] = set()
        self.before: Callable[[], None] = lambda: None
        self._one, self._many = storage.delete_segment, storage.delete_segments
        storage.delete_segment = self.one  # type: ignore[method-assign]
        storage.delete_segments = self.many  # type: ignore[method-assign]

    def one(self, segment: RemoteSegment) -> None:
        self._note([segment])
        self._one(segment)

    def many(self, segments: Sequence[RemoteSegment]) -> None:
        self._note(segments)
        self._many(segments)

    def _note(self, segments: Sequence[RemoteSegment]) -> None:
        self.before()
        self.sizes.append(len(segments))
        if self.stuck & {s.base_offset for s in segments}:
            raise PermissionError("this object is under a legal hold")


def tiered(count: int = COUNT) -> tuple[Node, Calls]:
    node = Node(Cluster(), retry_backoff_ms=60_000).start().lead(0)
    for number in range(count):
        node.produce(0, str(number))
    node.pass_time(1000)
    assert len(node.segments()) == count
    return node, Calls(node.storage)


def expire(node: Node) -> None:
    node.log.config = topic_config(retention_ms=1)
    node.pass_time(1000)


def without_bulk(node: Node) -> None:
    """The storage is a plug-in with the methods of KIP-405 alone."""

    class Plain:
        copy_segment = node.storage.copy_segment
        delete_segment = node.storage.delete_segment

    node.tier.services.storage = Plain()  # type: ignore[assignment]


def is_deletion(effect: Any) -> bool:
    return isinstance(effect, Submit) and effect.name.startswith("delete t-")


def test_hundreds_of_segments_are_deleted_in_few_calls() -> None:
    node, calls = tiered()
    expire(node)
    assert calls.sizes == [1, 2, 4, 8, 16, 32, DELETED_TOGETHER, DELETED_TOGETHER, 9]
    assert (node.segments(), node.cluster.known()) == ([], {})
    assert node.tier.services.counters.delete_requests == COUNT
    assert [k for k in node.cluster.store.objects if k.startswith("data/")] == []


def test_no_object_is_deleted_before_all_segments_are_marked_and_out_of_the_catalog() -> None:
    node, calls = tiered()
    seen: list[bool] = []

    def look() -> None:
        states = set(node.cluster.known().values())
        seen.append(states == {SegmentState.DELETE_STARTED})
        assert node.log.log_start_offset == COUNT

    calls.before = look
    expire(node)
    assert len(seen) == 9
    assert all(seen)


def test_nothing_is_deleted_if_the_role_ends_among_the_marks() -> None:
    """rel-T2: even if it begins again at once; the next run marks the others first."""
    node, calls = tiered()
    leads = iter([True, True, False])
    removal = SegmentRemoval(
        node.tier.services,
        node.segments(),
        may_go_on=lambda: next(leads, True),
        between=lambda then, now_ms: then(None, now_ms),
    )
    node.run(removal.begin(lambda error, now_ms: [], node.now_ms))
    states = list(node.cluster.known().values())
    assert states.count(SegmentState.DELETE_STARTED) == 2 * MARKED_TOGETHER
    assert calls.sizes == []


def test_a_segment_that_cannot_be_deleted_costs_the_others_nothing() -> None:
    """F21; and it is asked for again with the next run only, not in a loop."""
    node, calls = tiered()
    calls.stuck = {77, 150}
    expire(node)
    assert [s.base_offset for s in node.segments()] == [77, 150]
    assert len(calls.sizes) <= 40
    assert node.tier.problem is None or "legal hold" in str(node.tier.problem)
    calls.stuck.clear()
    node.pass_time(120_000)
    assert node.cluster.known() == {}


def test_marks_are_published_together_but_not_without_a_bound() -> None:
    node, _ = tiered()
    under_way, most = 0, 0
    update = node.tier.services.metadata.update

    def counted(change: SegmentUpdate, then: Any, now_ms: int) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)

        def answered(error: Any, at_ms: int) -> Any:
            nonlocal under_way
            under_way -= 1
            return then(error, at_ms)

        return update(change, answered, now_ms)

    node.tier.services.metadata.update = counted  # type: ignore[method-assign]
    expire(node)
    assert (most, under_way) == (MARKED_TOGETHER, 0)
    assert node.cluster.known() == {}


def test_a_mark_that_is_refused_leaves_its_segment_whole() -> None:
    node, _ = tiered(count=5)
    node.append_faults = ["none", "refused"]
    node.held = is_deletion
    expire(node)
    left = node.cluster.known()
    assert sorted(left.values()) == [SegmentState.COPY_FINISHED, *[SegmentState.DELETE_STARTED] * 4]
    node.held = lambda effect: False
    node.release()
    assert list(node.cluster.known().values()) == [SegmentState.COPY_FINISHED]
    node.pass_time(120_000)
    assert node.cluster.known() == {}


def test_a_plugin_that_deletes_one_segment_at_a_time_gets_a_few_calls_at_once() -> None:
    node, calls = tiered()
    without_bulk(node)
    assert not isinstance(node.tier.services.storage, DeletesSegments)
    node.held = lambda effect: is_deletion(effect) and len(calls.sizes) >= 3
    expire(node)
    assert len(node.on_hold) == CALLS_AT_ONCE, "after one call, and two at once"
    node.release()
    assert calls.sizes == [1] * COUNT
    assert node.cluster.known() == {}


def test_deletions_that_take_too_long_are_asked_for_one_at_a_time() -> None:
    """64 segments in a call may take longer than a call has: they are not asked for so again and again."""
    node, calls = tiered()
    node.held = lambda effect: is_deletion(effect) and len(calls.sizes) == 6
    expire(node)
    assert len(node.on_hold) == 1, "the call of 64 segments hangs"
    node.held = lambda effect: False
    node.pass_time(store_timeout_ms() + 1000)
    assert calls.sizes[6] == 1
    assert node.cluster.known() == {}


@pytest.mark.parametrize("hangs", [False, True])
def test_partitions_of_a_deleted_topic_are_removed_side_by_side(hangs: bool) -> None:
    """T54. One whose store call hangs does not keep the others in the tier."""
    node = Node(Cluster()).start()
    count = 3 * REMOVED_AT_ONCE
    del node.cluster.topics[TOPIC_ID]
    node.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("mark t ")
    node.run(node.tier.on_topic_deleted(TOPIC_ID, "t", count, was_tiered=True, now_ms=node.now_ms))
    assert len(node.on_hold) == REMOVED_AT_ONCE
    node.held = lambda effect: False
    if hangs:
        del node.on_hold[0]
    node.release()
    node.pass_time(10_000)
    assert node.tier.remover.pending == (1 if hangs else 0)


@pytest.mark.parametrize("fails", [False, True])
def test_a_catalog_that_a_leader_puts_after_the_removal_is_removed_later(fails: bool) -> None:
    """rel-T13: the leader had not heard of the deletion; nobody else would ever look there again."""
    node, _ = tiered(count=2)
    store = node.cluster.store
    del node.cluster.topics[TOPIC_ID]
    node.run(node.tier.on_topic_deleted(TOPIC_ID, "t", 1, was_tiered=True, now_ms=node.now_ms))
    node.pass_time(1000)
    key = catalog_folder(TOPIC_ID, 0) + "heads/late"
    store.put(key, [b"late"], size_bytes=4)
    late_put_ms = node.tier.services.settings.late_put_ms
    if fails:
        pages = store.pages
        store.pages = None  # type: ignore[assignment,method-assign]
        node.pass_time(late_put_ms)
        store.pages = pages  # type: ignore[method-assign]
    assert list(store.objects) == [key]
    node.pass_time(2 * late_put_ms)
    assert store.objects == {}


def test_a_deletion_is_not_finished_while_a_leader_that_has_not_heard_of_it_copies() -> None:
    """rel-T7. The copy begins while the catalog is removed: after the last look at the segments."""
    late_put_ms = 600_000
    node = Node(Cluster(), late_put_ms=late_put_ms).start().lead(0)
    node.produce(0, "a")
    node.pass_time(1000)
    metadata = node.tier.services.metadata
    (known,) = node.segments()
    del node.cluster.topics[TOPIC_ID]
    node.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("remove the")
    node.run(node.tier.on_topic_deleted(TOPIC_ID, "t", 1, was_tiered=True, now_ms=node.now_ms))
    node.pass_time(1000)
    assert len(node.on_hold) == 1
    late = known._replace(
        segment_id=bytes(15) + b"x",
        base_offset=9,
        end_offset=9,
        state=SegmentState.COPY_STARTED,
        event_timestamp_ms=node.now_ms,
    )
    node.run(metadata.add(late, lambda error, now_ms: [], node.now_ms))
    node.held = lambda effect: False
    node.release()
    node.pass_time(60_000)
    assert metadata.delete_state(WHERE) == DeleteState.STARTED
    (found,) = metadata.segments_to_remove(WHERE)  # type: ignore[misc]
    assert found.state == SegmentState.DELETE_STARTED, "it is taken up as soon as any other"
    node.pass_time(late_put_ms)
    assert metadata.delete_state(WHERE) == DeleteState.FINISHED
    assert node.cluster.known() == {}


def test_partitions_of_a_deleted_topic_are_emptied_once_more_one_at_a_time() -> None:
    """A thousand partitions must not hold up what somebody waits for."""
    node = Node(Cluster()).start()
    count = 3 * REMOVED_AT_ONCE
    del node.cluster.topics[TOPIC_ID]
    node.run(node.tier.on_topic_deleted(TOPIC_ID, "t", count, was_tiered=True, now_ms=node.now_ms))
    node.pass_time(1000)
    assert node.tier.remover.pending == 0
    node.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("remove the")
    node.pass_time(2 * node.tier.services.settings.late_put_ms)
    assert len(node.on_hold) == 1
    node.held = lambda effect: False
    node.release()
    node.pass_time(1000)
    assert node.tier.remover._to_sweep == {}


def test_what_one_leader_began_to_delete_the_next_one_finishes() -> None:
    """A crash after any number of calls: nothing stays in the store."""
    for crash in range(1, 8):
        node, calls = tiered()
        other = Node(node.cluster, 2).start()
        other.follow(node)

        def die(calls: Calls = calls, crash: int = crash) -> None:
            if len(calls.sizes) == crash:
                raise RuntimeError("killed")

        calls.before = die
        node.held = lambda effect, calls=calls, crash=crash: (  # type: ignore[misc]
            is_deletion(effect) and len(calls.sizes) == crash
        )
        expire(node)
        assert node.on_hold, crash
        assert node.tier.services.metadata.unfinished(WHERE)
        node.role(is_leader=False, epoch=1)
        other.config = topic_config(retention_ms=1)
        other.log.config = other.config
        other.lead(1)
        other.pass_time(2000)
        assert other.cluster.known() == {}, crash
        assert [k for k in node.cluster.store.objects if k.startswith("data/")] == []
