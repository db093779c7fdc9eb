"""What is asked of partitions and of the cluster, on controllers and through brokers, through wire bytes."""

from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.protocol.messages import k43_elect_leaders as m43
from firnline.protocol.messages import k45_alter_partition_reassignments as m45
from firnline.protocol.messages import k46_list_partition_reassignments as m46
from firnline.protocol.messages import k56_alter_partition as m56
from firnline.protocol.messages import k57_update_features as m57
from tests.worlds.cluster import Rig

THREE = {1: "controller", 2: "controller", 3: "controller"}


@pytest.fixture(scope="module")
def rig() -> Rig:
    """Three controllers, two brokers and a topic; tests leave it as they found it."""
    made = Rig({**THREE, 4: "broker", 5: "broker"}).start()
    assert made.create_topic(4, "t").error_code == 0
    made.until(lambda: sorted(made[4].broker.image.controllers) == sorted(THREE))
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
    # What is asked for is what is: it is written down again, which ends every late copy (rel-R7).
    assert (tuple(row.isr), row.partition_epoch) == (now.isr, now.partition_epoch + 1)


def test_epochs_of_replicas_are_read_from_version_3_on(rig: Rig) -> None:
    request = alteration(rig, version=3, member_epoch=0)
    found = rig.ask(leader(rig), request, 3, controller=True)
    assert found.topics[1].partitions[0].error_code == Code.INELIGIBLE_REPLICA


def test_a_dead_incarnation_is_refused_entirely(rig: Rig) -> None:
    request = alteration(rig, version=3)
    request.broker_epoch -= 1
    found = rig.ask(leader(rig), request, 3, controller=True)
    assert (found.error_code, list(found.topics)) == (Code.STALE_BROKER_EPOCH, [])


def test_a_standby_alters_nothing(rig: Rig) -> None:
    found = rig.ask(standby(rig), alteration(rig, version=3), 3, controller=True)
    assert found.error_code == Code.NOT_CONTROLLER


@pytest.mark.parametrize("is_stale", [False, True])
def test_proposals_for_many_partitions_are_decided_in_slices(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, is_stale: bool
) -> None:
    """Goal: a broker that is back does not hold up the controller. Method: count what each step decides;
    the sender's incarnation is over at the second of them."""
    sizes: list[int] = []
    controller = rig[leader(rig)].controller.controller
    decide = controller.alter_partitions

    def counted(**asked: Any) -> Any:
        sizes.append(len(asked["wanted"]))
        if is_stale and len(sizes) == 2:
            return decide(**asked | {"broker_epoch": -1})
        return decide(**asked)

    monkeypatch.setattr(controller, "alter_partitions", counted)
    request = alteration(rig, version=3)
    unknown, known = request.topics
    unknown.partitions = list(unknown.partitions) * 299
    found = rig.ask(leader(rig), request, 3, controller=True)
    assert sum(sizes) == 300
    assert max(sizes) <= 80
    if is_stale:
        assert (found.error_code, list(found.topics)) == (Code.STALE_BROKER_EPOCH, [])
        return
    assert [len(topic.partitions) for topic in found.topics] == [299, 1]
    assert {row.error_code for row in found.topics[0].partitions} == {Code.UNKNOWN_TOPIC_ID}
    assert (found.topics[1].topic_id, found.topics[1].partitions[0].error_code) == (
        known.topic_id,
        Code.NONE,
    )


# -------------------------------------------------------------------------------------- elections


def election(kind: int, *wanted: tuple[str, list[int]]) -> m43.ElectLeadersRequest:
    topics = [m43.ElectionTopic(topic=name, partitions=numbers) for name, numbers in wanted]
    return m43.ElectLeadersRequest(election_type=kind, topic_partitions=topics or None)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("through", ["controller", "broker"])
def test_an_election_is_answered_by_topic_and_partition(
    rig: Rig, version: int, through: str
) -> None:
    request = election(0, ("t", [0, 8]), ("nope", [1]))
    node_id = leader(rig) if through == "controller" else 4
    found = rig.ask(node_id, request, version, controller=through == "controller")
    assert found.error_code == 0
    assert [
        (topic.topic, each.partition_id, each.error_code)
        for topic in found.replica_election_results
        for each in topic.partition_result
    ] == [
        ("t", 0, Code.ELECTION_NOT_NEEDED),
        ("t", 8, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("nope", 1, Code.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_an_election_for_all_leaves_out_what_needs_none(rig: Rig) -> None:
    found = rig.ask(4, election(0), 2)
    assert (found.error_code, list(found.replica_election_results)) == (0, [])


def test_an_unknown_election_is_refused_for_each_partition_and_for_the_request(rig: Rig) -> None:
    found = rig.ask(4, election(9, ("t", [0])), 1)
    assert found.error_code == Code.INVALID_REQUEST
    (topic,) = found.replica_election_results
    assert [each.error_code for each in topic.partition_result] == [Code.INVALID_REQUEST]


# ----------------------------------------------------------------------------------- reassignments


def move(replicas: list[int] | None, *, topic: str = "t", number: int = 0, **more: Any) -> Any:
    row = m45.ReassignablePartition(partition_index=number, replicas=replicas)
    topics = [m45.ReassignableTopic(name=topic, partitions=[row])]
    return m45.AlterPartitionReassignmentsRequest(topics=topics, **more)


def moved(answer: Any) -> list[int]:
    assert answer.error_code == 0
    return [each.error_code for topic in answer.responses for each in topic.partitions]


def test_a_partition_moves_is_listed_and_is_called_off_through_a_broker(rig: Rig) -> None:
    (old,) = topic_of(rig).partitions[0].replicas
    rig.cut.add((9 - old, old))  # the newcomer cannot follow: the move does not come to its end
    assert moved(rig.ask(4, move([9 - old]), 1)) == [0]
    found = rig.ask(5, m46.ListPartitionReassignmentsRequest(), 0)
    (topic,) = found.topics
    (row,) = topic.partitions
    assert (topic.name, row.partition_index) == ("t", 0)
    assert (list(row.replicas), list(row.adding_replicas)) == ([9 - old, old], [9 - old])
    assert list(row.removing_replicas) == [old]
    some = m46.ListPartitionReassignmentsRequest(
        topics=[m46.ListedTopic(name="t", partition_indexes=[1])]
    )
    assert list(rig.ask(5, some, 0).topics) == []
    assert moved(rig.ask(4, move(None), 0)) == [0]
    assert list(rig.ask(5, m46.ListPartitionReassignmentsRequest(), 0).topics) == []
    assert topic_of(rig).partitions[0].replicas == (old,)
    rig.cut.clear()


def test_a_move_is_refused_partition_by_partition(rig: Rig) -> None:
    before = topic_of(rig)
    assert moved(rig.ask(4, move(None), 1)) == [Code.NO_REASSIGNMENT_IN_PROGRESS]
    assert moved(rig.ask(4, move([77]), 1)) == [Code.INVALID_REPLICA_ASSIGNMENT]
    assert moved(rig.ask(4, move([4], topic="x"), 1)) == [Code.UNKNOWN_TOPIC_OR_PARTITION]
    more = rig.ask(4, move([4, 5], allow_replication_factor_change=False), 1)
    assert (moved(more), more.allow_replication_factor_change) == (
        [Code.INVALID_REPLICATION_FACTOR],
        False,
    )
    assert topic_of(rig) == before


@pytest.mark.parametrize(
    "request_",
    [
        election(0, ("t", [0])),
        move([4]),
        m46.ListPartitionReassignmentsRequest(),
        m57.UpdateFeaturesRequest(),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_standby_moves_elects_and_lists_nothing(rig: Rig, request_: Any) -> None:
    found = rig.ask(standby(rig), request_, type(request_).valid.last, controller=True)
    assert found.error_code == Code.NOT_CONTROLLER


# ---------------------------------------------------------------------------------------- features


def levels(*rows: tuple[str, int, int], **more: Any) -> m57.UpdateFeaturesRequest:
    updates = [
        m57.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level, kind in rows
    ]
    return m57.UpdateFeaturesRequest(feature_updates=updates, **more)


@pytest.mark.parametrize("version", range(3))
def test_a_level_that_is_there_is_confirmed_through_a_broker(rig: Rig, version: int) -> None:
    now = rig[leader(rig)].controller.image.metadata_version
    found = rig.ask(4, levels(("metadata.version", now, 1)), version)
    assert (found.error_code, found.error_message) == (0, None)
    rows = [("metadata.version", 0)] if version < 2 else []
    assert [(each.feature, each.error_code) for each in found.results] == rows


@pytest.mark.parametrize("version", range(3))
def test_a_refused_level_is_refused_for_all(rig: Rig, version: int) -> None:
    before = rig[leader(rig)].controller.image.features
    wrong = levels(("metadata.version", 30, 1), ("nope", 1, 1))
    found = rig.ask(4, wrong, version)
    assert (found.error_code, list(found.results)) == (Code.INVALID_UPDATE_VERSION, [])
    assert "nope" in (found.error_message or "")
    assert rig[leader(rig)].controller.image.features == before


def test_version_0_says_downgrade_in_its_own_way(rig: Rig) -> None:
    row = m57.FeatureUpdateKey(feature="metadata.version", max_version_level=29)
    refused = rig.ask(4, m57.UpdateFeaturesRequest(feature_updates=[row]), 0)
    row.allow_downgrade = True
    lossy = rig.ask(4, m57.UpdateFeaturesRequest(feature_updates=[row]), 0)
    assert refused.error_code == lossy.error_code == Code.INVALID_UPDATE_VERSION
    assert "does not allow a downgrade" in (refused.error_message or "")
    assert "would be lost" in (lossy.error_message or "")
