"""A catalog never gives way to one that explains less: what metadata lost, nobody acts on."""

from typing import Any

import pytest

from firnline.base.effects import Effects, Submit
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import TopicIdPartition
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.record import records
from firnline.stores.memory import MemoryStore
from firnline.stores.port import RemoteStorageError
from firnline.tiered import lineage
from firnline.tiered.catalog.format import (
    CatalogHead,
    CatalogSegment,
    PartitionCatalog,
    encode_head,
)
from firnline.tiered.metadata.changes import from_record, segment_record
from firnline.tiered.metadata.records import decode, encode
from firnline.tiered.objects.catalog_reader import NAMED_MAX, read_catalog, still_there
from firnline.tiered.objects.layout import LOG, HeadName, head_key, heads_folder, segment_stem
from firnline.tiered.reads.reader import RemoteOffset
from firnline.tiered.spi import RemoteSegment, SegmentState, SegmentUpdate
from tests.worlds.tier import TOPIC_ID, TP, WHERE, Cluster, Node, topic_config

RETENTION_MS = 100_000
DELETE_STARTED, DELETE_FINISHED = SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED
pytestmark = pytest.mark.loses_metadata


def tiered(cluster: Cluster, *texts: str, **config: Any) -> Node:
    """One segment per text, all but the active one in the tier alone."""
    node = Node(cluster, config=topic_config(retention_ms=RETENTION_MS, **config)).start().lead(0)
    for text in texts:
        node.produce(0, text)
    node.pass_time(1000)
    node.expire_local()
    return node


def newest(cluster: Cluster) -> PartitionCatalog:
    found = read_catalog(cluster.store, TOPIC_ID, 0)
    assert found is not None
    return found


def speaks_of(batch: bytes, segment_id: bytes) -> bool:
    (header,) = headers(batch)
    said = [from_record(decode(r.value)) for r in records(batch, header) if r.value is not None]
    return any(getattr(row, "segment_id", None) == segment_id for row in said)


def lose(cluster: Cluster, keep: Any = lambda batch: False) -> dict[int, list[bytes]]:
    """Take batches out of the metadata topic; return what was there."""
    before = {partition: list(batches) for partition, batches in cluster.metadata.items()}
    cluster.metadata.clear()
    cluster.ends.clear()
    for partition, batches in before.items():
        for batch in batches:
            if keep(batch):
                cluster.append(partition, bytearray(batch))
    return before


def again(cluster: Cluster, node: Node, epoch: int = 1) -> Node:
    fresh = Node(cluster, fs=node.crash(), config=node.config).start().lead(epoch)
    fresh.pass_time(5000)
    return fresh


def forget(node: Node, segment: RemoteSegment) -> None:
    """The metadata that this node has applied loses a segment."""
    metadata: Any = node.tier.services.metadata
    cache = metadata._cache(WHERE)
    for epoch, start in segment.epochs:
        cache._by_epoch[epoch].forget(segment.segment_id, start)
    cache._drop(segment)
    node.run(metadata.on_applied(WHERE, node.cluster.now_ms))


def segment_keys(cluster: Cluster) -> list[str]:
    return sorted(key for key in cluster.store.objects if key.endswith(".log"))


def test_metadata_that_was_lost_costs_neither_the_catalog_nor_the_history() -> None:
    cluster = Cluster()
    node = tiered(cluster, "a", "b", "c")
    kept, said = segment_keys(cluster), newest(cluster)
    lose(cluster)
    fresh = again(cluster, node)
    assert newest(cluster) == said
    fresh.produce(1, "new")
    fresh.pass_time(RETENTION_MS + 20_000)  # all is beyond the retention, as far as one could know
    assert segment_keys(cluster) == kept
    assert newest(cluster) == said
    assert fresh.log.log_start_offset == 0


def test_the_operator_learns_what_is_lost_and_what_to_do() -> None:
    cluster = Cluster()
    node = tiered(cluster, "a", "b", "c")
    lose(cluster)
    fresh = again(cluster, node)
    fresh.pass_time(60_000)
    [line] = fresh.warnings
    assert (
        'topic=t partition=0 task=catalog is_retried=false error="the tier has segments that'
        in line
    )
    assert "segments=3 first_offset=0 last_offset=2" in line
    assert "bring the lost records of __remote_log_metadata back" in line
    (row,) = fresh.tier.status()
    assert row.unexplained_segments == 3
    assert row.problem is not None
    assert "metadata does not know" in row.problem


def test_what_can_be_served_is_served_and_the_rest_is_asked_again() -> None:
    cluster = Cluster()
    node = tiered(cluster, "a", "b", "c")
    first = node.segments()[0]
    lose(cluster, keep=lambda batch: not speaks_of(batch, first.segment_id))
    fresh = again(cluster, node)
    assert fresh.log.log_start_offset == 0
    missing = fresh.read(0)
    assert isinstance(missing, KafkaError)
    assert missing.code == Code.KAFKA_STORAGE_ERROR, "a consumer that is told 1 skips what is there"
    assert missing.is_retriable
    assert not isinstance(fresh.read(1), KafkaError)


def asks_again(node: Node, offset: int) -> bool:
    """Whether a consumer that asks for a lost offset asks again, as it does not if it is told 1."""
    found = node.read(offset)
    return isinstance(found, KafkaError) and found.code == Code.KAFKA_STORAGE_ERROR


def test_what_may_be_lost_is_asked_for_again_before_the_metadata_was_compared() -> None:
    """A leader that has just started, while its store does not answer; it once told consumers to skip."""
    cluster = Cluster()
    node = tiered(cluster, "a", "b")
    before = lose(cluster)
    complete = cluster.store.get

    def down(*_: Any, **__: Any) -> bytes:
        raise RemoteStorageError("no answer")

    cluster.store.get = down  # type: ignore[method-assign]
    fresh = Node(cluster, fs=node.crash(), config=node.config).start().lead(1)
    assert fresh.tier.status()[0].unexplained_segments == 0, "it is known: nothing is tried"
    assert asks_again(fresh, 0)
    cluster.store.get = complete  # type: ignore[method-assign]
    for partition, batches in before.items():
        for batch in batches:
            cluster.append(partition, bytearray(batch))
    fresh.pass_time(60_000)
    assert not isinstance(fresh.read(0), KafkaError)


def test_what_a_running_leader_loses_is_asked_for_again_from_that_moment() -> None:
    """Its next comparison may be half a minute away."""
    node = tiered(Cluster(), "a", "b")
    forget(node, node.segments()[0])
    assert node.tier.status()[0].unexplained_segments == 0, "it is known: nothing is tried"
    assert asks_again(node, 0)
    assert not isinstance(node.read(1), KafkaError)


def test_what_is_lost_is_asked_for_again_of_a_follower_too() -> None:
    """KIP-392. It compares nothing, and it knows that the tier has had what is not in its files."""
    cluster = Cluster()
    node = tiered(cluster, "a", "b")
    lose(cluster)
    follower = Node(cluster, fs=node.crash(), config=node.config).start()
    follower.role(is_leader=False, epoch=1)
    follower.pass_time(5000)
    assert asks_again(follower, 0)


def at_time(node: Node, timestamp_ms: int) -> object:
    """The answer to a search by timestamp, at once."""
    answers: list[object] = []

    def then(found: object, now_ms: int) -> Effects:
        answers.append(found)
        return []

    node.run(node.tier.offset_for_timestamp(TP, TOPIC_ID, timestamp_ms, then, node.cluster.now_ms))
    (answer,) = answers
    return answer


def test_a_time_is_not_searched_past_a_segment_that_may_be_lost() -> None:
    """A later record is not the first of that time: consumers who seek there would skip the others."""
    cluster = Cluster()
    node = Node(cluster, config=topic_config(retention_ms=RETENTION_MS)).start().lead(0)
    begin_ms = cluster.now_ms
    for text in "abcd":
        node.produce(0, text)
        cluster.now_ms += 10
    node.pass_time(1000)
    node.expire_local()
    second = node.segments()[1]
    forget(node, second)
    assert at_time(node, begin_ms) == RemoteOffset(0, begin_ms, 0), "what comes before is found"
    for after_ms in (10, 20, 40):
        found = at_time(node, begin_ms + after_ms)
        assert isinstance(found, KafkaError), f"begin + {after_ms}"
        assert found.code == Code.KAFKA_STORAGE_ERROR
    node.log.advance_log_start(2)
    assert at_time(node, begin_ms + 20) == RemoteOffset(2, begin_ms + 20, 0)
    assert at_time(node, begin_ms + 40) is None


def test_one_lost_segment_among_many_is_noticed() -> None:
    cluster = Cluster()
    node = tiered(cluster, *"abcdef")
    kept, said = segment_keys(cluster), newest(cluster)
    lost = node.segments()[3]
    lose(cluster, keep=lambda batch: not speaks_of(batch, lost.segment_id))
    fresh = again(cluster, node)
    fresh.pass_time(RETENTION_MS + 20_000)
    assert segment_keys(cluster) == kept
    assert newest(cluster) == said
    assert fresh.tier.status()[0].unexplained_segments == 1


def test_a_start_of_the_history_that_is_lost_does_not_move_the_log_start() -> None:
    """X42 takes the log start from the tier; what is first there for want of metadata is not the start."""
    cluster = Cluster()
    node = tiered(cluster, *"abc")
    first = node.segments()[0]
    lose(cluster, keep=lambda batch: not speaks_of(batch, first.segment_id))
    fresh = again(cluster, node)
    assert fresh.log.log_start_offset == 0


def test_a_store_without_a_catalog_is_checked_by_the_local_files() -> None:
    """What went from them was in the tier; metadata that is cut short must not be taken for "all expired"."""
    cluster = Cluster()
    node = tiered(cluster, *"abc")
    first = node.segments()[0]
    lose(cluster, keep=lambda batch: speaks_of(batch, first.segment_id))
    fresh = Node(cluster, fs=node.crash(), config=node.config)
    fresh.tier.services.catalog = None
    fresh.start().lead(1)
    fresh.pass_time(5000)
    fresh.run(fresh.tier.services.metadata.update(deletion(first, DELETE_STARTED), ignore, 0))
    fresh.run(fresh.tier.services.metadata.update(deletion(first, DELETE_FINISHED), ignore, 0))
    again_fresh = Node(cluster, fs=fresh.crash(), config=node.config)
    again_fresh.tier.services.catalog = None
    again_fresh.start().lead(2)
    again_fresh.pass_time(RETENTION_MS + 20_000)
    assert again_fresh.segments() == []
    assert again_fresh.log.log_start_offset == 0
    [line] = again_fresh.warnings
    assert "local segments were deleted because the tier had them" in line
    assert again_fresh.tier.status()[0].unexplained_segments == 1


def test_what_was_missed_without_a_catalog_is_no_problem_once_the_metadata_is_back() -> None:
    """Copies went on, and the operator was told of a loss for as long as the node ran."""
    cluster = Cluster()
    node = tiered(cluster, *"abc")
    before = lose(cluster)
    fresh = Node(cluster, fs=node.crash(), config=node.config)
    fresh.tier.services.catalog = None
    fresh.start().lead(1)
    fresh.pass_time(5000)
    (row,) = fresh.tier.status()
    assert row.unexplained_segments == 1
    assert row.problem is not None
    for partition, batches in before.items():
        for batch in batches:
            cluster.append(partition, bytearray(batch))
    fresh.pass_time(60_000)
    (row,) = fresh.tier.status()
    assert (row.unexplained_segments, row.problem) == (0, None)


def deletion(segment: RemoteSegment, state: SegmentState) -> SegmentUpdate:
    return SegmentUpdate(
        segment.topic_id, segment.topic, segment.partition, segment.segment_id, state, 1, 0
    )


def ignore(error: KafkaError | None, now_ms: int) -> list[Any]:
    return []


def test_all_goes_on_when_the_metadata_is_back() -> None:
    cluster = Cluster()
    node = tiered(cluster, *"abc")
    before = lose(cluster)
    fresh = again(cluster, node)
    fresh.produce(1, "d")
    for partition, batches in before.items():
        for batch in batches:
            cluster.append(partition, bytearray(batch))
    fresh.pass_time(60_000)
    assert [s.base_offset for s in newest(cluster).segments] == [0, 1, 2, 3]
    assert fresh.tier.status()[0].unexplained_segments == 0
    assert fresh.tier.status()[0].problem is None


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_deletion_that_was_recorded_is_no_loss(comes_back: bool) -> None:
    """A deposed leader removed it after its successor had written a catalog with it.

    `comes_back`: an operator has put an older copy of the store back.
    """
    cluster = Cluster()
    node = tiered(cluster, *"abc")
    said, objects = newest(cluster), dict(cluster.store.objects)
    gone = node.segments()[0]
    node.log.advance_log_start(1)
    node.pass_time(5000)
    assert gone.segment_id not in {s.segment_id for s in node.segments()}
    for key in [k for k in cluster.store.objects if k.startswith(heads_folder(TOPIC_ID, 0))]:
        del cluster.store.objects[key]
    cluster.store.show()
    old = CatalogHead(*said[:12], parts=(), removed=(), tail=said.segments)
    data = encode_head(old)
    key = head_key(TOPIC_ID, 0, HeadName(old.leader_epoch, old.sequence))
    cluster.store.put(key, (data,), size_bytes=len(data))
    if comes_back:
        cluster.store.objects = {**objects, **cluster.store.objects}
    fresh = again(cluster, node)
    fresh.log.log_start_offset = 0  # it did not hear of that
    assert fresh.warnings == []
    assert [s.base_offset for s in newest(cluster).segments] == [1, 2]


def test_what_is_lost_while_the_store_is_asked_is_missed_as_well() -> None:
    """What is missing is asked of the store in a thread; metadata that forks meanwhile lost more."""
    cluster = Cluster()
    node = tiered(cluster, *"abc")
    said = newest(cluster)
    first = node.segments()[0]
    for key in segment_keys(cluster)[:1]:
        cluster.store.delete(key)  # of this one nothing is left, so that it is no loss
    lose(cluster, keep=lambda batch: not speaks_of(batch, first.segment_id))
    fresh = Node(cluster, fs=node.crash(), config=node.config).start()
    fresh.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("look for")
    fresh.lead(1)
    fresh.pass_time(5000)
    assert fresh.on_hold, "nobody asked the store"
    for segment in fresh.segments():
        forget(fresh, segment)
    fresh.release()
    fresh.pass_time(5000)
    assert newest(cluster) == said


def test_many_lost_segments_do_not_keep_the_store_busy_for_ever() -> None:
    store = MemoryStore()
    lost = [
        CatalogSegment(n.to_bytes(16, "big"), n, n, 1, 1, ((0, 0),), "", (LOG,)) for n in range(900)
    ]
    for row in lost:
        stem = segment_stem(TOPIC_ID, 0, base_offset=row.base_offset, segment_id=row.segment_id)
        store.put(stem + LOG, (b"x",), size_bytes=1)
    asked: list[str] = []
    get = store.get

    def counted(key: str, *place: int) -> bytes:
        asked.append(key)
        return get(key, *place)

    store.get = counted  # type: ignore[method-assign, assignment]
    assert len(still_there(store, TOPIC_ID, 0, lost)) == NAMED_MAX == len(asked)


def test_a_damaged_head_is_passed_over_for_the_one_before_it() -> None:
    cluster = Cluster()
    node = tiered(cluster, "a")
    node.produce(0, "b")
    node.pass_time(2000)
    node.expire_local()
    heads = [k for k in cluster.store.objects if k.startswith(heads_folder(TOPIC_ID, 0))]
    assert len(heads) > 1
    cluster.store.objects[max(heads)] = b"what is this"
    lose(cluster)
    fresh = again(cluster, node)
    assert fresh.tier.status()[0].unexplained_segments >= 1


def test_a_store_that_does_not_answer_is_no_loss_and_is_asked_again() -> None:
    cluster = Cluster()
    node = tiered(cluster, *"ab")
    lose(cluster)
    complete = cluster.store.get

    def down(*_: Any, **__: Any) -> bytes:
        raise RemoteStorageError("no answer")

    cluster.store.get = down  # type: ignore[method-assign]
    fresh = again(cluster, node)
    assert [line for line in fresh.warnings if "no answer" not in line] == []
    assert fresh.log.log_start_offset == 0
    cluster.store.get = complete  # type: ignore[method-assign]
    fresh.pass_time(60_000)
    assert fresh.tier.status()[0].unexplained_segments == 2


def test_metadata_that_shrinks_under_a_leader_stops_it() -> None:
    """One leadership compares with what it said itself, before it decides on anything."""
    cluster = Cluster()
    node = tiered(cluster, *"abc")
    kept, said = segment_keys(cluster), newest(cluster)
    forget(node, node.segments()[0])
    node.pass_time(RETENTION_MS + 20_000)
    assert segment_keys(cluster) == kept
    assert newest(cluster) == said
    assert node.log.log_start_offset == 0
    assert node.tier.status()[0].unexplained_segments == 1


def test_a_segment_whose_loss_was_taken_once_is_missed_when_it_was_back_and_is_lost_again() -> None:
    """Its objects were gone, so that nothing was lost; an operator has brought them and the records back."""
    cluster = Cluster()
    node = tiered(cluster, *"abc")
    middle, objects = node.segments()[1], dict(cluster.store.objects)
    cluster.store.delete(segment_keys(cluster)[1])
    before = lose(cluster, keep=lambda batch: not speaks_of(batch, middle.segment_id))
    fresh = again(cluster, node)
    assert [s.base_offset for s in newest(cluster).segments] == [0, 2]
    cluster.store.objects = {**objects, **cluster.store.objects}
    for partition, batches in before.items():
        for batch in batches:
            if speaks_of(batch, middle.segment_id):
                cluster.append(partition, bytearray(batch))
    fresh.pass_time(5000)
    said = newest(cluster)
    assert [s.base_offset for s in said.segments] == [0, 1, 2]
    forget(fresh, middle)
    fresh.pass_time(5000)
    assert newest(cluster) == said
    assert fresh.tier.status()[0].unexplained_segments == 1


def test_nothing_expires_before_what_the_store_said_was_compared() -> None:
    """A store that is slow when a leader begins, and metadata that may have lost something."""
    cluster = Cluster()
    node = tiered(cluster, *"abc")
    fresh = Node(cluster, fs=node.crash(), config=topic_config(retention_ms=1)).start()
    fresh.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("begin cat")
    fresh.lead(1)
    fresh.pass_time(20_000)
    assert fresh.log.log_start_offset == 0
    assert len(segment_keys(cluster)) == 3
    fresh.release()
    fresh.pass_time(20_000)
    assert fresh.log.log_start_offset == 3
    assert segment_keys(cluster) == []


def test_a_log_start_that_moved_leaves_nothing_unexplained() -> None:
    """Or each deletion of records would cost a write of the catalog before it is thought of."""
    cluster = Cluster()
    node = tiered(cluster, *"abc")
    catalog = node.tier._tasks[WHERE].catalog
    node.log.advance_log_start(1)
    assert not catalog.is_current
    assert catalog.explains_all()
    forget(node, node.segments()[1])
    assert not catalog.explains_all()


def test_local_records_below_what_the_tier_has_left_stay_readable() -> None:
    """A new leader takes the log start from the tier, and must not hide what it has itself."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    for text in "abc":
        node.produce(0, text)
    node.pass_time(1000)
    first = node.segments()[0]
    for state in (DELETE_STARTED, DELETE_FINISHED):
        node.run(node.tier.services.metadata.update(deletion(first, state), ignore, 0))
    fresh = again(cluster, node)
    assert fresh.segments()[0].base_offset == 1
    assert (fresh.log.log_start_offset, fresh.log.local_log_start_offset) == (0, 0)


def test_a_log_start_that_is_looked_for_in_steps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where thousands of segments of lost histories come first the loop is given back meanwhile."""
    monkeypatch.setattr(lineage, "COMPARED_IN_STEP", 1)
    cluster = Cluster()
    node = tiered(cluster, *"abcd")
    node.log.advance_log_start(1)
    node.pass_time(2000)
    fresh = Node(cluster, fs=node.crash(), config=node.config).start().lead(1)
    assert fresh.log.log_start_offset == 0, "later: others have the loop first"
    fresh.pass_time(5000)
    assert fresh.log.log_start_offset == 1


# ---------------------------------------------------------------------------------------- forks


class Forked:
    """A feed whose leader lost the newest records and grew again; it says so, as the real one does."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.is_forked = True
        node.feed.fork = self.fork  # type: ignore[method-assign]

    def fork(self, partition: int, offset: int, epoch: int) -> int | None:
        if not self.is_forked or offset == 0:
            return None
        return 1


def test_metadata_that_forked_is_read_again_and_nobody_acts_meanwhile() -> None:
    """Seen: a node that believed COPY_FINISHED, had given up its local data, and never learned better."""
    cluster = Cluster()
    node = tiered(cluster, *"abc")
    kept, said = segment_keys(cluster), newest(cluster)
    last = node.segments()[-1]
    (partition,) = cluster.metadata
    lost = len(cluster.metadata[partition])
    lose(cluster, keep=lambda batch: not speaks_of(batch, last.segment_id))
    grown = lost - len(cluster.metadata[partition])
    other = TopicIdPartition(bytes(15) + b"\x63", 0)
    for _ in range(grown + 1):  # it is as long again, and longer
        record = segment_record(last._replace(topic_id=other.topic_id, segment_id=bytes(16)))
        cluster.append(partition, build_batch([NewRecord(None, encode(record), cluster.now_ms)]))
    forked = Forked(node)
    metadata = node.tier.services.metadata
    node.feed.hidden[partition] = 0
    node.run(node.poll_metadata(partition))
    assert not metadata.is_ready(WHERE)
    first = node.read(0)
    assert isinstance(first, KafkaError)
    assert (first.code, first.is_retriable) == (Code.REPLICA_NOT_AVAILABLE, True)
    assert any("records were lost" in w and "leader_has_to_offset=1" in w for w in node.warnings)
    node.feed.hidden.clear()
    forked.is_forked = False
    node.pass_time(RETENTION_MS + 20_000)
    assert metadata.is_ready(WHERE)
    assert metadata.get(WHERE, last.segment_id) is None
    assert not isinstance(node.read(0), KafkaError)
    assert isinstance(node.read(2), KafkaError)
    assert node.tier.status()[0].unexplained_segments == 1
    assert (segment_keys(cluster), newest(cluster)) == (kept, said)


def test_a_publish_whose_record_may_be_lost_is_reported_so() -> None:
    cluster = Cluster()
    node = tiered(cluster, "a")
    forked = Forked(node)
    forked.is_forked = False
    (partition,) = cluster.metadata
    node.feed.hidden[partition] = cluster.ends[partition]
    answers: list[Any] = []
    metadata = node.tier.services.metadata
    segment = node.segments()[0]._replace(segment_id=bytes(16), state=SegmentState.COPY_STARTED)
    then = lambda error, now_ms: answers.append(error) or []  # noqa: E731
    node.run(metadata.add(segment, then, cluster.now_ms))
    assert answers == []
    forked.is_forked = True
    node.run(node.poll_metadata(partition))
    [error] = answers
    assert error.code == Code.REPLICA_NOT_AVAILABLE
