"""Reads from the tier: the right bytes of the right history, or one clear error. Spec 3.15, 3.16; F14-F18."""

from typing import Any

import pytest

from firnline.base.effects import Appended, Effects, SetTimer, Submit
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import uuid_text
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.control import ControlType, encode_key
from firnline.stores.port import ObjectMissing
from firnline.tiered.objects.aux_state import AuxState
from firnline.tiered.objects.batches import Corrupt, Misled, read_batches
from firnline.tiered.objects.layout import LEADER_EPOCHS
from firnline.tiered.reads import reader
from firnline.tiered.reads.indexes import SearchStart
from firnline.tiered.reads.reader import RemoteLogReadResult, RemoteOffset
from firnline.tiered.spi import RemoteSegment
from tests.raw_batches import raw_batch
from tests.worlds.decoded import all_records
from tests.worlds.tier import TOPIC_ID, TP, WHERE, Cluster, Node, topic_config


def tiered(cluster: Cluster, **settings: Any) -> Node:
    """Offsets 0..7 in segments of two batches, all but nothing local."""
    node = Node(cluster, **settings).start().lead(0)
    for pair in ("ab", "cd", "ef", "gh"):
        node.produce(0, *pair)
        cluster.now_ms += 10
    node.pass_time(1000)
    node.expire_local()
    assert node.log.local_log_start_offset == 8
    return node


def offsets(data: RemoteLogReadResult) -> list[int]:
    return [h.base_offset for h in headers(bytes(data.records))]  # type: ignore[arg-type]


def log_key(segment: RemoteSegment) -> str:
    base, name = segment.base_offset, uuid_text(segment.segment_id)
    return f"data/{uuid_text(TOPIC_ID)}/0/{base:020d}-{name}.log"


def test_a_read_begins_with_the_batch_that_holds_the_offset() -> None:
    node = tiered(Cluster())
    for offset in range(8):
        assert offsets(node.read(offset, max_bytes=1)) == [offset]
    assert offsets(node.read(4)) == [4, 5]
    assert offsets(node.read(5)) == [5]


def test_complete_batches_up_to_the_limit_and_at_least_one() -> None:
    node = tiered(Cluster())
    one = len(node.read(0, max_bytes=1).records)
    assert offsets(node.read(0, max_bytes=2 * one)) == [0, 1]
    assert offsets(node.read(0, max_bytes=2 * one - 1)) == [0]


def test_a_batch_larger_than_what_is_fetched_at_once_comes_in_full() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "x" * 200_000, "y")
    node.pass_time(1000)
    node.expire_local()
    assert offsets(node.read(0, max_bytes=10)) == [0]
    assert offsets(node.read(1, max_bytes=10)) == [1]
    assert offsets(node.read(0, max_bytes=300_000)) == [0, 1]


def test_bytes_are_those_the_local_log_had() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a", "b")
    node.produce(0, "c")
    before = node.read_all()
    node.pass_time(1000)
    node.expire_local()
    assert node.log.local_log_start_offset == 3
    assert node.read_all() == before


@pytest.mark.parametrize("offset", [-1, 8, 100])
def test_an_offset_outside_the_log_is_out_of_range(offset: int) -> None:
    node = tiered(Cluster())
    assert node.read(offset).code == Code.OFFSET_OUT_OF_RANGE


def test_below_the_log_start_nothing_is_read() -> None:
    """rel-T18."""
    node = tiered(Cluster())
    node.log.advance_log_start(3)
    assert node.read(2).code == Code.OFFSET_OUT_OF_RANGE
    assert offsets(node.read(3, max_bytes=1)) == [3]


def test_metadata_that_is_not_loaded_is_retriable() -> None:
    cluster = Cluster()
    node = tiered(cluster)
    cluster.has_topic = False
    fresh = Node(cluster, 1, fs=node.crash()).start().lead(1)
    assert fresh.read(0).code == Code.REPLICA_NOT_AVAILABLE


def test_a_partition_that_is_not_here_is_not_read() -> None:
    node = tiered(Cluster())
    node.run(node.tier.on_stop(WHERE, node.cluster.now_ms))
    assert node.read(0).code == Code.NOT_LEADER_OR_FOLLOWER


def test_an_outage_is_waited_out_within_the_limit() -> None:
    """F14."""
    node = tiered(Cluster())
    node.storage.fail("fetch", StorageError("503"), times=3)
    assert offsets(node.read(0, max_bytes=1)) == [0]
    node.storage.fail("fetch", StorageError("503"), times=100)
    assert node.read(0).code == Code.KAFKA_STORAGE_ERROR
    assert node.tier.services.counters.fetch_errors == 1


def test_an_object_that_is_gone_is_an_error_and_skips_nothing() -> None:
    """F15."""
    cluster = Cluster()
    node = tiered(cluster)
    del cluster.store.objects[log_key(node.segments()[1])]
    assert offsets(node.read(1)) == [1]
    assert node.read(2).code == Code.UNKNOWN_SERVER_ERROR


def test_what_expires_while_it_is_read_is_out_of_range_and_no_failure_of_the_store() -> None:
    """T59: a consumer goes to the log start then; an error of the store it would retry for ever."""
    node = tiered(Cluster())
    node.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("read ")
    answers: list[object] = []
    node.run(
        node.tier.read(
            TP, TOPIC_ID, 0, 0, 1, 0, lambda found, now_ms: answers.append(found) or [], 0
        )
    )  # type: ignore[func-returns-value]
    node.log.advance_log_start(2)
    node.pass_time(5000)
    assert [s.base_offset for s in node.segments()] == [2, 4, 6]
    node.release()
    [found] = answers
    assert isinstance(found, KafkaError)
    assert found.code == Code.OFFSET_OUT_OF_RANGE
    assert node.tier.services.counters.fetch_errors == 0


@pytest.mark.parametrize("harm", ["flip", "cut", "swap", "junk"])
def test_damaged_bytes_reach_nobody(harm: str) -> None:
    """F16, rel-T20: wrong CRC, too short, the bytes of another segment, no batch at all."""
    cluster = Cluster()
    node = tiered(cluster)
    first, second = (log_key(s) for s in node.segments()[:2])
    data = cluster.store.objects[first]
    cluster.store.objects[first] = {
        "flip": data[:-1] + bytes([data[-1] ^ 1]),
        "cut": data[:-1],
        "swap": cluster.store.objects[second],
        "junk": bytes(len(data)),
    }[harm]
    assert node.read(1).code == Code.CORRUPT_MESSAGE


def test_damage_is_reported_once_and_what_was_reported_does_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Told again is better than told of a million segments, all of them in memory."""
    monkeypatch.setattr(reader, "_WARNED_MAX", 2)
    cluster = Cluster()
    node = tiered(cluster)
    for segment in node.segments():
        del cluster.store.objects[log_key(segment)]
    for offset, reported in ((0, 1), (0, 1), (2, 2), (0, 2), (4, 3), (0, 4)):
        assert isinstance(node.read(offset), KafkaError)
        assert len([line for line in node.warnings if "is damaged" in line]) == reported


def test_a_read_that_was_damaged_on_the_way_is_fetched_once_more() -> None:
    cluster = Cluster()
    node = tiered(cluster)
    fetch = node.storage.fetch_segment
    calls = []

    def flipping(segment, position, size_bytes):  # type: ignore[no-untyped-def]
        calls.append(position)
        data = fetch(segment, position, size_bytes)
        return bytes([data[0], *data[1:-1], data[-1] ^ 1]) if len(calls) == 1 else data

    node.storage.fetch_segment = flipping  # type: ignore[method-assign]
    assert offsets(node.read(0)) == [0, 1]
    assert len(calls) == 2


def test_a_full_read_pool_fails_this_partition_with_a_retriable_code() -> None:
    node = tiered(Cluster())
    full = KafkaError(Code.THROTTLING_QUOTA_EXCEEDED, "full")
    node.storage.fail("index", full)
    assert node.read(0).code == Code.OFFSET_NOT_AVAILABLE


def test_the_fetch_quota_gives_an_empty_answer_and_no_error() -> None:
    """T38."""
    cluster = Cluster()
    node = tiered(cluster, fetch_bytes_per_second=1, fetch_quota_windows=2)
    assert offsets(node.read(0, max_bytes=1)) == [0]
    assert node.tier.services.fetch_throttle.look(node.now_ms).times == 0
    assert node.tier.services.fetch_times.look(node.now_ms).times == 1
    assert node.read(1) == RemoteLogReadResult(b"", None)
    assert node.tier.services.fetch_throttle.look(node.now_ms).times == 1, "T48"
    node.pass_time(3000)
    assert offsets(node.read(1, max_bytes=1)) == [1]


def test_a_place_beyond_the_end_of_a_segment_is_damage_and_skips_no_record() -> None:
    node = tiered(Cluster())
    segment = node.segments()[0]
    start = SearchStart(segment.size_bytes, segment.end_offset)
    with pytest.raises(Corrupt, match="ends before its last offset"):
        read_batches(node.storage, segment, start=start, offset=1, upto_offset=2, max_bytes=1)


# --------------------------------------------------------------------- histories (spec 3.20, rel-T21)


def unclean(cluster: Cluster) -> Node:
    """S3: A ships 0-1#1 of epoch 0; B lost 1 and 2, leads epoch 1 and ships 1-1#2."""
    a = Node(cluster, 1).start()
    a.lead(0)
    a.produce(0, "m0", "m1")
    a.pass_time(1000)
    a.role(is_leader=False, epoch=1)
    b = Node(cluster, 2).start()
    b.follow(a)
    b.log.truncate_to(1)
    b.log.roll(cluster.now_ms)
    b.lead(1)
    b.produce(1, "m3")
    b.produce(1, "m4", roll=False)
    b.pass_time(2000)
    b.expire_local()
    return b


def texts(data: RemoteLogReadResult | KafkaError) -> list[str]:

    assert not isinstance(data, KafkaError), data
    return [(r.value or b"").decode() for r in all_records(bytes(data.records))]  # type: ignore[arg-type]


def test_s3_records_of_a_lost_history_are_never_served() -> None:
    b = unclean(Cluster())
    assert [s.base_offset for s in b.segments()] == [0, 1]
    assert b.log.local_log_start_offset == 2
    assert texts(b.read(0)) == ["m0"], "and not m1, which the same segment holds"
    assert texts(b.read(1)) == ["m3"]


def test_s5_divergence_inside_the_tier() -> None:
    """A 0..4/0 ships 0-3#1; B ships 0-3#2 with 2:4/1; A leads epoch 2 without them and ships 4-5#3."""
    cluster = Cluster()
    a = Node(cluster, 1).start()
    a.lead(0)
    a.produce(0, "0", "1", "2", "3")
    a.produce(0, "4", roll=False)
    b = Node(cluster, 2).start()
    b.follow(a)
    b.log.truncate_to(2)
    a.pass_time(1000)
    a.role(is_leader=False, epoch=1)
    b.lead(1)
    b.produce(1, "4b", "5b")
    b.produce(1, "6b", roll=False)
    b.pass_time(1000)
    b.role(is_leader=False, epoch=2)
    a.lead(2)
    a.produce(2, "7")
    a.produce(2, "8", roll=False)
    a.pass_time(2000)
    a.expire_local()
    assert a.log.local_log_start_offset == 6
    assert a.log.epochs.entries() == ((0, 0), (2, 5))
    assert [texts(a.read(n, max_bytes=1))[0] for n in range(6)] == ["0", "1", "2", "3", "4", "7"]


# -------------------------------------------------------------------------------------- transactions


def aborted_of(node: Node, offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, int]]:
    result = node.read(offset, max_bytes=max_bytes, isolation=1)
    assert not isinstance(result, KafkaError), result
    assert result.aborted is not None
    return [(txn.producer_id, txn.first_offset) for txn in result.aborted]


def test_aborted_transactions_are_found_across_segments_and_tiers() -> None:
    """X35, T40: the marker lies in a later segment, or still in the local log."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)

    def txn(producer: int, text: str, sequence: int = 0) -> None:
        node.produce(
            0,
            text,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )

    def end(producer: int) -> None:
        node.end_transaction(0, producer, is_commit=False)

    txn(1, "a")  # 0
    node.produce(0, "plain")  # 1
    txn(2, "b")  # 2
    end(1)  # 3: aborts 0
    node.produce(0, "plain")  # 4
    end(2)  # 5: aborts 2
    node.produce(0, "tail", roll=False)  # 6
    local = [
        sorted((t.producer_id, t.first_offset) for t in node.log.aborted_transactions(n, n + 1))
        for n in range(6)
    ]
    node.pass_time(1000)
    node.expire_local()
    assert node.log.local_log_start_offset == 6
    remote = [sorted(aborted_of(node, n, max_bytes=1)) for n in range(6)]
    assert remote == local
    assert aborted_of(node, 0, max_bytes=1) == [(1, 0)]
    assert aborted_of(node, 2, max_bytes=1) == [(1, 0), (2, 2)]


def many_transactions(segments: int, *, is_aborted: bool = True) -> Node:
    """A transaction of producer 7 from offset 0 to the last segment; between, one that aborts in each."""
    node = Node(Cluster()).start().lead(0)

    def row(producer: int, *, commits: bool | None = None, sequence: int = 0) -> None:
        kind = b"\0\0\0\1" if commits else b"\0\0\0\0"
        is_end = commits is not None
        batch = build_batch(
            [NewRecord(kind if is_end else None, bytes(6), node.cluster.now_ms)],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=-1 if is_end else sequence,
            is_transactional=True,
            is_control=is_end,
        )
        origin = "coordinator" if is_end else "client"
        made = node.log.append_as_leader(
            batch,
            leader_epoch=0,
            now_ms=node.cluster.now_ms,
            origin=origin,  # type: ignore[arg-type]
        )
        assert isinstance(made, Appended), made

    row(7)
    for number in range(segments):
        row(9, sequence=number)
        row(9, commits=False)
        node.log.roll(node.cluster.now_ms)
    row(7, commits=not is_aborted)
    node.log.roll(node.cluster.now_ms)
    node.log.sync_now()
    node.log.advance_high_watermark(node.log.log_end_offset)
    node.pass_time(3000)
    node.expire_local()
    return node


@pytest.mark.parametrize("is_aborted", [True, False])
def test_a_transaction_over_many_segments_is_found_or_not_as_it_ended(is_aborted: bool) -> None:
    node = many_transactions(40, is_aborted=is_aborted)
    assert node.log.local_log_start_offset == 82
    for _ in range(2):  # the second time, all that was looked at is in memory
        assert aborted_of(node, 0, max_bytes=1) == ([(7, 0)] if is_aborted else [])
    assert sorted(aborted_of(node, 1, max_bytes=1)) == ([(7, 0)] * is_aborted + [(9, 1)])
    assert sorted(aborted_of(node, 79, max_bytes=1)) == ([(7, 0)] * is_aborted + [(9, 79)])


def test_uncommitted_readers_get_no_list() -> None:
    assert tiered(Cluster()).read(0).aborted is None
    assert tiered(Cluster()).read(0, isolation=1).aborted == []


# --------------------------------------------------------------------------------------------- time


def at_time(node: Node, timestamp_ms: int) -> object:
    answers: list[object] = []

    def then(result: object, now_ms: int) -> Effects:
        answers.append(result)
        return []

    node.run(node.tier.offset_for_timestamp(TP, TOPIC_ID, timestamp_ms, then, node.cluster.now_ms))
    node.pass_time(3000)
    assert len(answers) == 1
    return answers[0]


def test_the_first_record_of_a_time_is_found_in_the_tier() -> None:
    cluster = Cluster()
    begin = cluster.now_ms
    node = tiered(cluster)
    assert at_time(node, 0) == RemoteOffset(0, begin, 0)
    assert at_time(node, begin) == RemoteOffset(0, begin, 0)
    assert at_time(node, begin + 1) == RemoteOffset(2, begin + 10, 0)
    assert at_time(node, begin + 30) == RemoteOffset(6, begin + 30, 0)
    assert at_time(node, begin + 31) is None, "only local files can have it"
    node.log.advance_log_start(1)
    assert at_time(node, begin) == RemoteOffset(1, begin, 0)


def test_the_end_of_a_transaction_is_no_record_of_a_time() -> None:
    """A consumer that begins at a time would begin at an offset that no record has."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    begin = cluster.now_ms
    of_txn = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    node.produce(0, "a", roll=False, base_sequence=0, **of_txn)
    cluster.now_ms += 10
    end = build_batch(
        [NewRecord(encode_key(ControlType.COMMIT), bytes(6), cluster.now_ms)],
        is_control=True,
        **of_txn,  # type: ignore[arg-type]
    )
    node.log.append_as_leader(end, leader_epoch=0, now_ms=cluster.now_ms, origin="coordinator")
    cluster.now_ms += 10
    node.produce(0, "b")
    node.pass_time(1000)
    node.expire_local()
    assert at_time(node, begin + 1) == RemoteOffset(2, begin + 20, 0)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_in_the_tier_that_nobody_can_read_is_an_error_for_its_time(codec: int) -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    poison = raw_batch(b"this is no compressed data", codec=codec)
    result = node.log.append_as_leader(poison, leader_epoch=0, now_ms=cluster.now_ms)
    assert isinstance(result, Appended), result
    begin = cluster.now_ms
    node.produce(0, "good")
    node.pass_time(1000)
    node.expire_local()
    found = at_time(node, 1)
    assert isinstance(found, KafkaError)
    assert found.code == Code.UNKNOWN_SERVER_ERROR
    assert at_time(node, begin) == RemoteOffset(1, begin, 0), "it cannot have such a record"


def test_a_segment_whose_newest_record_was_deleted_is_passed_over_for_a_time() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    begin = cluster.now_ms
    for later_ms, text in ((100, "gone"), (0, "old"), (200, "found")):
        cluster.now_ms = begin + later_ms
        node.produce(0, text, roll=text != "gone")
    node.pass_time(1000)
    node.expire_local()
    node.log.advance_log_start(1)
    assert at_time(node, begin + 80) == RemoteOffset(2, begin + 200, 0)


def test_a_segment_that_is_also_local_is_not_fetched_for_a_time() -> None:
    """X43."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a")
    node.pass_time(1000)
    node.storage.calls.clear()
    assert at_time(node, 0) is None
    assert node.storage.calls == []


def test_a_time_is_not_found_in_a_lost_history() -> None:
    cluster = Cluster()
    b = unclean(cluster)
    found = at_time(b, 0)
    assert isinstance(found, RemoteOffset)
    assert (found.offset, found.leader_epoch) == (0, 0)
    later = at_time(b, found.timestamp + 1)
    assert isinstance(later, RemoteOffset)
    assert (later.offset, later.leader_epoch) == (1, 1), "m3 of epoch 1, not m1"


def test_an_index_that_misleads_again_after_it_was_made_anew_is_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A header that says another time than its records would have the segment read for ever."""
    checks: list[int] = []

    def misled(*_: object, **__: object) -> None:
        checks.append(1)
        if len(checks) < 10:
            raise Misled("a time index passes over a record")

    monkeypatch.setattr(reader, "find_timestamp", misled)
    node = tiered(Cluster())
    found = at_time(node, 0)
    assert isinstance(found, KafkaError)
    assert found.code == Code.CORRUPT_MESSAGE
    assert len(checks) == len([name for name in node.trace if name.startswith("indexes of")]) == 3


def test_a_time_search_in_a_store_that_is_down_fails_in_time() -> None:
    node = tiered(Cluster())
    node.storage.fail("fetch", StorageError("503"), times=100)
    found = at_time(node, 0)
    assert isinstance(found, KafkaError)
    assert found.code == Code.KAFKA_STORAGE_ERROR


# -------------------------------------------------------------------------------------- followers


def aux(node: Node, epoch: int, offset: int) -> AuxState | KafkaError:
    answers: list[AuxState | KafkaError] = []

    def then(result: AuxState | KafkaError, now_ms: int) -> Effects:
        answers.append(result)
        return []

    node.run(
        node.tier.aux_state(
            WHERE, epoch=epoch, offset=offset, then=then, now_ms=node.cluster.now_ms
        )
    )
    return answers[0]


def test_a_follower_gets_the_epochs_and_producers_of_the_segment_below_its_start() -> None:
    """T30, T31."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a", producer_id=5, producer_epoch=0, base_sequence=0)
    node.lead(2)
    node.produce(2, "b", "c")
    node.pass_time(1000)
    found = aux(node, 2, 2)
    assert isinstance(found, AuxState)
    assert (found.segment.base_offset, found.segment.end_offset) == (1, 2)
    assert found.epochs == ((0, 0), (2, 1))
    from firnline.formats.producer_snapshot import decode_snapshot

    (producer,) = decode_snapshot(found.producer_snapshot)
    assert (producer.producer_id, producer.last_offset) == (5, 0)


def test_a_follower_does_not_take_over_epochs_that_were_changed_in_the_store() -> None:
    """They parse, and say the same of the segment; below it they would be another history."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a")
    node.lead(2)
    node.produce(2, "b", "c")
    node.pass_time(1000)
    key = log_key(node.segments()[1]).removesuffix(".log") + LEADER_EPOCHS
    assert cluster.store.objects[key] == b"0\n2\n0 0\n2 1\n"
    cluster.store.objects[key] = b"0\n2\n1 0\n2 1\n"
    found = aux(node, 2, 2)
    assert isinstance(found, KafkaError)
    assert found.code == Code.CORRUPT_MESSAGE


def test_a_follower_searches_again_in_all_that_is_committed_by_now() -> None:
    """What the leader gave up is in the metadata; a leader that goes on copying would be chased for ever."""
    cluster = Cluster()
    leader = Node(cluster, 1).start().lead(0)
    leader.produce(0, "a", "b")
    leader.pass_time(1000)
    follower = Node(cluster, 2).start()
    follower.role(is_leader=False, epoch=0)
    feed = follower.feed
    partition = follower.tier.services.metadata.partition_of(WHERE)  # type: ignore[attr-defined]
    feed.hidden[partition] = feed.cluster.ends[partition]
    leader.produce(0, "c", "d")
    leader.pass_time(1000)
    follower.pass_time(1000)
    assert follower.segments()[-1].end_offset < 3, "it knows already, so nothing is tried"

    bounds = feed.bounds
    is_asking: list[int] = []

    def caught_up(positions: Any, then: Any, now_ms: int, *, is_fresh: bool = False) -> Effects:
        if not is_fresh:
            return []
        is_asking.append(1)  # until the answer has come, where it ends is not known

        def came(at_ms: int) -> Effects:
            is_asking.clear()
            feed.hidden.clear()
            return then(partition, at_ms)

        return [SetTimer(key="the answer", at_ms=now_ms + 50, then=came)]

    feed.catch_up = caught_up  # type: ignore[method-assign]
    feed.bounds = lambda partition: None if is_asking else bounds(partition)  # type: ignore[method-assign]
    answers: list[Any] = []
    then = lambda found, now_ms: answers.append(found) or []  # noqa: E731
    follower.run(
        follower.tier.aux_state(WHERE, epoch=0, offset=3, then=then, now_ms=cluster.now_ms)
    )
    assert answers == []
    follower.pass_time(100)
    [found] = answers
    assert isinstance(found, AuxState), found
    assert found.segment.end_offset == 3


def test_a_follower_that_waits_for_metadata_in_vain_learns_so() -> None:
    cluster = Cluster()
    follower = Node(cluster, 2).start()
    follower.role(is_leader=False, epoch=0)
    follower.feed.bounds = lambda partition: None  # type: ignore[method-assign]
    answers: list[Any] = []
    then = lambda found, now_ms: answers.append(found) or []  # noqa: E731
    follower.run(
        follower.tier.aux_state(WHERE, epoch=0, offset=3, then=then, now_ms=cluster.now_ms)
    )
    follower.pass_time(20_000)
    [found] = answers
    assert isinstance(found, KafkaError)
    assert found.code == Code.REPLICA_NOT_AVAILABLE


def test_a_follower_that_is_too_early_shall_try_again() -> None:
    node = tiered(Cluster())
    missing = aux(node, 7, 3)
    assert isinstance(missing, KafkaError)
    assert missing.code == Code.OFFSET_OUT_OF_RANGE
    node.storage.fail("index", ObjectMissing("gone"))
    gone = aux(node, 0, 3)
    assert isinstance(gone, KafkaError)
    assert gone.code == Code.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("how", ["switched off", "moved away"])
def test_a_follower_that_waits_for_news_is_notified_when_the_tier_is_no_more(how: str) -> None:
    """Nobody else ends its wait: it would follow the partition no further."""
    cluster = Cluster()
    follower = Node(cluster, 2).start()
    follower.role(is_leader=False, epoch=0)
    follower.feed.bounds = lambda partition: None  # type: ignore[method-assign]
    answers: list[Any] = []
    then = lambda found, now_ms: answers.append(found) or []  # noqa: E731
    follower.run(
        follower.tier.aux_state(WHERE, epoch=0, offset=3, then=then, now_ms=cluster.now_ms)
    )
    assert answers == []
    if how == "switched off":
        follower.log.config = topic_config(remote_storage_enable=False)
        follower.role(is_leader=False, epoch=0)
    else:
        follower.run(follower.tier.on_stop(WHERE, cluster.now_ms))
    assert [found.code for found in answers] == [Code.NOT_LEADER_OR_FOLLOWER]
    follower.pass_time(60_000)
    assert len(answers) == 1
