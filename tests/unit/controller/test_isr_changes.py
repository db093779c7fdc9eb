"""AlterPartition on the controller: one test for each of its checks, their order, and what success is."""

from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.base.replicas import IsrAnswer, IsrChange, IsrMember
from firnline.controller.configs import Alteration, AlterOp
from firnline.controller.partition_change import RECOVERED, RECOVERING
from firnline.controller.topics import NewTopic
from firnline.metadata import records as r
from firnline.metadata.image import ConfigResource, PartitionImage
from firnline.metadata.result import ControllerResult
from firnline.protocol.schema import Message
from tests.worlds.quorum import Cluster

Answer = IsrAnswer | KafkaError


def answer_of(partition: PartitionImage) -> IsrAnswer:
    return IsrAnswer(
        partition.leader,
        partition.leader_epoch,
        partition.isr,
        partition.partition_epoch,
        partition.leader_recovery_state,
    )


class World:
    """Brokers 1, 2 and 3; topic t with partition 0 led by 1; 3 is out of its ISR and back, unfenced."""

    def __init__(self) -> None:
        self.cluster = Cluster().with_brokers(1, 2, 3)
        made = self.cluster.controller.create_topics([NewTopic("t", assignments={0: (1, 2, 3)})])
        self.cluster.write(made)
        self.topic_id = self.cluster.quorum.image.topics_by_name["t"].topic_id
        self.set(isr=(1, 2))

    @property
    def partition(self) -> PartitionImage:
        return self.cluster.quorum.image.topics_by_name["t"].partitions[0]

    def epoch(self, broker_id: int) -> int:
        return self.cluster.quorum.image.brokers[broker_id].epoch

    def set(self, **fields: Any) -> None:
        """Bring the partition into a state by a record of its own."""
        change = r.PartitionChangeRecord(partition_id=0, topic_id=self.topic_id, **fields)
        self.put(change)

    def put(self, *records: Message) -> None:
        self.cluster.write(ControllerResult(list(records), None))

    def member(self, broker_id: int) -> IsrMember:
        known = broker_id in self.cluster.quorum.image.brokers
        return IsrMember(broker_id, self.epoch(broker_id) if known else 1)

    def proposal(self, *isr: int | IsrMember, **other: Any) -> IsrChange:
        """What leader 1 would say rightly, but for what `other` says."""
        members = tuple(each if isinstance(each, IsrMember) else self.member(each) for each in isr)
        now = self.partition
        right = IsrChange(
            self.topic_id, 0, now.leader_epoch, now.partition_epoch, members, RECOVERED
        )
        return right._replace(**other)

    def ask_all(self, *wanted: IsrChange, sender: int = 1, epoch: int | None = None) -> Any:
        return self.cluster.write(
            self.cluster.controller.alter_partitions(
                broker_id=sender,
                broker_epoch=self.epoch(sender) if epoch is None else epoch,
                wanted=wanted,
            )
        )

    def ask(self, *isr: int | IsrMember, sender: int = 1, **other: Any) -> Answer:
        (answer,) = self.ask_all(self.proposal(*isr, **other), sender=sender)
        assert isinstance(answer, IsrAnswer | KafkaError)
        return answer

    def refused(self, *isr: int | IsrMember, sender: int = 1, **other: Any) -> Code:
        """The code of a refusal, which must have written nothing at all."""
        before, offset = self.cluster.quorum.image, self.cluster.quorum.next_offset
        answer = self.ask(*isr, sender=sender, **other)
        assert isinstance(answer, KafkaError), answer
        assert self.cluster.quorum.next_offset == offset
        assert self.cluster.quorum.image == before
        return answer.code


@pytest.fixture
def world() -> World:
    return World()


# --------------------------------------------------------------------------------- the nine checks


def test_a_dead_incarnation_of_the_leader_changes_no_partition_at_all(world: World) -> None:
    before = world.partition
    for stale in (world.epoch(1) - 1, world.epoch(1) + 1, -1):
        answer = world.ask_all(world.proposal(1, 2, 3), epoch=stale)
        assert isinstance(answer, KafkaError)
        assert answer.code == Code.STALE_BROKER_EPOCH
    unknown = world.ask_all(world.proposal(1, 2, 3), sender=9, epoch=1)
    assert isinstance(unknown, KafkaError)
    assert unknown.code == Code.STALE_BROKER_EPOCH
    assert world.partition == before


def test_1_a_deleted_topic_is_not_taken_for_another(world: World) -> None:
    assert world.refused(1, 2, 3, topic_id=b"\x77" * 16) == Code.UNKNOWN_TOPIC_ID
    assert world.refused(1, 2, 3, topic_id=bytes(16)) == Code.UNKNOWN_TOPIC_ID
    assert world.refused(1, 2, 3, partition=1) == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert world.refused(1, 2, 3, partition=-1) == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_2_a_deposed_controller_does_not_fence_a_leader_that_knows_more(world: World) -> None:
    """X24: the leader has heard of a later leader epoch, so this controller is behind, not the leader."""
    later = world.partition.leader_epoch + 1
    assert world.refused(1, 2, 3, leader_epoch=later) == Code.NOT_CONTROLLER


def test_3_a_deposed_controller_does_not_refuse_a_later_partition_epoch_as_invalid(
    world: World,
) -> None:
    later = world.partition.partition_epoch + 1
    assert world.refused(1, 2, 3, partition_epoch=later) == Code.NOT_CONTROLLER


def test_4_a_leader_of_an_earlier_epoch_changes_no_isr(world: World) -> None:
    world.set(leader=1)
    earlier = world.partition.leader_epoch - 1
    assert world.refused(1, 2, 3, leader_epoch=earlier) == Code.FENCED_LEADER_EPOCH


def test_5_a_follower_does_not_change_the_isr(world: World) -> None:
    assert world.refused(1, 2, 3, sender=2) == Code.INVALID_REQUEST


def test_6_two_changes_from_one_state_do_not_both_win(world: World) -> None:
    """rel-R16: the second was decided on an ISR that is not there any more."""
    first, second = world.proposal(1), world.proposal(1, 2, 3)
    assert isinstance(world.ask_all(first)[0], IsrAnswer)
    late = world.ask_all(second)[0]
    assert isinstance(late, KafkaError)
    assert late.code == Code.INVALID_UPDATE_VERSION
    assert world.partition.isr == (1,)


def test_6_two_changes_from_one_state_in_one_request_do_not_both_win(world: World) -> None:
    first, second = world.ask_all(world.proposal(1), world.proposal(1, 2, 3))
    assert isinstance(first, IsrAnswer)
    assert isinstance(second, KafkaError)
    assert second.code == Code.INVALID_UPDATE_VERSION
    assert world.partition.isr == (1,)


def test_7_no_isr_is_empty_doubled_or_of_unknown_brokers(world: World) -> None:
    world.cluster.register(4)
    world.cluster.heartbeat(4)
    assert world.refused() == Code.INVALID_REQUEST
    assert world.refused(1, 2, 2) == Code.INVALID_REQUEST
    assert world.refused(1, 2, 4) == Code.INVALID_REQUEST
    assert world.refused(1, 9) == Code.INVALID_REQUEST


def test_7_a_leader_does_not_leave_its_own_isr(world: World) -> None:
    assert world.refused(2, 3) == Code.INVALID_REQUEST


def test_8_nobody_joins_a_leader_that_still_recovers(world: World) -> None:
    world.set(isr=[1], leader=1, leader_recovery_state=RECOVERING)
    assert world.refused(1, 2, leader_recovery_state=RECOVERING) == Code.INVALID_REQUEST
    assert isinstance(world.ask(1, leader_recovery_state=RECOVERING), IsrAnswer)
    after = world.ask(1, 2, leader_recovery_state=RECOVERED)
    assert isinstance(after, IsrAnswer)
    assert (after.isr, after.leader_recovery_state) == ((1, 2), RECOVERED)
    assert answer_of(world.partition) == after


def test_8_a_leader_that_has_recovered_does_not_begin_again(world: World) -> None:
    assert world.refused(1, leader_recovery_state=RECOVERING) == Code.INVALID_REQUEST
    assert world.refused(1, leader_recovery_state=7) == Code.INVALID_REQUEST


def test_9_a_replica_with_the_epoch_of_its_dead_incarnation_never_joins(world: World) -> None:
    """rel-R1, X19: KAFKA-14139. The disk may be empty by now, whatever the leader saw before."""
    dead = world.member(3)
    world.cluster.loop.now_ms += 60_000
    world.cluster.heartbeat(1)
    world.cluster.register(3, 2)
    world.cluster.heartbeat(3)
    assert world.refused(1, 2, dead) == Code.INELIGIBLE_REPLICA
    ahead = IsrMember(3, world.epoch(3) + 1)
    assert world.refused(1, 2, ahead) == Code.INELIGIBLE_REPLICA
    joined = world.ask(1, 2, 3)
    assert isinstance(joined, IsrAnswer)
    assert world.partition.isr == (1, 2, 3)


def test_9_a_replica_that_is_in_the_isr_already_is_checked_as_those_that_join(
    world: World,
) -> None:
    wrong = IsrMember(2, world.epoch(2) - 1)
    assert world.refused(1, wrong, 3) == Code.INELIGIBLE_REPLICA


def test_9_a_broker_that_nobody_registered_never_joins(world: World) -> None:
    world.put(r.UnregisterBrokerRecord(broker_id=3, broker_epoch=world.epoch(3)))
    assert world.refused(1, 2, 3) == Code.INELIGIBLE_REPLICA


@pytest.mark.parametrize("epoch", [None, -1])
def test_9_a_fenced_broker_never_joins_with_or_without_its_epoch(
    world: World, epoch: int | None
) -> None:
    world.cluster.heartbeat(3, want_fence=True)
    member = world.member(3) if epoch is None else IsrMember(3, epoch)
    assert world.refused(1, 2, member) == Code.INELIGIBLE_REPLICA


def test_9_a_broker_on_its_way_out_never_joins(world: World) -> None:
    change = r.BrokerRegistrationChangeRecord(
        broker_id=3, broker_epoch=world.epoch(3), in_controlled_shutdown=1
    )
    world.put(change)
    assert world.refused(1, 2, 3) == Code.INELIGIBLE_REPLICA


def test_9_an_epoch_that_an_old_leader_cannot_know_is_not_checked(world: World) -> None:
    """I10: AlterPartition 2 names ids alone."""
    joined = world.ask(IsrMember(1), IsrMember(2), IsrMember(3))
    assert isinstance(joined, IsrAnswer)
    assert joined.isr == (1, 2, 3)


def test_the_worst_is_said_first(world: World) -> None:
    """X24: each check is passed over only by those before it, so every pair shows an order."""
    world.set(leader=1)
    world.cluster.heartbeat(3, want_fence=True)
    now = world.partition
    faults: list[tuple[Code, dict[str, Any]]] = [
        (Code.UNKNOWN_TOPIC_ID, {"topic_id": b"\x77" * 16}),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, {"partition": 5}),
        (Code.NOT_CONTROLLER, {"leader_epoch": now.leader_epoch + 1}),
        (Code.NOT_CONTROLLER, {"partition_epoch": now.partition_epoch + 1}),
        (Code.FENCED_LEADER_EPOCH, {"leader_epoch": now.leader_epoch - 1}),
        (Code.INVALID_REQUEST, {"sender": 2}),
        (Code.INVALID_UPDATE_VERSION, {"partition_epoch": now.partition_epoch - 1}),
        (Code.INVALID_REQUEST, {"leader_recovery_state": RECOVERING}),
    ]
    for place, (code, fault) in enumerate(faults):
        for _, later in faults[place + 1 :]:
            if not fault.keys() & later.keys():
                assert world.refused(1, 3, **fault, **later) == code, (fault, later)
        assert world.refused(1, 3, **fault) == code


# ---------------------------------------------------------------------------------- what success is


def test_success_answers_with_the_new_state_and_every_change_has_its_own_epoch(
    world: World,
) -> None:
    before = world.partition
    after = world.ask(1, 2, 3)
    assert after == answer_of(world.partition)
    assert world.partition.partition_epoch == before.partition_epoch + 1
    assert world.partition.leader_epoch == before.leader_epoch, "I11: the leader is the same"
    shrunk = world.ask(1)
    assert isinstance(shrunk, IsrAnswer)
    assert shrunk.partition_epoch == before.partition_epoch + 2
    assert shrunk.leader_epoch == before.leader_epoch


def test_a_shrink_has_a_new_leader_epoch_where_brokers_may_be_older_than_3_6(world: World) -> None:
    world.put(r.FeatureLevelRecord(name="metadata.version", feature_level=11))
    before = world.partition
    after = world.ask(1)
    assert isinstance(after, IsrAnswer)
    assert (after.leader_id, after.leader_epoch) == (1, before.leader_epoch + 1)
    grown = world.ask(1, 2)
    assert isinstance(grown, IsrAnswer)
    assert grown.leader_epoch == after.leader_epoch


def test_a_change_that_changes_nothing_ends_what_was_asked_before(world: World) -> None:
    """I9, rel-R7: the partition is written down as it is, and copies of earlier requests are refused."""
    earlier, before, offset = (
        world.proposal(1, 2, 3),
        world.partition,
        world.cluster.quorum.next_offset,
    )
    after = world.ask(1, 2)
    assert after == answer_of(world.partition)
    assert world.partition == before._replace(partition_epoch=before.partition_epoch + 1)
    assert world.cluster.quorum.next_offset == offset + 1
    (answer,) = world.ask_all(earlier)
    assert isinstance(answer, KafkaError)
    assert answer.code is Code.INVALID_UPDATE_VERSION


def test_an_isr_in_another_order_is_written_down(world: World) -> None:
    """As Kafka's controllers do: a leader whose ISR has two members ends its late requests so."""
    before = world.partition
    after = world.ask(2, 1)
    assert after == answer_of(world.partition)
    epoch = before.partition_epoch + 1
    assert world.partition == before._replace(isr=(2, 1), partition_epoch=epoch)


def test_each_partition_of_a_request_is_decided_on_its_own(world: World) -> None:
    good, bad = world.proposal(1, 2, 3), world.proposal(1, topic_id=b"\x77" * 16)
    first, second = world.ask_all(bad, good)
    assert isinstance(first, KafkaError)
    assert second == answer_of(world.partition)
    assert world.partition.isr == (1, 2, 3)


def test_a_leader_that_its_reassignment_removed_is_notified_and_the_change_is_made(
    world: World,
) -> None:
    """I8, X29: the only answer that is an error and has an effect."""
    world.set(replicas=[2, 3, 1], removing_replicas=[1], adding_replicas=[3])
    before = world.partition
    answer = world.ask(1, 2, 3)
    assert isinstance(answer, KafkaError)
    assert answer.code == Code.NEW_LEADER_ELECTED
    after = world.partition
    assert (after.replicas, after.isr, after.leader) == ((2, 3), (2, 3), 2)
    assert (after.removing_replicas, after.adding_replicas) == ((), ())
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.partition_epoch == before.partition_epoch + 1


def test_a_reassignment_that_its_leader_survives_is_a_success_with_a_new_leader_epoch(
    world: World,
) -> None:
    """I11: the removed follower must not go on under the old epoch."""
    world.set(replicas=[3, 1, 2], removing_replicas=[2], adding_replicas=[3])
    before = world.partition
    answer = world.ask(1, 3)
    after = world.partition
    assert answer == answer_of(after)
    assert (after.replicas, after.isr, after.leader) == ((3, 1), (1, 3), 1)
    assert after.leader_epoch == before.leader_epoch + 1


def test_a_reassignment_waits_until_all_its_replicas_are_in_sync(world: World) -> None:
    world.cluster.register(4)
    world.cluster.heartbeat(4)
    world.set(replicas=[3, 4, 1, 2], removing_replicas=[1, 2], adding_replicas=[3, 4])
    answer = world.ask(1, 2, 3)
    after = world.partition
    assert answer == answer_of(after)
    assert (after.replicas, after.removing_replicas) == ((3, 4, 1, 2), (1, 2))


# ------------------------------------------------------- what becomes of a leader by the altered config


def test_unclean_election_follows_the_settings_of_the_topic_then_of_the_cluster(
    world: World,
) -> None:
    """A setting altered at run time counts at the next election, without a restart."""
    cluster = world.cluster
    key = "unclean.leader.election.enable"

    def alter(kind: int, name: str, value: str) -> None:
        change = [Alteration(key, AlterOp.SET, value)]
        wanted = [(ConfigResource(kind, name), change)]
        answer = cluster.write(cluster.controller.incremental_alter_configs(wanted))
        assert answer == [None]

    world.set(isr=[1], leader=1)
    cluster.heartbeat(1, want_fence=True)
    assert (world.partition.leader, world.partition.isr) == (-1, (1,))
    cluster.heartbeat(1)
    alter(4, "", "true")
    alter(2, "t", "false")
    cluster.heartbeat(1, want_fence=True)
    assert (world.partition.leader, world.partition.isr) == (-1, (1,))
    cluster.heartbeat(1)
    assert world.partition.leader == 1
    alter(2, "t", "true")
    alter(4, "", "false")
    cluster.heartbeat(1, want_fence=True)
    assert (world.partition.leader, world.partition.isr) == (2, (2,))
    assert world.partition.leader_recovery_state == RECOVERING


@pytest.mark.parametrize("broker", ["", "1"], ids=["for-all", "for-this-controller"])
def test_unclean_election_follows_what_was_altered_for_brokers(world: World, broker: str) -> None:
    cluster = world.cluster
    change = [Alteration("unclean.leader.election.enable", AlterOp.SET, "true")]
    wanted = [(ConfigResource(4, broker), change)]
    assert cluster.write(cluster.controller.incremental_alter_configs(wanted)) == [None]
    world.set(isr=[1], leader=1)
    cluster.heartbeat(1, want_fence=True)
    assert (world.partition.leader, world.partition.isr) == (2, (2,))


def test_a_setting_of_another_broker_allows_nothing(world: World) -> None:
    cluster = world.cluster
    change = [Alteration("unclean.leader.election.enable", AlterOp.SET, "true")]
    wanted = [(ConfigResource(4, "2"), change)]
    assert cluster.write(cluster.controller.incremental_alter_configs(wanted)) == [None]
    world.set(isr=[1], leader=1)
    cluster.heartbeat(1, want_fence=True)
    assert (world.partition.leader, world.partition.isr) == (-1, (1,))
