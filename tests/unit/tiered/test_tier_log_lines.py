"""The log says when a partition begins to fail in the tier and when that is over; never once for a retry."""

from types import SimpleNamespace
from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import TopicPartition
from firnline.base.units import HOUR_MS
from firnline.stores.memory import MemoryStore
from firnline.stores.port import RemoteStorageError
from firnline.tiered.hosted import LOGGED_AT_FAILURE, Hosted
from tests.worlds.effects import said as text
from tests.worlds.tier import TOPIC_ID, Cluster, Node, topic_config


def lines(node: Node) -> list[str]:
    """What was logged, without the lines about local files, which nobody deletes in this world."""
    others = ("beyond local.retention", "segment copied", "segment removed")
    found = [
        line for line in (*node.warnings, *node.notes) if not any(other in line for other in others)
    ]
    node.warnings.clear()
    node.notes.clear()
    return found


def refuse(node: Node, *offsets: int) -> None:
    """Let the deletion of these segments fail for ever, as under a legal hold; others succeed."""
    delete = node.storage.inner.delete_segments

    def delete_others(segments: Any) -> None:
        if any(segment.base_offset in offsets for segment in segments):
            raise RemoteStorageError("under a legal hold")
        delete(segments)

    node.storage.inner.delete_segments = delete_others  # type: ignore[method-assign]


def led(count: int = 3) -> Node:
    node = Node(Cluster()).start().lead(0)
    for number in range(count):
        node.produce(0, str(number))
    node.pass_time(1000)
    assert len(node.segments()) == count
    assert lines(node) == []
    return node


def test_a_deletion_that_fails_for_ever_is_one_line_and_its_end_another() -> None:
    """F21. Copies of the partition go on, so its store is not down and no circuit says anything."""
    node = led()
    inner = node.storage.inner.delete_segments
    refuse(node, 1)
    node.log.config = topic_config(retention_ms=1)
    for number in range(200):
        node.produce(0, f"more {number}", roll=False)
        node.pass_time(60_000)
    (line,) = lines(node)
    assert "fails topic=t partition=0 task=expiry is_retried=true" in line
    assert "under a legal hold" in line
    node.storage.inner.delete_segments = inner  # type: ignore[method-assign]
    node.pass_time(HOUR_MS)
    (line,) = lines(node)
    assert line.startswith("nothing in the tier fails any more topic=t partition=0 after_s=1")


def test_a_fault_that_passes_with_a_retry_is_not_logged() -> None:
    node = led()
    node.storage.fail("copy", RemoteStorageError("503"), times=2)
    node.produce(0, "more")
    node.pass_time(60_000)
    assert len(node.segments()) == 4
    assert lines(node) == []


def hosted(**more: Any) -> Hosted:
    log: Any = SimpleNamespace(topic_id=TOPIC_ID, topic_partition=TopicPartition("t", 0))
    return Hosted(log, is_leader=True, leader_epoch=0, **more)


def said(effects: Any) -> list[str]:
    return [text(effect) for effect in effects]


def test_a_thousand_failures_are_one_line_for_each_kind() -> None:
    one = hosted()
    found: list[str] = []
    for number in range(1000):
        found += said(one.note_outcome("copy", RemoteStorageError(f"503 at {number}"), number))
        found += said(one.note_outcome("expiry", KafkaError(Code.REQUEST_TIMED_OUT), number))
        found += said(one.note_outcome("catalog", RemoteStorageError("503"), number))
    assert len(found) == 2
    assert "503 at 3" in found[0], f"after {LOGGED_AT_FAILURE} attempts"
    assert said(one.note_outcome("copy", None, 70_000)) == []
    assert said(one.note_outcome("catalog", None, 70_000)) == []
    assert said(one.note_outcome("expiry", None, 70_000)) == [
        "nothing in the tier fails any more topic=t partition=0 after_s=70"
    ]


def test_what_will_not_pass_by_itself_is_logged_at_once() -> None:
    class Lost(StorageError):
        pass

    one = hosted()
    assert said(one.note_outcome("catalog", Lost("the tier has lost its owner"), 0)) == [
        "work in the tier fails topic=t partition=0 task=catalog is_retried=false"
        ' error="the tier has lost its owner"'
    ]
    assert said(one.note_outcome("copy", Lost("the tier has lost its owner"), 0)) == []


def test_while_the_store_is_down_its_own_line_is_enough() -> None:
    one = hosted(is_store_down=lambda: True)
    for number in range(100):
        assert said(one.note_outcome("copy", RemoteStorageError("503"), number)) == []
    assert said(one.note_outcome("copy", None, 100)) == []


@pytest.mark.parametrize("fails", [False, True])
def test_the_removal_of_a_deleted_topic_is_logged_once(fails: bool) -> None:
    node = led()
    if fails:
        refuse(node, 1)
    del node.cluster.topics[TOPIC_ID]
    node.run(node.tier.on_topic_deleted(TOPIC_ID, "t", 1, was_tiered=True, now_ms=node.now_ms))
    node.pass_time(60_000)
    found = lines(node)
    if not fails:
        assert found == ["deleted topics were removed from the tier partitions=1"]
        assert isinstance(node.cluster.store, MemoryStore)
        assert node.cluster.store.objects == {}
        return
    removals = [line for line in found if line.startswith("the removal of a deleted topic")]
    assert len(removals) == 1
    assert "under a legal hold" in removals[0]
