"""An admin client for the command line: topics, settings, groups, tiers. WORLD.

Each call takes and returns plain values. A refusal is a KafkaError whose text names the topic or group.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import ZERO_UUID, uuid_text
from firnline.client.connection import (
    Connection,
    NoAnswer,
    NoController,
    Unreachable,
    first_to_answer,
    parse_address,
)
from firnline.client.deadline import Deadline, at_once
from firnline.client.wire import refuse, refuse_topic
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from firnline.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from firnline.protocol.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from firnline.protocol.messages.k32001_tier_status import TierStatusRequest
from firnline.protocol.messages.k32002_tier_flush import TierFlushRequest, TierFlushTopic
from firnline.protocol.schema import Message

TOPIC_RESOURCE = 2
# A broker that lives greets within milliseconds, a busy one or a far one within a second.
_GREETING_S = 3.0
EARLIEST, LATEST, EARLIEST_LOCAL = -2, -1, -4
_DEFAULT_SOURCE = 5
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_NOT_TIERED = (
    "it is not tiered: remote.storage.enable is false; `firnline topic alter %s --set"
    " remote.storage.enable=true` sets it"
)
# Of the time that is left, what a broker may use; the rest is for its answer.
_BROKERS_SHARE, _ANSWER_S = 0.8, 3.0
# Errors of a broker that has found no controller to forward a change to.
WITHOUT_CONTROLLER = (Code.REQUEST_TIMED_OUT, Code.NOT_CONTROLLER)
# Errors of TierStatus from a broker without a tier, and from one that is not Firnline.
WITHOUT_TIER = (Code.INVALID_CONFIG, Code.UNSUPPORTED_VERSION)


# Errors of TierFlush about the topic as a whole, on whichever partition they are.
_NOT_TO_FLUSH = (
    *(Code.INVALID_CONFIG, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION),
    Code.UNSUPPORTED_VERSION,
)


class NotAllCopied(KafkaError):
    """Some partitions were not copied. The error is that of one of them; `rows` has the outcome of each."""

    def __init__(self, problem: KafkaError, rows: list[dict[str, Any]]) -> None:
        super().__init__(problem.code, problem.why)
        self.rows = rows


class TopicRow(NamedTuple):
    """One topic as `topic list` shows it."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    is_internal: bool


class PartitionRow(NamedTuple):
    """One partition as `topic describe` shows it; offsets are -1 if no broker answered."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int
    log_end_offset: int


class OpenCircuit(NamedTuple):
    """An operation that a broker does not ask its store for until a probe succeeds (decision 0037)."""

    operation: str
    open_ms: int
    problem: str


class UnansweredCall(NamedTuple):
    """A call of a broker's store that should have had its answer by now."""

    name: str
    unanswered_ms: int


class BrokerTier(NamedTuple):
    """What one broker says of its tier.

    partitions    a row for each tiered partition that it leads
    problem       what fails for all of them, or why the broker did not answer; None if nothing fails
    has_answered  it has a tier, and has said what is in it
    unanswered    the call of its store that has had no answer for the longest time; None: all have in time
    """

    address: str
    partitions: list[dict[str, Any]]
    problem: str | None
    circuits: list[OpenCircuit]
    has_answered: bool = True
    unanswered: UnansweredCall | None = None


class Admin:
    """A cluster behind some bootstrap addresses. Connects to other nodes where a request needs it.

    bootstrap  addresses, separated by commas; the first one that answers is used from then on
    timeout_s  how long one broker may be silent
    deadline   until when all calls together must be done; None: each call has its `timeout_s`

    Raises Unreachable for a malformed address, and, with the first request, when none answers.
    """

    def __init__(
        self, bootstrap: str, *, timeout_s: float = 30.0, deadline: Deadline | None = None
    ) -> None:
        addresses = [parse_address(text.strip()) for text in bootstrap.split(",") if text.strip()]
        if not addresses:
            raise Unreachable("no address given: expected host:port")
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s
        self.deadline = deadline
        self._bootstrap = [
            Connection(host, port, timeout_s=timeout_s, deadline=deadline)
            for host, port in addresses
        ]
        self._chosen: Connection | None = None
        self._nodes: dict[int, Connection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in (*self._bootstrap, *self._nodes.values()):
            connection.close()
        self._nodes.clear()

    # ------------------------------------------------------------------------------- nodes

    @property
    def first(self) -> Connection:
        """A connection to the first bootstrap address that answers."""
        if self._chosen is None:
            self._chosen = first_to_answer(self._bootstrap, wait_s=self.left_s)
        return self._chosen

    @property
    def left_s(self) -> float:
        """How many seconds the next call may take."""
        return self.timeout_s if self.deadline is None else self.deadline.left_s()

    def share(self, most_s: float = float("inf")) -> Deadline:
        """Return the deadline of nodes that may hang, if the command can go on without their answers."""
        return (
            Deadline(min(self.timeout_s, most_s))
            if self.deadline is None
            else self.deadline.share(most_s)
        )

    def brief(self, most_s: float) -> "Admin":
        """Return another client of this cluster, for questions without whose answers the command goes on."""
        until = self.share(most_s)
        return Admin(self.bootstrap, timeout_s=until.timeout_s, deadline=until)

    def metadata(self, topics: Sequence[str] | None) -> Any:
        """Return a MetadataResponse for these topics, None for all. Creates no topic."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return self.first.ask(request)

    def node(self, node_id: int, host: str, port: int) -> Connection:
        """Return a connection to a node; it is kept for later calls."""
        if node_id not in self._nodes:
            self._nodes[node_id] = Connection(
                host, port, timeout_s=self.timeout_s, deadline=self.deadline
            )
        return self._nodes[node_id]

    def brokers(self) -> list[Connection]:
        """Return a connection to each live broker."""
        answer = self.metadata([])
        return [self.node(each.node_id, each.host, each.port) for each in answer.brokers]

    def controller(self) -> Connection:
        """Return a connection to the broker that takes changes, or to one that forwards them to it."""
        answer = self.metadata([])
        for each in answer.brokers:
            if each.node_id == answer.controller_id:
                node = self.node(each.node_id, each.host, each.port)
                try:
                    node.spoken(deadline=self.share(_GREETING_S))
                except Unreachable:
                    break  # it has died, and the others do not know yet
                return node
        return self.first

    # ------------------------------------------------------------------------------- topics

    def topics(self) -> list[TopicRow]:
        """Return all topics, by name."""
        rows = []
        for topic in self.metadata(None).topics:
            replicas = [len(part.replica_nodes) for part in topic.partitions]
            rows.append(
                TopicRow(
                    topic.name,
                    uuid_text(topic.topic_id),
                    len(topic.partitions),
                    max(replicas, default=0),
                    topic.is_internal,
                )
            )
        return sorted(rows)

    def topic(self, name: str) -> tuple[TopicRow, list[PartitionRow]]:
        """Return one topic and its partitions, with both ends of each log."""
        answer = self.metadata([name])
        (topic,) = answer.topics
        refuse_topic(topic.error_code, name)
        by_leader: dict[int, list[int]] = {}
        for part in topic.partitions:
            by_leader.setdefault(part.leader_id, []).append(part.partition_index)
        leaders = [
            (self.node(broker.node_id, broker.host, broker.port), by_leader[broker.node_id])
            for broker in answer.brokers
            if broker.node_id in by_leader
        ]
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        for found in at_once(lambda led: self._both_ends(name, *led), leaders):
            starts |= found[0]
            ends |= found[1]
        rows = [
            PartitionRow(
                part.partition_index,
                part.leader_id,
                part.leader_epoch,
                tuple(part.replica_nodes),
                tuple(part.isr_nodes),
                starts.get(part.partition_index, -1),
                ends.get(part.partition_index, -1),
            )
            for part in sorted(topic.partitions, key=lambda part: part.partition_index)
        ]
        head = TopicRow(
            name,
            uuid_text(topic.topic_id),
            len(rows),
            max((len(row.replicas) for row in rows), default=0),
            topic.is_internal,
        )
        return head, rows

    def _both_ends(
        self, name: str, leader: Connection, partitions: Sequence[int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        starts = self.offsets(leader, name, partitions, EARLIEST)
        return starts, self.offsets(leader, name, partitions, LATEST)

    def offsets(
        self,
        leader: Connection,
        topic: str,
        partitions: Iterable[int],
        wish: int,
        *,
        deadline: Deadline | None = None,
    ) -> dict[int, int]:
        """Return the offset at `wish` (EARLIEST, LATEST, ...) by partition; a refused partition is left
        out.
        """
        wanted = [ListOffsetsPartition(partition_index=p, timestamp=wish) for p in partitions]
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name=topic, partitions=wanted)],
            timeout_ms=self.wait_ms,
        )
        answer = leader.ask(request, deadline=deadline)
        return {
            part.partition_index: part.offset
            for each in answer.topics
            for part in each.partitions
            if part.error_code == 0
        }

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str],
        assignments: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
    ) -> str:
        """Create a topic and return its id as text, or "" if the broker does not say.

        `assignments` are the replicas of each partition, preferred first, and exclude both counts.
        `validate_only` only checks whether it could be created.
        """
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in enumerate(assignments)
            ],
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in sorted(configs.items())],
        )
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=self.wait_ms, validate_only=validate_only
        )
        (result,) = self._ask(self.controller(), request).topics
        self._refuse(result.error_code, result.error_message, f"topic {name}")
        return "" if result.topic_id == ZERO_UUID else uuid_text(result.topic_id)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=self.wait_ms
        )
        (result,) = self._ask(self.controller(), request).responses
        self._refuse(result.error_code, result.error_message, f"topic {name}")

    def set_partitions(
        self,
        name: str,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Raise the number of partitions to `count`; `assignments` are the replicas of each new one."""
        chosen = [CreatePartitionsAssignment(broker_ids=list(each)) for each in assignments or ()]
        topic = CreatePartitionsTopic(name=name, count=count, assignments=chosen or None)
        request = CreatePartitionsRequest(
            topics=[topic], timeout_ms=self.wait_ms, validate_only=validate_only
        )
        (result,) = self._ask(self.controller(), request).results
        self._refuse(result.error_code, result.error_message, f"topic {name}")

    # ------------------------------------------------------------------------------- settings

    def topic_configs(self, name: str, *, only_changed: bool) -> dict[str, str | None]:
        """Return a topic's settings; `only_changed` leaves out those at Kafka's default."""
        resource = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
        )
        (result,) = self.first.ask(DescribeConfigsRequest(resources=[resource])).results
        refuse(result.error_code, result.error_message, f"topic {name}")
        return {
            each.name: each.value
            for each in result.configs
            if not only_changed or each.config_source != _DEFAULT_SOURCE
        }

    def alter_topic(
        self,
        name: str,
        *,
        changes: Mapping[str, str],
        resets: Iterable[str] = (),
        appends: Mapping[str, str] = MappingProxyType({}),
        removals: Mapping[str, str] = MappingProxyType({}),
        validate_only: bool = False,
    ) -> None:
        """Set some settings of a topic, and return others to their defaults.

        appends, removals  items of settings that are lists, separated by commas
        """
        rows = [
            AlterableConfig(name=key, config_operation=_SET, value=value)
            for key, value in sorted(changes.items())
        ]
        rows += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in resets]
        for operation, items in ((_APPEND, appends), (_SUBTRACT, removals)):
            rows += [
                AlterableConfig(name=key, config_operation=operation, value=value)
                for key, value in sorted(items.items())
            ]
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configs=rows
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        (result,) = self._ask(self.controller(), request).responses
        self._refuse(result.error_code, result.error_message, f"topic {name}")

    # ------------------------------------------------------------------------------- tiers

    def tier_status(self, topics: Sequence[str] | None) -> list[BrokerTier]:
        """Return what each broker answers about the tiered partitions that it leads, or why it does not.

        KafkaError INVALID_CONFIG if no broker has a tier.
        """
        deadline = self.share()

        def ask(broker: Connection) -> BrokerTier | KafkaError:
            try:
                return self.tier_status_of(broker, topics, deadline=deadline)
            except Unreachable as problem:
                why = f"did not answer: {problem}"
                return BrokerTier(broker.address, [], why, [], has_answered=False)
            except KafkaError as problem:
                if problem.code not in WITHOUT_TIER:
                    raise
                return problem

        brokers = self.brokers()
        answers = at_once(ask, brokers)
        refused = next((each for each in answers if isinstance(each, KafkaError)), None)
        found = [
            BrokerTier(broker.address, [], str(answer), [], has_answered=False)
            if isinstance(answer, KafkaError)
            else answer
            for broker, answer in zip(brokers, answers, strict=True)
        ]
        if refused is not None and not any(each.has_answered for each in found):
            raise refused
        return found

    def tier_status_of(
        self, broker: Connection, topics: Sequence[str] | None, *, deadline: Deadline | None = None
    ) -> BrokerTier:
        """Return what one broker answers about the tiered partitions that it leads.

        KafkaError INVALID_CONFIG from a broker without a tier, UNSUPPORTED_VERSION from one that is not
        Firnline.
        """
        rows: list[dict[str, Any]] = []
        answer = broker.ask(TierStatusRequest(topics=topics), deadline=deadline)
        refuse(answer.error_code, answer.error_message, "tier status")
        for topic in answer.topics:
            is_local = topic.error_code == Code.INVALID_TOPIC_EXCEPTION
            why = _NOT_TIERED % topic.name if is_local else None
            refuse(topic.error_code, why, f"topic {topic.name}")
            for part in topic.partitions:
                refuse(part.error_code, None, f"{topic.name}-{part.partition}")
                facts = {field: getattr(part, field) for field in type(part).fields}
                facts.pop("error_code")
                named = {"topic": topic.name, "topic_id": uuid_text(topic.topic_id)}
                rows.append(named | facts)
        circuits = [OpenCircuit(c.operation, c.open_ms, c.problem) for c in answer.circuits]
        name = answer.unanswered
        unanswered = None if name is None else UnansweredCall(name, answer.unanswered_ms)
        return BrokerTier(broker.address, rows, answer.problem, circuits, unanswered=unanswered)

    def tier_flush(
        self, topic: str, partitions: Sequence[int], *, timeout_s: float | None = None
    ) -> list[dict[str, Any]]:
        """Copy everything that is written to the tier; return one row per partition.

        partitions  only these; empty: all of the topic. KafkaError if no broker leads one of them.
        timeout_s   how long brokers may copy; None: nearly until the deadline

        All brokers are asked at the same time. NotAllCopied, which has the rows, if something was not copied
        in time, or could not be.
        """
        timeout_ms = self.wait_ms if timeout_s is None else int(timeout_s * 1000)
        topics = [TierFlushTopic(name=topic, partitions=partitions)]
        request = TierFlushRequest(topics=topics, timeout_ms=timeout_ms)

        def ask(broker: Connection) -> Any:
            # The broker answers at the timeout, whatever its store does.
            return broker.ask(request, timeout_s=timeout_ms / 1000 + self.timeout_s)

        answers = at_once(ask, self.brokers())
        (described,) = self.metadata([topic]).topics
        rows: list[dict[str, Any]] = []
        problems: list[KafkaError] = []
        for part in (part for a in answers for each in a.topics for part in each.partitions):
            # -1 stands for the topic as a whole.
            about = f"topic {topic}" if part.partition < 0 else f"{topic}-{part.partition}"
            try:
                refuse(part.error_code, part.error_message, about)
            except KafkaError as problem:
                if part.partition < 0 or problem.code in _NOT_TO_FLUSH:
                    raise
                problems.append(problem)
            why = part.error_message if part.error_code else None
            ends = part.log_end_offset, part.highest_remote_offset
            rows.append(_flushed(topic, part.partition, *ends, why))
        missing = set(partitions) - {row["partition"] for row in rows}
        if missing:
            about = f"{topic}-{min(missing)}"
            said = "there is no such partition, or no broker leads it"
            refuse(Code.UNKNOWN_TOPIC_OR_PARTITION, said, about)
        # While the leader of a partition changes, no broker answers for it.
        all_of_it = {part.partition_index for part in described.partitions}
        for index in [] if partitions else sorted(all_of_it - {row["partition"] for row in rows}):
            why = "no broker leads it now: flush it again when one does"
            problems.append(KafkaError(Code.LEADER_NOT_AVAILABLE, f"{topic}-{index}: {why}"))
            rows.append(_flushed(topic, index, -1, -1, why))
        rows.sort(key=lambda row: int(row["partition"]))
        if problems:
            raise NotAllCopied(problems[0], rows)
        return rows

    # ------------------------------------------------------------------------------- internal

    @property
    def wait_ms(self) -> int:
        """How long a broker may take. It answers before the deadline, and then says why it failed."""
        left_s = self.left_s
        if self.deadline is not None:
            left_s = max(left_s * _BROKERS_SHARE, left_s - _ANSWER_S)
        return max(1, int(left_s * 1000))

    def _ask(self, connection: Connection, request: Message) -> Any:
        """Request a change. The broker may take the whole timeout, so we wait a little longer."""
        connection.spoken()
        try:
            return connection.ask(request, timeout_s=self.timeout_s + 5)
        except NoAnswer:
            # It has just greeted us: it waits for a controller, and the request cannot state for how long.
            raise NoController(f"{connection.address} found none that answers in time") from None

    def _refuse(self, code: int, message: str | None, what: str) -> None:
        """As `refuse`, for a change: a broker that forwarded it in vain has found no controller."""
        if code in WITHOUT_CONTROLLER:
            raise NoController(f"{what}: {message or Code(code).name}")
        refuse(code, message, what)


def _flushed(
    topic: str, partition: int, log_end_offset: int, highest_remote_offset: int, problem: str | None
) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "log_end_offset": log_end_offset,
        "highest_remote_offset": highest_remote_offset,
        "problem": problem,
    }
