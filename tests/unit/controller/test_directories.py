"""AssignReplicasToDirs on the controller: what it writes down, what it refuses, and who leads then."""

from typing import Any

from firnline.base.errors import Code, KafkaError
from firnline.base.replicas import DirectoryAssignment
from firnline.controller.brokers import Heartbeat
from firnline.controller.topics import NewTopic
from firnline.metadata import records as r
from firnline.metadata.image import PartitionImage
from firnline.metadata.result import ControllerResult
from tests.worlds.quorum import Cluster

NEW, LOST = b"n" * 16, bytes(15) + b"\x02"  # as Apache Kafka 4.3.1 counts them


class World:
    """Brokers 1, 2 and 3; topic t with partition 0 on all, led by 1."""

    def __init__(self) -> None:
        self.cluster = Cluster().with_brokers(1, 2, 3)
        made = self.cluster.controller.create_topics([NewTopic("t", assignments={0: (1, 2, 3)})])
        self.cluster.write(made)
        self.topic_id = self.cluster.quorum.image.topics_by_name["t"].topic_id

    @property
    def partition(self) -> PartitionImage:
        return self.cluster.quorum.image.topics_by_name["t"].partitions[0]

    def set_directories(self, broker_id: int, *directories: bytes) -> None:
        epoch = self.cluster.quorum.image.brokers[broker_id].epoch
        change = r.BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=epoch, log_dirs=directories
        )
        self.cluster.write(ControllerResult([change], None))

    def assign(self, broker_id: int, *places: DirectoryAssignment, epoch: int | None = None) -> Any:
        known = self.cluster.quorum.image.brokers[broker_id].epoch
        result = self.cluster.controller.assign_directories(
            broker_id=broker_id, broker_epoch=known if epoch is None else epoch, wanted=places
        )
        return self.cluster.write(result)

    def place(self, directory: bytes = NEW, *, partition: int = 0) -> DirectoryAssignment:
        return DirectoryAssignment(self.topic_id, partition, directory)


def test_a_directory_is_written_down_beside_those_of_the_others() -> None:
    world = World()
    before = world.partition
    world.set_directories(2, NEW)
    assert world.assign(2, world.place()) == [None]
    after = world.partition
    assert after.directories == (before.directories[0], NEW, before.directories[2])
    assert (after.leader, after.isr, after.leader_epoch) == (1, before.isr, before.leader_epoch)


def test_the_same_said_again_writes_nothing() -> None:
    world = World()
    world.set_directories(2, NEW)
    world.assign(2, world.place())
    offset = world.cluster.quorum.next_offset
    assert world.assign(2, world.place(), world.place()) == [None, None]
    assert world.cluster.quorum.next_offset == offset


def test_each_partition_is_checked_on_its_own() -> None:
    world = World()
    world.set_directories(2, NEW)
    made = world.cluster.controller.create_topics([NewTopic("u", assignments={0: (1, 3)})])
    world.cluster.write(made)
    other = world.cluster.quorum.image.topics_by_name["u"].topic_id
    answers = world.assign(
        2,
        DirectoryAssignment(b"?" * 16, 0, NEW),
        world.place(partition=9),
        DirectoryAssignment(other, 0, NEW),
        world.place(),
    )
    assert [each and each.code for each in answers] == [
        Code.UNKNOWN_TOPIC_ID,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.NOT_LEADER_OR_FOLLOWER,
        None,
    ]
    assert world.partition.directories[1] == NEW


def test_a_dead_incarnation_assigns_nothing() -> None:
    world = World()
    before = world.partition
    answer = world.assign(2, world.place(), epoch=world.cluster.quorum.image.brokers[2].epoch - 1)
    assert isinstance(answer, KafkaError)
    assert answer.code == Code.STALE_BROKER_EPOCH
    assert world.partition == before


def test_a_replica_in_a_directory_that_is_not_online_leaves_the_isr() -> None:
    """The broker's other directories are sound; this one it could not tell of before."""
    for directory in (NEW, LOST):
        world = World()
        assert world.assign(1, world.place(directory)) == [None]
        after = world.partition
        assert after.directories[0] == directory
        assert 1 not in after.isr
        assert after.leader == 2


def test_the_last_of_the_isr_stays_in_it_and_does_not_lead() -> None:
    world = World()
    change = r.PartitionChangeRecord(partition_id=0, topic_id=world.topic_id, isr=(1,))
    world.cluster.write(ControllerResult([change], None))
    world.assign(1, world.place(LOST))
    assert world.partition.isr == (1,)
    assert world.partition.leader == -1


def test_the_right_directory_makes_a_replica_electable() -> None:
    world = World()
    world.set_directories(1, NEW)
    heartbeat = Heartbeat(2, world.cluster.quorum.image.brokers[2].epoch, 10**9, want_fence=True)
    world.cluster.write(world.cluster.controller.heartbeat(heartbeat, 0))
    refused = world.cluster.write(world.cluster.controller.elect_leaders(0, [("t", 0)]))
    assert world.partition.leader != 1, refused
    world.assign(1, world.place())
    world.cluster.write(world.cluster.controller.elect_leaders(0, [("t", 0)]))
    assert world.partition.leader == 1


def test_the_last_of_the_isr_leads_again_when_it_is_back_in_a_directory() -> None:
    """Nobody else may, and nothing else is going to happen."""
    world = World()
    change = r.PartitionChangeRecord(partition_id=0, topic_id=world.topic_id, isr=(1,))
    world.cluster.write(ControllerResult([change], None))
    world.assign(1, world.place(LOST))
    assert world.partition.leader == -1
    world.set_directories(1, NEW)
    world.assign(1, world.place())
    after = world.partition
    assert (after.leader, after.isr, after.directories[0]) == (1, (1,), NEW)


def test_one_that_is_back_and_not_in_sync_does_not_lead() -> None:
    world = World()
    world.assign(1, world.place(LOST))
    change = r.PartitionChangeRecord(partition_id=0, topic_id=world.topic_id, isr=(2,))
    world.cluster.write(ControllerResult([change], None))
    world.assign(2, world.place(LOST))
    world.set_directories(1, NEW)
    world.assign(1, world.place())
    assert (world.partition.leader, world.partition.isr) == (-1, (2,))


def test_a_replica_that_its_broker_is_to_place_may_lead_meanwhile() -> None:
    """Of several directories the broker chooses one; the ids are Kafka's, or its are taken for lost."""
    world = World()
    world.set_directories(1, NEW, b"o" * 16)
    made = world.cluster.controller.create_topics([NewTopic("u", assignments={0: (1, 2)})])
    world.cluster.write(made)
    found = world.cluster.quorum.image.topics_by_name["u"].partitions[0]
    assert (found.leader, found.directories[0]) == (1, bytes(15) + b"\x01")


def test_a_lost_replica_is_not_elected_however_unclean() -> None:
    world = World()
    topic = r.ConfigRecord(
        resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true"
    )
    world.cluster.write(ControllerResult([topic], None))
    for broker_id in (1, 2):
        world.assign(broker_id, world.place(LOST))
    assert (world.partition.leader, world.partition.isr) == (3, (3,))
    world.assign(3, world.place(LOST))
    assert (world.partition.leader, world.partition.isr) == (-1, (3,))


def test_a_directory_is_online_as_in_kafka() -> None:
    """A broker that registered before directories had ids says nothing of them: all are online."""
    world = World()
    world.set_directories(1, NEW)
    broker = world.cluster.quorum.image.brokers[1]
    silent = broker._replace(log_dirs=())
    numbered = [bytes(15) + bytes([n]) for n in range(4)]
    assert [broker.has_online(each) for each in (*numbered, NEW, b"o" * 16)] == [
        True, True, False, False, True, False,
    ]  # fmt: skip
    assert [silent.has_online(each) for each in (*numbered, NEW)] == [True, True, False, True, True]
