"""Moves of partitions: how they begin, what ends them, how they are called off (KIP-455, KIP-860)."""

from itertools import chain
from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.base.replicas import IsrChange, IsrMember
from firnline.controller import reassignments
from firnline.controller.partition_change import RECOVERING
from firnline.controller.reassignments import Moving, Reassignment, list_reassignments
from firnline.metadata.image import ClusterImage
from tests.unit.controller.test_elections import World as Elections


class World(Elections):
    """Five brokers; t-0 is on 1, 2, 3."""

    def __init__(self, **settings: str) -> None:
        super().__init__(**settings)
        for node_id in (4, 5):
            self.cluster.register(node_id)
            self.cluster.heartbeat(node_id)

    def move(self, replicas: tuple[int, ...] | None, *, number: int = 0, **options: Any) -> Code:
        wanted = [Reassignment("t", number, replicas)]
        before = self.cluster.quorum.next_offset
        result = self.cluster.controller.alter_reassignments(wanted, **options)
        (answer,) = self.cluster.write(result)
        if answer is None:
            return Code.NONE
        assert self.cluster.quorum.next_offset == before
        assert isinstance(answer, KafkaError)
        return answer.code

    def propose(self, *isr: int) -> Any:
        """The leader of t-0 says who is in sync."""
        now = self.partition()
        members = tuple(IsrMember(each) for each in isr)
        topic_id = self.cluster.quorum.image.topics_by_name["t"].topic_id
        change = IsrChange(topic_id, 0, now.leader_epoch, now.partition_epoch, members)
        epoch = self.cluster.quorum.image.brokers[now.leader].epoch
        (answer,) = self.cluster.write(
            self.cluster.controller.alter_partitions(
                broker_id=now.leader, broker_epoch=epoch, wanted=[change]
            )
        )
        return answer

    def moving(self) -> tuple[tuple[int, ...], ...]:
        """Replicas, adding, removing."""
        now = self.partition()
        return now.replicas, now.adding_replicas, now.removing_replicas


@pytest.fixture
def world() -> World:
    return World()


def test_a_move_keeps_the_old_replicas_until_all_new_ones_are_in_sync(world: World) -> None:
    before = world.partition()
    assert world.move((4, 5, 1)) == Code.NONE
    assert world.moving() == ((4, 5, 1, 2, 3), (4, 5), (2, 3))
    assert world.led() == (1, (1, 2, 3))
    assert world.partition().leader_epoch == before.leader_epoch, "nobody has to stop"
    world.propose(1, 2, 3, 4)
    assert world.moving() == ((4, 5, 1, 2, 3), (4, 5), (2, 3))
    world.propose(1, 2, 3, 4, 5)
    assert world.moving() == ((4, 5, 1), (), ())
    assert world.led() == (1, (1, 4, 5))
    assert world.partition().leader_epoch == before.leader_epoch + 1, "2 and 3 must not go on"


def test_new_replicas_are_given_directories_and_old_ones_keep_theirs(world: World) -> None:
    world.set(directories=[b"\x61" * 16, b"\x62" * 16, b"\x63" * 16])
    brokers = world.cluster.quorum.image.brokers
    assert world.move((4, 1)) == Code.NONE
    expected = (brokers[4].log_dirs[0], b"\x61" * 16, b"\x62" * 16, b"\x63" * 16)
    assert world.partition().directories == expected


def test_another_order_of_the_same_replicas_is_done_at_once_and_moves_no_leader(
    world: World,
) -> None:
    before = world.partition()
    assert world.move((3, 2, 1)) == Code.NONE
    assert world.moving() == ((3, 2, 1), (), ())
    assert (world.partition().leader, world.partition().leader_epoch) == (1, before.leader_epoch)


def test_fewer_replicas_are_done_at_once_where_those_left_are_in_sync(world: World) -> None:
    assert world.move((2, 3)) == Code.NONE
    assert world.moving() == ((2, 3), (), ())
    assert world.led() == (2, (2, 3))


def test_more_replicas_are_done_when_they_are_in_sync(world: World) -> None:
    """Nobody leaves: the move would be listed for ever, and called off it would lose the new ones."""
    epoch = world.partition().leader_epoch
    assert world.move((1, 2, 3, 4)) == Code.NONE
    assert world.moving() == ((1, 2, 3, 4), (4,), ())
    world.propose(1, 2, 3, 4)
    assert world.moving() == ((1, 2, 3, 4), (), ())
    assert world.led() == (1, (1, 2, 3, 4))
    assert world.partition().leader_epoch == epoch
    assert listed(world.cluster.quorum.image, None) == []


def test_fewer_replicas_wait_where_nobody_left_is_in_sync(world: World) -> None:
    world.set(isr=[1])
    assert world.move((2, 3)) == Code.NONE
    assert world.moving() == ((2, 3, 1), (), (1,))
    assert world.led() == (1, (1,))
    world.propose(1, 2)
    assert world.moving() == ((2, 3, 1), (), (1,))
    assert world.propose(1, 2, 3).code == Code.NEW_LEADER_ELECTED
    assert (world.moving(), world.led()) == (((2, 3), (), ()), (2, (2, 3)))


def test_what_changes_nothing_is_no_record(world: World) -> None:
    offset = world.cluster.quorum.next_offset
    assert world.move((1, 2, 3)) == Code.NONE
    assert world.cluster.quorum.next_offset == offset


def test_a_move_to_nowhere_twice_or_to_unknown_brokers_is_refused(world: World) -> None:
    for replicas in ((), (1, 1), (1, 9), (-1,), (1, 2, -3)):
        assert world.move(replicas) == Code.INVALID_REPLICA_ASSIGNMENT, replicas
    assert world.move((1, 2), number=9) == Code.UNKNOWN_TOPIC_OR_PARTITION
    result = world.cluster.controller.alter_reassignments([Reassignment("nope", 0, (1,))])
    assert result.response[0] is not None
    assert result.response[0].code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_move_to_a_fenced_broker_begins_and_waits_for_it(world: World) -> None:
    world.fence(4)
    assert world.move((1, 2, 4)) == Code.NONE
    assert world.moving() == ((1, 2, 4, 3), (4,), (3,))
    answer = world.propose(1, 2, 3, 4)
    assert answer.code == Code.INELIGIBLE_REPLICA
    assert world.led() == (1, (1, 2, 3))


def test_the_number_of_replicas_stays_where_the_client_says_so(world: World) -> None:
    assert world.move((1, 2), may_change_factor=False) == Code.INVALID_REPLICATION_FACTOR
    assert world.move((1, 2, 3, 4), may_change_factor=False) == Code.INVALID_REPLICATION_FACTOR
    assert world.move((1, 2, 4), may_change_factor=False) == Code.NONE
    assert world.moving() == ((1, 2, 4, 3), (4,), (3,))
    # Counted without those on their way out.
    assert world.move((1, 5, 2, 4), may_change_factor=False) == Code.INVALID_REPLICATION_FACTOR
    assert world.move((1, 2, 5), may_change_factor=False) == Code.NONE


def test_a_move_that_is_called_off_leaves_the_partition_where_it_was(world: World) -> None:
    assert world.move((4, 5)) == Code.NONE
    world.propose(1, 2, 3, 4)
    assert world.move(None) == Code.NONE
    assert world.moving() == ((1, 2, 3), (), ())
    assert world.led() == (1, (1, 2, 3))
    assert world.move(None) == Code.NO_REASSIGNMENT_IN_PROGRESS


def test_a_move_whose_leader_is_new_gives_leadership_back_when_called_off(world: World) -> None:
    assert world.move((4, 5, 1)) == Code.NONE
    world.propose(1, 2, 4)
    world.set(leader=4)
    epoch = world.partition().leader_epoch
    assert world.move(None) == Code.NONE
    assert (world.moving(), world.led()) == (((1, 2, 3), (), ()), (1, (1, 2)))
    assert world.partition().leader_epoch == epoch + 1


def test_calling_off_does_not_lose_records_that_only_newcomers_have(world: World) -> None:
    assert world.move((4, 5, 1)) == Code.NONE
    world.set(isr=[4], leader=4)
    assert world.move(None) == Code.INVALID_REPLICA_ASSIGNMENT
    assert world.led() == (4, (4,))


def test_calling_off_may_lose_records_where_that_is_allowed_and_says_so() -> None:
    world = World(unclean_leader_election_enable="true")
    assert world.move((4, 5, 1)) == Code.NONE
    world.set(isr=[4], leader=4)
    assert world.move(None) == Code.NONE
    assert (world.moving(), world.led()) == (((1, 2, 3), (), ()), (1, (1,)))
    assert world.partition().leader_recovery_state == RECOVERING


def test_a_partition_of_newcomers_alone_cannot_go_back(world: World) -> None:
    world.set(adding_replicas=[1, 2, 3])
    assert world.move(None) == Code.INVALID_REPLICA_ASSIGNMENT


def test_a_replica_that_dies_while_it_leaves_lets_the_move_end(world: World) -> None:
    """The ISR that is left may be all that the move waited for."""
    assert world.move((1, 2, 4)) == Code.NONE
    world.set(isr=[1, 2, 3, 4], replicas=[1, 2, 4, 3], removing_replicas=[3], adding_replicas=[4])
    world.fence(3)
    assert (world.moving(), world.led()) == (((1, 2, 4), (), ()), (1, (1, 2, 4)))


def test_what_moves_is_listed_and_nothing_else(world: World) -> None:
    assert world.move((4, 1)) == Code.NONE
    image = world.cluster.quorum.image
    row = Moving("t", 0, (4, 1, 2, 3), (4,), (2, 3))
    assert listed(image, None) == [row]
    assert listed(image, [("t", [1, 0, 7]), ("nope", [0])]) == [row]
    assert listed(image, [("t", [1])]) == []
    assert listed(image, []) == []


def listed(image: ClusterImage, wanted: Any) -> list[Moving]:
    return list(chain.from_iterable(list_reassignments(image, wanted)))


def test_one_request_does_not_move_the_entire_cluster(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reassignments, "CHANGES_PER_REQUEST_MAX", 1)
    wanted = [Reassignment("t", 0, (4,)), Reassignment("t", 1, (4,))]
    first, second = world.cluster.write(world.cluster.controller.alter_reassignments(wanted))
    assert first is None
    assert second.code == Code.POLICY_VIOLATION
    assert world.partition(1).replicas == (2, 3, 1)


def test_a_topic_that_is_deleted_on_the_move_is_gone(world: World) -> None:
    assert world.move((4, 1)) == Code.NONE
    world.cluster.write(world.cluster.controller.delete_topics(["t"]))
    assert listed(world.cluster.quorum.image, None) == []
    assert not world.cluster.quorum.image.topics_by_name


def test_a_look_for_moves_among_many_partitions_lets_others_have_their_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reassignments, "_SEEN_AT_ONCE", 2)
    assert list(list_reassignments(world.cluster.quorum.image, None)) == [[]], "nothing moves"
