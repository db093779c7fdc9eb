"""Each invariant that a docstring names is asserted where it could be broken: here it is broken."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.stores.directory import DirectoryStore
from firnline.stores.memory import MemoryStore
from firnline.tiered.coroutines import Run
from firnline.tiered.expiry import Decision
from firnline.tiered.metadata import partitioner
from firnline.tiered.metadata.changes import segment_record
from firnline.tiered.metadata.records import TYPES, encode
from firnline.tiered.objects.storage import ObjectStorage
from firnline.tiered.spi import SegmentState, SegmentUpdate
from tests.worlds.tier import WHERE, Cluster, Node


def nothing(*_: Any) -> Effects:
    return []


@pytest.fixture
def node() -> Node:
    """A leader with one segment in the tier."""
    made = Node(Cluster()).start().lead(0)
    made.produce(0, "a")
    made.pass_time(1000)
    assert [s.state for s in made.segments()] == [SegmentState.COPY_FINISHED]
    return made


def tasks_of(node: Node) -> Any:
    return node.tier._tasks[WHERE]


# --------------------------------------------------------------------------------------- copy task


def test_a_partition_has_one_copy_task_and_one_expiration_task(node: Node) -> None:
    tasks_of(node).copier.is_running = True
    tasks_of(node).expiry.is_running = True
    for task in (tasks_of(node).copier, tasks_of(node).expiry):
        with pytest.raises(AssertionError, match="one run"):
            task.run(node.cluster.now_ms, nothing)


def test_what_is_undecided_is_not_copied(node: Node) -> None:
    node.produce(0, "open", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    copier = tasks_of(node).copier
    copier.candidates = lambda covered: iter(node.log.closed_segments()[1:])
    with pytest.raises(AssertionError, match="X30"):
        copier.run(node.cluster.now_ms, nothing)


def test_what_the_tier_has_is_not_copied_again(node: Node) -> None:
    copier = tasks_of(node).copier
    copier.candidates = lambda covered: iter(node.log.closed_segments())
    with pytest.raises(AssertionError, match="again"):
        copier.run(node.cluster.now_ms, nothing)


def test_a_copy_is_finished_only_while_nobody_else_may_clean_it(node: Node) -> None:
    (segment,) = node.segments()
    assert segment.segment_id not in node.tier.services.copying.of(WHERE)
    with pytest.raises(AssertionError, match="rel-T13"):
        next(tasks_of(node).copier._publish_finished(Run(node.cluster.now_ms, nothing), segment))


# -------------------------------------------------------------------------------------- expiration


def test_nothing_is_deleted_before_the_log_start_is_above_it(node: Node) -> None:
    expiry = tasks_of(node).expiry
    log = SimpleNamespace(log_start_offset=0, advance_log_start=nothing)
    expiry._hosted = SimpleNamespace(log=log)
    with pytest.raises(AssertionError, match="rel-T2"):
        next(expiry._act(Run(node.cluster.now_ms, nothing), Decision(node.segments(), 1)))


def test_a_segment_of_the_history_has_a_place_in_it(node: Node) -> None:
    retained = tasks_of(node).expiry._retained
    node.pass_time(1000)
    (segment,) = node.segments()
    retained.key = lambda segment: None
    with pytest.raises(AssertionError, match="shares an epoch"):
        retained._place(segment)


# ---------------------------------------------------------------------------------------- metadata


def test_only_a_copy_that_begins_is_added_and_it_is_added_only(node: Node) -> None:
    metadata, (segment,) = node.tier.services.metadata, node.segments()
    with pytest.raises(AssertionError, match="only a new copy is added"):
        metadata.add(segment, nothing, 0)
    begins = SegmentUpdate(
        topic_id=segment.topic_id,
        topic=segment.topic,
        partition=segment.partition,
        segment_id=segment.segment_id,
        state=SegmentState.COPY_STARTED,
        broker_id=1,
        event_timestamp_ms=0,
    )
    with pytest.raises(AssertionError, match="a new copy is added"):
        metadata.update(begins, nothing, 0)


def test_the_tier_of_a_node_starts_once(node: Node) -> None:
    metadata: Any = node.tier.services.metadata
    for started in (node.tier, metadata):
        with pytest.raises(AssertionError):
            started.start(0)


def test_a_record_has_the_key_of_its_type(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    record = segment_record(node.segments()[0])
    encode(record)
    monkeypatch.setitem(TYPES, record.key, int)
    with pytest.raises(AssertionError):
        encode(record)


def test_kafkas_hash_is_of_four_bytes() -> None:
    with pytest.raises(AssertionError):
        partitioner._murmur2(b"12345")


# ------------------------------------------------------------------------------------------- store


def test_a_store_is_asked_only_when_it_is_configured() -> None:
    with pytest.raises(AssertionError, match="configure"):
        _ = ObjectStorage().store


def test_the_objects_of_a_segment_have_an_order(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firnline.tiered.objects.storage.SUFFIXES", ())
    names = ("offset_index", "time_index", "txn_index", "producer_snapshot", "leader_epochs", "log")
    data: Any = SimpleNamespace(**dict.fromkeys(names))
    with pytest.raises(AssertionError):
        node.storage.inner.copy_segment(node.segments()[0], data)


def test_what_is_listed_is_a_folder(tmp_path: Path) -> None:
    for store in (MemoryStore(), DirectoryStore(str(tmp_path))):
        with pytest.raises(AssertionError, match="folder"):
            store.list_prefix("data")
