"""What the tier believes of its own metadata."""

from typing import Any

from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC
from firnline.broker.tier_ground import MetadataFeed
from firnline.replica.partition import FsyncRule
from tests.unit.broker.hosting import hosted
from tests.unit.replica.list_log import batch, log_of, partition


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


def test_nothing_is_told_before_what_earlier_epochs_left_is_on_disk() -> None:
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
