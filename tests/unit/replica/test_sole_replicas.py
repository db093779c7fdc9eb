"""What others vouched for is on the disk soon after they are gone, and what that costs. rel-P4."""

from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError, RecordsTruncated, StorageError
from firnline.base.replicas import IsrAnswer
from firnline.replica.opening import SLICE
from firnline.replica.partition import ACKS_ALL, FsyncRule, Partition
from firnline.replica.sole_replicas import SoleReplicas
from tests.worlds.effects import World
from tests.worlds.list_log import batch, log_of, partition


class Disk:
    """A file whose sync may fail; it counts them."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.syncs = 0
        self.is_bad = False
        self.has_descriptor = True
        self.is_given_up = False

    def sync(self) -> None:
        self.syncs += 1
        if self.is_bad:
            raise StorageError("cannot sync", path=self.path)
        if not self.has_descriptor:
            raise StorageError("cannot open", path=self.path, error="EMFILE")
        if self.is_given_up:
            raise RecordsTruncated(
                "this broker does not serve the log any more", path=self.path, error="EAGAIN"
            )


class Node(World):
    """The disk pool in the test's hands."""

    holds_work = True

    def __init__(self) -> None:
        super().__init__()
        self.failed: list[Partition] = []
        self.copies = SoleReplicas(lambda p, now_ms: self.failed.append(p) or [])  # type: ignore[func-returns-value]

    def look(self, *partitions: Partition) -> None:
        for p in partitions:
            self.run(self.copies.look(p, 0))

    def go_on(self) -> None:
        due, self.work = self.work, []
        for submit in due:
            self.complete(submit)


def led(index: int = 0, rule: FsyncRule = "auto", others: tuple[int, ...] = (2, 3)) -> Partition:
    """A leader with followers in sync that have a record of it, nothing of it on this disk."""
    p = partition(index=index, fsync_rule=rule, isr=(1, *others))
    p.append(batch(), acks=ACKS_ALL, now_ms=0)
    for broker_id in others:
        p.follower_fetched(broker_id, 1, 0, broker_epoch=100)
    assert log_of(p).high_watermark == 1
    log_of(p).dirty = [Disk(f"/t-{index}")]
    return p


def left_alone(p: Partition) -> Partition:
    """The others are fenced, says metadata."""
    p.update(leader_id=1, leader_epoch=4, partition_epoch=1, replicas=p.replicas, isr=(1,))
    return p


def disk_of(p: Partition) -> Any:
    [disk] = log_of(p).dirty
    return disk


def test_a_leader_that_is_left_alone_syncs_what_others_had_vouched_for() -> None:
    node, p = Node(), left_alone(led())
    disk = disk_of(p)
    node.look(p)
    assert log_of(p).recovery_point == 0, "off the loop"
    node.go_on()
    assert (disk.syncs, log_of(p).recovery_point) == (1, 1)
    node.look(p)
    assert node.work == [], "it is on the disk"


def test_a_replica_that_took_over_the_only_place_syncs_what_it_fetched() -> None:
    """A partition of one replica is moved: who had it on the disk deletes it."""
    node, p = Node(), partition(fsync_rule="auto", isr=(2,), leader_id=2)
    log_of(p).batches, log_of(p).log_end_offset = [(4, b"")], 5
    log_of(p).dirty = [Disk("/t-0")]
    node.look(p)
    assert node.work == [], "it follows"
    p.update(leader_id=1, leader_epoch=4, partition_epoch=1, replicas=(1,), isr=(1,))
    node.look(p)
    node.go_on()
    assert log_of(p).recovery_point == 5


@pytest.mark.parametrize("rule", ["auto", "always"])
def test_nobody_else_in_sync_is_what_counts(rule: FsyncRule) -> None:
    node, p = Node(), led(rule=rule)
    node.look(p)
    assert node.work == []
    p.append(batch(), acks=1, now_ms=1)
    log_of(p).dirty = [Disk("/t-0")]
    p.look(60_000)
    assert p.proposed is not None
    node.look(p)
    assert node.work == [], "the controller has not agreed"
    assert p.altered(p.proposed, IsrAnswer(1, 3, (1,), 1), 0) == []
    node.look(p)
    assert len(node.work) == 1


def test_who_never_waits_for_the_disk_does_not_wait_here() -> None:
    node, p = Node(), left_alone(led(rule="never"))
    node.look(p)
    assert node.work == []


def test_a_disk_that_fails_then_takes_the_partition_offline() -> None:
    node, p, other = Node(), left_alone(led()), left_alone(led(1))
    disk_of(p).is_bad = True
    node.look(p, other)
    node.go_on()
    node.go_on()
    assert (p.is_offline, node.failed) == (True, [p])
    assert (log_of(p).recovery_point, log_of(other).recovery_point) == (0, 1)


def test_a_want_of_descriptors_that_lasts_takes_no_disk_for_failed() -> None:
    """After ten seconds of it the directory was given up, and a node with one directory ended."""
    node, p, other = Node(), left_alone(led()), left_alone(led(1))
    disk_of(p).has_descriptor = False
    node.look(p, other)
    while node.work:
        node.work_once()
        for key in list(node.timers):
            node.fire(key)
    assert (p.is_offline, node.failed) == (False, [])
    assert (log_of(p).recovery_point, log_of(other).recovery_point) == (0, 1)
    disk_of(p).has_descriptor = True
    node.look(p)
    node.go_on()
    assert log_of(p).recovery_point == 1


def test_a_log_that_is_given_up_while_it_is_synced_holds_up_no_other_sole_replica() -> None:
    """Its directory is gone, and never comes back: for ten seconds those in the queue were on no disk."""
    node, p, other = Node(), left_alone(led()), left_alone(led(1))
    disk_of(p).is_given_up = True
    node.look(p)
    node.look(other)
    node.go_on()
    assert node.failed == []
    node.go_on()
    assert log_of(other).recovery_point == 1


def test_thousands_that_are_left_alone_at_once_are_synced_some_at_a_time() -> None:
    """A broker of two is gone: acks=all answers wait for this disk, too."""
    node, many = Node(), [left_alone(led(n)) for n in range(3 * SLICE)]
    node.look(*many)
    done = []
    while node.work:
        node.go_on()
        done.append(sum(log_of(p).recovery_point == 1 for p in many))
    assert done[-1] == len(many)
    assert max(b - a for a, b in zip([0, *done], done, strict=False)) <= SLICE


def test_one_that_is_not_alone_any_more_when_its_turn_comes_is_left_out() -> None:
    node, first, later = Node(), left_alone(led()), left_alone(led(1))
    node.look(first, later)
    later.update(leader_id=2, leader_epoch=5, partition_epoch=2, replicas=(1, 2), isr=(1, 2))
    while node.work:
        node.go_on()
    assert log_of(later).recovery_point == 0


def test_a_pool_that_is_full_is_asked_again() -> None:
    node, p = Node(), left_alone(led())
    node.look(p)
    node.complete_with(node.work.pop(), KafkaError(Code.THROTTLING_QUOTA_EXCEEDED))
    [key] = node.timers
    node.fire(key)
    node.go_on()
    assert log_of(p).recovery_point == 1


def test_a_node_that_stops_forgets_what_was_under_way() -> None:
    node, p = Node(), left_alone(led())
    node.look(p)
    node.copies.stop()
    node.go_on()
    assert log_of(p).recovery_point == 0, "the files are closed by now"


def test_sole_replicas_in_one_directory_are_synced_though_another_one_hangs() -> None:
    """Eight of a disk that hung kept all others in one page cache."""
    node = Node()
    copies = [left_alone(led(index)) for index in range(4 * SLICE)]
    for index, each in enumerate(copies):
        log_of(each).path = f"/{'ab'[index % 2]}/t-{index}"
    disks = [disk_of(each) for each in copies]
    node.look(*copies)
    hung = [work for work in node.work if work.path in {f"/t-{i}" for i in range(0, 99, 2)}]
    while node.work != hung:
        node.work = [work for work in node.work if work not in hung]
        node.go_on()
        node.work += hung
    assert [disk.syncs for disk in disks] == [0, 1] * (2 * SLICE)
    assert 0 < len(hung) <= SLICE
    node.work = hung
    while node.work:
        node.go_on()
    assert {disk.syncs for disk in disks} == {1}
