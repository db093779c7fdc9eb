"""Metadata of remote segments: states, the cache per epoch, the topic. Spec 3.10-3.12."""

import random
from itertools import product
from uuid import UUID

import pytest

from firnline.base.effects import SetTimer
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import TopicIdPartition
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.records.build import NewRecord, build_batch
from firnline.records.control import ControlType, encode_key
from firnline.tiered.metadata import cache as cache_module
from firnline.tiered.metadata import log
from firnline.tiered.metadata.cache import MetadataCache, _EpochView
from firnline.tiered.metadata.changes import segment_record, update_record
from firnline.tiered.metadata.log import STEP_BYTES, TopicMetadataLog
from firnline.tiered.metadata.partitioner import metadata_partition_of
from firnline.tiered.metadata.records import decode, encode
from firnline.tiered.metadata.states import may_follow, may_follow_delete
from firnline.tiered.settings import TierSettings
from firnline.tiered.spi import (
    DeleteState,
    PartitionDelete,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)
from tests.worlds.decoded import all_records
from tests.worlds.effects import only
from tests.worlds.tier import TOPIC_ID, WHERE, Cluster, Feed, Node

STARTED, FINISHED, DELETING, DELETED = SegmentState


def segment(number: int, base: int, end: int, *epochs: tuple[int, int]) -> RemoteSegment:
    return RemoteSegment(
        topic_id=TOPIC_ID,
        topic="t",
        partition=0,
        segment_id=number.to_bytes(16, "big"),
        base_offset=base,
        end_offset=end,
        size_bytes=100,
        max_timestamp_ms=7,
        epochs=epochs or ((0, base),),
        broker_id=1,
        event_timestamp_ms=8,
    )


def change(number: int, state: SegmentState, custom: bytes | None = None) -> SegmentUpdate:
    return SegmentUpdate(TOPIC_ID, "t", 0, number.to_bytes(16, "big"), state, 1, 9, custom)


def finished(cache: MetadataCache, *segments: RemoteSegment) -> None:
    for one in segments:
        assert cache.add(one)
        assert cache.update(change(int.from_bytes(one.segment_id, "big"), FINISHED))


def ids(segments: list[RemoteSegment]) -> list[int]:
    return [int.from_bytes(s.segment_id, "big") for s in segments]


# ------------------------------------------------------------------------------------------ states


def test_segment_states_follow_each_other_only_as_the_table_says() -> None:
    allowed = {(None, STARTED), (STARTED, FINISHED), (STARTED, DELETING), (FINISHED, DELETING)}
    allowed |= {(DELETING, DELETED)} | {(state, state) for state in SegmentState}
    for old, new in product([None, *SegmentState], SegmentState):
        assert may_follow(old, new) is ((old, new) in allowed), (old, new)


def test_deletion_states_follow_each_other_only_as_the_table_says() -> None:
    marked, started, done = DeleteState
    allowed = {(None, marked), (marked, started), (started, done)}
    allowed |= {(state, state) for state in DeleteState}
    for old, new in product([None, *DeleteState], DeleteState):
        assert may_follow_delete(old, new) is ((old, new) in allowed), (old, new)


# ------------------------------------------------------------------------------------------- cache


def test_the_deletion_of_a_copy_that_seemed_abandoned_is_refused_once_it_is_finished() -> None:
    """rel-T2: the leader that finished it may have deleted its local segment before the deletion came."""
    cache = MetadataCache()
    cache.add(segment(1, 0, 9))
    cache.add(segment(2, 10, 19))
    deletions = [change(each, DELETING)._replace(only_if_unfinished=True) for each in (1, 2)]
    assert cache.update(change(1, FINISHED))
    assert [cache.update(each) for each in deletions] == [False, True]
    assert [each.state for each in cache.segments()] == [FINISHED, DELETING]
    assert cache.update(change(1, DELETING)), "any other deletion is not refused"


@pytest.mark.parametrize(
    ("states", "found", "listed"),
    [
        ([], False, True),
        ([FINISHED], True, True),
        ([DELETING], False, True),
        ([FINISHED, DELETING], False, True),
        ([FINISHED, DELETING, DELETED], False, False),
    ],
)
def test_only_finished_segments_are_found_and_all_undeleted_are_listed(
    states: list[SegmentState], found: bool, listed: bool
) -> None:
    cache = MetadataCache()
    cache.add(segment(1, 0, 9))
    for state in states:
        assert cache.update(change(1, state))
    assert (cache.lookup(0, 5) is not None) is found
    assert bool(cache.segments(0)) is listed
    assert bool(cache.segments()) is listed


def test_finished_segments_are_listed_by_their_ends_and_from_where_it_is_asked() -> None:
    cache = MetadataCache()
    finished(cache, segment(1, 0, 9), segment(2, 10, 19), segment(3, 20, 29))
    for reaching, found in ((0, [1, 2, 3]), (9, [1, 2, 3]), (10, [2, 3]), (29, [3]), (30, [])):
        assert ids(cache.finished(reaching)) == found
    cache.finished().clear()
    assert ids(cache.finished()) == [1, 2, 3], "whoever asks gets a list of his own"


def test_only_the_newest_deletions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition deletes segments as long as it lives."""
    monkeypatch.setattr(cache_module, "DELETED_KEPT", 2)
    cache = MetadataCache()
    for number in (1, 2, 3):
        cache.add(segment(number, number, number))
        for state in (FINISHED, DELETING, DELETED):
            assert cache.update(change(number, state))
    remembered = [n for n in (1, 2, 3) if cache.was_deleted(n.to_bytes(16, "big"))]
    assert remembered == [2, 3]


def test_a_finish_that_is_said_again_does_not_say_what_was_copied() -> None:
    """The fingerprint is that of the first: whoever finds a copy of unknown outcome publishes it again."""
    cache = MetadataCache()
    cache.add(segment(1, 0, 9))
    assert cache.update(change(1, FINISHED, b"first"))
    once = cache.get(segment(1, 0, 9).segment_id)
    assert cache.update(change(1, FINISHED, b"second")._replace(broker_id=2))
    assert cache.get(segment(1, 0, 9).segment_id) == once


def test_a_segment_that_a_longer_one_covers_serves_when_that_one_is_deleted() -> None:
    """Spec 3.11: 10-90, then 5-100. Kafka lets the covered one serve nothing from then on."""
    cache = MetadataCache()
    finished(cache, segment(1, 10, 90), segment(2, 5, 100))
    found = [cache.lookup(0, offset) for offset in (5, 10, 95)]
    assert ids([s for s in found if s]) == [2, 1, 2]
    assert sorted(ids(cache.segments(0))) == [1, 2]
    cache.update(change(2, DELETING))
    found = [cache.lookup(0, offset) for offset in (5, 10, 90, 95)]
    assert ids([s for s in found if s]) == [1, 1]


def test_a_longer_copy_serves_although_an_even_later_offset_was_once_there() -> None:
    """Otherwise nobody can read 10 to 12, which the tier has, and local files of them are deleted."""
    cache = MetadataCache()
    finished(cache, segment(1, 0, 4), segment(2, 5, 9), segment(3, 10, 19))
    cache.update(change(3, DELETING))
    finished(cache, segment(4, 5, 12))
    found = [cache.lookup(0, offset) for offset in (4, 5, 9, 10, 12)]
    assert ids([s for s in found if s]) == [1, 4, 4, 4, 4]
    cache.update(change(4, DELETING))
    found = [cache.lookup(0, offset) for offset in (5, 9)]
    assert ids([s for s in found if s]) == [2, 2]


def test_a_shorter_copy_that_finishes_later_hides_nothing() -> None:
    """A deposed leader's copy arrives late: what the longer one serves stays served."""
    for late in (segment(2, 5, 20), segment(2, 10, 20)):
        cache = MetadataCache()
        finished(cache, segment(1, 5, 100), late)
        for offset in (5, 15, 21, 100):
            assert cache.lookup(0, offset) is not None, (late.base_offset, offset)


class Places(list):  # type: ignore[type-arg]
    """A list that counts what is looked at one by one."""

    checks = 0

    def __getitem__(self, at):  # type: ignore[no-untyped-def]
        self.checks += 1
        return super().__getitem__(at)


def test_an_offset_in_a_hole_is_not_looked_for_in_all_segments_before_it() -> None:
    """Goal: a consumer that reads there costs what another one does. Method: count the segments looked at."""
    cache = MetadataCache()
    finished(cache, *(segment(n + 1, 10 * n, 10 * n + 9) for n in range(1_000)))
    for number in range(700, 800):
        cache.update(change(number, DELETING))
    view = cache._by_epoch[0]
    view.ids, view._ends, view._tops = Places(view.ids), Places(view._ends), Places(view._tops)
    assert cache.lookup(0, 7_500) is None
    found = cache.lookup(0, 6_985)
    assert found is not None
    assert ids([found]) == [699]
    assert view.ids.checks + view._ends.checks + view._tops.checks < 10


def test_a_long_segment_that_is_gone_makes_no_offset_be_looked_for_below() -> None:
    cache = MetadataCache()
    finished(cache, segment(1, 0, 100_000))
    finished(cache, *(segment(n, 10 * n, 10 * n + 4) for n in range(2, 1_000)))
    assert cache.lookup(0, 9_007) is not None
    cache.update(change(1, DELETING))
    view = cache._by_epoch[0]
    view.ids, view._ends, view._tops = Places(view.ids), Places(view._ends), Places(view._tops)
    assert cache.lookup(0, 9_007) is None
    assert view.ids.checks + view._ends.checks + view._tops.checks < 10


def test_whatever_segments_come_and_go_the_nearest_that_holds_an_offset_is_found() -> None:
    """Method: compare with a look at all that are finished."""
    chance = random.Random(7)
    for _ in range(200):
        cache = MetadataCache()
        live: list[int] = []
        for number in range(1, 30):
            if live and chance.random() < 0.4:
                gone = live.pop(chance.randrange(len(live)))
                cache.update(change(gone, DELETING))
                if chance.random() < 0.5:
                    cache.update(change(gone, DELETED))
            start = chance.randrange(60)
            finished(cache, segment(number, start, start + chance.choice([0, 2, 5, 30])))
            live.append(number)
            view = cache._by_epoch[0]
            mapped = [cache._by_id[each] for each in view.ids]
            assert view.starts == sorted(m.base_offset for m in mapped)
            for offset in range(0, 95, 3):
                holding = [m for m in mapped if m.base_offset <= offset <= m.end_offset]
                assert len(mapped) == len(live)
                found = cache.lookup(0, offset)
                best = max(((m.base_offset, m.end_offset) for m in holding), default=None)
                assert (found and (found.base_offset, found.end_offset)) == best


def test_the_highest_offset_of_an_epoch_never_shrinks() -> None:
    cache = MetadataCache()
    finished(cache, segment(1, 0, 9), segment(2, 10, 19))
    cache.update(change(2, DELETING))
    cache.update(change(2, DELETED))
    assert cache.highest_offset(0) == 19
    assert cache.highest_offset(1) is None


def test_an_offset_is_looked_up_within_its_epoch() -> None:
    cache = MetadataCache()
    finished(cache, segment(1, 0, 9, (0, 0), (2, 4)))
    assert cache.lookup(0, 3) is not None
    assert cache.lookup(0, 4) is None
    assert cache.lookup(2, 4) is not None
    assert cache.lookup(1, 4) is None
    assert cache.lookup(2, 10) is None
    assert (cache.highest_offset(0), cache.highest_offset(2)) == (3, 9)


def test_changes_that_cannot_follow_are_dropped_and_nothing_breaks() -> None:
    cache = MetadataCache()
    assert not cache.update(change(1, FINISHED)), "unknown segment"
    assert cache.add(segment(1, 0, 9))
    assert cache.add(segment(1, 0, 9)), "a repeat"
    assert not cache.add(segment(1, 0, 10)), "other bytes under the same id (rel-T12)"
    assert not cache.add(segment(1, 0, 9)._replace(state=FINISHED)), "no start of a copy"
    assert not cache.add(segment(2, 10, 19)._replace(epochs=())), "of no epoch: nobody can find it"
    assert ids(cache.segments()) == [1]
    assert not cache.update(change(1, DELETED))
    assert cache.update(change(1, FINISHED))
    assert not cache.add(segment(1, 0, 9)), "finished already"
    assert cache.update(change(1, DELETING))
    assert not cache.update(change(1, FINISHED))
    assert cache.update(change(1, DELETED))
    assert not cache.update(change(1, DELETED)), "gone"


def test_custom_metadata_comes_with_the_finish_and_stays() -> None:
    cache = MetadataCache()
    cache.add(segment(1, 0, 9))
    cache.update(change(1, FINISHED, b"xyz"))
    cache.update(change(1, DELETING))
    assert [s.custom_metadata for s in cache.segments()] == [b"xyz"]


# ------------------------------------------------------------------------------------------- topic


@pytest.mark.parametrize(
    ("topic_id", "partitions"),
    [
        ("00000000-0000-0000-0000-000000000001", [35, 6, 18, 29]),
        ("11111111-2222-4333-8444-555555555555", [31, 16, 20, 8]),
        ("f0e1d2c3-b4a5-4697-8877-665544332211", [7, 44, 18, 45]),
    ],
)
def test_metadata_partitions_are_those_of_shipped_kafka(
    topic_id: str, partitions: list[int]
) -> None:
    """T18: the seed's hash of the name is not what shipped."""
    where = [TopicIdPartition(UUID(topic_id).bytes, partition) for partition in range(4)]
    assert [metadata_partition_of(w, 50) for w in where] == partitions


def loaded(cluster: Cluster) -> Node:
    node = Node(cluster).start()
    node.run(node.tier.services.metadata.assign(WHERE, cluster.now_ms))
    return node


def publish(node: Node, *what: object) -> list[KafkaError | None]:
    answers: list[KafkaError | None] = []

    def then(error, now_ms):  # type: ignore[no-untyped-def]
        answers.append(error)
        return []

    metadata = node.tier.services.metadata
    for one in what:
        if isinstance(one, RemoteSegment):
            node.run(metadata.add(one, then, node.cluster.now_ms))
        elif isinstance(one, SegmentUpdate):
            node.run(metadata.update(one, then, node.cluster.now_ms))
        else:
            assert isinstance(one, PartitionDelete)
            node.run(metadata.put_partition_delete(one, then, node.cluster.now_ms))
    return answers


def test_a_publish_is_done_only_when_it_is_applied_here() -> None:
    """T21, X36: the high watermark this node knows lags behind the append."""
    cluster = Cluster()
    node = loaded(cluster)
    metadata = node.tier.services.metadata
    partition, _ = metadata.applied_offset(WHERE)
    node.feed.hidden[partition] = 0
    answers = publish(node, segment(1, 0, 9))
    assert answers == []
    assert metadata.segments(WHERE) == []
    node.feed.hidden.clear()
    node.run(node.poll_metadata(partition))
    assert answers == [None]
    assert metadata.applied_offset(WHERE) == (partition, 0)


def test_a_publish_that_is_never_applied_fails_in_time() -> None:
    cluster = Cluster()
    node = loaded(cluster)
    partition, _ = node.tier.services.metadata.applied_offset(WHERE)
    node.feed.hidden[partition] = 0
    answers = publish(node, segment(1, 0, 9))
    node.pass_time(4_000)
    assert answers == []
    node.pass_time(2_000)
    assert [a.code for a in answers if a] == [Code.REQUEST_TIMED_OUT]


def test_a_change_that_cannot_follow_is_reported_to_who_published_it() -> None:
    node = loaded(Cluster())
    first, second = publish(node, segment(1, 0, 9), change(1, DELETED))
    assert first is None
    assert second is not None


def test_a_user_partition_that_comes_later_finds_its_history() -> None:
    """X37: the metadata partition is being consumed already, for another one."""
    cluster = Cluster(partitions=1)
    node = Node(cluster, metadata_partitions=1).start()
    metadata = node.tier.services.metadata
    other = TopicIdPartition(bytes(15) + b"\x09", 0)
    node.run(metadata.assign(other, cluster.now_ms))
    publish(node, segment(1, 0, 9), change(1, FINISHED))
    assert metadata.lookup(WHERE, epoch=0, offset=5) == KafkaError(
        Code.REPLICA_NOT_AVAILABLE, "the metadata of the remote log is not loaded yet"
    )
    node.run(metadata.assign(WHERE, cluster.now_ms))
    found = metadata.lookup(WHERE, epoch=0, offset=5)
    assert isinstance(found, RemoteSegment)


def test_questions_wait_until_all_that_was_committed_at_assignment_is_applied() -> None:
    """F11: a follower becomes leader while its metadata lags."""
    cluster = Cluster()
    node = loaded(cluster)
    publish(node, segment(1, 0, 9), change(1, FINISHED))
    late = TopicMetadataLog(Feed(cluster, 2), TierSettings(metadata_partitions=3))
    late.start(0)
    late._ensured(None, 0)  # as EnsureTopic answers
    feed = late._feed
    assert isinstance(feed, Feed)
    partition = late.partition_of(WHERE)
    read = feed.read
    feed.read = lambda p, offset, size: read(p, offset, 1)  # type: ignore[method-assign]
    late._consumed.clear()
    late.assign(WHERE, 0)
    assert not late.is_ready(WHERE)
    late.poll(partition, 0)
    assert late.is_ready(WHERE)


def test_a_control_batch_at_the_end_is_passed_over() -> None:
    """A transactional producer of somebody's own: the loop would read it again and again."""
    cluster = Cluster()
    node = loaded(cluster)
    publish(node, segment(1, 0, 9), change(1, FINISHED))
    metadata = node.tier.services.metadata
    partition = metadata.applied_offset(WHERE)[0]
    marker = NewRecord(encode_key(ControlType.COMMIT), bytes(6), 1)
    cluster.append(
        partition, build_batch([marker], is_control=True, producer_id=1, producer_epoch=0)
    )
    node.pass_time(2000)
    assert metadata.applied_offset(WHERE) == (partition, cluster.ends[partition] - 1)


def test_a_newcomer_begins_where_the_metadata_begins_by_now() -> None:
    """Records below the start of that log are nowhere; whoever asks for them would ask for ever."""
    cluster = Cluster()
    node = loaded(cluster)
    for number in range(1, 4):
        publish(node, segment(number, number, number), change(number, FINISHED))
    other = Node(cluster, 2)
    bounds, read, asked = other.feed.bounds, other.feed.read, []
    other.feed.bounds = lambda p: (min(4, found[1]), found[1]) if (found := bounds(p)) else None  # type: ignore[method-assign]
    other.feed.read = lambda p, at, size: asked.append(at) or read(p, at, size)  # type: ignore[method-assign, func-returns-value]
    other.start()
    other.run(other.tier.services.metadata.assign(WHERE, cluster.now_ms))
    assert asked
    assert min(asked) == 4
    assert ids(other.segments()) == [3]


def test_records_that_nobody_can_read_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log, "DROPPED_KEPT", 2)
    cluster = Cluster()
    node = loaded(cluster)
    for _ in range(5):
        cluster.append(0, build_batch([NewRecord(None, b"what is this", 1)]))
    node.pass_time(2000)
    metadata = node.tier.services.metadata
    assert isinstance(metadata, TopicMetadataLog)
    assert list(metadata._dropped) == [(0, 3), (0, 4)]


def test_a_metadata_topic_that_cannot_be_made_is_reported_when_its_time_is_over_and_tried_on() -> (
    None
):
    cluster = Cluster(has_topic=False)
    node = Node(cluster, metadata_init_retry_max_ms=10_000).start()
    node.pass_time(9000)
    assert node.tier.problem is None, "a cluster that starts has no topics for a while"
    node.pass_time(2000)
    assert node.tier.problem is not None
    assert "__remote_log_metadata could not be created" in node.tier.problem
    assert len([line for line in node.warnings if "could not be created" in line]) == 1
    cluster.has_topic = True
    node.pass_time(1000)
    assert node.tier.problem is None


def test_a_long_history_of_many_metadata_partitions_is_applied_in_steps() -> None:
    """A start applies all of it: fifty partitions at once would stop the loop fifty steps long."""
    cluster = Cluster(partitions=5)
    for partition in range(5):
        for number in range(4):
            row = NewRecord(None, encode(segment_record(segment(number, number, number))), 1)
            cluster.append(partition, build_batch([row] * 40))
    late = TopicMetadataLog(Feed(cluster, 2), TierSettings(metadata_partitions=5))
    feed = late._feed
    assert isinstance(feed, Feed)
    sizes: list[int] = []
    read = feed.read

    def reading(partition: int, offset: int, size: int) -> bytes:
        data = read(partition, offset, size)
        sizes.append(len(data))
        return data

    feed.read = reading  # type: ignore[method-assign]
    late.is_initialised = True
    for partition in range(5):
        late._consume(partition)
    steps, effects = [], late.poll_all(0)
    while effects:
        steps.append(sum(sizes))
        sizes.clear()
        timer = only(effects, SetTimer)
        assert timer.at_ms == 0
        effects = timer.then(0)
    steps.append(sum(sizes))
    assert max(steps) < 2 * STEP_BYTES
    assert sum(steps) > 5 * STEP_BYTES
    assert all(consumed.next_offset == 160 for consumed in late._consumed.values())


def test_records_that_cannot_be_read_are_dropped_and_the_rest_applied() -> None:
    cluster = Cluster()
    node = loaded(cluster)
    partition, _ = node.tier.services.metadata.applied_offset(WHERE)
    for junk in (b"", b"\xff" * 9, b"\x01\x63\x00", b"\x01\x00\x00\x00"):
        cluster.append(partition, build_batch([NewRecord(None, junk, 1)]))
    assert publish(node, segment(1, 0, 9)) == [None]
    assert len(node.segments()) == 1


def test_metadata_that_lost_committed_records_decides_nothing_any_more() -> None:
    """F28."""
    cluster = Cluster()
    node = loaded(cluster)
    publish(node, segment(1, 0, 9), change(1, FINISHED))
    partition, _ = node.tier.services.metadata.applied_offset(WHERE)
    cluster.ends[partition] = 1
    node.pass_time(2000)
    assert not node.tier.services.metadata.is_ready(WHERE)
    assert "lost committed records" in str(node.tier.problem)


def test_one_answer_that_is_too_low_does_not_end_a_tier_for_good() -> None:
    """After a lower end, said once, a broker served nothing of the tier until its restart."""
    cluster = Cluster()
    node = loaded(cluster)
    publish(node, segment(1, 0, 9), change(1, FINISHED))
    metadata = node.tier.services.metadata
    partition, _ = metadata.applied_offset(WHERE)
    for end in (1, 0):
        cluster.ends[partition] = end
        node.pass_time(2000)
    assert len([line for line in node.warnings if "has lost records" in line]) == 1
    cluster.ends[partition] = 2
    node.pass_time(2000)
    assert metadata.is_ready(WHERE)
    assert node.tier.problem is None
    assert ids(node.segments()) == [1]


def test_one_answer_that_is_too_high_keeps_nobody_waiting_for_good() -> None:
    """A replica could never begin: it waited for metadata up to an offset that no record would have."""
    cluster = Cluster()
    first = loaded(cluster)
    publish(first, segment(1, 0, 9), change(1, FINISHED))
    partition, _ = first.tier.services.metadata.applied_offset(WHERE)
    cluster.ends[partition] = 1 << 53
    node = loaded(cluster)
    metadata = node.tier.services.metadata
    assert not metadata.is_ready(WHERE)
    cluster.ends[partition] = 2
    node.pass_time(2000)
    assert metadata.is_ready(WHERE)
    assert ids(node.segments()) == [1]


def test_who_waits_for_metadata_is_called_when_the_last_record_of_it_is_applied() -> None:
    """Also if that record is about another partition."""
    cluster = Cluster()
    publish(loaded(cluster), *(segment(n, n, n) for n in range(1, 400)))
    late = TopicMetadataLog(Feed(cluster, 2), TierSettings(metadata_partitions=3))
    called: list[bool] = []
    where = next(
        other
        for other in (WHERE._replace(partition=n) for n in range(1, 99))
        if late.partition_of(other) == late.partition_of(WHERE)
    )

    def on_applied(applied: TopicIdPartition, now_ms: int) -> list[object]:
        if applied == where:
            called.append(late.is_ready(where))
        return []

    late.on_applied = on_applied  # type: ignore[assignment]
    late.is_initialised = True
    effects = late.assign(where, 0)
    while effects:
        effects = only(effects, SetTimer).then(0)
    assert called == [False, True]
    cluster.append(
        late.partition_of(WHERE),
        build_batch([NewRecord(None, encode(segment_record(segment(400, 400, 400))), 1)]),
    )
    late.poll(late.partition_of(WHERE), 0)
    assert called == [False, True], "later records are not about it"


def test_a_step_of_a_long_history_does_not_look_at_all_that_wait_for_it() -> None:
    """A node may host ten thousand tiered partitions, and a start applies a thousand steps."""

    class Counted(dict[TopicIdPartition, int | None]):
        changes = 0

        def __setitem__(self, where: TopicIdPartition, target: int | None) -> None:
            Counted.changes += 1
            super().__setitem__(where, target)

    cluster = Cluster(partitions=1)
    rows = [NewRecord(None, encode(segment_record(segment(1, 1, 1))), 1)]
    for _ in range(80):
        cluster.append(0, build_batch(rows * 100))
    late = TopicMetadataLog(Feed(cluster, 2), TierSettings(metadata_partitions=1))
    late._targets = Counted()
    late.is_initialised = True
    effects: list[object] = []
    for number in range(50):
        effects = late.assign(WHERE._replace(partition=number), 0) or effects  # type: ignore[assignment]
    steps = 0
    while effects:
        effects = only(effects, SetTimer).then(0)  # type: ignore[arg-type, assignment]
        steps += 1
    assert steps > 3
    assert late.is_ready(WHERE)
    assert Counted.changes == 2 * 50, "once when it is assigned, once when the end is known"


def test_who_leaves_while_metadata_is_loaded_is_not_waited_for() -> None:
    cluster = Cluster(partitions=1)
    late = TopicMetadataLog(Feed(cluster, 2), TierSettings(metadata_partitions=1))
    late.is_initialised = True
    cluster.ends[0] = 1 << 53
    late.assign(WHERE, 0)
    late.unassign(WHERE)
    cluster.ends[0] = 0
    late.poll(0, 0)
    assert not late.is_ready(WHERE)
    late.assign(WHERE, 0)
    assert late.is_ready(WHERE)


def test_what_was_dropped_of_a_history_that_is_read_again_refuses_no_new_change() -> None:
    """The leader's log has another record at that offset now."""
    cluster = Cluster()
    node = loaded(cluster)
    metadata = node.tier.services.metadata
    partition, _ = metadata.applied_offset(WHERE)
    orphan = build_batch([NewRecord(None, encode(update_record(change(1, FINISHED))), 1)])
    cluster.append(partition, orphan)
    node.run(node.poll_metadata(partition))
    assert metadata.applied_offset(WHERE) == (partition, 0), "it was read, and may not follow"
    cluster.metadata[partition].clear()
    cluster.ends[partition] = 0
    forks = [0]
    node.feed.fork = lambda *place: forks.pop() if forks else None  # type: ignore[method-assign]
    node.run(node.poll_metadata(partition))
    assert publish(node, segment(1, 0, 9)) == [None]


def test_a_record_says_what_the_segment_says() -> None:
    cluster = Cluster()
    node = loaded(cluster)
    epochs: Epochs = ((1, 3), (4, 7))
    publish(node, segment(1, 3, 9, *epochs)._replace(txn_index_empty=True, custom_metadata=b"c"))
    partition, _ = node.tier.services.metadata.applied_offset(WHERE)

    (record,) = all_records(cluster.metadata[partition][0])
    assert record.key is None
    assert record.value is not None
    assert record.value[:3] == b"\x01\x00\x00", "frame version 1, key 0, version 0"
    message = decode(record.value)
    assert "txn_index_empty=True" in repr(message)
    assert node.segments()[0].epochs == epochs
    assert node.segments()[0].custom_metadata == b"c"


def test_one_segment_that_goes_does_not_have_all_later_ones_looked_at() -> None:
    """A tier of 60,000 segments expires from its beginning, one after the other."""

    class Counted(list[int]):
        changes = 0

        def __setitem__(self, at: object, value: object) -> None:
            self.changes += 1
            super().__setitem__(at, value)  # type: ignore[call-overload]

    view = _EpochView()
    ids = [number.to_bytes(16, "big") for number in range(1, 1_001)]
    for place, segment_id in enumerate(ids):
        view.map_segment(segment_id, 10 * place, 10 * place + 9)
    view._tops = tops = Counted(view._tops)
    for place, segment_id in enumerate(ids[:100]):
        view.forget(segment_id, 10 * place)
    assert tops.changes <= 100
    assert view.holder(1_005) == ids[100]
    assert view.holder(995) is None
