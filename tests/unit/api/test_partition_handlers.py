"""What is asked of partitions as a whole, on controllers and through brokers, through wire bytes."""

from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.protocol.messages import k56_alter_partition as m56
from tests.unit.broker.cluster import Rig

THREE = {1: "controller", 2: "controller", 3: "controller"}


@pytest.fixture(scope="module")
def rig() -> Rig:
    """Three controllers, two brokers and a topic; tests leave it as they found it."""
    made = Rig({**THREE, 4: "broker", 5: "broker"}).start()
    assert made.create_topic(4, "t").error_code == 0
    return made


def leader(rig: Rig) -> int:
    node_id = rig.active()
    assert node_id is not None
    return node_id


def standby(rig: Rig) -> int:
    return next(node_id for node_id in THREE if node_id != leader(rig))


def topic_of(rig: Rig) -> Any:
    return rig[leader(rig)].controller.image.topics_by_name["t"]


def alteration(rig: Rig, *, version: int, member_epoch: int | None = None) -> Any:
    """AlterPartition by the leader of t-0, and of an unknown topic; to the state that is there."""
    topic = topic_of(rig)
    now = topic.partitions[0]
    epoch = rig[leader(rig)].controller.image.brokers[now.leader].epoch
    member = m56.BrokerState(
        broker_id=now.leader, broker_epoch=epoch if member_epoch is None else member_epoch
    )
    if version < 3:
        isr: dict[str, Any] = {"new_isr": [now.leader]}
    else:
        isr = {"new_isr_with_epochs": [member]}
    row = m56.ProposedPartition(
        partition_index=0,
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        **isr,
    )
    topics = [
        m56.AlterPartitionTopic(topic_id=topic_id, partitions=[row])
        for topic_id in (b"\x55" * 16, topic.topic_id)
    ]
    return m56.AlterPartitionRequest(broker_id=now.leader, broker_epoch=epoch, topics=topics)


@pytest.mark.parametrize("version", [2, 3])
def test_a_leaders_proposal_is_answered_by_topic_and_partition(rig: Rig, version: int) -> None:
    topic = topic_of(rig)
    request = alteration(rig, version=version)
    found = rig.ask(leader(rig), request, version, controller=True)
    assert found.error_code == 0
    unknown, known = found.topics
    assert (unknown.topic_id, unknown.partitions[0].error_code) == (
        b"\x55" * 16,
        Code.UNKNOWN_TOPIC_ID,
    )
    now, row = topic.partitions[0], known.partitions[0]
    assert known.topic_id == topic.topic_id
    assert (row.partition_index, row.error_code) == (0, 0)
    assert (row.leader_id, row.leader_epoch) == (now.leader, now.leader_epoch)
    assert (tuple(row.isr), row.partition_epoch) == (now.isr, now.partition_epoch)


def test_epochs_of_replicas_are_read_from_version_3_on(rig: Rig) -> None:
    request = alteration(rig, version=3, member_epoch=0)
    found = rig.ask(leader(rig), request, 3, controller=True)
    assert found.topics[1].partitions[0].error_code == Code.INELIGIBLE_REPLICA


def test_a_dead_incarnation_is_refused_as_a_whole(rig: Rig) -> None:
    request = alteration(rig, version=3)
    request.broker_epoch -= 1
    found = rig.ask(leader(rig), request, 3, controller=True)
    assert (found.error_code, list(found.topics)) == (Code.STALE_BROKER_EPOCH, [])


def test_a_standby_alters_nothing(rig: Rig) -> None:
    found = rig.ask(standby(rig), alteration(rig, version=3), 3, controller=True)
    assert found.error_code == Code.NOT_CONTROLLER
