"""Fetch over partitions: limits, order, waiting, and the tier."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from firnline.base.effects import Appended, Effects
from firnline.base.errors import Code, KafkaError, ProtocolError
from firnline.base.ids import ZERO_UUID, TopicPartition
from firnline.base.units import MIB
from firnline.broker.fetch import FetchAnswer, Fetching
from firnline.broker.fetch_session import FetchAsk, FetchSessions, Wanted
from firnline.broker.produce import Producing
from firnline.records.batch import HEADER
from firnline.replica.isr import BrokerFact, NoBrokers
from firnline.replica.partition import Partition
from firnline.replica.read import Local
from firnline.tiered.reads.reader import RemoteLogReadResult
from tests.worlds.chance import CountingRng
from tests.worlds.effects import told
from tests.worlds.hosting import ELSEWHERE_ID, Calls, hosted
from tests.worlds.list_log import TOPIC_ID, batch, batch_bytes, log_of, partition

REMOTE_WAIT_MS = 500
ONE = batch_bytes()


class Tier:
    """A remote tier that answers when the test says so; `full` refuses as a full pool does."""

    def __init__(self) -> None:
        self.asked: list[tuple[TopicPartition, int, int, int]] = []
        self.waiting: list[Callable[[RemoteLogReadResult | KafkaError, int], Effects]] = []
        self.stopped: list[Callable[[RemoteLogReadResult | KafkaError, int], Effects]] = []
        self.full = False
        self.late: tuple[
            int, ...
        ] = ()  # partitions whose reads an earlier Fetch has waited for, too

    def read(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        offset: int,
        epoch: int,
        max_bytes: int,
        isolation: int,
        then: Callable[[RemoteLogReadResult | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        self.asked.append((topic_partition, offset, epoch, max_bytes))
        if self.full:
            return then(KafkaError(Code.THROTTLING_QUOTA_EXCEEDED), 0)
        self.waiting.append(then)
        return []

    def stop_read(
        self, then: Callable[[RemoteLogReadResult | KafkaError, int], Effects], now_ms: int
    ) -> Effects:
        self.stopped.append(then)
        partition = (
            self.asked[self.waiting.index(then)][0].partition if then in self.waiting else -1
        )
        return then(KafkaError(Code.KAFKA_STORAGE_ERROR), now_ms) if partition in self.late else []


class Consumer:
    """Fetches and notes answers as [(partition, bytes or error code), ...]."""

    def __init__(self, *partitions: Partition, max_bytes: int = 50 * MIB, tiered: bool = False):
        self.world = Calls()
        self.tier = Tier()
        self.hosted = hosted(*partitions)
        self.fetching = Fetching(
            self.hosted,
            FetchSessions(sessions_max=10, eviction_ms=1000, rng=CountingRng(numbers=count(1))),
            max_bytes=max_bytes,
            remote_read=self.tier.read if tiered else None,
            remote_max_wait_ms=REMOTE_WAIT_MS,
            stop_remote_read=self.tier.stop_read,
            on_follower=lambda partition, now_ms: [],
        )
        self.producing = Producing(lambda p, now: [])
        self.answers: list[Any] = []

    def fetch(self, *wanted: Wanted, max_bytes: int = 50 * MIB, **more: Any) -> None:
        ask = FetchAsk(wanted, max_bytes=max_bytes, **more)
        self.world.run(self.fetching.fetch(ask, self._answer, self.world.now_ms))

    def _answer(self, answer: FetchAnswer) -> Effects:
        if answer.error is not None:
            self.answers.append(answer.error.code)
        else:
            self.answers.append([(w.index, _short(o)) for w, o in answer.outcomes])
        return []

    def produce(self, to: Partition, records: int = 1) -> None:
        self.world.run(
            self.producing.produce(
                [(to, batch(records))], acks=1, timeout_ms=0, answer=lambda o, now_ms: [], now_ms=0
            )
        )

    def remote(self, result: RemoteLogReadResult | KafkaError) -> None:
        self.world.run(self.tier.waiting.pop(0)(result, self.world.now_ms))


def _short(outcome: object) -> Any:
    if isinstance(outcome, Local):
        return len(outcome.records)
    return outcome.code if isinstance(outcome, KafkaError) else outcome


def want(index: int = 0, offset: int = 0, topic: str | None = "t", **more: Any) -> Wanted:
    more.setdefault("max_bytes", MIB)
    topic_id = more.pop("topic_id", ZERO_UUID)
    return Wanted(topic, topic_id, index, fetch_offset=offset, **more)


def filled(index: int = 0, batches: int = 1, topic: str = "t") -> Partition:
    p = partition(topic, index)
    for _ in range(batches):
        p.append(batch(), acks=1, now_ms=0)
    return p


# ----------------------------------------------------------------------------------------- limits


def test_partitions_are_read_in_the_order_asked() -> None:
    consumer = Consumer(filled(0), filled(1))
    consumer.fetch(want(1), want(0), min_bytes=1, max_wait_ms=500)
    assert consumer.answers == [[(1, ONE), (0, ONE)]]


def test_the_first_batch_is_returned_in_full_and_the_rest_within_the_limit() -> None:
    consumer = Consumer(filled(0, 3), filled(1, 3))
    consumer.fetch(want(0, max_bytes=1), want(1, max_bytes=1), max_bytes=1)
    assert consumer.answers == [[(0, ONE), (1, 0)]]


def test_the_limit_of_the_request_is_shared() -> None:
    consumer = Consumer(filled(0, 3), filled(1, 3), filled(2, 3))
    consumer.fetch(want(0), want(1), want(2), max_bytes=5 * ONE)
    assert consumer.answers == [[(0, 3 * ONE), (1, 2 * ONE), (2, 0)]]


def test_the_brokers_own_limit_holds_whatever_is_asked() -> None:
    consumer = Consumer(filled(0, 3), filled(1, 3), max_bytes=4 * ONE)
    consumer.fetch(want(0), want(1), max_bytes=2**31 - 1)
    assert consumer.answers == [[(0, 3 * ONE), (1, ONE)]]


def test_the_limit_of_a_partition_holds_after_its_first_batch() -> None:
    consumer = Consumer(filled(0, 3), filled(1, 3))
    consumer.fetch(want(0, max_bytes=2 * ONE), want(1, max_bytes=ONE - 1))
    assert consumer.answers == [[(0, 2 * ONE), (1, 0)]]


# ----------------------------------------------------------------------------------------- errors


def test_unknown_names_unknown_ids_and_foreign_partitions_are_distinguished() -> None:
    consumer = Consumer(filled())
    consumer.fetch(want(9), want(0, topic="elsewhere"))
    by_id: Any = {"topic": None, "uses_ids": True}
    del by_id["uses_ids"]
    consumer.fetch(
        want(0, topic_id=TOPIC_ID, **by_id),
        want(0, topic_id=b"\x01" * 16, **by_id),
        want(0, topic_id=ELSEWHERE_ID, **by_id),
        want(0, topic_id=ZERO_UUID, **by_id),
        uses_ids=True,
    )
    assert consumer.answers == [
        [(9, Code.UNKNOWN_TOPIC_OR_PARTITION), (0, Code.NOT_LEADER_OR_FOLLOWER)],
        [
            (0, ONE),
            (0, Code.UNKNOWN_TOPIC_ID),
            (0, Code.NOT_LEADER_OR_FOLLOWER),
            (0, Code.UNKNOWN_TOPIC_ID),
        ],
    ]


def test_an_error_is_not_kept_waiting() -> None:
    consumer = Consumer(filled())
    consumer.fetch(want(0, 1), want(0, 99), min_bytes=1, max_wait_ms=500)
    assert consumer.answers == [[(0, 0), (0, Code.OFFSET_OUT_OF_RANGE)]]


def test_who_claims_to_be_a_replica_reads_nothing() -> None:
    consumer = Consumer(filled())
    consumer.fetch(want(0), replica_id=9)
    assert consumer.answers == [[(0, Code.NOT_LEADER_OR_FOLLOWER)]]


def test_an_unknown_session_is_an_error_of_the_entire_request() -> None:
    consumer = Consumer(filled())
    consumer.fetch(session_id=5, session_epoch=3)
    assert consumer.answers == [Code.FETCH_SESSION_ID_NOT_FOUND]


# ---------------------------------------------------------------------------------------- waiting


def test_a_fetch_with_too_few_bytes_waits_for_more_and_no_longer() -> None:
    p = filled()
    consumer = Consumer(p)
    consumer.fetch(want(0), min_bytes=2 * ONE + 1, max_wait_ms=500)
    assert consumer.answers == []
    consumer.produce(p)
    assert consumer.answers == []
    consumer.produce(p)
    assert consumer.answers == [[(0, 3 * ONE)]]
    assert consumer.world.timers == {}
    assert len(p.fetch_waiters) == 0


def test_a_fetch_whose_client_has_gone_leaves_nothing_behind() -> None:
    p = filled()
    consumer = Consumer(p)
    gone: list[Any] = []
    many = [want(0, 1) for _ in range(50)]
    for _ in range(20):
        consumer.fetch(*many, min_bytes=1, max_wait_ms=2**31 - 1, when_gone=gone.append)
    assert len(p.fetch_waiters) == 20
    for abandon in gone:
        consumer.world.run(abandon(consumer.world.now_ms))
        assert abandon(consumer.world.now_ms) == []
    assert len(p.fetch_waiters) == 0
    assert consumer.world.timers == {}
    consumer.produce(p)
    assert consumer.answers == []


def test_who_has_gone_after_the_answer_changes_nothing() -> None:
    p = filled()
    consumer = Consumer(p)
    gone: list[Any] = []
    consumer.fetch(want(0, 1), min_bytes=1, max_wait_ms=500, when_gone=gone.append)
    consumer.produce(p)
    assert consumer.answers == [[(0, ONE)]]
    assert gone[0](consumer.world.now_ms) == []


def test_a_fetch_is_answered_when_its_time_is_over() -> None:
    p = filled()
    consumer = Consumer(p)
    consumer.fetch(want(0, 1), min_bytes=1, max_wait_ms=500)
    consumer.world.pass_time(499)
    assert consumer.answers == []
    consumer.world.pass_time(1)
    assert consumer.answers == [[(0, 0)]]
    assert len(p.fetch_waiters) == 0
    consumer.produce(p)
    assert len(consumer.answers) == 1


@pytest.mark.parametrize("asked", [{"min_bytes": 1, "max_wait_ms": 0}, {"max_wait_ms": 500}])
def test_who_does_not_want_to_wait_does_not(asked: dict[str, int]) -> None:
    consumer = Consumer(partition())
    consumer.fetch(want(0), **asked)
    assert consumer.answers == [[(0, 0)]]


def test_an_append_elsewhere_wakes_nobody() -> None:
    p, other = filled(0), filled(1)
    consumer = Consumer(p, other)
    consumer.fetch(want(0, 1), min_bytes=1, max_wait_ms=500)
    consumer.produce(other)
    assert consumer.answers == []


def test_more_than_the_limit_is_not_waited_for() -> None:
    p = filled()
    consumer = Consumer(p, max_bytes=ONE)
    consumer.fetch(want(0), min_bytes=100 * ONE, max_wait_ms=500)
    assert consumer.answers == [[(0, ONE)]]


def test_a_partition_that_moves_ends_the_wait() -> None:
    p = filled()
    consumer = Consumer(p)
    consumer.fetch(want(0, 1), min_bytes=1, max_wait_ms=500)
    p.update(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=[1, 2], isr=[2])
    consumer.world.run(p.fetch_waiters.all_at_once(0))
    assert consumer.answers == [[(0, Code.NOT_LEADER_OR_FOLLOWER)]]


def test_a_session_that_waits_is_answered_with_news_alone() -> None:
    p, other = filled(0), filled(1)
    consumer = Consumer(p, other)
    consumer.fetch(want(0, 1), want(1, 1), session_epoch=0)
    session: Any = {"session_id": 2, "min_bytes": 1, "max_wait_ms": 500}
    consumer.fetch(session_epoch=1, **session)
    consumer.produce(other)
    consumer.fetch(want(1, 2), session_epoch=2, **session)
    consumer.world.pass_time(500)
    assert consumer.answers == [[(0, 0), (1, 0)], [(1, ONE)], []]


def test_a_busy_partition_does_not_starve_the_others_of_a_session() -> None:
    busy, quiet = filled(0, 100), filled(1)
    consumer = Consumer(busy, quiet)
    consumer.fetch(want(0), want(1), max_bytes=ONE, session_epoch=0)
    consumer.fetch(want(0, 1), max_bytes=ONE, session_id=2, session_epoch=1)
    consumer.fetch(want(0, 2), max_bytes=ONE, session_id=2, session_epoch=2)
    brought = [[index for index, size in answer if size] for answer in consumer.answers]
    assert brought == [[0], [0], [1]]


# ------------------------------------------------------------------------------------------- tier


def tiered(index: int = 0) -> Partition:
    """Offsets 0-4 are in the tier alone, 5-9 are local too."""
    p = filled(index, 10)
    log_of(p).local_log_start_offset = 5
    return p


def remote(size: int) -> RemoteLogReadResult:
    return RemoteLogReadResult(b"r" * size, None)


def test_what_local_files_no_longer_have_comes_from_the_tier() -> None:
    consumer = Consumer(tiered(), tiered=True)
    consumer.fetch(want(0, 2, max_bytes=1000))
    assert consumer.tier.asked == [(TopicPartition("t", 0), 2, 3, 1000)]
    assert consumer.answers == []
    consumer.remote(remote(70))
    assert consumer.answers == [[(0, 70)]]
    assert consumer.world.timers == {}


def test_several_remote_partitions_are_read_at_once_within_the_limit() -> None:
    consumer = Consumer(tiered(0), tiered(1), tiered(2), tiered=True)
    consumer.fetch(
        want(0, max_bytes=600), want(1, max_bytes=600), want(2, max_bytes=600), max_bytes=1000
    )
    assert [(tp.partition, size) for tp, _, _, size in consumer.tier.asked] == [(0, 600), (1, 400)]
    consumer.remote(remote(10))
    consumer.remote(remote(20))
    assert consumer.answers == [[(0, 10), (1, 20), (2, 0)]]


@pytest.mark.parametrize("isolation", [0, 1])
def test_what_only_the_tier_has_is_empty_where_local_records_take_all_the_room(
    isolation: int,
) -> None:
    """An ordinary consumer that reads one partition at its end and lags in another."""
    consumer = Consumer(filled(0, 3), tiered(1), tiered=True)
    consumer.fetch(want(0), want(1), max_bytes=3 * ONE, min_bytes=1, isolation=isolation)
    assert consumer.tier.asked == []
    assert consumer.answers == [[(0, 3 * ONE), (1, 0)]]


class Bounded:
    """Where the bytes of one connection's answers are counted, 100 at most; reads of the tier: `room`."""

    def __init__(self, room: int = 10 * MIB) -> None:
        self.bytes = 0
        self.room = room

    def grow(self, size_bytes: int) -> None:
        self.bytes += size_bytes
        if self.bytes > 100:
            raise ProtocolError("the response is larger than all responses may be")

    def waits(self) -> None:
        self.bytes = 0

    def reserve(self, size_bytes: int) -> bool:
        if self.room <= 0:
            return False
        self.room -= size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        self.room += size_bytes


def test_no_read_of_the_tier_begins_without_memory_and_the_others_are_answered() -> None:
    """F17. A client that has too little is answered after its wait, so that it does not spin."""
    held = Bounded(room=1500)
    consumer = Consumer(tiered(0), tiered(1), tiered(2), tiered=True)
    wanted = [want(n, max_bytes=1000) for n in range(3)]
    consumer.fetch(*wanted, held=held)
    assert [each[0].partition for each in consumer.tier.asked] == [0, 1]
    assert held.room == -500
    consumer.remote(remote(10))
    assert held.room == 500
    consumer.remote(remote(20))
    assert consumer.answers == [[(0, 10), (1, 20), (2, 0)]]
    assert held.room == 1500
    held.room = 0
    consumer.fetch(want(0), held=held, min_bytes=1, max_wait_ms=100)
    assert (len(consumer.tier.asked), len(consumer.answers)) == (2, 1)
    consumer.world.pass_time(100)
    assert consumer.answers[1:] == [[(0, 0)]]
    assert held.room == 0


def test_memory_for_reads_of_the_tier_is_released_when_nobody_waits_for_them() -> None:
    held = Bounded(room=MIB)
    gone: list[Callable[[int], Effects]] = []
    consumer = Consumer(tiered(0), tiered=True)
    consumer.fetch(want(0), held=held)
    assert held.room == 0
    consumer.world.pass_time(REMOTE_WAIT_MS)
    assert held.room == MIB
    consumer.fetch(want(0), held=held, when_gone=gone.append)
    assert held.room == 0
    consumer.world.run(gone[0](0))
    assert held.room == MIB
    for _ in range(2):
        consumer.remote(remote(10))
    assert held.room == MIB


def test_what_came_from_the_tier_is_counted_while_it_waits_for_the_rest() -> None:
    """And a fetch that is larger than all answers may be is no failure of the tier's own step."""
    held = Bounded()
    consumer = Consumer(tiered(0), tiered(1), tiered(2), tiered=True)
    consumer.fetch(want(0), want(1), want(2), held=held)
    consumer.remote(remote(70))
    assert held.bytes == 70
    consumer.remote(remote(70))
    assert held.bytes == 140
    consumer.remote(remote(10))
    assert consumer.answers == [[(0, 70), (1, 70), (2, 10)]]


def test_nothing_is_held_for_a_client_that_waits_for_more_than_there_is() -> None:
    held = Bounded()
    consumer = Consumer(tiered(0), tiered=True)
    consumer.fetch(want(0), min_bytes=1, max_wait_ms=60_000, held=held)
    held.grow(50)
    consumer.remote(remote(0))
    assert held.bytes == 0


def test_a_tail_is_not_kept_waiting_longer_than_the_remote_wait() -> None:
    consumer = Consumer(tiered(0), filled(1), tiered(2), tiered=True)
    consumer.fetch(want(0), want(1), want(2), min_bytes=1, max_wait_ms=60_000)
    consumer.remote(remote(10))
    consumer.world.pass_time(REMOTE_WAIT_MS - 1)
    assert consumer.answers == []
    consumer.world.pass_time(1)
    assert consumer.answers == [[(0, 10), (1, ONE), (2, 0)]]
    consumer.remote(remote(10))
    assert len(consumer.answers) == 1


def test_a_fetch_leaves_the_reads_of_the_tier_that_it_does_not_wait_for_any_more() -> None:
    consumer = Consumer(tiered(0), tiered(1), tiered=True)
    consumer.fetch(want(0), want(1))
    slow = consumer.tier.waiting[1]
    consumer.remote(remote(10))
    consumer.world.pass_time(REMOTE_WAIT_MS)
    assert consumer.answers == [[(0, 10), (1, 0)]]
    assert slow in consumer.tier.stopped
    assert consumer.fetching.remote_expired == 1


@pytest.mark.parametrize("late", [(0,), (1,), (0, 1)])
def test_a_read_that_outlives_another_fetch_is_an_error_and_the_others_are_answered_as_ever(
    late: tuple[int, ...],
) -> None:
    held = Bounded(room=3 * MIB)
    consumer = Consumer(tiered(0), tiered(1), filled(2), tiered=True)
    consumer.tier.late = late
    consumer.fetch(want(0), want(1), want(2), min_bytes=1, held=held)
    consumer.world.pass_time(REMOTE_WAIT_MS)
    rows = [(each, Code.KAFKA_STORAGE_ERROR if each in late else 0) for each in (0, 1)]
    assert consumer.answers == [[*rows, (2, ONE)]]
    assert held.room == 3 * MIB, "what was reserved is released once"
    assert consumer.world.timers == {}
    consumer.remote(remote(10))
    assert len(consumer.answers) == 1


def test_the_error_of_a_late_read_is_sent() -> None:
    """What its last partition brings is the answer itself."""
    consumer = Consumer(tiered(0), tiered=True)
    consumer.tier.late = (0,)
    ask = FetchAsk([want(0)], max_bytes=MIB)
    sent: Effects = [told("sent")]
    consumer.world.run(consumer.fetching.fetch(ask, lambda answer: sent, 0))
    consumer.world.pass_time(REMOTE_WAIT_MS)
    assert consumer.world.notes == ["sent"]


def test_who_has_gone_is_told_nothing_of_a_late_read() -> None:
    consumer = Consumer(tiered(0), tiered=True)
    consumer.tier.late = (0,)
    gone: list[Any] = []
    consumer.fetch(want(0), when_gone=gone.append)
    consumer.world.run(gone[0](consumer.world.now_ms))
    assert (consumer.answers, consumer.world.timers) == ([], {})


def test_a_fetch_that_was_answered_in_time_has_nothing_to_leave() -> None:
    consumer = Consumer(tiered(0), tiered=True)
    consumer.fetch(want(0))
    consumer.remote(remote(10))
    assert (consumer.answers, consumer.tier.stopped) == ([[(0, 10)]], [])


def test_who_has_gone_while_the_tier_is_read_waits_for_nothing() -> None:
    consumer = Consumer(tiered(0), tiered=True)
    gone: list[Any] = []
    consumer.fetch(want(0), when_gone=gone.append)
    [abandon] = gone
    waiting = list(consumer.tier.waiting)
    consumer.world.run(abandon(consumer.world.now_ms))
    assert consumer.tier.stopped == waiting
    assert consumer.world.timers == {}
    consumer.remote(remote(10))
    assert consumer.answers == []


def test_trouble_in_the_tier_is_one_partitions_trouble() -> None:
    consumer = Consumer(tiered(0), filled(1), tiered=True)
    consumer.fetch(want(0), want(1))
    consumer.remote(KafkaError(Code.REPLICA_NOT_AVAILABLE))
    assert consumer.answers == [[(0, Code.REPLICA_NOT_AVAILABLE), (1, ONE)]]


def test_the_answer_of_a_tier_within_the_call_counts() -> None:
    consumer = Consumer(tiered(0), tiered(1), tiered=True)
    consumer.tier.full = True
    consumer.fetch(want(0), want(1))
    assert consumer.answers == [[(0, Code.THROTTLING_QUOTA_EXCEEDED), (1, 89)]]
    assert consumer.world.timers == {}


def test_a_tier_with_nothing_to_give_makes_no_client_spin() -> None:
    p = tiered(0)
    consumer = Consumer(p, tiered=True)
    consumer.fetch(want(0), min_bytes=1, max_wait_ms=300)
    consumer.remote(remote(0))
    assert consumer.answers == []
    consumer.world.pass_time(300)
    assert consumer.answers == [[(0, 0)]]
    assert len(p.fetch_waiters) == 0


def test_aborted_transactions_of_the_tier_reach_readers_of_committed_records() -> None:
    consumer = Consumer(tiered(), tiered=True)
    outcomes: list[Any] = []
    ask = FetchAsk([want(0)], max_bytes=MIB, isolation=1)

    def answer(got: FetchAnswer) -> Effects:
        outcomes.extend(o for _, o in got.outcomes)
        return []

    consumer.world.run(consumer.fetching.fetch(ask, answer, 0))
    consumer.remote(RemoteLogReadResult(b"r", [("aborted", 1)]))  # type: ignore[list-item]
    assert outcomes == [Local(b"r", 10, 10, 0, [("aborted", 1)])]  # type: ignore[list-item]


def test_without_a_tier_what_is_gone_is_empty_and_not_a_crash() -> None:
    consumer = Consumer(tiered())
    consumer.fetch(want(0, 2))
    assert consumer.answers == [[(0, Code.OFFSET_OUT_OF_RANGE)]]


# --------------------------------------------------------------------------------------- followers


def led(records: int = 0) -> Partition:
    """A partition with one follower in its ISR, broker 2, which has not said anything yet."""
    p = partition(isr=(1, 2))
    if records:
        p.append(batch(records), acks=1, now_ms=0)
    return p


def follow(offset: int, **more: Any) -> Wanted:
    return want(0, offset, leader_epoch=3, log_start_offset=0, **more)


def test_a_follower_reads_what_is_not_committed_and_commits_it_by_asking_for_more() -> None:
    p = led(1)
    consumer = Consumer(p)
    consumer.fetch(follow(0), replica_id=2, max_wait_ms=500, min_bytes=1)
    assert consumer.answers == [[(0, ONE)]]
    assert log_of(p).high_watermark == 0
    consumer.fetch(follow(1), replica_id=2, max_wait_ms=500, min_bytes=1)
    assert log_of(p).high_watermark == 1


def test_a_follower_at_the_end_is_woken_by_an_append_that_nobody_committed_yet() -> None:
    p = led()
    consumer = Consumer(p)
    consumer.fetch(want(0), min_bytes=1, max_wait_ms=500)
    consumer.fetch(follow(0), replica_id=2, min_bytes=1, max_wait_ms=500)
    consumer.produce(p)
    assert consumer.answers == [[(0, ONE)]], "the follower alone: the consumer may not see it yet"
    consumer.fetch(follow(1), replica_id=2, min_bytes=1, max_wait_ms=500)
    assert consumer.answers == [[(0, ONE)], [(0, ONE)]]


def test_a_follower_waits_for_records_and_not_for_the_watermark() -> None:
    p = partition(isr=(1, 2, 3))
    p.append(batch(), acks=1, now_ms=0)
    consumer = Consumer(p)
    consumer.fetch(follow(1), replica_id=2, min_bytes=1, max_wait_ms=500)
    consumer.fetch(follow(1), replica_id=3, min_bytes=1, max_wait_ms=500)
    assert (log_of(p).high_watermark, consumer.answers) == (1, [])


def test_a_follower_that_waits_is_notified_of_a_batch_whose_header_was_checked_before() -> None:
    p = led()
    consumer = Consumer(p)
    consumer.fetch(follow(0), replica_id=2, min_bytes=1, max_wait_ms=500)
    data, woken = batch(), list[Any]()
    header = (*HEADER.unpack_from(data), 0)
    producing = Producing(lambda bad, now_ms: [])
    done = producing.append_checked(p, memoryview(data), header, 1, woken, 0)
    assert isinstance(done, Appended)
    consumer.world.run(woken)
    assert consumer.answers == [[(0, ONE)]]


def test_what_a_follower_waited_for_does_not_count_as_its_own() -> None:
    p = led()
    consumer = Consumer(p)
    consumer.fetch(follow(0), replica_id=2, min_bytes=10 * ONE, max_wait_ms=500)
    consumer.produce(p)
    consumer.world.pass_time(500)
    assert consumer.answers == [[(0, ONE)]]
    assert (p.followers[2].end_offset, p.followers[2].leader_end_offset) == (0, 0)


def test_a_follower_that_is_refused_is_not_noted() -> None:
    p = led(1)
    consumer = Consumer(p)
    consumer.fetch(want(0, 1, leader_epoch=2), replica_id=2)
    consumer.fetch(follow(99), replica_id=2)
    assert consumer.answers == [[(0, Code.FENCED_LEADER_EPOCH)], [(0, Code.OFFSET_OUT_OF_RANGE)]]
    assert p.followers[2].end_offset == -1


def test_a_follower_with_another_history_is_not_noted() -> None:
    p = led(1)
    p.update(leader_id=1, leader_epoch=5, partition_epoch=1, replicas=(1, 2), isr=(1, 2))
    consumer = Consumer(p)
    consumer.fetch(want(0, 9, leader_epoch=5, last_fetched_epoch=4), replica_id=2)
    assert p.followers[2].end_offset == -1
    assert "Diverging" in str(consumer.answers)


def test_a_follower_below_the_local_log_is_sent_to_the_tier_itself() -> None:
    p = led(1)
    log_of(p).local_log_start_offset = 1
    consumer = Consumer(p, tiered=True)
    consumer.fetch(follow(0), replica_id=2, max_wait_ms=500, min_bytes=1)
    assert consumer.answers == [[(0, Code.OFFSET_MOVED_TO_TIERED_STORAGE)]]
    assert (p.followers[2].end_offset, consumer.tier.asked) == (-1, [])


def test_whoever_may_ask_for_another_isr_is_notified_of_a_follower_that_should_join() -> None:
    class Brokers(NoBrokers):
        def fact(self, broker_id: int) -> BrokerFact | None:
            return BrokerFact(200, True)

    p = led()
    p.brokers = Brokers()
    p.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=(1, 2), isr=(1,))
    consumer = Consumer(p)
    notified: list[Any] = []
    consumer.fetching._on_follower = lambda partition, now_ms: (
        notified.append(partition.proposed) or []
    )
    consumer.fetch(follow(0), replica_id=2, replica_epoch=200, min_bytes=1, max_wait_ms=500)
    assert [change.new_isr for change in notified] == [((1, -1), (2, 200))]
