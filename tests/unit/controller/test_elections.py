"""Elections by request and by the clock: who leads, who does not, and what is answered."""

from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.controller import elections
from firnline.controller.elections import Elected, ElectionType
from firnline.controller.partition_change import RECOVERING
from firnline.controller.topics import NewTopic
from firnline.metadata import records as r
from firnline.metadata.image import PartitionImage
from firnline.metadata.result import ControllerResult
from tests.worlds.quorum import Cluster, broker_config

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


class World:
    """Brokers 1, 2 and 3; topic t with partition 0 on 1, 2, 3 and partition 1 on 2, 3, 1."""

    def __init__(self, **settings: str) -> None:
        self.cluster = Cluster(broker_config(**settings)).with_brokers(1, 2, 3)
        self.create("t", {0: (1, 2, 3), 1: (2, 3, 1)})

    def create(self, name: str, assignments: dict[int, tuple[int, ...]], **configs: str) -> None:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, assignments=assignments, configs=named)
        (made,) = self.cluster.write(self.cluster.controller.create_topics([topic]))
        assert not isinstance(made, KafkaError), made

    def partition(self, number: int = 0, topic: str = "t") -> PartitionImage:
        return self.cluster.quorum.image.topics_by_name[topic].partitions[number]

    def led(self, number: int = 0, topic: str = "t") -> tuple[int, tuple[int, ...]]:
        found = self.partition(number, topic)
        return found.leader, found.isr

    def set(self, number: int = 0, topic: str = "t", **fields: Any) -> None:
        topic_id = self.cluster.quorum.image.topics_by_name[topic].topic_id
        change = r.PartitionChangeRecord(partition_id=number, topic_id=topic_id, **fields)
        self.cluster.write(ControllerResult([change], None))

    def fence(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.cluster.heartbeat(node_id, want_fence=True)

    def elect(self, kind: int, *wanted: tuple[str, int]) -> Any:
        return self.cluster.write(self.cluster.controller.elect_leaders(kind, wanted or None))

    def code(self, kind: int, topic: str, number: int) -> Code:
        """What is answered for one partition; an error must have changed nothing."""
        before = self.cluster.quorum.next_offset
        ((name, index, problem),) = self.elect(kind, (topic, number))
        assert (name, index) == (topic, number)
        if problem is None:
            return Code.NONE
        assert self.cluster.quorum.next_offset == before
        assert isinstance(problem, KafkaError)
        return problem.code


@pytest.fixture
def world() -> World:
    return World()


# ---------------------------------------------------------------------------------------- by request


def test_leadership_does_not_stay_where_a_failure_left_it(world: World) -> None:
    world.fence(1)
    assert world.led() == (2, (2, 3))
    world.cluster.heartbeat(1)
    assert world.code(PREFERRED, "t", 0) == Code.PREFERRED_LEADER_NOT_AVAILABLE, "not in sync yet"
    world.set(isr=[2, 3, 1])
    epoch = world.partition().leader_epoch
    assert world.code(PREFERRED, "t", 0) == Code.NONE
    assert world.led() == (1, (2, 3, 1))
    assert world.partition().leader_epoch == epoch + 1
    assert world.code(PREFERRED, "t", 0) == Code.ELECTION_NOT_NEEDED


def test_a_preferred_replica_that_is_fenced_or_on_its_way_out_does_not_lead(world: World) -> None:
    world.set(leader=2)
    change = r.BrokerRegistrationChangeRecord(
        broker_id=1,
        broker_epoch=world.cluster.quorum.image.brokers[1].epoch,
        in_controlled_shutdown=1,
    )
    world.cluster.write(ControllerResult([change], None))
    assert world.code(PREFERRED, "t", 0) == Code.PREFERRED_LEADER_NOT_AVAILABLE
    assert world.led()[0] == 2


def test_a_replica_in_a_directory_that_its_broker_lost_does_not_lead(world: World) -> None:
    lost = b"\x66" * 16
    world.set(leader=2, directories=[lost, *world.partition().directories[1:]])
    assert world.code(PREFERRED, "t", 0) == Code.PREFERRED_LEADER_NOT_AVAILABLE
    said_lost = bytes(15) + b"\x02"
    world.set(directories=[said_lost, *world.partition().directories[1:]])
    assert world.code(PREFERRED, "t", 0) == Code.PREFERRED_LEADER_NOT_AVAILABLE
    world.set(directories=[bytes(16), *world.partition().directories[1:]])
    assert world.code(PREFERRED, "t", 0) == Code.NONE, "nobody has said where it is"


def test_an_unclean_election_is_made_only_where_nobody_leads(world: World) -> None:
    assert world.code(UNCLEAN, "t", 0) == Code.ELECTION_NOT_NEEDED
    world.set(isr=[1], leader=1)
    world.fence(1)
    assert world.led() == (-1, (1,))
    assert world.code(UNCLEAN, "t", 0) == Code.NONE
    assert world.led() == (2, (2,))
    assert world.partition().leader_recovery_state == RECOVERING


def test_an_unclean_election_prefers_a_leader_that_loses_nothing(world: World) -> None:
    """Nobody leads, yet one of the ISR is there: it leads, and nothing needs recovery."""
    world.set(isr=[3], leader=-1)
    assert world.code(UNCLEAN, "t", 0) == Code.NONE
    assert world.led() == (3, (3,))
    assert world.partition().leader_recovery_state == 0


def test_nobody_is_elected_where_no_replica_lives(world: World) -> None:
    world.create("alone", {0: (3,)})
    world.fence(3)
    assert world.code(UNCLEAN, "alone", 0) == Code.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert world.code(PREFERRED, "alone", 0) == Code.PREFERRED_LEADER_NOT_AVAILABLE
    assert world.led(topic="alone") == (-1, (3,))


def test_unknown_partitions_and_unknown_elections_change_nothing(world: World) -> None:
    assert world.code(PREFERRED, "nope", 0) == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert world.code(PREFERRED, "t", 7) == Code.UNKNOWN_TOPIC_OR_PARTITION
    world.set(leader=2)
    for kind in (2, -1, 127):
        answer = world.elect(kind, ("t", 0))
        assert isinstance(answer, KafkaError)
        assert answer.code == Code.INVALID_REQUEST
    assert world.led()[0] == 2


def test_all_partitions_are_asked_for_by_none_and_those_at_rest_are_left_out(world: World) -> None:
    world.set(1, leader=3)
    assert world.elect(PREFERRED) == [Elected("t", 1, None)]
    assert world.elect(PREFERRED) == []


def test_one_partition_named_twice_is_elected_once(world: World) -> None:
    world.set(leader=2)
    first, second = world.elect(PREFERRED, ("t", 0), ("t", 0))
    assert first.problem is None
    assert second.problem.code == Code.ELECTION_NOT_NEEDED


def test_one_request_does_not_change_the_entire_cluster(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elections, "CHANGES_PER_REQUEST_MAX", 1)
    world.set(0, leader=2)
    world.set(1, leader=3)
    answer = world.elect(PREFERRED)
    assert isinstance(answer, KafkaError)
    assert answer.code == Code.POLICY_VIOLATION
    assert (world.led(0)[0], world.led(1)[0]) == (2, 3)


# ------------------------------------------------------------------------------------- by the clock


def test_a_round_gives_leadership_back_to_all_who_may_have_it(world: World) -> None:
    world.set(0, leader=2)
    world.set(1, leader=3, isr=[3, 1])
    assert world.cluster.write(world.cluster.controller.balance_leaders()) is False
    assert world.led(0)[0] == 1
    assert world.led(1) == (3, (3, 1)), "its preferred replica is not in sync"
    offset = world.cluster.quorum.next_offset
    assert world.cluster.write(world.cluster.controller.balance_leaders()) is False
    assert world.cluster.quorum.next_offset == offset


def test_a_round_ends_so_that_others_are_served_and_the_next_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elections, "CHANGES_PER_ROUND_MAX", 1)
    world.set(0, leader=2)
    world.set(1, leader=3)
    assert world.cluster.write(world.cluster.controller.balance_leaders()) is True
    assert [world.led(number)[0] for number in (0, 1)] == [1, 3]
    assert world.cluster.write(world.cluster.controller.balance_leaders()) is True
    assert [world.led(number)[0] for number in (0, 1)] == [1, 2]


def test_balancing_never_loses_records(world: World) -> None:
    world = World(unclean_leader_election_enable="true")
    world.set(isr=[2], leader=2)
    world.cluster.write(world.cluster.controller.balance_leaders())
    assert world.led() == (2, (2,))


def test_a_round_of_unclean_elections_touches_only_topics_that_allow_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create("lossy", {0: (1, 2), 1: (1, 3)}, unclean_leader_election_enable="true")
    for topic, number in (("t", 0), ("lossy", 0), ("lossy", 1)):
        world.set(number, topic, isr=[1], leader=1)
    change = r.BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=world.cluster.quorum.image.brokers[1].epoch, fenced=1
    )
    world.cluster.write(ControllerResult([change], None))
    for topic, number in (("t", 0), ("lossy", 0), ("lossy", 1)):
        world.set(number, topic, leader=-1)
    monkeypatch.setattr(elections, "CHANGES_PER_ROUND_MAX", 1)
    assert world.cluster.write(world.cluster.controller.elect_unclean_leaders()) is True
    assert (world.led(0, "lossy"), world.led(1, "lossy")) == ((2, (2,)), (-1, (1,)))
    assert world.cluster.write(world.cluster.controller.elect_unclean_leaders()) is True
    assert world.cluster.write(world.cluster.controller.elect_unclean_leaders()) is False
    assert world.led(1, "lossy") == (3, (3,))
    assert world.led() == (-1, (1,))
