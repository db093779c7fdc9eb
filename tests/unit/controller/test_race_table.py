"""KAFKA-14139 at the controller: rows of the race table 2.9 that it decides, under the row's number.

ISR={A}, B has caught up, and A asks for {A:eA, B:e1}. B restarts at every point of that. A is broker 1, B is
broker 2; rows 5 and 6 are decided by the leader alone.
"""

from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.base.replicas import IsrChange, IsrMember
from firnline.controller.controller import Controller
from firnline.controller.topics import NewTopic
from firnline.metadata.image import PartitionImage
from tests.worlds.chance import CountingRng
from tests.worlds.quorum import Cluster

A, B = 1, 2
SESSION_MS = 9_000


class Race:
    """t-0 on A and B with ISR={A}; `alter` is A's request as it was made at the beginning."""

    def __init__(self) -> None:
        self.cluster = Cluster().with_brokers(A, B)
        self.cluster.write(
            self.cluster.controller.create_topics([NewTopic("t", assignments={0: (A, B)})])
        )
        self.cluster.heartbeat(B, want_fence=True)
        self.cluster.heartbeat(B)
        assert self.partition.isr == (A,)
        self.epochs = {A: self.epoch(A), B: self.epoch(B)}
        self.wanted = self.proposal((A, self.epochs[A]), (B, self.epochs[B]))

    @property
    def partition(self) -> PartitionImage:
        return self.cluster.quorum.image.topics_by_name["t"].partitions[0]

    def epoch(self, broker_id: int) -> int:
        return self.cluster.quorum.image.brokers[broker_id].epoch

    def proposal(self, *isr: tuple[int, int]) -> IsrChange:
        now = self.partition
        topic_id = self.cluster.quorum.image.topics_by_name["t"].topic_id
        members = tuple(IsrMember(*each) for each in isr)
        return IsrChange(topic_id, 0, now.leader_epoch, now.partition_epoch, members)

    def send(self, wanted: IsrChange | None = None) -> Any:
        """A's request, with the epoch that A had when the race began."""
        answer = self.cluster.write(
            self.cluster.controller.alter_partitions(
                broker_id=A, broker_epoch=self.epochs[A], wanted=[wanted or self.wanted]
            )
        )
        return answer if isinstance(answer, KafkaError) else answer[0]

    def code(self) -> Code:
        """Of the request, refused without a trace."""
        before = self.partition
        answer = self.send()
        assert isinstance(answer, KafkaError), answer
        assert self.partition == before
        return answer.code

    def dies(self, broker_id: int) -> None:
        """Silence, until the controller fences it; the other goes on."""
        for _ in range(4):
            self.cluster.loop.now_ms += SESSION_MS // 3
            self.cluster.heartbeat(A + B - broker_id)
        result = self.cluster.controller.fence_stale(self.cluster.loop.now_ms)
        assert self.cluster.write(result) == broker_id

    def registers(self, broker_id: int) -> Any:
        """The next incarnation, which knows nothing of the one before."""
        self.incarnations = getattr(self, "incarnations", 1) + 1
        answer = self.cluster.register(broker_id, self.incarnations)
        if isinstance(answer, int):
            assert answer > self.epochs[broker_id], "rel-R3"
        return answer

    def fails_over(self) -> None:
        """Another controller, with nothing in its memory but the log."""
        self.cluster.controller = Controller(
            config=self.cluster.config, rng=CountingRng(1_001), metadata=self.cluster.quorum
        )
        self.cluster.controller.activate(self.cluster.loop.now_ms)


@pytest.fixture
def race() -> Race:
    return Race()


def test_row_1_b_dies_after_it_joined_and_the_fence_takes_it_out(race: Race) -> None:
    assert race.send().isr == (A, B)
    race.dies(B)
    assert (race.partition.isr, race.partition.leader) == ((A,), A)


def test_row_2_b_is_fenced_when_the_request_arrives(race: Race) -> None:
    race.dies(B)
    assert race.code() == Code.INELIGIBLE_REPLICA


def test_row_3_b_is_back_and_still_fenced(race: Race) -> None:
    race.dies(B)
    race.registers(B)
    assert race.code() == Code.INELIGIBLE_REPLICA


@pytest.mark.parametrize("fails_over", [False, True], ids=["same-controller", "new-controller"])
def test_row_4_b_is_back_with_an_empty_disk_and_unfenced(race: Race, fails_over: bool) -> None:
    race.dies(B)
    race.registers(B)
    race.cluster.heartbeat(B)
    if fails_over:
        race.fails_over()
    assert race.code() == Code.INELIGIBLE_REPLICA
    race.dies(A)
    assert race.partition.leader == -1, "B lost its disk: it must not lead"


def test_row_7_b_has_caught_up_again_and_all_know_its_new_epoch(race: Race) -> None:
    race.dies(B)
    race.registers(B)
    race.cluster.heartbeat(B)
    answer = race.send(race.proposal((A, race.epoch(A)), (B, race.epoch(B))))
    assert answer.isr == (A, B)


def test_row_8_b_is_on_its_way_out(race: Race) -> None:
    race.cluster.write(
        race.cluster.controller.create_topics([NewTopic("b", assignments={0: (B, A)})])
    )
    race.cluster.heartbeat(B, want_shut_down=True)
    assert race.cluster.quorum.image.brokers[B].in_controlled_shutdown
    assert race.code() == Code.INELIGIBLE_REPLICA


def test_row_9_a_has_a_new_incarnation_itself(race: Race) -> None:
    race.dies(A)
    race.registers(A)
    race.cluster.heartbeat(A)
    assert (race.partition.leader, race.partition.isr) == (A, (A,))
    assert race.code() == Code.STALE_BROKER_EPOCH


def test_row_10_the_last_member_of_the_isr_stays_in_it_over_an_unclean_restart(race: Race) -> None:
    """The exception that KIP-903 states: without eligible leader replicas there is nobody else."""
    leader_epoch = race.partition.leader_epoch
    race.dies(A)
    assert (race.partition.leader, race.partition.isr) == (-1, (A,))
    race.registers(A)
    assert race.partition.leader == -1, "registered is not yet unfenced"
    race.cluster.heartbeat(A)
    assert (race.partition.leader, race.partition.isr) == (A, (A,))
    assert race.partition.leader_epoch == leader_epoch + 2, "no epoch has two contents"


def test_row_11_a_leads_no_more(race: Race) -> None:
    race.send()
    late = race.proposal((A, race.epochs[A]), (B, race.epochs[B]))
    race.dies(A)
    race.cluster.heartbeat(A)
    assert race.partition.leader == B
    race.wanted = late
    assert race.code() == Code.FENCED_LEADER_EPOCH


def test_row_12_this_controller_knows_less_than_the_leader(race: Race) -> None:
    race.wanted = race.wanted._replace(leader_epoch=race.wanted.leader_epoch + 1)
    assert race.code() == Code.NOT_CONTROLLER
    race.wanted = race.proposal((A, race.epochs[A]), (B, race.epochs[B]))
    race.wanted = race.wanted._replace(partition_epoch=race.wanted.partition_epoch + 1)
    assert race.code() == Code.NOT_CONTROLLER


def test_row_13_b_is_dead_and_nobody_knows_yet(race: Race) -> None:
    """B joins, dead as it is; it leaves before another incarnation of it can lead."""
    refused = race.registers(B)
    assert isinstance(refused, KafkaError)
    assert refused.code == Code.DUPLICATE_BROKER_REGISTRATION
    assert race.send().isr == (A, B)
    for _ in range(4):
        race.cluster.loop.now_ms += SESSION_MS // 3
        race.cluster.heartbeat(A)
    # Its session is over but not yet ended: the registration itself ends it.
    race.registers(B)
    assert race.partition.isr == (A,)
    assert race.cluster.quorum.image.brokers[B].fenced
    race.cluster.heartbeat(B)
    assert (race.partition.isr, race.partition.leader) == ((A,), A)
