"""What controllers answer on their own listener, and envelopes in both directions, through wire bytes."""

from pathlib import Path
from typing import Any

import pytest

from firnline.api.context import RequestContext
from firnline.api.dispatch import Dispatcher, find_api, frame_bytes
from firnline.api.handlers.k58_envelope import WrappedContext
from firnline.base.effects import CloseConnection, Reply, SetTimer
from firnline.base.errors import Code
from firnline.base.ids import METADATA_TOPIC
from firnline.client.wire import decode_answer, encode_request
from firnline.metadata import records as r
from firnline.metadata.image import Endpoint
from firnline.metadata.result import ControllerResult
from firnline.protocol.messages import k43_elect_leaders as m43
from firnline.protocol.messages import k44_incremental_alter_configs as m44
from firnline.protocol.messages import k55_describe_quorum as m55
from firnline.protocol.messages import k62_broker_registration as m62
from firnline.protocol.messages import k70_controller_registration as m70
from firnline.protocol.messages import k73_assign_replicas_to_dirs as m73
from firnline.protocol.messages.k03_metadata import MetadataRequest
from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest
from firnline.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from firnline.protocol.messages.k58_envelope import EnvelopeRequest
from firnline.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from firnline.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from firnline.protocol.messages.k64_unregister_broker import UnregisterBrokerRequest
from firnline.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from firnline.protocol.messages.k70_controller_registration import ControllerRegistrationRequest
from firnline.protocol.messages.k82_update_raft_voter import UpdateRaftVoterRequest
from firnline.protocol.schema import Message
from firnline.protocol.versions import CONTROLLER_SERVED, SERVED, ServedApi
from tests.worlds.cluster import CONTROLLER_PORT, Rig
from tests.worlds.harness import CLUSTER_ID, Harness

THREE = {1: "controller", 2: "controller", 3: "controller"}
TOPIC, BROKER = 2, 4
NOBODY = b"\0\0\x05User\x0aANONYMOUS\0\0"
KAFKA_FACTS = Path(__file__).parents[2] / "data" / "kafka-4.3.1-apis.tsv"


@pytest.fixture(scope="module")
def rig() -> Rig:
    """Three controllers, two brokers and a topic; tests leave it as they found it."""
    made = Rig({**THREE, 4: "broker", 5: "broker"}).start()
    assert made.create_topic(4, "t").error_code == 0
    made.until(lambda: len(made[4].broker.image.controllers) == 3)
    return made


def leader(rig: Rig) -> int:
    node_id = rig.active()
    assert node_id is not None
    return node_id


def standby(rig: Rig) -> int:
    return next(node_id for node_id in THREE if node_id != leader(rig))


def at_leader(rig: Rig, request: Message, version: int) -> Any:
    return rig.ask(leader(rig), request, version, controller=True)


def at_standby(rig: Rig, request: Message, version: int) -> Any:
    return rig.ask(standby(rig), request, version, controller=True)


# ------------------------------------------------------------------------------------ what is served


def kafka_serves(listener: str) -> dict[int, tuple[int, int]]:
    """API key -> versions that Apache Kafka 4.3.1 advertises on such a listener."""
    rows = [line.split("\t") for line in KAFKA_FACTS.read_text().splitlines()]
    return {int(key): (int(low), int(high)) for where, key, low, high in rows if where == listener}


@pytest.mark.parametrize(
    ("listener", "rows"), [("broker", SERVED), ("controller", CONTROLLER_SERVED)]
)
def test_what_is_advertised_is_kafkas_range_on_that_kind_of_listener(
    listener: str, rows: Any
) -> None:
    theirs = kafka_serves(listener)
    assert len(theirs) > 30
    for row in rows:
        assert theirs[row.key] == (row.advertised_min, row.advertised_max), row.name


def test_each_kind_of_listener_reports_what_it_serves(rig: Rig) -> None:
    said = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    controller = {row.api_key for row in at_leader(rig, said, 3).api_keys}
    broker = {row.api_key for row in rig.ask(4, said, 3).api_keys}
    assert controller == {row.key for row in CONTROLLER_SERVED}
    assert broker == {row.key for row in SERVED}
    assert {52, 59, 62} <= controller - broker
    assert 3 in broker - controller


def test_the_cluster_a_controller_describes_is_that_of_controllers(rig: Rig) -> None:
    found = at_standby(rig, DescribeClusterRequest(endpoint_type=2), 1)
    assert (found.error_code, found.endpoint_type) == (0, 2)
    assert [b.port for b in found.brokers] == [CONTROLLER_PORT + n for n in THREE]
    assert found.controller_id == leader(rig)
    wrong = at_standby(rig, DescribeClusterRequest(endpoint_type=1), 1)
    assert wrong.error_code == Code.MISMATCHED_ENDPOINT_TYPE
    assert rig.ask(4, DescribeClusterRequest(endpoint_type=2), 1).error_code == wrong.error_code
    strange = at_standby(rig, DescribeClusterRequest(endpoint_type=9), 1)
    assert strange.error_code == Code.UNSUPPORTED_ENDPOINT_TYPE


def test_a_broker_describes_brokers_and_none_of_the_controllers(rig: Rig) -> None:
    found = rig.ask(4, DescribeClusterRequest(endpoint_type=1), 1)
    assert [b.broker_id for b in found.brokers] == [4, 5]
    assert found.controller_id == 4


# ------------------------------------------------------------------------- what only an active one does


def registration(**more: Any) -> m62.BrokerRegistrationRequest:
    given: dict[str, Any] = {
        "broker_id": 9,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": b"\x09" * 16,
        "listeners": [m62.BrokerListener(name="PLAINTEXT", host="h", port=1)],
        "features": [
            m62.BrokerSupportedFeature(
                name="metadata.version", min_supported_version=7, max_supported_version=30
            )
        ],
        "log_dirs": [b"\x19" * 16],
    }
    return m62.BrokerRegistrationRequest(**(given | more))


@pytest.mark.parametrize(
    "request_",
    [
        registration(),
        BrokerHeartbeatRequest(broker_id=4, broker_epoch=1),
        UnregisterBrokerRequest(broker_id=4),
        AllocateProducerIdsRequest(broker_id=4, broker_epoch=1),
        ControllerRegistrationRequest(controller_id=1, incarnation_id=b"\1" * 16),
        m73.AssignReplicasToDirsRequest(broker_id=4, broker_epoch=1),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_standby_decides_nothing(rig: Rig, request_: Message) -> None:
    before = rig[leader(rig)].controller.image
    answer = at_standby(rig, request_, type(request_).valid.last)
    assert answer.error_code == Code.NOT_CONTROLLER
    assert rig[leader(rig)].controller.image.brokers == before.brokers


def test_a_registration_is_checked_before_it_is_written(rig: Rig) -> None:
    def code(**more: Any) -> int:
        return int(at_leader(rig, registration(**more), 4).error_code)

    assert code(cluster_id="BBBBBBBBBBBBBBBBBBBBBg") == Code.INCONSISTENT_CLUSTER_ID
    assert code(features=[]) == Code.INVALID_REGISTRATION
    old = m62.BrokerSupportedFeature(
        name="metadata.version", min_supported_version=7, max_supported_version=20
    )
    assert code(features=[old]) == Code.UNSUPPORTED_VERSION
    assert code(is_migrating_zk_broker=True) == Code.BROKER_ID_NOT_REGISTERED
    assert code(log_dirs=[]) == Code.INVALID_REGISTRATION
    theirs = rig[4].broker.storage.directory_ids
    assert code(log_dirs=theirs) == Code.INVALID_REGISTRATION
    assert code(broker_id=4) == Code.DUPLICATE_BROKER_REGISTRATION
    strange = m62.BrokerListener(name="PLAINTEXT", host="h", port=1, security_protocol=4)
    assert code(listeners=[strange]) == Code.INVALID_REGISTRATION
    for nobody in (-1, -(2**31)):
        assert code(broker_id=nobody) == Code.INVALID_REGISTRATION
    assert 9 not in rig[leader(rig)].controller.image.brokers


def test_a_controller_that_cannot_be_is_not_written_down(rig: Rig) -> None:
    listener = m70.ControllerListener(name="CONTROLLER", host="h", port=1, security_protocol=99)
    before = rig[leader(rig)].controller.image.controllers
    wrong: list[dict[str, Any]] = [
        {"controller_id": -1},
        {"controller_id": 77, "listeners": [listener]},
    ]
    for changes in wrong:
        request = ControllerRegistrationRequest(incarnation_id=b"\1" * 16, **changes)
        assert at_leader(rig, request, 0).error_code == Code.INVALID_REGISTRATION
    assert rig[leader(rig)].controller.image.controllers == before


@pytest.mark.parametrize("version", range(5))
def test_a_broker_registers_sends_heartbeats_and_is_forgotten(rig: Rig, version: int) -> None:
    """Every version of BrokerRegistration; those without directories are refused for that."""
    made = at_leader(rig, registration(), version)
    if version < 2:
        assert made.error_code == Code.INVALID_REGISTRATION
        return
    assert made.error_code == 0
    image = rig[leader(rig)].controller.image
    assert image.brokers[9].epoch == made.broker_epoch
    heartbeat = {"broker_id": 9, "broker_epoch": made.broker_epoch}
    behind = BrokerHeartbeatRequest(**heartbeat, current_metadata_offset=made.broker_epoch - 1)
    answer = at_leader(rig, behind, min(version, 2))
    assert (answer.is_caught_up, answer.is_fenced) == (False, True)
    level = BrokerHeartbeatRequest(**heartbeat, current_metadata_offset=made.broker_epoch)
    answer = at_leader(rig, level, min(version, 2))
    assert (answer.is_caught_up, answer.is_fenced) == (True, False)
    leaving = BrokerHeartbeatRequest(
        **heartbeat, current_metadata_offset=made.broker_epoch, want_shut_down=True
    )
    assert at_leader(rig, leaving, 0).should_shut_down
    late = BrokerHeartbeatRequest(broker_id=9, broker_epoch=made.broker_epoch - 1)
    assert at_leader(rig, late, 0).error_code == Code.STALE_BROKER_EPOCH
    gone = rig.ask(4, UnregisterBrokerRequest(broker_id=9), 0)
    assert gone.error_code == 0
    again = rig.ask(4, UnregisterBrokerRequest(broker_id=9), 0)
    assert again.error_code == Code.BROKER_ID_NOT_REGISTERED
    assert at_leader(rig, level, 0).error_code == Code.STALE_BROKER_EPOCH


def test_a_directory_that_failed_loses_its_partitions_and_no_other(rig: Rig) -> None:
    """KIP-858: a broker of two directories lives on with one; with the last one it goes itself."""
    one, two = b"\x21" * 16, b"\x22" * 16
    made = at_leader(rig, registration(log_dirs=[one, two]), 4)
    heartbeat = {
        "broker_id": 9,
        "broker_epoch": made.broker_epoch,
        "current_metadata_offset": 10**6,
    }
    at_leader(rig, BrokerHeartbeatRequest(**heartbeat), 2)
    controller = rig[leader(rig)].controller
    for name, directory in (("in-one", one), ("in-two", two)):
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[9])],
        )
        assert at_leader(rig, CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
        topic_id = controller.image.topics_by_name[name].topic_id
        rows = [
            m73.AssignedTopic(
                topic_id=topic_id, partitions=[m73.AssignedPartition(partition_index=0)]
            )
        ]
        assigned = m73.AssignReplicasToDirsRequest(
            broker_id=9,
            broker_epoch=made.broker_epoch,
            directories=[m73.AssignedDirectory(id=directory, topics=rows)],
        )
        assert at_leader(rig, assigned, 0).error_code == 0
    for _ in range(2):  # it is said again with every heartbeat, and written once
        at_leader(rig, BrokerHeartbeatRequest(**heartbeat, offline_log_dirs=[two]), 2)
        image = controller.image
        assert image.brokers[9].log_dirs == (one,)
        assert image.topics_by_name["in-one"].partitions[0].leader == 9
        lost = image.topics_by_name["in-two"].partitions[0]
        assert (lost.leader, lost.isr, lost.leader_epoch) == (-1, (9,), 1)
    at_leader(rig, BrokerHeartbeatRequest(**heartbeat, offline_log_dirs=[one, two]), 2)
    assert controller.image.brokers[9].log_dirs == (one,)
    at_leader(rig, BrokerHeartbeatRequest(**heartbeat, cordoned_log_dirs=[one]), 2)
    assert controller.image.brokers[9].cordoned_log_dirs == (one,)
    names = [DeleteTopicState(name=name) for name in ("in-one", "in-two")]
    assert at_leader(rig, DeleteTopicsRequest(topics=names), 6).responses[0].error_code == 0
    assert rig.ask(4, UnregisterBrokerRequest(broker_id=9), 0).error_code == 0


def test_blocks_of_producer_ids_follow_each_other(rig: Rig) -> None:
    epoch = rig[4].broker.broker_epoch
    request = AllocateProducerIdsRequest(broker_id=4, broker_epoch=epoch)
    first, second = (at_leader(rig, request, 0) for _ in range(2))
    assert second.producer_id_start == first.producer_id_start + first.producer_id_len
    stale = AllocateProducerIdsRequest(broker_id=4, broker_epoch=epoch - 1)
    assert at_leader(rig, stale, 0).error_code == Code.STALE_BROKER_EPOCH


def test_a_replica_is_written_down_where_its_broker_put_it(rig: Rig) -> None:
    topic = rig[4].broker.image.topics_by_name["t"]
    (node_id,) = topic.partitions[0].replicas
    elsewhere = b"\x77" * 16

    def ask(directory: bytes, **more: Any) -> Any:
        given = {"broker_id": node_id, "broker_epoch": rig[node_id].broker.broker_epoch} | more
        wanted = [
            (topic.topic_id, 0), (topic.topic_id, 9), (b"\x55" * 16, 0)
        ]  # fmt: skip
        rows = [
            m73.AssignedTopic(
                topic_id=topic_id, partitions=[m73.AssignedPartition(partition_index=index)]
            )
            for topic_id, index in wanted
        ]
        request = m73.AssignReplicasToDirsRequest(
            directories=[m73.AssignedDirectory(id=directory, topics=rows)], **given
        )
        return at_leader(rig, request, 0)

    found = ask(elsewhere)
    codes = [t.partitions[0].error_code for t in found.directories[0].topics]
    assert codes == [0, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID]
    image = rig[leader(rig)].controller.image
    assert image.topics_by_name["t"].partitions[0].directories == (elsewhere,)
    offset = image.offset
    assert ask(elsewhere).error_code == 0
    assert rig[leader(rig)].controller.image.offset <= offset + 1, "nothing changed: no record"
    assert ask(elsewhere, broker_epoch=1).error_code == Code.STALE_BROKER_EPOCH
    other = 9 - node_id
    found = ask(elsewhere, broker_id=other, broker_epoch=rig[other].broker.broker_epoch)
    assert found.directories[0].topics[0].partitions[0].error_code == Code.NOT_LEADER_OR_FOLLOWER
    ask(rig[node_id].broker.storage.directory_ids[0])


def test_a_voter_may_say_where_it_listens_and_nothing_changes(rig: Rig) -> None:
    """Apache Kafka's voters say it to every new leader, static voters or not."""
    quorum = rig[leader(rig)].controller.quorum

    def ask(node_id: int, **more: Any) -> Any:
        given = {"cluster_id": CLUSTER_ID, "current_leader_epoch": quorum.epoch, "voter_id": 1}
        return rig.ask(node_id, UpdateRaftVoterRequest(**(given | more)), 0, controller=True)

    found = ask(leader(rig))
    assert (found.error_code, found.current_leader.leader_id) == (0, leader(rig))
    assert found.current_leader.port == CONTROLLER_PORT + leader(rig)
    assert ask(standby(rig)).error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert ask(leader(rig), voter_id=9).error_code == Code.VOTER_NOT_FOUND
    assert ask(leader(rig), current_leader_epoch=0).error_code == Code.FENCED_LEADER_EPOCH
    assert ask(leader(rig), current_leader_epoch=99).error_code == Code.UNKNOWN_LEADER_EPOCH
    assert ask(leader(rig), cluster_id="x").error_code == Code.INCONSISTENT_CLUSTER_ID


# --------------------------------------------------------------------------------------- envelopes


def envelope(request: Message, version: int, **more: Any) -> EnvelopeRequest:
    frame = encode_request(request, version=version, correlation_id=5, client_id="client")
    given = {
        "request_data": frame[4:],
        "request_principal": NOBODY,
        "client_host_address": b"\x7f\0\0\1",
    }
    return EnvelopeRequest(**(given | more))


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], validate_only=True)


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_an_envelope_brings_the_clients_answer_as_the_client_reads_it(
    rig: Rig, version: int
) -> None:
    request = creation("t" if version == 2 else "new")
    found = at_leader(rig, envelope(request, version), 0)
    assert found.error_code == 0
    answer: Any = decode_answer(request, version, found.response_data, correlation_id=5)
    wanted = Code.TOPIC_ALREADY_EXISTS if version == 2 else 0
    assert answer.topics[0].error_code == wanted


def test_an_answer_that_cannot_be_written_is_reported_to_the_broker_and_costs_no_connection() -> (
    None
):
    """A broker brings what many clients ask: they must not lose theirs for one of them."""
    api = find_api({19: ServedApi(19, 2, 7, "create_topics")}, 19, 5)
    nobody: Any = None
    outer = RequestContext(nobody, 58, 0, 1, "broker 1", 0)
    wrapped = WrappedContext(outer, api, 5, "client")
    said = wrapped.reply(CreateTopicsResponse(topics=[CreatableTopicResult(name="x" * 40_000)]))
    assert isinstance(said, CloseConnection)
    assert isinstance(said.problem, ValueError)
    assert said.context.client_id == "client"
    assert said.instead is not None
    assert said.instead.context is outer
    assert said.instead.message.error_code == Code.UNKNOWN_SERVER_ERROR  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (envelope(MetadataRequest(), 12), Code.INVALID_REQUEST),
        (envelope(ApiVersionsRequest(), 3), Code.INVALID_REQUEST),
        (envelope(creation("x"), 7, request_data=b"\0\x13"), Code.UNSUPPORTED_VERSION),
        (envelope(creation("x"), 7, request_data=b"\xff" * 40), Code.UNSUPPORTED_VERSION),
        (
            envelope(creation("x"), 7, request_data=envelope(creation("x"), 7).request_data[:-9]),
            Code.UNSUPPORTED_VERSION,
        ),
        (envelope(creation("x"), 7, client_host_address=b"\1\2\3"), Code.INVALID_REQUEST),
        (
            envelope(creation("x"), 7, request_principal=None),
            Code.PRINCIPAL_DESERIALIZATION_FAILURE,
        ),
        *(
            (
                envelope(creation("x"), 7, request_principal=wrong),
                Code.PRINCIPAL_DESERIALIZATION_FAILURE,
            )
            for wrong in (b"", b"zz", b"\0\1" + NOBODY[2:], NOBODY[:-4], NOBODY + b"x")
        ),
    ],
    ids=["not for others", "versions", "short", "nonsense", "cut", "address", "nobody", *"12345"],
)
def test_an_envelope_that_is_none_is_refused_entirely(
    rig: Rig, sent: EnvelopeRequest, code: Code
) -> None:
    found = at_leader(rig, sent, 0)
    assert (found.error_code, found.response_data) == (code, None)


def test_an_envelope_at_a_standby_is_refused_so_that_the_broker_searches_on(rig: Rig) -> None:
    for sent in (envelope(creation("x"), 7), envelope(m55.DescribeQuorumRequest(), 2)):
        found = at_standby(rig, sent, 0)
        assert (found.error_code, found.response_data) == (Code.NOT_CONTROLLER, None)


def test_a_controller_deposed_in_the_middle_sends_the_envelope_on() -> None:
    """Goal: a client behind a broker never reads NOT_CONTROLLER. Method: cut the leader off from the other
    voters, so that what it writes stays in doubt until it hears of the next leader."""
    rig = Rig({**THREE, 4: "broker"}).start()
    old = leader(rig)
    rest = [n for n in THREE if n != old]
    cut = {(old, n) for n in rest} | {(n, old) for n in rest}
    rig.cut.update(cut)
    answers: list[Any] = []
    topic = CreatableTopic(name="x", num_partitions=1, replication_factor=1)
    request = envelope(CreateTopicsRequest(topics=[topic]), 7)
    rig._deliver(-1, CONTROLLER_PORT, request, 0, answers.append, [])(old)
    rig.until(lambda: answers, 20_000)
    assert (answers[0].error_code, answers[0].response_data) == (Code.NOT_CONTROLLER, None)


def test_settings_of_the_cluster_are_altered_by_way_of_any_broker(rig: Rig) -> None:
    def ask(node_id: int, *resources: tuple[int, str, str, str], controller: bool = False) -> Any:
        rows = [
            m44.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[m44.AlterableConfig(name=key, config_operation=0, value=value)],
            )
            for kind, name, key, value in resources
        ]
        request = m44.IncrementalAlterConfigsRequest(resources=rows)
        answers = rig.ask(node_id, request, 1, controller=controller).responses
        return [(a.resource_name, a.error_code) for a in answers]

    topic = (TOPIC, "t", "retention.ms", "5000")
    other = (BROKER, "5", "log.cleaner.threads", "2")
    missing = (TOPIC, "nothing", "retention.ms", "1")
    assert ask(4, topic) == [("t", 0)]
    rig.until(lambda: rig[4].broker.image.topic_config_overrides("t"))
    found = ask(4, missing, other, topic)
    assert found == [
        ("nothing", Code.UNKNOWN_TOPIC_OR_PARTITION), ("5", Code.INVALID_REQUEST), ("t", 0)
    ]  # fmt: skip
    assert ask(4, other) == [("5", Code.INVALID_REQUEST)], "a broker speaks for itself"
    at_controller = ask(leader(rig), (BROKER, "5", "retention.ms", "1"), controller=True)
    assert at_controller == [("5", Code.INVALID_CONFIG)], "a controller for every broker"
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="t")
    described = at_standby(rig, DescribeConfigsRequest(resources=[resource]), 4).results[0]
    values = {c.name: c.value for c in described.configs}
    assert values["retention.ms"] == "5000"


def test_the_quorum_is_described_by_way_of_a_broker(rig: Rig) -> None:
    wanted = m55.DescribeQuorumTopic(
        topic_name=METADATA_TOPIC, partitions=[m55.DescribeQuorumPartition(partition_index=0)]
    )
    found = rig.ask(5, m55.DescribeQuorumRequest(topics=[wanted]), 2)
    part = found.topics[0].partitions[0]
    assert part.leader_id == leader(rig)
    assert sorted(v.replica_id for v in part.current_voters) == [1, 2, 3]
    assert sorted(v.replica_id for v in part.observers) == [4, 5]
    direct = at_standby(rig, m55.DescribeQuorumRequest(topics=[wanted]), 2)
    assert direct.topics[0].partitions[0].error_code == Code.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("endpoints", "shown"), [((), []), ((Endpoint("CONTROLLER", "h", 7),), [("h", 7)])]
)
@pytest.mark.parametrize("role", ["controller", "both"])
def test_the_only_voter_is_described_where_it_listens(
    role: str, endpoints: tuple[Endpoint, ...], shown: list[tuple[str, int]]
) -> None:
    """Nobody calls it, so its entry in controller.quorum.voters may name any address."""
    wanted = m55.DescribeQuorumTopic(
        topic_name=METADATA_TOPIC, partitions=[m55.DescribeQuorumPartition(partition_index=0)]
    )
    request = m55.DescribeQuorumRequest(topics=[wanted])
    if role == "both":
        harness = Harness()
        controller = harness.node.controller_node
    else:
        rig = Rig({1: "controller"})
        rig[1].start()
        rig.until(lambda: rig.active() == 1)
        controller = rig[1].controller
    assert controller is not None
    controller.registration = controller.registration._replace(endpoints=endpoints)
    found = harness.ask(request, 2) if role == "both" else at_leader(rig, request, 2)
    (node,) = found.nodes
    assert [(each.host, each.port) for each in node.listeners] == shown


def test_a_version_without_registrations_of_controllers_does_not_show_them() -> None:
    """Kafka: below metadata.version 3.7-IV0 nobody can say where controllers are."""
    rig = Rig({1: "controller"})
    rig[1].start()
    rig.until(lambda: rig.active() == 1)
    low = r.FeatureLevelRecord(name="metadata.version", feature_level=14)
    controller = rig[1].controller
    rig[1].run(controller.quorum.write(ControllerResult([low], None), lambda a, n: [], rig.now_ms))
    rig.until(lambda: controller.image.metadata_version == 14)
    found = rig.ask(1, DescribeClusterRequest(endpoint_type=2), 1, controller=True)
    assert found.error_code == Code.UNSUPPORTED_VERSION


# -------------------------------------------------------------------------- large answers in envelopes


def election_of_nothing(count: int) -> m43.ElectLeadersRequest:
    topics = [m43.ElectionTopic(topic="none", partitions=list(range(count)))]
    return m43.ElectLeadersRequest(election_type=0, topic_partitions=topics)


def test_a_large_answer_in_an_envelope_is_encoded_in_slices(rig: Rig) -> None:
    """Goal: the controller serves others meanwhile. Method: count what is encoded in each step."""
    node = rig[leader(rig)].controller
    dispatcher = Dispatcher(node, CONTROLLER_SERVED)
    sent = envelope(election_of_nothing(3_000), 2)
    frame = encode_request(sent, version=0, correlation_id=7, client_id="b")
    line: Any = rig[leader(rig)]
    effects = dispatcher.on_frame(line, memoryview(bytearray(frame[4:])), rig.now_ms)
    while not isinstance(effects[-1], Reply):
        (again,) = [each for each in effects if isinstance(each, SetTimer)]
        effects = again.then(rig.now_ms)
    reply = effects[-1]
    assert reply.context.is_large
    steps = 0
    encoding = dispatcher.encoding(reply)
    try:
        while True:
            next(encoding)
            steps += 1
    except StopIteration as done:
        parts = done.value
    assert steps > 3
    assert b"".join(parts) == frame_bytes(dispatcher.encode(reply))
    found: Any = decode_answer(sent, 0, b"".join(parts)[4:], correlation_id=7)
    answer: Any = decode_answer(election_of_nothing(0), 2, found.response_data, correlation_id=5)
    rows = answer.replica_election_results[0].partition_result
    assert [row.partition_id for row in rows] == list(range(3_000))


@pytest.mark.parametrize("version", [0, 2])
def test_a_large_answer_reaches_the_client_of_a_broker_as_it_was_sent(
    rig: Rig, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the broker neither reads nor writes each row of it. Method: nothing may decode it there."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError

    monkeypatch.setattr("firnline.api.forwarding.decode_answer", refuse)
    answer = rig.ask(BROKER, election_of_nothing(3_000), version)
    rows = answer.replica_election_results[0].partition_result
    assert [row.partition_id for row in rows] == list(range(3_000))
    assert {row.error_code for row in rows} == {Code.UNKNOWN_TOPIC_OR_PARTITION}
