"""What the tier believes of its own metadata."""

from types import SimpleNamespace
from typing import Any

import pytest

from firnline.base.effects import Effects, Flush, SetTimer
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition
from firnline.broker.tier.adapter import TierAdapter
from firnline.broker.tier.feed import Fork, MetadataFeed
from firnline.config.broker import BrokerConfig
from firnline.replica.hosted import HostedPartitions
from firnline.replica.partition import FsyncRule, Partition
from firnline.tiered.metadata.log import TopicMetadataLog
from firnline.tiered.settings import TierSettings
from tests.worlds.hosting import hosted
from tests.worlds.list_log import batch, log_of, partition


def feed(rule: FsyncRule) -> tuple[MetadataFeed, Any]:
    """A feed of one partition with two records, one of them on disk."""
    p = partition(REMOTE_LOG_METADATA_TOPIC, fsync_rule=rule)
    for _ in range(2):
        p.append(batch(), acks=-1, now_ms=0)
    log_of(p).recovery_point = 1
    quorum: Any = None
    return MetadataFeed(hosted(p), quorum), log_of(p)


def test_a_record_that_the_power_can_take_is_not_believed_yet() -> None:
    """Local segments go because a record says the tier has them: that record must not be lost after."""
    found, log = feed("auto")
    assert found.bounds(0) == (0, 1)
    assert len(found.read(0, 0, 1 << 20)) == len(log.batches[0][1])
    assert found.read(0, 1, 1 << 20) == b""
    log.recovery_point = 2
    assert found.bounds(0) == (0, 2)
    assert found.read(0, 1, 1 << 20) == log.batches[1][1]


def test_nothing_is_reported_before_what_earlier_epochs_left_is_on_disk() -> None:
    """Who is told of a part of it takes a finished copy for none, and copies again."""
    found, log = feed("auto")
    log.epochs.pairs = [(1, 0), (3, 2)]
    assert found.bounds(0) is None
    log.recovery_point = 2
    assert found.bounds(0) == (0, 2)


def test_where_nobody_waits_for_the_disk_committed_is_enough() -> None:
    found, _ = feed("never")
    assert found.bounds(0) == (0, 2)


def test_a_partition_that_is_not_led_here_says_nothing() -> None:
    p = partition(REMOTE_LOG_METADATA_TOPIC, leader_id=2, isr=(2, 1))
    quorum: Any = None
    found = MetadataFeed(hosted(p), quorum)
    assert found.bounds(0) is None
    assert not found.leads(0)
    assert found.read(0, 0, 1 << 20) == b""
    assert found.bounds(7) is None


def test_followers_that_leave_take_nothing_back_that_was_believed() -> None:
    """Else the records would count as lost, and the tier of these partitions would stand still for good."""
    found, log = feed("auto")
    log.recovery_point = 2
    assert found.bounds(0) == (0, 2)
    log.recovery_point = 1  # as if replicas had vouched for the second one, and were gone now
    assert found.bounds(0) == (0, 2)
    assert found.read(0, 1, 1 << 20) == log.batches[1][1]


# ------------------------------------------------------------------------------------ led elsewhere

TOPIC_ID = bytes(15) + b"\x09"


class Elsewhere:
    """The other brokers, in the test's hands; the image that says who leads; one metadata partition."""

    def __init__(self) -> None:
        self.leader: tuple[int, int] | None = (2, 5)
        self.asked: list[tuple[str, Any, Any]] = []
        self.grown = 0
        self.position = 0
        quorum = SimpleNamespace(image=self)
        self.feed = MetadataFeed(HostedPartitions(exists=never, name_of=no_name), quorum, self)  # type: ignore[arg-type]

    # -- the image
    topic_id = TOPIC_ID

    def topic(self, name: str) -> Any:
        return self

    def partition(self, topic: str, index: int) -> Any:
        leader, epoch = self.leader or (-1, 0)
        return SimpleNamespace(leader=leader, leader_epoch=epoch)

    # -- the brokers
    def offsets(
        self, leader_id: int, topic: str, partitions: Any, which: int, then: Any, now_ms: int
    ) -> Effects:
        self.asked.append(("offsets", (leader_id, dict(partitions), which), then))
        return []

    def read_committed_records(
        self,
        leader_id: int,
        where: Any,
        topic_id: bytes,
        offset: int,
        then: Any,
        now_ms: int,
        *,
        leader_epoch: int,
        last_epoch: int,
    ) -> Effects:
        self.epochs = leader_epoch, last_epoch
        self.asked.append(("records", (leader_id, offset), then))
        return []

    def append(
        self, leader_id: int, where: Any, topic_id: bytes, batch: bytearray, then: Any, now_ms: int
    ) -> Effects:
        self.asked.append(("append", (leader_id, where.partition), then))
        return []

    def catch_up(self, position: int = 0, epoch: int = -1, *, is_fresh: bool = False) -> None:
        self.feed.catch_up({0: (position, epoch)}, self._grown, 0, is_fresh=is_fresh)

    def _grown(self, partition: int, now_ms: int) -> Effects:
        self.grown += 1
        return []

    def report(self, outcome: Any) -> tuple[str, Any]:
        what, asked, then = self.asked.pop(0)
        then(outcome, 0)
        return what, asked


def never(topic: str, index: int) -> bool:
    return False


def no_name(topic_id: bytes) -> None:
    return None


def some_records(count: int, start: int = 0) -> bytes:
    p = partition(REMOTE_LOG_METADATA_TOPIC)
    for _ in range(start + count):
        p.append(batch(), acks=-1, now_ms=0)
    return b"".join(data for _, data in log_of(p).batches[start:])


def test_what_another_broker_leads_is_fetched_from_it() -> None:
    others = Elsewhere()
    others.catch_up()
    assert others.feed.bounds(0) is None
    assert others.report({0: 2}) == ("offsets", (2, {0: 5}, -1))
    assert others.report((0, some_records(2))) == ("records", (2, 0))
    assert (others.grown, others.feed.bounds(0)) == (1, (0, 2))
    assert others.feed.read(0, 0, 1 << 20) == some_records(2)
    assert others.feed.read(0, 1, 1 << 20) == some_records(1, 1)
    assert len(others.feed.read(0, 0, 1)) == len(some_records(1)), "a step at a time"
    assert others.asked == []
    others.catch_up(2)
    others.report({0: 2})
    assert (others.grown, others.asked) == (2, []), "that there is nothing more is news, too"


def test_records_that_were_committed_while_others_were_fetched_are_no_loss() -> None:
    others = Elsewhere()
    others.catch_up()
    others.report({0: 1})
    others.report((0, some_records(3)))
    assert others.feed.bounds(0) == (0, 3)


def test_an_answer_from_before_the_question_is_none() -> None:
    """T22: a new leader of a user partition must know all that its predecessor published."""
    others = Elsewhere()
    others.catch_up()
    others.catch_up(is_fresh=True)
    others.report({0: 0})
    assert (others.feed.bounds(0), others.grown) == (None, 0)
    others.report({0: 0})
    assert (others.feed.bounds(0), others.grown) == ((0, 0), 1)
    assert others.asked == []
    others.catch_up()
    assert others.feed.bounds(0) == (0, 0)
    others.catch_up(is_fresh=True)
    assert others.feed.bounds(0) is None


def test_a_new_leader_is_asked_before_it_is_believed() -> None:
    others = Elsewhere()
    others.catch_up()
    others.report({0: 0})
    assert others.feed.bounds(0) == (0, 0)
    others.leader = (3, 6)
    assert others.feed.bounds(0) is None
    others.catch_up()
    assert others.report({0: 0}) == ("offsets", (3, {0: 6}, -1))
    assert others.feed.bounds(0) == (0, 0)
    others.leader = None
    others.catch_up()
    assert (others.feed.bounds(0), others.asked) == (None, [])


def test_nobody_waits_for_a_leader_that_is_no_more() -> None:
    """One that hangs answers never, or a minute later."""
    others = Elsewhere()
    others.catch_up()
    others.leader = (3, 6)
    others.catch_up()
    (_, _, late), (what, asked, then) = others.asked
    assert (what, asked) == ("offsets", (3, {0: 6}, -1))
    others.asked.clear()
    late({0: 9}, 0)
    assert (others.feed.bounds(0), others.grown) == (None, 0)
    then({0: 0}, 0)
    assert (others.feed.bounds(0), others.grown) == ((0, 0), 1)


def test_an_error_is_asked_about_with_the_next_poll() -> None:
    others = Elsewhere()
    others.catch_up()
    others.report({0: KafkaError(Code.OFFSET_NOT_AVAILABLE)})
    assert (others.feed.bounds(0), others.grown, others.asked) == (None, 0, [])
    others.catch_up()
    others.report({0: 1})
    others.report(KafkaError(Code.NETWORK_EXCEPTION))
    assert (others.grown, others.asked) == (0, [])
    others.catch_up()
    assert len(others.asked) == 1


def test_what_retention_took_from_the_metadata_is_passed_over() -> None:
    others = Elsewhere()
    others.catch_up()
    others.report({0: 9})
    others.report(KafkaError(Code.OFFSET_OUT_OF_RANGE))
    assert others.report({0: 7}) == ("offsets", (2, {0: 5}, -2))
    assert (others.feed.bounds(0), others.grown) == ((7, 9), 1)


def test_no_metadata_is_passed_over_for_a_start_that_cannot_be() -> None:
    """All segments before it would be unknown, and nobody would look for them again."""
    others = Elsewhere()
    others.catch_up()
    others.report({0: 2})
    others.report((1 << 53, some_records(2)))
    assert others.feed.bounds(0) == (0, 2), "a log that was read from 0 does not begin later"
    others = Elsewhere()
    others.catch_up()
    others.report({0: 9})
    others.report(KafkaError(Code.OFFSET_OUT_OF_RANGE))
    others.report({0: 10})
    assert (others.feed.bounds(0), others.grown) == (None, 0), "no log begins above its end"


def test_a_record_goes_to_the_leader_elsewhere() -> None:
    others = Elsewhere()
    got: list[Any] = []
    sent = others.feed.append(
        0, bytearray(b"x"), lambda result, now_ms: got.append(result) or [], 0
    )
    assert sent == []
    assert others.report("placed") == ("append", (2, 0))
    assert got == ["placed"]
    others.leader = None
    assert others.feed.append(0, bytearray(b"x"), lambda result, now_ms: [], 0) is None


# --------------------------------------------------------------------------------------- forks


def test_what_was_read_is_compared_with_each_new_leaders_history() -> None:
    """Also where nothing is new: a partition that lost records may have grown to the same length again."""
    others = Elsewhere()
    others.catch_up(2, epoch=4)
    others.report({0: 2})
    assert others.feed.bounds(0) is None, "nobody said yet that the two records are its own"
    assert others.report((0, b"")) == ("records", (2, 2))
    assert others.epochs == (5, 4)
    assert (others.feed.bounds(0), others.grown) == ((0, 2), 1)
    others.catch_up(2, epoch=4)
    others.report({0: 2})
    assert others.asked == [], "the same leader has said so"
    others.leader = (3, 6)
    others.catch_up(2, epoch=4)
    others.report({0: 2})
    assert others.report((0, b"")) == ("records", (3, 2))
    assert others.epochs == (6, 4)


def test_a_leader_with_another_history_is_believed_after_all_was_read_again() -> None:
    others = Elsewhere()
    others.catch_up(2, epoch=4)
    others.report({0: 3})
    others.report(Fork(1))
    assert others.grown == 1, "whoever reads is told to look"
    assert (others.feed.bounds(0), others.feed.fork(0, 2, 4)) == (None, 1)
    others.catch_up(0, is_fresh=True)
    assert others.feed.fork(0, 0, -1) is None
    others.report({0: 3})
    others.report((0, some_records(3)))
    assert others.epochs == (5, -1)
    assert others.feed.bounds(0) == (0, 3)


def test_an_answer_of_a_leader_that_is_none_any_more_says_nothing() -> None:
    others = Elsewhere()
    others.catch_up(2, epoch=4)
    others.report({0: 3})
    [(_, _, late)] = others.asked
    others.asked.clear()
    others.leader = (3, 6)
    others.catch_up(2, epoch=4)
    late(Fork(1), 0)
    assert others.feed.fork(0, 2, 4) is None


def test_a_partition_led_here_is_compared_as_well() -> None:
    """This node may have read more from the leader before than it has in its own log."""
    found, log = feed("never")
    log.epochs.pairs = [(1, 0), (3, 1)]
    assert found.fork(0, 0, -1) is None
    assert found.fork(0, 1, 1) is None
    assert found.fork(0, 2, 1) == 1, "epoch 1 ended at 1 here"
    assert found.fork(0, 2, 3) is None
    assert found.fork(0, 5, 3) == 2, "the log ends at 2"
    assert found.fork(0, 2, 2) == 1, "nobody led here in epoch 2"
    assert found.fork(0, 9, 7) == 2, "nor in 7"


def test_metadata_that_finds_no_descriptor_to_be_synced_with_is_synced_later() -> None:
    """The error stopped the node that had just been elected, and then the next one."""
    p = partition(REMOTE_LOG_METADATA_TOPIC)
    p.append(batch(), acks=-1, now_ms=0)
    log: Any = log_of(p)
    notified: list[int] = []
    failed: list[Partition] = []
    tier: Any = SimpleNamespace(
        on_leadership=lambda *_, **__: [],
        on_metadata_leadership=lambda index, now_ms: notified.append(log.recovery_point) or [],
    )
    no_feed: Any = None
    ground = TierAdapter(
        tier,
        no_feed,
        BrokerConfig(),
        lambda partition, now_ms: failed.append(partition) or [],  # type: ignore[func-returns-value]
    )
    refused = StorageError("cannot open", error="EMFILE")

    def dirty_files() -> list[Any]:
        raise refused

    usual, log.dirty_files = log.dirty_files, dirty_files
    (timer,) = ground.on_leading(p, 0)
    assert isinstance(timer, SetTimer)
    log.dirty_files = usual
    (flush,) = timer.then(timer.at_ms)
    assert isinstance(flush, Flush)
    (timer,) = flush.then(refused, timer.at_ms)
    assert isinstance(timer, SetTimer)
    (flush,) = timer.then(timer.at_ms)
    assert isinstance(flush, Flush)
    assert flush.then(None, timer.at_ms) == []
    assert notified[-1] == log.recovery_point == log.log_end_offset
    assert not failed
    assert not p.is_offline


@pytest.mark.parametrize(
    ("problem", "is_offline"),
    [
        (StorageError("cannot read", error="EIO"), True),
        (StorageError("cannot open", error="EMFILE"), False),
        (StorageError("another magic number than was written"), False),
    ],
)
def test_metadata_of_the_tier_that_cannot_be_read_stops_no_node(
    problem: StorageError, *, is_offline: bool
) -> None:
    """rel-P9: the directory of the metadata partition goes offline, and the node goes on with the others."""
    p = partition(REMOTE_LOG_METADATA_TOPIC)
    p.append(batch(), acks=-1, now_ms=0)
    log, failed = log_of(p), []
    log.recovery_point = 1
    quorum: Any = None

    def taken_offline(partition: Partition, _now_ms: int) -> Effects:
        failed.append(partition)
        return []

    def broken(*_: Any, **__: Any) -> Any:
        raise problem

    found = MetadataFeed(hosted(p), quorum, on_storage_error=taken_offline)
    found.partition_count = lambda: 1  # type: ignore[method-assign]
    metadata = TopicMetadataLog(found, TierSettings(metadata_partitions=1))
    metadata.assign(TopicIdPartition(bytes(16), 0), 0)
    log.read = broken
    ensure: Any = metadata.start(0)[0]
    ensure.then(None, 0)
    metadata.poll_all(0)
    assert failed == [p] * is_offline
    assert p.is_offline is is_offline
