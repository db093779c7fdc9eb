"""Produce over partitions: when it is answered, and with what."""

from typing import Any

import pytest

from firnline.base.effects import Appended, Effects
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.broker.produce import Outcome, Producing
from firnline.config.topic import TopicConfig
from firnline.records.batch import HEADER
from firnline.replica.partition import Partition
from firnline.replica.waiters import FetchWaiter
from tests.worlds.hosting import Calls
from tests.worlds.list_log import batch, log_of, partition

TIMEOUT_MS = 30_000


class Producer:
    """Sends to partitions and notes the answers."""

    def __init__(self) -> None:
        self.world = Calls()
        self.failed: list[Partition] = []
        self.producing = Producing(self._on_failure)

    def _on_failure(self, partition: Partition, now_ms: int) -> Effects:
        self.failed.append(partition)
        return []

    def send(self, *to: Partition | KafkaError, acks: int = -1, origin: Any = "client") -> None:
        self.send_batches([(p, batch()) for p in to], acks=acks, origin=origin)

    def send_batches(self, writes: Any, *, acks: int = -1, origin: Any = "client") -> None:
        effects = self.producing.produce(
            writes,
            acks=acks,
            timeout_ms=TIMEOUT_MS,
            answer=self._answer,
            now_ms=self.world.now_ms,
            origin=origin,
        )
        self.world.run(effects)

    def _answer(self, outcomes: list[Outcome], now_ms: int) -> Effects:
        return [[o.code if isinstance(o, KafkaError) else o.base_offset for o in outcomes]]  # type: ignore[list-item]

    @property
    def answers(self) -> list[Any]:
        return [said for said in self.world.said if isinstance(said, list)]


def test_acks_one_is_answered_at_once() -> None:
    one, other = partition(), partition(index=1)
    producer = Producer()
    producer.send(one, other, acks=1)
    producer.send(one, acks=1)
    assert producer.answers == [[0, 0], [1]]


@pytest.mark.parametrize("acks", [-2, 2, 32767])
def test_acks_nobody_defined_are_refused_before_anything_is_written(acks: int) -> None:
    p = partition()
    producer = Producer()
    producer.send(p, p, acks=acks)
    assert producer.answers == [[Code.INVALID_REQUIRED_ACKS] * 2]
    assert log_of(p).batches == []


def test_one_bad_partition_costs_the_others_nothing() -> None:
    good, bad = partition(), partition(index=1)
    log_of(bad).refuse_next = KafkaError(Code.CORRUPT_MESSAGE)
    producer = Producer()
    producer.send(bad, KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION), good, acks=1)
    assert producer.answers == [[Code.CORRUPT_MESSAGE, Code.UNKNOWN_TOPIC_OR_PARTITION, 0]]


@pytest.mark.parametrize("nothing", [None, bytearray()])
def test_a_partition_without_a_batch_is_refused(nothing: Any) -> None:
    producer = Producer()
    producer.send_batches([(partition(), nothing)], acks=1)
    assert producer.answers == [[Code.INVALID_RECORD]]


@pytest.mark.parametrize(
    "topic", ["__consumer_offsets", "__transaction_state", "__share_group_state"]
)
def test_a_client_writes_no_groups_and_no_transactions(topic: str) -> None:
    p = partition(topic)
    producer = Producer()
    producer.send(p, acks=1)
    assert producer.answers == [[Code.INVALID_TOPIC_EXCEPTION]]
    producer.send(p, acks=1, origin="broker")
    assert producer.answers[-1] == [Code.INVALID_TOPIC_EXCEPTION]
    producer.send(p, acks=1, origin="coordinator")
    assert producer.answers[-1] == [0]


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__remote_log_metadata"])
def test_the_short_way_leads_to_no_topic_of_the_system(topic: str) -> None:
    data, p = batch(), partition(topic)
    fields = (*HEADER.unpack_from(data), 0)
    assert Producer().producing.append_checked(p, memoryview(data), fields, 1, [], 0) is None
    assert log_of(p).log_end_offset == 0


def test_what_the_tier_holds_is_said_by_brokers_and_by_this_node_alone() -> None:
    """Whoever forges DELETE_STARTED has the tier erased."""
    p = partition("__remote_log_metadata")
    producer = Producer()
    producer.send(p, acks=1)
    assert producer.answers == [[Code.INVALID_TOPIC_EXCEPTION]]
    for offset, origin in enumerate(("broker", "coordinator")):
        producer.send(p, acks=1, origin=origin)
        assert producer.answers[-1] == [offset]


# ------------------------------------------------------------------------------------------ disk


def test_alone_acks_all_is_not_answered_before_the_disk_has_it() -> None:
    p = partition(fsync_rule="auto")
    producer = Producer()
    producer.send(p)
    assert producer.answers == []
    producer.world.flush()
    assert producer.answers == [[0]]
    assert log_of(p).flushed_to == 1


def test_one_flush_serves_all_partitions_of_a_request() -> None:
    producer = Producer()
    producer.send(partition(fsync_rule="auto"), partition(index=1, fsync_rule="auto"))
    assert [len(flush.files) for flush in producer.world.flushes] == [2]
    producer.world.flush()
    assert producer.answers == [[0, 0]]


def test_an_append_behind_a_flush_in_flight_waits_for_the_next() -> None:
    p = partition(fsync_rule="auto")
    producer = Producer()
    producer.send(p)
    first = producer.world.flushes.pop()
    producer.send(p)
    producer.world.run(first.then(None, 0))
    assert producer.answers == [[0]]
    producer.world.flush()
    assert producer.answers == [[0], [1]]


def test_a_repeat_of_what_is_on_disk_needs_no_flush() -> None:
    p = partition(fsync_rule="auto")
    producer = Producer()
    log_of(p).append_as_leader = lambda *a, **k: Appended(  # type: ignore[method-assign]
        base_offset=0, last_offset=0, log_append_time_ms=-1, log_start_offset=0
    )
    log_of(p).log_end_offset = 1
    producer.send(p)
    assert producer.answers == [[0]]


def test_a_failed_flush_is_no_success_and_ends_the_partition() -> None:
    p = partition(fsync_rule="auto")
    producer = Producer()
    producer.send(p)
    producer.send(p)
    producer.world.flush(StorageError("EIO"))
    producer.send(p)
    assert producer.answers == [[Code.KAFKA_STORAGE_ERROR]] * 3
    assert producer.failed == [p]
    assert log_of(p).flushed_to == 0


def test_a_failed_write_is_reported_to_whoever_keeps_the_directories() -> None:
    p = partition()
    log_of(p).fail_next = True
    producer = Producer()
    producer.send(p, acks=1)
    assert producer.answers == [[Code.KAFKA_STORAGE_ERROR]]
    assert producer.failed == [p]


# ------------------------------------------------------------------------------------- followers


def test_acks_all_waits_for_the_followers() -> None:
    p = partition(fsync_rule="auto", isr=(1, 2))
    producer = Producer()
    producer.send(p)
    assert producer.answers == []
    assert producer.world.flushes == []
    producer.world.run(p.follower_fetched(2, 1, 0))
    assert producer.answers == [[0]]
    assert producer.world.timers == {}


def test_followers_that_do_not_come_end_in_a_time_out_and_one_answer() -> None:
    p, quick = partition(isr=(1, 2)), partition(index=1)
    producer = Producer()
    producer.send(p, quick)
    producer.world.pass_time(TIMEOUT_MS - 1)
    assert producer.answers == []
    producer.world.pass_time(1)
    assert producer.answers == [[Code.REQUEST_TIMED_OUT, 0]]
    producer.world.run(p.follower_fetched(2, 1, 0))
    assert len(producer.answers) == 1


def test_both_the_disk_and_the_followers_are_waited_for_under_always() -> None:
    p = partition(fsync_rule="always", isr=(1, 2))
    producer = Producer()
    producer.send(p)
    producer.world.run(p.follower_fetched(2, 1, 0))
    assert producer.answers == []
    producer.world.flush()
    assert producer.answers == [[0]]


def test_leadership_lost_while_waiting_is_no_success() -> None:
    p = partition(isr=(1, 2))
    producer = Producer()
    producer.send(p)
    p.update(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(1, 2), isr=(2,))
    producer.world.run(p.produce_waiters.all_at_once(0))
    assert producer.answers == [[Code.NOT_LEADER_OR_FOLLOWER]]


def test_too_few_replicas_at_the_commit_is_no_success() -> None:
    p = partition(isr=(1, 2))
    log_of(p).config = TopicConfig(min_insync_replicas=2)
    producer = Producer()
    producer.send(p)
    log_of(p).advance_high_watermark(1)
    p.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=(1, 2), isr=(1,))
    producer.world.run(p.produce_waiters.passed(log_of(p).high_watermark, 0))
    assert producer.answers == [[Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND]]


# ----------------------------------------------------------------------------------- who is woken


def test_an_append_wakes_the_fetch_that_waits_for_it_after_the_producer_has_its_answer() -> None:
    p = partition()
    waiter = FetchWaiter(
        serial=1,
        missing_bytes=1,
        wants_committed=False,
        complete=lambda now: ["woken"],  # type: ignore[list-item]
    )
    p.fetch_waiters.add(waiter)
    producer = Producer()
    producer.send(p, acks=1)
    assert producer.world.said == [[0], "woken"]


def test_a_transaction_that_ends_wakes_readers_of_committed_records() -> None:
    p = partition()
    log_of(p).open_transaction_offset = 0
    waiter = FetchWaiter(
        serial=1,
        missing_bytes=1 << 30,
        wants_committed=True,
        complete=lambda now: ["woken"],  # type: ignore[list-item]
    )
    p.fetch_waiters.add(waiter)
    producer = Producer()
    producer.send(p, acks=1)
    assert producer.world.said == [[0]]

    real = log_of(p).append_as_leader

    def append_marker(*args: Any, **kwargs: Any) -> Any:
        log_of(p).open_transaction_offset = None
        return real(*args, **kwargs)

    log_of(p).append_as_leader = append_marker  # type: ignore[method-assign]
    producer.send(p, acks=1)
    assert producer.world.said == [[0], [1], "woken"]


def test_a_record_that_is_committed_because_the_others_left_waits_for_the_disk() -> None:
    """Its only copy would be in the page cache of one machine."""
    p = partition(isr=(1, 2), fsync_rule="auto")
    producer = Producer()
    producer.send(p)
    assert producer.world.flushes == []
    p.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=(1, 2), isr=(1,))
    producer.world.run(p.produce_waiters.passed(log_of(p).high_watermark, 0))
    assert (producer.answers, len(producer.world.flushes)) == ([], 1)
    producer.world.flush()
    assert producer.answers == [[0]]


@pytest.mark.parametrize("leader", [2, 1], ids=["another", "itself-again"])
def test_what_the_disk_has_when_the_leader_epoch_is_over_is_not_promised(leader: int) -> None:
    """After an unclean election others lead without it; truncating, we lose it, too."""
    p = partition(isr=(1,), fsync_rule="auto")
    producer = Producer()
    producer.send(p)
    p.update(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(1, 2), isr=(2,))
    if leader == 1:
        p.update(leader_id=1, leader_epoch=5, partition_epoch=2, replicas=(1, 2), isr=(1,))
    producer.world.flush()
    assert producer.answers == [[Code.NOT_LEADER_OR_FOLLOWER]]


def test_a_disk_that_fails_after_the_others_left_is_no_success() -> None:
    p = partition(isr=(1, 2), fsync_rule="auto")
    producer = Producer()
    producer.send(p)
    p.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=(1, 2), isr=(1,))
    producer.world.run(p.produce_waiters.passed(log_of(p).high_watermark, 0))
    producer.world.flush(StorageError("the disk is gone"))
    assert producer.answers == [[Code.KAFKA_STORAGE_ERROR]]


def test_a_record_that_a_follower_has_waits_for_no_disk() -> None:
    p = partition(isr=(1, 2), fsync_rule="auto")
    producer = Producer()
    producer.send(p)
    producer.world.run(p.follower_fetched(2, 1, 0))
    assert (producer.answers, producer.world.flushes) == ([[0]], [])
