"""A log directory fails under a broker of many partitions: others are heard, and nobody leads in it again."""

from itertools import pairwise

import pytest

from firnline.base.ids import UNASSIGNED_DIRECTORY, Uuid
from firnline.controller import sweeps
from firnline.controller.topics import NewTopic
from firnline.metadata import records as r
from firnline.metadata.image import NO_LEADER
from firnline.metadata.result import ControllerResult

from .test_sweeps import PART, PARTITIONS, World

GOOD, BAD, WORSE = b"G" * 16, b"B" * 16, b"W" * 16


class Disks(World):
    """Broker 1 has of topic a the even partitions in GOOD, the odd ones in BAD; of topic b all in WORSE."""

    def __init__(self) -> None:
        super().__init__()
        epoch = self.cluster.quorum.image.brokers[1].epoch
        change = r.BrokerRegistrationChangeRecord(
            broker_id=1, broker_epoch=epoch, log_dirs=(GOOD, BAD, WORSE)
        )
        topics = self.cluster.quorum.image.topics_by_name
        changes = [
            r.PartitionChangeRecord(
                partition_id=n,
                topic_id=topics[name].topic_id,
                directories=[(WORSE if name == "b" else BAD if n % 2 else GOOD), GOOD, GOOD],
            )
            for name in ("a", "b")
            for n in range(PARTITIONS)
        ]
        self.cluster.write(ControllerResult([change, *changes], None))

    def fail(self, *directories: Uuid) -> int:
        """A heartbeat of broker 1 says so; return how many records follow at once."""
        before = self.cluster.quorum.newest.offset
        self.cluster.heartbeat(1, offline_log_dirs=directories)
        return self.cluster.quorum.newest.offset - before

    def led_in(self, directory: Uuid) -> int:
        """Partitions that broker 1 leads, or is in sync for, in that directory."""
        return sum(
            p.directories[0] == directory and (p.leader == 1 or 1 in p.isr)
            for p in self.partitions()
        )


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> Disks:
    monkeypatch.setattr(sweeps, "CHANGES_PER_PART_MAX", PART)
    return Disks()


def test_a_directory_of_many_partitions_is_left_in_parts(disks: Disks) -> None:
    """4,000 partitions were 63 ms in one step. Method: count what changes between two of them."""
    disks.fail(WORSE)
    assert WORSE not in disks.cluster.quorum.image.brokers[1].log_dirs
    seen = [PARTITIONS, disks.led_in(WORSE)]
    while disks.controller.is_sweeping:
        assert not disks.cluster.heartbeat(2).is_fenced
        disks.sweep()
        seen.append(disks.led_in(WORSE))
    assert seen[-1] == 0
    assert len(seen) > 4
    assert all(before - after <= PART for before, after in pairwise(seen))
    assert disks.led_in(GOOD) + disks.led_in(BAD) == PARTITIONS


def test_between_two_parts_nobody_is_elected_in_a_directory_that_failed(disks: Disks) -> None:
    """Goal: no leadership that the next part would miss. Method: elect after the first part, in all."""
    disks.fail(WORSE)
    assert disks.controller.is_sweeping
    topic = disks.cluster.quorum.image.topics_by_name["b"]
    back = [
        r.PartitionChangeRecord(partition_id=n, topic_id=topic.topic_id, isr=[1, 2, 3], leader=2)
        for n in range(PART)
    ]
    disks.cluster.write(ControllerResult(back, None))
    disks.cluster.write(disks.controller.balance_leaders())
    assert [
        disks.cluster.quorum.image.topics_by_name["b"].partitions[n].leader for n in range(PART)
    ] == [2] * PART


@pytest.mark.parametrize("at_once", [PART, 100])
def test_not_even_an_unclean_election_takes_a_replica_in_a_directory_that_failed(
    disks: Disks, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """It would lead what its broker has no more. Method: it is in the last part, or in that of the record."""
    monkeypatch.setattr(sweeps, "CHANGES_PER_PART_MAX", at_once)
    alone = NewTopic(
        "alone", assignments={0: (1,)}, configs={"unclean.leader.election.enable": "true"}
    )
    disks.cluster.write(disks.controller.create_topics([alone]))
    topic_id = disks.cluster.quorum.image.topics_by_name["alone"].topic_id
    there = r.PartitionChangeRecord(partition_id=0, topic_id=topic_id, directories=[BAD])
    disks.cluster.write(ControllerResult([there], None))
    disks.fail(BAD)
    disks.sweep_all()
    partition = disks.cluster.quorum.image.topics_by_name["alone"].partitions[0]
    assert (partition.leader, partition.isr) == (NO_LEADER, (1,))


def test_what_was_said_is_said_again_with_every_heartbeat_and_done_once(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert disks.fail(WORSE) == 1 + PART
    disks.sweep_all()
    for name in ("CHECKS_PER_PART_MAX", "_CHECKS_PER_STEP"):
        monkeypatch.setattr(sweeps, name, 1)  # another search would be seen
    assert disks.fail(WORSE) == 0
    assert not disks.controller.is_sweeping
    assert disks.fail(WORSE, BAD) == 1 + 1
    disks.sweep_all()
    assert (disks.led_in(BAD), disks.led_in(WORSE)) == (0, 0)
    assert disks.led_in(GOOD) == PARTITIONS // 2


def test_a_new_controller_finishes_with_a_directory_when_it_is_notified_again(disks: Disks) -> None:
    disks.fail(WORSE)
    disks.fails_over()
    disks.sweep_all()
    assert disks.led_in(WORSE) > 0
    disks.fail(WORSE)
    assert disks.controller.is_sweeping
    disks.sweep_all()
    assert disks.led_in(WORSE) == 0


def test_a_broker_that_went_and_came_in_the_middle_leads_nothing_there_either(disks: Disks) -> None:
    disks.fail(WORSE)
    disks.cluster.heartbeat(1, want_fence=True)
    disks.fail(WORSE)  # it is unfenced, in the middle of what its going is for
    assert not disks.cluster.quorum.image.brokers[1].fenced
    disks.sweep_all()
    assert disks.led_in(WORSE) > 0
    disks.fail(WORSE)
    disks.sweep_all()
    assert disks.led_in(WORSE) == 0


def test_a_replica_that_moves_meanwhile_stays_where_it_is(disks: Disks) -> None:
    disks.fail(WORSE)
    topic_id = disks.cluster.quorum.image.topics_by_name["b"].topic_id
    last = PARTITIONS - 1
    moved = r.PartitionChangeRecord(
        partition_id=last, topic_id=topic_id, directories=[GOOD, GOOD, GOOD]
    )
    disks.cluster.write(ControllerResult([moved], None))
    disks.sweep_all()
    assert disks.cluster.quorum.image.topics_by_name["b"].partitions[last].leader == 1


def test_a_directory_that_nobody_has_or_that_stands_for_none_changes_nothing(disks: Disks) -> None:
    topic_id = disks.cluster.quorum.image.topics_by_name["b"].topic_id
    unplaced = r.PartitionChangeRecord(
        partition_id=0, topic_id=topic_id, directories=[UNASSIGNED_DIRECTORY, GOOD, GOOD]
    )
    disks.cluster.write(ControllerResult([unplaced], None))
    assert disks.fail(b"?" * 16, UNASSIGNED_DIRECTORY) == 0
    disks.sweep_all()
    assert disks.knowing(1) == 0


def test_with_the_last_directory_the_broker_itself_goes(disks: Disks) -> None:
    assert disks.fail(GOOD, BAD, WORSE) == 0
    assert not disks.controller.is_sweeping
    assert disks.knowing(1) == 0


def test_a_controller_that_is_active_again_finishes_when_it_is_notified_again(disks: Disks) -> None:
    """Another was in between, which may have done nothing: what was begun before is forgotten."""
    disks.fail(WORSE)
    disks.controller.deactivate()
    disks.controller.activate(disks.cluster.loop.now_ms)
    disks.sweep_all()
    assert disks.led_in(WORSE) > 0
    disks.fail(WORSE)
    disks.sweep_all()
    assert disks.led_in(WORSE) == 0
