"""One partition: who may append, what is committed, what a read comes to."""

from typing import Any

import pytest

from firnline.base.effects import Appended
from firnline.base.errors import Code, KafkaError
from firnline.config.topic import TopicConfig
from firnline.replica.partition import ACKS_ALL, Partition
from firnline.replica.read import BelowLocalStart, Diverging, Local
from tests.worlds.list_log import (
    Aborted,
    ListLog,
    batch,
    batch_bytes,
    log_of,
    partition,
)


def code(outcome: object) -> Code:
    assert isinstance(outcome, KafkaError), outcome
    return outcome.code


def append(p: Partition, records: int = 1, acks: int = 1) -> Appended:
    outcome = p.append(batch(records), acks=acks, now_ms=0)
    assert isinstance(outcome, Appended), outcome
    return outcome


def read(p: Partition, offset: int, **more: Any) -> object:
    return p.read(offset, max_bytes=1 << 20, isolation=0, **more)


# ------------------------------------------------------------------------------------ leadership


def test_a_follower_takes_no_append_and_serves_no_read() -> None:
    p = partition(leader_id=2, isr=(2, 1))
    assert code(p.append(batch(), acks=1, now_ms=0)) == Code.NOT_LEADER_OR_FOLLOWER
    assert code(read(p, 0)) == Code.NOT_LEADER_OR_FOLLOWER
    assert log_of(p).batches == []


def test_a_follower_serves_a_consumer_that_takes_any_replica() -> None:
    p = partition(leader_id=2, leader_epoch=3, isr=(2, 1))
    assert isinstance(p.read(0, max_bytes=9, isolation=0, is_any_replica=True), Local)
    for epoch, expected in ((2, Code.FENCED_LEADER_EPOCH), (4, Code.UNKNOWN_LEADER_EPOCH)):
        outcome = p.read(0, max_bytes=9, isolation=0, leader_epoch=epoch, is_any_replica=True)
        assert code(outcome) == expected


def test_a_replica_that_left_or_whose_files_failed_answers_no_consumer() -> None:
    gone, failed = (partition(leader_id=2, isr=(2, 1)) for _ in range(2))
    gone.retire()
    failed.go_offline()
    led = partition()
    led.retire()
    assert not led.is_leader, "nobody waits for its log any more"
    for p, expected in ((gone, Code.NOT_LEADER_OR_FOLLOWER), (failed, Code.KAFKA_STORAGE_ERROR)):
        assert code(p.read(0, max_bytes=9, isolation=0, is_any_replica=True)) == expected


def test_a_new_leader_writes_down_where_its_epoch_begins() -> None:
    p = partition(leader_epoch=3)
    append(p, 5)
    became = p.update(leader_id=1, leader_epoch=4, partition_epoch=1, replicas=[1], isr=[1])
    assert became
    assert log_of(p).epochs.pairs == [(3, 0), (4, 5)]


def test_the_same_epoch_again_is_no_new_leadership() -> None:
    p = partition(leader_epoch=3)
    assert not p.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=[1], isr=[1])
    assert log_of(p).epochs.pairs == [(3, 0)]


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(2, 9), (3, -1)])
def test_older_news_takes_no_leadership_away(leader_epoch: int, partition_epoch: int) -> None:
    p = partition(leader_epoch=3)
    p.update(
        leader_id=2,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        replicas=[2],
        isr=[2],
    )
    assert p.is_leader
    append(p)


def test_a_failed_disk_ends_the_partition_for_this_run() -> None:
    p = partition()
    append(p)
    log_of(p).fail_next = True
    assert code(p.append(batch(), acks=1, now_ms=0)) == Code.KAFKA_STORAGE_ERROR
    log_of(p).fail_next = False
    assert code(p.append(batch(), acks=1, now_ms=0)) == Code.KAFKA_STORAGE_ERROR
    assert code(read(p, 0)) == Code.KAFKA_STORAGE_ERROR
    p.update(leader_id=1, leader_epoch=9, partition_epoch=9, replicas=[1], isr=[1])
    assert code(p.append(batch(), acks=1, now_ms=0)) == Code.KAFKA_STORAGE_ERROR


def test_a_full_disk_refuses_one_append_and_is_no_failure_of_the_disk() -> None:
    p = partition()
    append(p)
    log_of(p).fail_next = True
    log_of(p).fail_error = "ENOSPC"
    assert code(p.append(batch(), acks=1, now_ms=0)) == Code.KAFKA_STORAGE_ERROR
    log_of(p).fail_next = False
    assert isinstance(read(p, 0), Local)
    assert append(p).base_offset == 1


# ------------------------------------------------------------------------------------- watermark


def test_alone_in_the_isr_the_log_end_is_the_watermark() -> None:
    p = partition()
    append(p, 5)
    assert log_of(p).high_watermark == 5


def test_an_append_of_the_last_member_of_the_isr_moves_the_watermark() -> None:
    """Else consumers would wait for the next append."""
    p = partition(isr=(1, 2))
    p.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=(1, 2), isr=(1,))
    append(p)
    assert log_of(p).high_watermark == 1


def test_the_slowest_member_of_the_isr_holds_the_watermark() -> None:
    p = partition(isr=(1, 2, 3))
    append(p, 10)
    assert log_of(p).high_watermark == 0
    p.follower_fetched(2, 10, 0)
    assert log_of(p).high_watermark == 0
    p.follower_fetched(3, 4, 0)
    assert log_of(p).high_watermark == 4
    p.follower_fetched(3, 10, 0)
    assert log_of(p).high_watermark == 10


def test_an_unknown_replica_does_not_move_the_watermark() -> None:
    p = partition(isr=(1, 2))
    append(p, 10)
    p.follower_fetched(7, 10, 0)
    assert log_of(p).high_watermark == 0


def test_what_a_follower_said_in_another_epoch_does_not_count() -> None:
    """It may have truncated since; only what it asks for in this epoch says what it has."""
    p = partition(isr=(1, 2, 3))
    append(p, 10)
    p.follower_fetched(2, 10, 0)
    p.follower_fetched(3, 3, 0)
    p.update(leader_id=1, leader_epoch=4, partition_epoch=1, replicas=(1, 2, 3), isr=(1, 2))
    assert log_of(p).high_watermark == 3
    p.follower_fetched(2, 8, 0)
    assert log_of(p).high_watermark == 8


def test_what_an_unknown_replica_said_does_not_count_when_it_becomes_a_replica() -> None:
    p = partition(isr=(1, 2))
    append(p, 10)
    p.follower_fetched(7, 10, 0)
    p.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=(1, 7), isr=(1, 7))
    assert log_of(p).high_watermark == 0


def test_the_watermark_follows_when_the_isr_shrinks_to_us() -> None:
    p = partition(isr=(1, 2))
    append(p, 10)
    p.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=(1, 2), isr=(1,))
    assert log_of(p).high_watermark == 10


# ------------------------------------------------------------------------------ acks and the ISR


def test_acks_all_is_refused_below_min_insync_replicas_and_nothing_is_written() -> None:
    p = partition()
    p.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=(1, 2, 3), isr=(1,))
    log_of(p).config = TopicConfig(min_insync_replicas=2)
    assert code(p.append(batch(), acks=ACKS_ALL, now_ms=0)) == Code.NOT_ENOUGH_REPLICAS
    assert log_of(p).batches == []
    append(p, acks=1)


@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
def test_a_topic_that_asks_for_more_than_its_replicas_asks_for_all_of_them(
    replicas: tuple[int, ...],
) -> None:
    """Kafka 4.3.1: the smaller of min.insync.replicas and the number of replicas, before and after."""
    p = partition(isr=replicas)
    log_of(p).config = TopicConfig(min_insync_replicas=3)
    append(p, acks=ACKS_ALL)
    assert p.commit_error() is None
    p.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=(1, 2, 3), isr=replicas)
    assert code(p.commit_error()) == Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert code(p.append(batch(), acks=ACKS_ALL, now_ms=0)) == Code.NOT_ENOUGH_REPLICAS


def test_acks_all_is_notified_when_the_isr_fell_after_the_append() -> None:
    p = partition(isr=(1, 2))
    log_of(p).config = TopicConfig(min_insync_replicas=2)
    append(p, acks=ACKS_ALL)
    p.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=(1, 2), isr=(1,))
    assert code(p.commit_error()) == Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@pytest.mark.parametrize(
    ("rule", "isr", "waits"),
    [
        ("auto", (1,), {ACKS_ALL}),
        ("auto", (1, 2), set()),
        ("always", (1,), {1, ACKS_ALL}),
        ("always", (1, 2), {1, ACKS_ALL}),
        ("never", (1,), set()),
    ],
)
def test_an_acked_record_is_never_in_one_page_cache_alone(
    rule: str, isr: tuple[int, ...], waits: set[int]
) -> None:
    p = partition(fsync_rule=rule, isr=isr)  # type: ignore[arg-type]
    assert {acks for acks in (0, 1, ACKS_ALL) if p.needs_flush(acks)} == waits


def test_a_topic_that_asks_to_be_flushed_every_few_records_is() -> None:
    p = partition(fsync_rule="never")
    log_of(p).config = TopicConfig(flush_messages=3)
    append(p, 2)
    assert not p.needs_flush(1)
    append(p, 1)
    assert p.needs_flush(1)
    log_of(p).flushed(3)
    assert not p.needs_flush(1)


# ------------------------------------------------------------------------------------------ read


def test_a_read_gives_complete_batches_and_the_three_offsets() -> None:
    p = partition()
    append(p, 2)
    append(p, 3)
    outcome = read(p, 2)
    assert isinstance(outcome, Local)
    assert outcome.records.read() == log_of(p).batches[1][1]  # type: ignore[union-attr]
    assert outcome[1:] == (5, 5, 0, None)


def test_nothing_new_is_empty_and_not_an_error() -> None:
    p = partition()
    append(p, 2)
    outcome = read(p, 2)
    assert isinstance(outcome, Local)
    assert len(outcome.records) == 0


@pytest.mark.parametrize("offset", [-5, 4, 11, 2**63 - 1])
def test_an_offset_outside_the_log_is_out_of_range(offset: int) -> None:
    p = partition()
    append(p, 10)
    log_of(p).advance_log_start(5)
    assert code(read(p, offset)) == Code.OFFSET_OUT_OF_RANGE


def test_an_offset_that_left_local_files_is_handed_on_with_our_own_epoch() -> None:
    p = partition(leader_epoch=3)
    append(p, 10)
    log_of(p).local_log_start_offset = 5
    assert read(p, 4, leader_epoch=3) == BelowLocalStart(4, 3, 10, 10, 0)
    assert isinstance(read(p, 5), Local)


def test_uncommitted_bytes_of_a_slow_isr_are_not_read() -> None:
    p = partition(isr=(1, 2))
    append(p, 10)
    outcome = read(p, 0)
    assert isinstance(outcome, Local)
    assert len(outcome.records) == 0
    p.follower_fetched(2, 10, 0)
    outcome = read(p, 0)
    assert isinstance(outcome, Local)
    assert len(outcome.records) == batch_bytes(10)


def test_read_committed_stops_at_the_last_stable_offset_and_lists_the_aborted() -> None:
    p = partition()
    append(p, 2)
    append(p, 2)
    log_of(p).open_transaction_offset = 2
    log_of(p).aborted = [Aborted(77, 0)]
    outcome = p.read(0, max_bytes=1 << 20, isolation=1)
    assert isinstance(outcome, Local)
    assert len(outcome.records) == batch_bytes(2)
    assert outcome.aborted == [Aborted(77, 0)]
    nothing = p.read(2, max_bytes=1 << 20, isolation=1)
    assert nothing == Local(b"", 4, 2, 0, ())
    dirty = p.read(0, max_bytes=1 << 20, isolation=0)
    assert isinstance(dirty, Local)
    assert dirty.aborted is None
    assert len(dirty.records) == 2 * batch_bytes(2)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (2, Code.FENCED_LEADER_EPOCH),
        (4, Code.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_client_with_another_epoch_is_fenced(epoch: int, expected: Code) -> None:
    p = partition(leader_epoch=3)
    append(p)
    assert code(read(p, 0, leader_epoch=epoch)) == expected
    assert isinstance(read(p, 0, leader_epoch=3), Local)


def test_an_old_epoch_is_fenced_before_it_learns_that_we_do_not_lead() -> None:
    p = partition(leader_id=2, isr=(2, 1), leader_epoch=3)
    assert code(read(p, 0, leader_epoch=2)) == Code.FENCED_LEADER_EPOCH
    assert code(read(p, 0, leader_epoch=3)) == Code.NOT_LEADER_OR_FOLLOWER


# ---------------------------------------------------------------------------------------- epochs


def history() -> Partition:
    """Epoch 3 holds 0-4, epoch 5 holds 5-9, epoch 8 is the leader's and empty so far."""
    p = partition(leader_epoch=3)
    append(p, 5)
    p.update(leader_id=1, leader_epoch=5, partition_epoch=1, replicas=[1], isr=[1])
    append(p, 5)
    p.update(leader_id=1, leader_epoch=8, partition_epoch=2, replicas=[1], isr=[1])
    return p


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (9, (-1, -1)),
        (8, (8, 10)),
        (5, (5, 10)),
        (4, (3, 5)),
        (3, (3, 5)),
        (1, (1, 0)),
        (-1, (-1, -1)),
    ],
)
def test_where_an_epoch_ends(asked: int, expected: tuple[int, int]) -> None:
    assert history().end_offset_for_epoch(asked) == expected


def test_a_reader_whose_epoch_ended_before_its_offset_learns_where() -> None:
    p = history()
    assert read(p, 7, last_fetched_epoch=3) == Diverging(3, 5, 10, 10, 0)
    assert read(p, 9, last_fetched_epoch=4) == Diverging(3, 5, 10, 10, 0)
    assert isinstance(read(p, 5, last_fetched_epoch=3), Local)
    assert isinstance(read(p, 7, last_fetched_epoch=5), Local)


def test_a_reader_with_an_epoch_nobody_had_is_out_of_range() -> None:
    assert code(read(history(), 7, last_fetched_epoch=9)) == Code.OFFSET_OUT_OF_RANGE


def test_a_log_in_a_list_is_like_the_real_one_in_what_is_used() -> None:
    """The double answers reads in whole batches and never splits one."""
    log = ListLog()
    for _ in range(3):
        log.append_as_leader(batch(2), leader_epoch=0, now_ms=0)
    size = batch_bytes(2)
    read_some = log.read(0, max_bytes=2 * size + 1, upto_offset=6)
    assert len(read_some) == 2 * size
    assert len(log.read(0, max_bytes=1, upto_offset=6)) == size
    assert len(log.read(0, max_bytes=1, upto_offset=6, min_one_batch=False)) == 0
