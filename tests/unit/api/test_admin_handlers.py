"""Topics, settings and the cluster on the wire: the answers are those of Kafka 4.3.1, in its shapes."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from firnline.api.duplicates import folding
from firnline.api.handlers import (
    k03_metadata,
    k19_create_topics,
    k20_delete_topics,
    k32_describe_configs,
    k33_alter_configs,
    k37_create_partitions,
    k44_incremental_alter_configs,
    k60_describe_cluster,
)
from firnline.base.background import run_to_completion
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import LOST_DIRECTORY, MIGRATING_DIRECTORY, ZERO_UUID
from firnline.broker.controller_port import CreateTopics, LocalController
from firnline.broker.leaders import Leaders
from firnline.controller.topics import NewTopic
from firnline.metadata import records as r
from firnline.metadata.image import ClusterImage
from firnline.metadata.result import ControllerResult
from firnline.protocol.messages import k03_metadata as m03
from firnline.protocol.messages import k19_create_topics as m19
from firnline.protocol.messages import k20_delete_topics as m20
from firnline.protocol.messages import k32_describe_configs as m32
from firnline.protocol.messages import k33_alter_configs as m33
from firnline.protocol.messages import k37_create_partitions as m37
from firnline.protocol.messages import k44_incremental_alter_configs as m44
from firnline.protocol.messages import k60_describe_cluster as m60
from firnline.protocol.messages import messages_of
from firnline.protocol.schema import Message
from tests.worlds.quorum import Cluster, broker_config
from tests.worlds.wire import Context

TOPIC, BROKER = 2, 4


class Node:
    """A combined node 1 whose log is in memory; `ask` sends wire bytes and reads wire bytes."""

    endpoint_type = 1
    forwards = False

    def __init__(self, **settings: str) -> None:
        self.config = broker_config(**settings)
        self.cluster = Cluster(self.config).with_brokers(1)
        self.quorum = self.cluster.quorum
        self.write_topics = self.quorum.write  # nothing is hosted here
        self.controller = self.cluster.controller
        self.port = LocalController(self.controller, self.quorum, is_sole=True)
        self.leaders = Leaders(lambda: self.image)
        self.node_id = 1
        self.cluster_id = "a-cluster"

    @property
    def image(self) -> ClusterImage:
        return self.quorum.image

    def create_topics(self, wanted: Sequence[NewTopic], then: Any, now_ms: int) -> Effects:
        return self.port.ask(CreateTopics(topics=wanted), then, now_ms)

    def ask(self, handler: ModuleType, request: Message, version: int, **context: str) -> Any:
        answers = self.begin(handler, request, version, **context)
        self.cluster.loop.sync()
        self._collect(answers)
        (answer,) = answers
        return answer

    def begin(
        self, handler: ModuleType, request: Message, version: int, **context: str
    ) -> list[Any]:
        """Hand the request over; the answers there are before anything is synced."""
        data = request.write(version)
        read, end = type(request).read(data, version)
        assert end == len(data)
        run_to_completion(folding(request.key, read))
        asker = Context(request.key, version)
        asker.connection.listener = context.get("listener", "PLAINTEXT")
        answers: list[Any] = []
        self.cluster.loop.run(handler.handle(self, asker, read, self.cluster.loop.now_ms))
        self._collect(answers)
        return answers

    def _collect(self, answers: list[Any]) -> None:
        loop = self.cluster.loop
        replies, loop.replies = loop.replies, []
        for effect in replies:
            assert effect.message is not None
            version = effect.context.api_version
            response = messages_of(effect.context.api_key)[1]
            message: Any = effect.message
            answers.append(response.read(message.write(version), version)[0])

    def create(self, *topics: NewTopic) -> None:
        for answer in self.cluster.write(self.controller.create_topics(topics)):
            assert not isinstance(answer, KafkaError), answer


def creatable(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> m19.CreatableTopic:
    return m19.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, **more
    )


# ----------------------------------------------------------------------------------- CreateTopics


def test_a_topic_is_answered_only_when_its_records_are_on_disk() -> None:
    node = Node()
    request = m19.CreateTopicsRequest(topics=[creatable("t")])
    assert node.begin(k19_create_topics, request, 7) == []
    assert node.image.topic("t") is None
    node.cluster.loop.sync()
    answers: list[Any] = []
    node._collect(answers)
    assert answers[0].topics[0].error_code == 0
    assert node.image.topic("t") is not None


def test_a_created_topic_is_described_with_its_id_counts_and_all_settings() -> None:
    """KIP-525, KIP-516: from version 5 on, and the id from 7."""
    node = Node(log_retention_ms="7000")
    override = m19.CreatableTopicConfig(name="segment.ms", value="99")
    request = m19.CreateTopicsRequest(topics=[creatable("t", 2, configs=[override])])
    (made,) = node.ask(k19_create_topics, request, 7).topics
    found = node.image.topic("t")
    assert found is not None
    assert (made.topic_id, made.num_partitions, made.replication_factor) == (found.topic_id, 2, 1)
    assert made.error_message is None
    shown = {c.name: (c.value, c.config_source) for c in made.configs}
    assert len(shown) == 33  # Kafka shows as many
    assert shown["segment.ms"] == ("99", 1)
    assert shown["retention.ms"] == ("7000", 4)
    assert shown["cleanup.policy"] == ("delete", 5)


def test_only_validated_topics_are_described_and_not_made() -> None:
    node = Node()
    request = m19.CreateTopicsRequest(topics=[creatable("t", 2)], validate_only=True)
    (made,) = node.ask(k19_create_topics, request, 7).topics
    assert (made.error_code, made.num_partitions) == (0, 2)
    assert node.image.topic("t") is None


def test_old_versions_are_answered_in_their_shape() -> None:
    node = Node()
    (made,) = node.ask(
        k19_create_topics, m19.CreateTopicsRequest(topics=[creatable("t")]), 2
    ).topics
    assert (made.name, made.error_code) == ("t", 0)


def test_a_topic_asked_for_twice_is_answered_once() -> None:
    """As Kafka does: INVALID_REQUEST, and the others are made."""
    node = Node()
    asked = [creatable("t"), creatable("t", 2), creatable("u")]
    made = node.ask(k19_create_topics, m19.CreateTopicsRequest(topics=asked), 7).topics
    assert {t.name: t.error_code for t in made} == {"t": Code.INVALID_REQUEST, "u": 0}
    assert len(made) == 2


def test_a_partition_assigned_twice_is_refused_not_half_obeyed() -> None:
    node = Node()
    twice = [m19.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])] * 2
    asked = creatable("t", -1, -1, assignments=twice)
    (made,) = node.ask(k19_create_topics, m19.CreateTopicsRequest(topics=[asked]), 7).topics
    assert made.error_code == Code.INVALID_REPLICA_ASSIGNMENT
    assert made.error_message


def test_a_node_that_does_not_lead_says_so_for_every_topic() -> None:
    node = Node()
    node.quorum.stop(0)
    (made,) = node.ask(
        k19_create_topics, m19.CreateTopicsRequest(topics=[creatable("t")]), 7
    ).topics
    assert made.error_code == Code.NOT_CONTROLLER


# ----------------------------------------------------------------------------------- DeleteTopics


def test_topics_are_deleted_by_name_and_by_id() -> None:
    node = Node()
    node.create(NewTopic("a", 1, 1), NewTopic("b", 1, 1))
    b = node.image.topic("b")
    assert b is not None
    states = [
        m20.DeleteTopicState(name="a"),
        m20.DeleteTopicState(name=None, topic_id=b.topic_id),
        m20.DeleteTopicState(name="missing"),
        m20.DeleteTopicState(name=None, topic_id=b"9" * 16),
    ]
    got = node.ask(k20_delete_topics, m20.DeleteTopicsRequest(topics=states), 6).responses
    assert [(r.name, r.error_code) for r in got] == [
        ("a", 0),
        ("b", 0),
        ("missing", Code.UNKNOWN_TOPIC_OR_PARTITION),
        (None, Code.UNKNOWN_TOPIC_ID),
    ]
    assert got[1].topic_id == b.topic_id
    assert not node.image.topics_by_name


def test_a_deletion_that_names_nothing_or_two_things_is_refused() -> None:
    node = Node()
    node.create(NewTopic("a", 1, 1))
    states = [
        m20.DeleteTopicState(name="a", topic_id=b"9" * 16),
        m20.DeleteTopicState(name=None),
    ]
    got = node.ask(k20_delete_topics, m20.DeleteTopicsRequest(topics=states), 6).responses
    assert [r.error_code for r in got] == [Code.INVALID_REQUEST] * 2
    assert node.image.topic("a") is not None


def test_a_topic_deleted_twice_in_one_request_is_answered_once_and_kept() -> None:
    node = Node()
    node.create(NewTopic("a", 1, 1))
    states = [m20.DeleteTopicState(name="a")] * 2
    (got,) = node.ask(k20_delete_topics, m20.DeleteTopicsRequest(topics=states), 6).responses
    assert got.error_code == Code.INVALID_REQUEST
    assert node.image.topic("a") is not None


@pytest.mark.parametrize(
    ("version", "code"), [(1, Code.INVALID_REQUEST), (5, Code.TOPIC_DELETION_DISABLED)]
)
def test_deletion_can_be_switched_off(version: int, code: Code) -> None:
    node = Node(delete_topic_enable="false")
    node.create(NewTopic("a", 1, 1))
    request = m20.DeleteTopicsRequest(topic_names=["a"])
    (got,) = node.ask(k20_delete_topics, request, version).responses
    assert got.error_code == code
    assert node.image.topic("a") is not None


# ----------------------------------------------------------------------------------- CreatePartitions


def test_partitions_are_added_and_refusals_have_words() -> None:
    node = Node()
    node.create(NewTopic("a", 1, 1), NewTopic("b", 1, 1))
    asked = [
        m37.CreatePartitionsTopic(name="a", count=3, assignments=None),
        m37.CreatePartitionsTopic(name="b", count=1, assignments=None),
        m37.CreatePartitionsTopic(
            name="c", count=2, assignments=[m37.CreatePartitionsAssignment(broker_ids=[1])]
        ),
    ]
    got = node.ask(k37_create_partitions, m37.CreatePartitionsRequest(topics=asked), 3).results
    assert [(r.name, r.error_code) for r in got] == [
        ("a", 0),
        ("b", Code.INVALID_PARTITIONS),
        ("c", Code.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert got[0].error_message is None
    assert got[1].error_message
    assert node.image.partition("a", 2) is not None


def test_a_topic_grown_twice_in_one_request_is_answered_once() -> None:
    node = Node()
    node.create(NewTopic("a", 1, 1))
    asked = [m37.CreatePartitionsTopic(name="a", count=n, assignments=None) for n in (2, 3)]
    (got,) = node.ask(k37_create_partitions, m37.CreatePartitionsRequest(topics=asked), 3).results
    assert got.error_code == Code.INVALID_REQUEST
    assert node.image.partition("a", 1) is None


# ----------------------------------------------------------------------------------- settings


def alter(node: Node, kind: int, name: str, **keys: str | None) -> Any:
    configs = [
        m44.AlterableConfig(name=k.replace("_", "."), config_operation=0, value=v)
        for k, v in keys.items()
    ]
    resource = m44.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = m44.IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = node.ask(k44_incremental_alter_configs, request, 1).responses
    return answer


def described(node: Node, kind: int, name: str, **options: Any) -> Any:
    keys = options.pop("keys", None)
    resource = m32.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = m32.DescribeConfigsRequest(resources=[resource], **options)
    (result,) = node.ask(k32_describe_configs, request, 4).results
    return result


def test_a_setting_shows_where_it_comes_from_and_what_it_hides() -> None:
    """Sources: 1 topic, 2 this broker, 3 all brokers, 4 file, 5 default."""
    node = Node(log_retention_ms="4000")
    node.create(NewTopic("t", 1, 1))
    chain = []
    for kind, name, key in ((BROKER, "", "log_retention_ms"), (BROKER, "1", "log_retention_ms")):
        assert alter(node, kind, name, **{key: "3000" if name == "" else "2000"}).error_code == 0
    assert alter(node, TOPIC, "t", retention_ms="1000").error_code == 0
    (entry,) = described(node, TOPIC, "t", keys=["retention.ms"], include_synonyms=True).configs
    chain = [(s.name, s.value, s.source) for s in entry.synonyms]
    assert (entry.value, entry.config_source, entry.read_only, entry.config_type) == (
        "1000",
        1,
        False,
        5,
    )
    assert chain[:4] == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "2000", 2),
        ("log.retention.ms", "3000", 3),
        ("log.retention.ms", "4000", 4),
    ]


def test_a_topic_has_the_33_keys_of_kafka_and_documentation_only_when_asked() -> None:
    node = Node()
    node.create(NewTopic("t", 1, 1))
    plain = described(node, TOPIC, "t").configs
    assert len(plain) == 33
    assert all(c.documentation is None and not c.synonyms for c in plain)
    reported = described(node, TOPIC, "t", include_documentation=True).configs
    assert all(c.documentation for c in reported)


def test_secrets_are_never_shown() -> None:
    """Reliability d 57."""
    node = Node()
    found = {c.name: c for c in described(node, BROKER, "1", include_synonyms=True).configs}
    secret = found["ssl.keystore.password"]
    assert (secret.value, secret.is_sensitive) == (None, True)
    assert found["node.id"].read_only
    assert found["node.id"].config_source == 4
    assert not found["log.retention.ms"].read_only


def test_what_is_set_for_all_brokers_is_shown_alone() -> None:
    node = Node()
    assert described(node, BROKER, "").configs == []
    alter(node, BROKER, "", log_retention_ms="3000")
    alter(node, BROKER, "1", log_retention_ms="2000")
    (entry,) = described(node, BROKER, "", include_synonyms=True).configs
    assert (entry.name, entry.value, entry.config_source) == ("log.retention.ms", "3000", 3)
    assert [(s.value, s.source) for s in entry.synonyms] == [("3000", 3)]


def test_the_metadata_log_shows_its_policy_and_takes_no_change() -> None:
    """Q52, rel-Q18: also where the key is one that any other topic has."""
    node = Node()
    (entry,) = described(node, TOPIC, "__cluster_metadata").configs
    assert (entry.name, entry.value, entry.read_only) == ("cleanup.policy", "snapshot", True)
    for change in ({"cleanup_policy": "delete"}, {"retention_ms": "1"}):
        refused = alter(node, TOPIC, "__cluster_metadata", **change)
        assert refused.error_code == Code.INVALID_CONFIG
    assert not node.image.topic_config_overrides("__cluster_metadata")


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", Code.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", Code.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", Code.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", Code.INVALID_REQUEST),
        (BROKER, "abc", Code.INVALID_REQUEST),
        (0, "x", Code.INVALID_REQUEST),
        (77, "x", Code.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described_is_refused_for_itself(kind: int, name: str, code: Code) -> None:
    result = described(Node(), kind, name)
    assert (result.error_code, result.resource_type, result.resource_name) == (code, kind, name)
    assert result.error_message
    assert result.configs == []


def test_a_bad_alteration_changes_nothing_and_a_good_one_beside_it_is_done() -> None:
    """Reliability d 58."""
    node = Node()
    node.create(NewTopic("t", 1, 1), NewTopic("u", 1, 1))
    resources = [
        m44.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name=name,
            configs=[
                m44.AlterableConfig(name=key, config_operation=0, value=value)
                for key, value in settings.items()
            ],
        )
        for name, settings in (
            ("t", {"segment.ms": "5", "retention.ms": "-9"}),
            ("u", {"segment.ms": "6"}),
        )
    ]
    other = m44.AlterConfigsResource(
        resource_type=BROKER,
        resource_name="2",
        configs=[m44.AlterableConfig(name="log.retention.ms", config_operation=0, value="5")],
    )
    request = m44.IncrementalAlterConfigsRequest(resources=[resources[0], other, resources[1]])
    got = node.ask(k44_incremental_alter_configs, request, 1).responses
    assert [(r.resource_name, r.error_code) for r in got] == [
        ("t", Code.INVALID_CONFIG),
        ("2", Code.INVALID_REQUEST),
        ("u", 0),
    ]
    assert not node.image.topic_config_overrides("t")
    assert dict(node.image.topic_config_overrides("u")) == {"segment.ms": "6"}


def replace(node: Node, kind: int, name: str, **keys: str | None) -> Any:
    configs = [m33.AlterableConfig(name=k.replace("_", "."), value=v) for k, v in keys.items()]
    resource = m33.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    (answer,) = node.ask(
        k33_alter_configs, m33.AlterConfigsRequest(resources=[resource]), 2
    ).responses
    return answer


def test_the_older_way_replaces_all_settings_of_a_resource() -> None:
    """KIP-133: what it does not name goes back to the default."""
    node = Node()
    node.create(NewTopic("t", 1, 1))
    alter(node, TOPIC, "t", segment_ms="5", retention_ms="7")
    assert replace(node, TOPIC, "t", segment_ms="6", max_message_bytes="9999").error_code == 0
    assert dict(node.image.topic_config_overrides("t")) == {
        "segment.ms": "6",
        "max.message.bytes": "9999",
    }
    assert replace(node, TOPIC, "t").error_code == 0
    assert not node.image.topic_config_overrides("t")
    assert replace(node, BROKER, "", log_retention_ms="5").error_code == 0
    assert replace(node, BROKER, "1", log_retention_ms="6").error_code == 0


@pytest.mark.parametrize(
    ("kind", "name", "keys", "code"),
    [
        (TOPIC, "t", {"segment_ms": None}, Code.INVALID_REQUEST),
        (TOPIC, "t", {"retention_ms": "-9"}, Code.INVALID_CONFIG),
        (TOPIC, "no", {}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "2", {"log_retention_ms": "5"}, Code.INVALID_REQUEST),
    ],
)
def test_what_the_older_way_may_not_do_changes_nothing(
    kind: int, name: str, keys: dict[str, str | None], code: Code
) -> None:
    node = Node()
    node.create(NewTopic("t", 1, 1))
    alter(node, TOPIC, "t", segment_ms="5")
    assert replace(node, kind, name, **keys).error_code == code
    assert dict(node.image.topic_config_overrides("t")) == {"segment.ms": "5"}


# ----------------------------------------------------------------------------------- DescribeCluster


def test_the_cluster_is_described_to_whom_asks_where() -> None:
    node = Node()
    got = node.ask(k60_describe_cluster, m60.DescribeClusterRequest(), 2)
    assert (got.cluster_id, got.controller_id, got.error_code) == ("a-cluster", 1, 0)
    assert [(b.broker_id, b.host, b.port, b.is_fenced) for b in got.brokers] == [
        (1, "localhost", 9001, False)
    ]
    assert got.cluster_authorized_operations == -(2**31)
    asked = m60.DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert node.ask(k60_describe_cluster, asked, 0).cluster_authorized_operations == 8096
    elsewhere = node.ask(k60_describe_cluster, asked, 0, listener="OTHER")
    assert elsewhere.brokers == []


def test_fenced_brokers_are_shown_when_asked_for() -> None:
    """KIP-1073."""
    node = Node()
    node.cluster.register(2)
    got = node.ask(k60_describe_cluster, m60.DescribeClusterRequest(), 2)
    assert [b.broker_id for b in got.brokers] == [1]
    asked = m60.DescribeClusterRequest(include_fenced_brokers=True)
    got = node.ask(k60_describe_cluster, asked, 2)
    assert [(b.broker_id, b.is_fenced) for b in got.brokers] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    ("kind", "code"), [(2, Code.MISMATCHED_ENDPOINT_TYPE), (9, Code.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_controllers_are_not_described_on_a_brokers_address(kind: int, code: Code) -> None:
    got = Node().ask(k60_describe_cluster, m60.DescribeClusterRequest(endpoint_type=kind), 1)
    assert (got.error_code, got.brokers, got.controller_id) == (code, [], -1)


# ----------------------------------------------------------------------------------- Metadata


def metadata(node: Node, version: int, *names: str | None, **options: Any) -> Any:
    topics = [m03.MetadataRequestTopic(name=name) for name in names]
    request = m03.MetadataRequest(topics=topics, **options)
    return node.ask(k03_metadata, request, version)


def by_name(response: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in response.topics}


def test_all_topics_are_asked_for_by_null_and_in_version_0_by_none() -> None:
    """C12."""
    node = Node()
    node.create(NewTopic("a", 1, 1), NewTopic("b", 1, 1))
    assert by_name(metadata(node, 0)) == {"a": 0, "b": 0}
    assert by_name(metadata(node, 1)) == {}
    everything = node.ask(k03_metadata, m03.MetadataRequest(topics=None), 13)
    assert by_name(everything) == {"a": 0, "b": 0}
    assert "__cluster_metadata" not in by_name(everything)  # Q52


def test_a_topic_shows_who_leads_it_and_at_which_epoch() -> None:
    node = Node()
    node.create(NewTopic("a", 2, 1))
    got = metadata(node, 12, "a", include_topic_authorized_operations=True)
    assert (got.cluster_id, got.controller_id) == ("a-cluster", 1)
    assert [(b.node_id, b.host, b.port, b.rack) for b in got.brokers] == [
        (1, "localhost", 9001, None)
    ]
    (topic,) = got.topics
    found = node.image.topic("a")
    assert found is not None
    assert (topic.topic_id, topic.is_internal) == (found.topic_id, False)
    assert topic.topic_authorized_operations == 3576
    assert [
        (p.error_code, p.partition_index, p.leader_id, p.leader_epoch, list(p.isr_nodes))
        for p in topic.partitions
    ] == [(0, 0, 1, 0, [1]), (0, 1, 1, 0, [1])]
    assert metadata(node, 9, "a").topics[0].topic_authorized_operations == -(2**31)


def test_a_topic_asked_for_by_id() -> None:
    """KIP-516: from version 12; before, an id is a request nobody can mean."""
    node = Node()
    node.create(NewTopic("a", 1, 1))
    found = node.image.topic("a")
    assert found is not None

    def asked(topic_id: bytes, version: int) -> Any:
        topic = m03.MetadataRequestTopic(name=None, topic_id=topic_id)
        (got,) = node.ask(k03_metadata, m03.MetadataRequest(topics=[topic]), version).topics
        return got

    assert (asked(found.topic_id, 12).name, asked(found.topic_id, 12).error_code) == ("a", 0)
    unknown = asked(b"9" * 16, 12)
    assert (unknown.name, unknown.error_code) == (None, Code.UNKNOWN_TOPIC_ID)
    assert unknown.topic_id == b"9" * 16
    assert asked(found.topic_id, 11).error_code == Code.INVALID_REQUEST
    assert asked(ZERO_UUID, 11).error_code == Code.INVALID_REQUEST


def test_a_missing_topic_is_made_by_default_and_answered_with_its_leader() -> None:
    node = Node(num_partitions="3")
    (topic,) = metadata(node, 12, "new").topics
    assert topic.error_code == 0
    assert [p.leader_id for p in topic.partitions] == [1, 1, 1]
    assert node.image.topic("new") is not None


@pytest.mark.parametrize(
    ("settings", "options"),
    [({"auto_create_topics_enable": "false"}, {}), ({}, {"allow_auto_topic_creation": False})],
)
def test_a_missing_topic_is_not_made_where_broker_or_client_forbids_it(
    settings: dict[str, str], options: dict[str, bool]
) -> None:
    node = Node(**settings)
    got = metadata(node, 12, "new", **options)
    assert by_name(got) == {"new": Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert node.image.topic("new") is None


def test_names_that_no_topic_can_have_are_not_made() -> None:
    node = Node()
    node.create(NewTopic("a.b", 1, 1))
    got = metadata(node, 12, "a/b", "..", "__cluster_metadata", "a_b")
    assert by_name(got) == {
        "a/b": Code.INVALID_TOPIC_EXCEPTION,
        "..": Code.INVALID_TOPIC_EXCEPTION,
        "__cluster_metadata": Code.UNKNOWN_TOPIC_OR_PARTITION,
        "a_b": Code.INVALID_TOPIC_EXCEPTION,
    }
    assert list(node.image.topics_by_name) == ["a.b"]


def test_why_a_topic_could_not_be_made_is_said() -> None:
    node = Node(default_replication_factor="2")
    assert by_name(metadata(node, 12, "new")) == {"new": Code.INVALID_REPLICATION_FACTOR}


def test_internal_topics_are_made_by_their_own_plan() -> None:
    node = Node()
    node.cluster.loop.ensure_problem = KafkaError(Code.INVALID_REPLICATION_FACTOR, "one broker")
    got = metadata(node, 12, "__consumer_offsets", "plain", "__transaction_state")
    assert sorted(node.cluster.loop.ensured) == ["__consumer_offsets", "__transaction_state"]
    assert by_name(got) == {
        "__consumer_offsets": Code.INVALID_REPLICATION_FACTOR,
        "plain": 0,
        "__transaction_state": Code.INVALID_REPLICATION_FACTOR,
    }
    assert [topic.is_internal for topic in got.topics] == [True, False, True]


def test_a_topic_named_twice_is_answered_once() -> None:
    node = Node()
    node.create(NewTopic("a", 1, 1))
    assert len(metadata(node, 12, "a", "a").topics) == 1


def test_a_partition_without_leader_says_so_and_names_who_is_down() -> None:
    node = Node()
    node.cluster.register(2)
    node.cluster.heartbeat(2)
    node.create(NewTopic("a", assignments={0: (2,)}))
    node.cluster.heartbeat(2, want_fence=True)
    (partition,) = metadata(node, 12, "a").topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (Code.LEADER_NOT_AVAILABLE, -1)
    assert (list(partition.replica_nodes), list(partition.offline_replicas)) == ([2], [2])
    assert partition.leader_epoch == 1


def test_a_replica_that_was_lost_is_named_though_its_broker_is_up() -> None:
    node = Node()
    node.cluster.register(2)
    node.cluster.heartbeat(2)
    node.create(NewTopic("a", assignments={0: (1, 2)}))
    topic_id = node.cluster.quorum.image.topics_by_name["a"].topic_id
    lost = r.PartitionChangeRecord(
        partition_id=0, topic_id=topic_id, directories=(MIGRATING_DIRECTORY, LOST_DIRECTORY)
    )
    node.cluster.write(ControllerResult([lost], None))
    (partition,) = metadata(node, 12, "a").topics[0].partitions
    assert list(partition.offline_replicas) == [2]


@pytest.mark.parametrize(
    ("version", "code"), [(5, Code.LEADER_NOT_AVAILABLE), (6, Code.LISTENER_NOT_FOUND)]
)
def test_a_leader_that_does_not_listen_where_was_asked(version: int, code: Code) -> None:
    node = Node()
    node.create(NewTopic("a", 1, 1))
    request = m03.MetadataRequest(topics=[m03.MetadataRequestTopic(name="a")])
    got = node.ask(k03_metadata, request, version, listener="OTHER")
    assert got.topics[0].partitions[0].error_code == code
    assert got.brokers == []


@pytest.mark.parametrize("version", range(14))
def test_every_version_is_answered(version: int) -> None:
    node = Node()
    got = metadata(node, version, "a", *(["b"] if version else []))
    assert set(by_name(got)) >= {"a"}
    assert by_name(metadata(node, version, "a"))["a"] == 0


def test_what_tools_set_while_replicas_move_is_taken_and_listed_while_it_is_set() -> None:
    """kafka-reassign-partitions --throttle: no key of a file, and nothing is slowed here."""
    node = Node()
    for name in ("leader", "follower"):
        got = alter(node, BROKER, "1", **{f"{name}_replication_throttled_rate": "1000"})
        assert got.error_code == 0, got.error_message
    rates = [c for c in described(node, BROKER, "1").configs if "throttled.rate" in c.name]
    assert [(c.name, c.value, c.config_source, c.read_only) for c in rates] == [
        ("follower.replication.throttled.rate", "1000", 2, False),
        ("leader.replication.throttled.rate", "1000", 2, False),
    ]
    refused = alter(node, BROKER, "1", leader_replication_throttled_rate="-1")
    assert refused.error_code == Code.INVALID_REQUEST
    assert replace(node, BROKER, "1").error_code == 0
    assert not [c for c in described(node, BROKER, "1").configs if "throttled.rate" in c.name]
