"""The port to an active controller on another node: sends commands as requests. PURE.

Each command becomes one request, and its response becomes the command's outcome. Registrations and heartbeats
have a connection of their own, so that no slow change delays them (KIP-631). Nothing is retried here: a lost
response is NETWORK_EXCEPTION, an unknown controller is NOT_CONTROLLER, and the caller retries. Topics are
created by an Envelope request, as if a client had sent it. Source: KIP-590, KIP-631, KIP-730, KIP-919.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from firnline.base.effects import Effects, Peer, Request, Send, Unanswered
from firnline.base.errors import Bug, Code, KafkaError, ProtocolError
from firnline.base.ids import ProducerIdBlock, Uuid
from firnline.base.replicas import IsrAnswer, IsrChange
from firnline.broker.controller_port import (
    NOBODY_ACTIVE,
    AllocateProducerIds,
    AlterPartitions,
    AssignDirectories,
    BrokerHeartbeat,
    Command,
    ControllerCallback,
    CreateTopics,
    Outcome,
    RegisterBroker,
    RegisterController,
)
from firnline.client.wire import decode_answer, encode_request
from firnline.config.broker import BrokerConfig
from firnline.controller.brokers import Heartbeat, HeartbeatAnswer, Registration
from firnline.controller.topics import NewTopic
from firnline.metadata.image import ControllerImage
from firnline.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from firnline.protocol.messages.k56_alter_partition import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
    ProposedPartition,
)
from firnline.protocol.messages.k58_envelope import EnvelopeRequest
from firnline.protocol.messages.k62_broker_registration import (
    BrokerListener,
    BrokerRegistrationRequest,
    BrokerSupportedFeature,
)
from firnline.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from firnline.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from firnline.protocol.messages.k70_controller_registration import (
    ControllerListener,
    ControllerRegistrationRequest,
    ControllerSupportedFeature,
)
from firnline.protocol.messages.k73_assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
)
from firnline.protocol.messages.principal import encode_principal

# Registrations and heartbeats. Behind a slow change a heartbeat would be late, and the session would expire.
CHANNEL = "controller"
_CHANGES_CHANNEL = "changes"
_TOPICS_CHANNEL = "forwarding"
_TIMEOUT_MS = 30_000
_TOPICS_VERSION = 7
_CODES = frozenset(Code)
_SIZE_BYTES = 4

# Converts a response without a top-level error to the outcome.
Read = Callable[[Any], Any]


class _CommandRequest(NamedTuple):
    """The request of a command, and how to read its response."""

    request: Request[Any]
    outcome: Read
    timeout_ms: int = _TIMEOUT_MS
    channel: str = _CHANGES_CHANNEL


class RemoteController:
    """The port to the active controller. `leader()` returns its address, or None while it is unknown."""

    def __init__(
        self, config: BrokerConfig, cluster_id: str, leader: Callable[[], Peer | None]
    ) -> None:
        self._node_id = config.node_id
        self._cluster_id = cluster_id
        self._leader = leader
        # A broker session must survive one lost response.
        self._heartbeat_timeout_ms = max(1, config.broker_session_timeout_ms // 2)

    def ask(
        self, command: Command[Outcome], then: ControllerCallback[Outcome], now_ms: int
    ) -> Effects:
        """See `ControllerPort`."""
        leader = self._leader()
        if leader is None or leader.node_id == self._node_id:
            return then(NOBODY_ACTIVE, now_ms)
        sent = self._command_request(command)

        def answered(answer: Any, at_ms: int) -> Effects:
            if isinstance(answer, Unanswered):
                code = Code.UNSUPPORTED_VERSION if answer.is_unsupported else Code.NETWORK_EXCEPTION
                return then(KafkaError(code, answer.why), at_ms)
            problem = _error_of(answer)
            return then(sent.outcome(answer) if problem is None else problem, at_ms)

        return [
            Send(
                peer=leader,
                request=sent.request,
                timeout_ms=sent.timeout_ms,
                then=answered,
                channel=sent.channel,
            )
        ]

    def _command_request(self, command: Command[Any]) -> _CommandRequest:
        match command:
            case RegisterBroker():
                return _broker_registration(command.registration, self._cluster_id)
            case RegisterController():
                return _controller_registration(command.registration)
            case BrokerHeartbeat():
                return _heartbeat(command.heartbeat, self._heartbeat_timeout_ms)
            case AllocateProducerIds():
                return _producer_ids(command)
            case CreateTopics():
                return _topics(command.topics, self._node_id)
            case AlterPartitions():
                return _isr_changes(command)
            case AssignDirectories():
                return _directories(command)
        raise Bug("no request carries this command", command=type(command).__name__)


def _broker_registration(wanted: Registration, cluster_id: str) -> _CommandRequest:
    request = BrokerRegistrationRequest(
        broker_id=wanted.broker_id,
        cluster_id=cluster_id,
        incarnation_id=wanted.incarnation_id,
        listeners=[
            BrokerListener(
                name=e.listener, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in wanted.endpoints
        ],
        features=[
            BrokerSupportedFeature(
                name=name,
                min_supported_version=wanted.features[name].lowest,
                max_supported_version=wanted.features[name].highest,
            )
            for name in sorted(wanted.features)
        ],
        rack=wanted.rack,
        log_dirs=list(wanted.log_dirs),
    )
    return _CommandRequest(request, lambda answer: answer.broker_epoch, channel=CHANNEL)


def _controller_registration(wanted: ControllerImage) -> _CommandRequest:
    request = ControllerRegistrationRequest(
        controller_id=wanted.controller_id,
        incarnation_id=wanted.incarnation_id,
        listeners=[
            ControllerListener(
                name=e.listener, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in wanted.endpoints
        ],
        features=[
            ControllerSupportedFeature(
                name=name,
                min_supported_version=wanted.features[name].lowest,
                max_supported_version=wanted.features[name].highest,
            )
            for name in sorted(wanted.features)
        ],
    )
    return _CommandRequest(request, lambda answer: None, channel=CHANNEL)


def _heartbeat(heartbeat: Heartbeat, timeout_ms: int) -> _CommandRequest:
    request = BrokerHeartbeatRequest(
        broker_id=heartbeat.broker_id,
        broker_epoch=heartbeat.broker_epoch,
        current_metadata_offset=heartbeat.metadata_offset,
        want_fence=heartbeat.want_fence,
        want_shut_down=heartbeat.want_shut_down,
        offline_log_dirs=list(heartbeat.offline_log_dirs),
        cordoned_log_dirs=(
            None if heartbeat.cordoned_log_dirs is None else list(heartbeat.cordoned_log_dirs)
        ),
    )

    def outcome(answer: Any) -> HeartbeatAnswer:
        return HeartbeatAnswer(answer.is_caught_up, answer.is_fenced, answer.should_shut_down)

    return _CommandRequest(request, outcome, timeout_ms, channel=CHANNEL)


def _producer_ids(command: AllocateProducerIds) -> _CommandRequest:
    request = AllocateProducerIdsRequest(
        broker_id=command.broker_id, broker_epoch=command.broker_epoch
    )

    def outcome(answer: Any) -> ProducerIdBlock | KafkaError:
        if answer.producer_id_len <= 0 or answer.producer_id_start < 0:
            return KafkaError(Code.UNKNOWN_SERVER_ERROR, "the block has no producer ids")
        return ProducerIdBlock(answer.producer_id_start, answer.producer_id_len)

    return _CommandRequest(request, outcome)


def _topics(wanted: Sequence[NewTopic], node_id: int) -> _CommandRequest:
    """Create topics as a client would. Controllers accept that in an Envelope request."""
    inner = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                configs=[
                    CreatableTopicConfig(name=key, value=topic.configs[key])
                    for key in sorted(topic.configs)
                ],
            )
            for topic in wanted
        ],
        timeout_ms=_TIMEOUT_MS,
    )
    frame = encode_request(
        inner, version=_TOPICS_VERSION, correlation_id=0, client_id=f"broker-{node_id}"
    )
    request = EnvelopeRequest(
        request_data=frame[_SIZE_BYTES:],
        request_principal=encode_principal("User:ANONYMOUS"),
        client_host_address=b"\x7f\0\0\1",
    )

    def outcome(answer: Any) -> list[KafkaError | None] | KafkaError:
        try:
            response: Any = decode_answer(
                inner, _TOPICS_VERSION, bytes(answer.response_data or b""), correlation_id=0
            )
        except ProtocolError:
            return KafkaError(Code.UNKNOWN_SERVER_ERROR, "the response cannot be decoded")
        by_name = {row.name: _error_of(row) for row in response.topics}
        return [by_name.get(topic.name) for topic in wanted]

    return _CommandRequest(request, outcome, channel=_TOPICS_CHANNEL)


def _isr_changes(command: AlterPartitions) -> _CommandRequest:
    """Up to version 2 the request has broker ids without epochs (I31)."""
    rows: dict[Uuid, list[ProposedPartition]] = {}
    for change in command.changes:
        rows.setdefault(change.topic_id, []).append(_proposed(change))
    request = AlterPartitionRequest(
        broker_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        topics=[
            AlterPartitionTopic(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in rows.items()
        ],
    )

    def outcome(answer: Any) -> list[IsrAnswer | KafkaError]:
        found = {
            (topic.topic_id, row.partition_index): _altered(row)
            for topic in answer.topics
            for row in topic.partitions
        }
        return [
            found.get((each.topic_id, each.partition), _NOT_ANSWERED) for each in command.changes
        ]

    return _CommandRequest(request, outcome)


def _directories(command: AssignDirectories) -> _CommandRequest:
    rows: dict[Uuid, dict[Uuid, list[AssignedPartition]]] = {}
    for each in command.assignments:
        row = AssignedPartition(partition_index=each.partition)
        rows.setdefault(each.directory, {}).setdefault(each.topic_id, []).append(row)
    request = AssignReplicasToDirsRequest(
        broker_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        directories=[
            AssignedDirectory(
                id=directory,
                topics=[
                    AssignedTopic(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in topics.items()
                ],
            )
            for directory, topics in rows.items()
        ],
    )

    def outcome(answer: Any) -> list[KafkaError | None]:
        found = {
            (topic.topic_id, row.partition_index): _error_of(row)
            for directory in answer.directories
            for topic in directory.topics
            for row in topic.partitions
        }
        return [
            found.get((each.topic_id, each.partition), _NOT_ANSWERED)
            for each in command.assignments
        ]

    return _CommandRequest(request, outcome)


def _proposed(change: IsrChange) -> ProposedPartition:
    return ProposedPartition(
        partition_index=change.partition,
        leader_epoch=change.leader_epoch,
        new_isr=[member.broker_id for member in change.new_isr],
        new_isr_with_epochs=[
            BrokerState(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
            for member in change.new_isr
        ],
        leader_recovery_state=change.leader_recovery_state,
        partition_epoch=change.partition_epoch,
    )


def _altered(row: AlteredPartition) -> IsrAnswer | KafkaError:
    return _error_of(row) or IsrAnswer(
        row.leader_id,
        row.leader_epoch,
        tuple(row.isr),
        row.partition_epoch,
        row.leader_recovery_state,
    )


_NOT_ANSWERED = KafkaError(
    Code.UNKNOWN_SERVER_ERROR, "the controller's response does not contain it"
)


def _error_of(row: Any) -> KafkaError | None:
    if not row.error_code:
        return None
    code = Code(row.error_code) if row.error_code in _CODES else Code.UNKNOWN_SERVER_ERROR
    return KafkaError(code, getattr(row, "error_message", None) or "")
