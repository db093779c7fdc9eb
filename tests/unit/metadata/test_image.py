"""Records make images: every type of Kafka 4.3.1, none lost, and an old image never changes."""

import random
from typing import Any

import pytest

from firnline.base.errors import StorageError
from firnline.metadata import records as r
from firnline.metadata.delta import ClusterDelta, Replay
from firnline.metadata.image import EMPTY_IMAGE, ClusterImage, ConfigResource, FeatureRange
from firnline.metadata.loader import difference
from firnline.protocol.schema import Message
from tests.worlds.decoded import image_records

A, B = b"a" * 16, b"b" * 16


def after(image: ClusterImage, *records: Message) -> ClusterDelta:
    replay = Replay(image)
    for record in records:
        replay.apply(record)
    return replay.finish(offset=image.offset + len(records), epoch=1)


def a_partition(topic_id: bytes, number: int, **fields: Any) -> r.PartitionRecord:
    given: dict[str, Any] = {
        "replicas": (1, 2, 3),
        "isr": (1, 2),
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": (b"1" * 16, b"2" * 16, b"3" * 16),
    }
    return r.PartitionRecord(topic_id=topic_id, partition_id=number, **(given | fields))


def a_broker(node_id: int, epoch: int, **fields: Any) -> r.RegisterBrokerRecord:
    given: dict[str, Any] = {
        "incarnation_id": node_id.to_bytes(16, "big"),
        "end_points": [r.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)],
        "features": [r.BrokerFeature(name="metadata.version", max_supported_version=30)],
        "rack": "r1",
        "log_dirs": (b"d" * 16,),
    }
    return r.RegisterBrokerRecord(broker_id=node_id, broker_epoch=epoch, **(given | fields))


EVERYTHING: tuple[Message, ...] = (
    r.FeatureLevelRecord(name="metadata.version", feature_level=30),
    r.FeatureLevelRecord(name="group.version", feature_level=1),
    r.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
    a_broker(1, 3),
    a_broker(2, 4, rack=None, fenced=False),
    r.RegisterControllerRecord(
        controller_id=1,
        incarnation_id=b"c" * 16,
        end_points=[r.ControllerEndpoint(name="CONTROLLER", host="h", port=9093)],
        features=[r.ControllerFeature(name="metadata.version", max_supported_version=30)],
    ),
    r.TopicRecord(name="a", topic_id=A),
    r.ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="5"),
    a_partition(A, 0),
    a_partition(A, 1, eligible_leader_replicas=(3,), last_known_elr=(2,)),
    r.TopicRecord(name="b", topic_id=B),
    a_partition(B, 0, removing_replicas=(1,), adding_replicas=(3,), leader_recovery_state=1),
    r.ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="6"),
    r.ConfigRecord(resource_type=32, resource_name="g", name="x", value="y"),
    r.ProducerIdsRecord(broker_id=1, broker_epoch=3, next_producer_id=2000),
    r.ClientQuotaRecord(
        entity=[r.QuotaEntity(entity_type="user", entity_name=None)],
        quota_key="producer_byte_rate",
        value=5.0,
    ),
    r.AccessControlEntryRecord(id=b"i" * 16, resource_name="t", principal="User:a"),
    r.UserScramCredentialRecord(name="u", mechanism=1, salt=b"s", iterations=4096),
    r.DelegationTokenRecord(owner="User:a", token_id="t", renewers=["User:b"]),
)


def test_no_record_type_is_lost_on_the_way_to_a_snapshot_and_back() -> None:
    """Q32: image -> records -> image is the same image, and the records are the same records."""
    image = after(EMPTY_IMAGE, *EVERYTHING).after
    reported = list(image_records(image))
    again = after(EMPTY_IMAGE, *reported).after
    assert again._replace(offset=0) == image._replace(offset=0)
    assert list(image_records(again)) == reported
    assert {type(record) for record in reported} == {type(record) for record in EVERYTHING}


def test_what_is_applied_in_another_order_gives_the_same_snapshot() -> None:
    """Two nodes with the same state write the same records."""
    shuffled = [r.TopicRecord(name=f"t{n}", topic_id=bytes([n]) * 16) for n in range(1, 30)]
    configs = [
        r.ConfigRecord(resource_type=2, resource_name=f"t{n}", name=k, value="1")
        for n in range(1, 30)
        for k in ("a", "b")
    ]
    first = after(EMPTY_IMAGE, *shuffled, *configs).after
    rng = random.Random(1)
    rng.shuffle(shuffled)
    rng.shuffle(configs)
    second = after(EMPTY_IMAGE, *shuffled, *configs).after
    assert list(image_records(first)) == list(image_records(second))


def test_removals_leave_nothing_behind() -> None:
    full = after(EMPTY_IMAGE, *EVERYTHING).after
    emptied = after(
        full,
        r.FeatureLevelRecord(name="metadata.version", feature_level=0),
        r.FeatureLevelRecord(name="group.version", feature_level=0),
        r.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0),
        r.UnregisterBrokerRecord(broker_id=1, broker_epoch=3),
        r.UnregisterBrokerRecord(broker_id=2, broker_epoch=4),
        r.RemoveTopicRecord(topic_id=A),
        r.RemoveTopicRecord(topic_id=B),
        r.ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value=None),
        r.ConfigRecord(resource_type=32, resource_name="g", name="x", value=None),
        r.ClientQuotaRecord(
            entity=[r.QuotaEntity(entity_type="user", entity_name=None)],
            quota_key="producer_byte_rate",
            remove=True,
        ),
        r.RemoveAccessControlEntryRecord(id=b"i" * 16),
        r.RemoveUserScramCredentialRecord(name="u", mechanism=1),
        r.RemoveDelegationTokenRecord(token_id="t"),
    ).after
    left = {type(record) for record in image_records(emptied)}
    assert left == {r.RegisterControllerRecord, r.ProducerIdsRecord}
    assert not emptied.configs


def test_what_is_left_of_zookeeper_is_read_and_never_written() -> None:
    """Q14: type 21."""
    image = after(EMPTY_IMAGE, r.ZkMigrationStateRecord(zk_migration_state=3)).after
    assert list(image_records(image)) == []


def test_a_quota_is_the_same_in_whatever_order_its_entity_is_named() -> None:
    """Otherwise it would be there twice, and a removal would leave one."""
    parts = [r.QuotaEntity(entity_type=kind, entity_name="a") for kind in ("user", "client-id")]

    def quota(*entity: r.QuotaEntity, **fields: Any) -> r.ClientQuotaRecord:
        return r.ClientQuotaRecord(entity=list(entity), quota_key="x", **fields)

    image = after(EMPTY_IMAGE, quota(*parts, value=1.0), quota(*reversed(parts), value=2.0)).after
    (kept,) = image_records(image)
    assert isinstance(kept, r.ClientQuotaRecord)
    assert kept.value == 2.0
    assert not list(image_records(after(image, quota(*parts, remove=True)).after))


def test_cleared_eligible_leaders_are_a_change_of_the_partition() -> None:
    """As Kafka counts: whoever compares partition epochs sees that something happened."""
    image = after(EMPTY_IMAGE, *EVERYTHING).after
    cleared = after(image, r.ClearElrRecord(topic_name="")).after
    old, new = (i.topics_by_id[A].partitions[1] for i in (image, cleared))
    assert (new.elr, new.last_known_elr) == ((), ())
    assert new.partition_epoch == old.partition_epoch + 1
    assert cleared.topics_by_id[A].partitions[0] == image.topics_by_id[A].partitions[0]


@pytest.mark.parametrize("fields", [{"eligible_leader_replicas": (3,)}, {"last_known_elr": (2,)}])
def test_a_snapshot_without_the_feature_has_no_eligible_leaders(
    fields: dict[str, tuple[int, ...]],
) -> None:
    """As Kafka's: who turned the feature off may go back to a release that does not know the fields."""
    off = r.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)
    image = after(
        EMPTY_IMAGE, r.TopicRecord(name="t", topic_id=A), a_partition(A, 0, **fields), off
    )
    (record,) = (x for x in image_records(image.after) if isinstance(x, r.PartitionRecord))
    assert (record.eligible_leader_replicas, record.last_known_elr) == (None, None)


def test_an_image_somebody_holds_never_changes() -> None:
    image = after(EMPTY_IMAGE, *EVERYTHING).after
    reported = list(image_records(image))
    after(
        image,
        r.RemoveTopicRecord(topic_id=A),
        r.PartitionChangeRecord(topic_id=B, partition_id=0, leader=2),
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=3, fenced=-1),
        r.ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="7"),
    )
    assert list(image_records(image)) == reported


def test_a_topic_made_again_under_its_name_is_two_topics_to_the_broker() -> None:
    """The old id is deleted, the new one is new: whoever mixes them serves the old data."""
    before = after(EMPTY_IMAGE, *EVERYTHING).after
    delta = after(
        before,
        r.RemoveTopicRecord(topic_id=A),
        r.TopicRecord(name="a", topic_id=b"n" * 16),
        a_partition(b"n" * 16, 0),
    )
    assert [topic.topic_id for topic in delta.deleted_topics] == [A]
    (made,) = delta.topics
    assert (made.is_new, made.after.topic_id, made.partitions) == (True, b"n" * 16, (0,))
    assert delta.after.topic("a") is delta.after.topics_by_id[b"n" * 16]
    assert delta.configs == (ConfigResource(2, "a"),)
    assert not delta.after.topic_config_overrides("a")


def test_a_topic_made_and_removed_in_one_batch_was_never_there() -> None:
    delta = after(
        EMPTY_IMAGE,
        r.TopicRecord(name="a", topic_id=A),
        a_partition(A, 0),
        r.RemoveTopicRecord(topic_id=A),
    )
    assert delta.is_empty
    assert not delta.after.topics_by_name


def test_a_delta_names_only_the_partitions_that_changed() -> None:
    before = after(EMPTY_IMAGE, *EVERYTHING).after
    delta = after(before, r.PartitionChangeRecord(topic_id=A, partition_id=1, isr=(1,)))
    (topic,) = delta.topics
    assert not topic.is_new
    assert topic.partitions == (1,)
    assert topic.before is before.topics_by_id[A]
    assert (delta.brokers, delta.configs, delta.features) == ((), (), ())


def test_a_leader_that_is_named_has_a_new_epoch_even_when_it_is_the_same() -> None:
    """I11: the partition epoch counts every change, the leader epoch those that name a leader."""
    image = after(EMPTY_IMAGE, *EVERYTHING).after
    image = after(image, r.PartitionChangeRecord(topic_id=A, partition_id=0, isr=(1,))).after
    partition = image.partition("a", 0)
    assert partition is not None
    assert (partition.leader_epoch, partition.partition_epoch, partition.isr) == (0, 1, (1,))
    image = after(image, r.PartitionChangeRecord(topic_id=A, partition_id=0, leader=1)).after
    partition = image.partition("a", 0)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 1, 2)
    image = after(image, r.PartitionChangeRecord(topic_id=A, partition_id=0, leader=-1)).after
    partition = image.partition("a", 0)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch) == (-1, 2)


def test_every_field_of_a_partition_change_is_applied_and_absent_ones_are_not() -> None:
    image = after(EMPTY_IMAGE, *EVERYTHING).after
    before = image.partition("a", 1)
    assert before is not None
    change = r.PartitionChangeRecord(
        topic_id=A,
        partition_id=1,
        replicas=(3, 4),
        removing_replicas=(1,),
        adding_replicas=(4,),
        leader_recovery_state=1,
        eligible_leader_replicas=(),
        last_known_elr=(4,),
    )
    found = after(image, change).after.partition("a", 1)
    assert found is not None
    assert found.replicas == (3, 4)
    # A replica keeps its directory; a new one has none yet.
    assert found.directories == (b"3" * 16, bytes(16))
    assert (found.removing_replicas, found.adding_replicas) == ((1,), (4,))
    assert (found.leader_recovery_state, found.elr, found.last_known_elr) == (1, (), (4,))
    assert (found.isr, found.leader, found.leader_epoch) == (before.isr, 1, before.leader_epoch)
    moved = r.PartitionChangeRecord(topic_id=A, partition_id=1, directories=(b"x" * 16,) * 3)
    found = after(image, moved).after.partition("a", 1)
    assert found is not None
    assert found.directories == (b"x" * 16,) * 3


def test_clearing_elr_takes_one_topic_or_all() -> None:
    image = after(EMPTY_IMAGE, *EVERYTHING).after
    assert after(image, r.ClearElrRecord(topic_name="b")).is_empty
    cleared = after(image, r.ClearElrRecord(topic_name="a"))
    assert [t.partitions for t in cleared.topics] == [(1,)]
    everywhere = after(image, r.ClearElrRecord(topic_name="")).after.partition("a", 1)
    assert everywhere is not None
    assert (everywhere.elr, everywhere.last_known_elr) == ((), ())


def test_fences_of_every_age_mean_the_same() -> None:
    """FenceBroker and UnfenceBroker were written by 3.2 and earlier; BrokerRegistrationChange since."""
    image = after(EMPTY_IMAGE, a_broker(1, 3)).after
    assert image.brokers[1].fenced
    for record in (
        r.UnfenceBrokerRecord(id=1, epoch=3),
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=3, fenced=-1),
    ):
        assert not after(image, record).after.brokers[1].fenced
    image = after(image, r.UnfenceBrokerRecord(id=1, epoch=3)).after
    for record in (
        r.FenceBrokerRecord(id=1, epoch=3),
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=3, fenced=1),
    ):
        assert after(image, record).after.brokers[1].fenced
    leaving = r.BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=3, in_controlled_shutdown=1, cordoned_log_dirs=(b"z" * 16,)
    )
    broker = after(image, leaving).after.brokers[1]
    assert (broker.is_active, broker.fenced) == (False, False)
    assert broker.cordoned_log_dirs == (b"z" * 16,)
    assert broker.features["metadata.version"] == FeatureRange(0, 30)


@pytest.mark.parametrize(
    "record",
    [
        r.PartitionChangeRecord(topic_id=A, partition_id=0, leader=1),
        a_partition(A, 0),
        r.RemoveTopicRecord(topic_id=A),
        r.ClearElrRecord(topic_name="a"),
        r.UnregisterBrokerRecord(broker_id=1, broker_epoch=3),
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=3, fenced=1),
        r.FenceBrokerRecord(id=1, epoch=1),
    ],
)
def test_a_record_about_nothing_is_damage_and_not_skipped(record: Message) -> None:
    with pytest.raises(StorageError, match="the metadata log"):
        after(EMPTY_IMAGE, record)


def test_a_topic_is_not_made_over_another() -> None:
    image = after(EMPTY_IMAGE, *EVERYTHING).after
    for record in (
        r.TopicRecord(name="a", topic_id=b"n" * 16),
        r.TopicRecord(name="n", topic_id=A),
    ):
        with pytest.raises(StorageError, match="twice"):
            after(image, record)


def test_the_difference_of_two_images_is_what_the_records_between_them_changed() -> None:
    before = after(EMPTY_IMAGE, *EVERYTHING).after
    reported = after(
        before,
        r.PartitionChangeRecord(topic_id=A, partition_id=1, isr=(1,)),
        r.RemoveTopicRecord(topic_id=B),
        r.TopicRecord(name="c", topic_id=b"n" * 16),
        a_partition(b"n" * 16, 0),
        r.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=4, fenced=1),
        r.ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value=None),
        r.FeatureLevelRecord(name="group.version", feature_level=0),
    )
    found = difference(before, reported.after)
    assert found.brokers == reported.brokers
    assert found.configs == reported.configs
    assert found.features == reported.features
    assert found.deleted_topics == reported.deleted_topics
    by_name = {topic.after.name: topic for topic in reported.topics}
    assert {topic.after.name: topic for topic in found.topics} == by_name
