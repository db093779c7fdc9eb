"""Metadata: brokers, topics and their leaders; creates missing topics where that is allowed. PURE.

The response waits until a created topic exists. Kafka answers at once that it does not exist, and the client
asks again. Source: KIP-4, KIP-516; spec C12.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.handlers.k60_describe_cluster import ALL_CLUSTER_OPERATIONS
from firnline.api.slices import Slices, cut, in_slices
from firnline.base.effects import Effects, EnsureTopic
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import INTERNAL_TOPICS, ZERO_UUID
from firnline.base.limits import PARTITIONS_PER_REQUEST_MAX
from firnline.broker.leaders import any_broker
from firnline.controller.topics import NewTopic
from firnline.formats.topic_names import creation_problem, name_problem
from firnline.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from firnline.protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

# All operations on a topic: read, write, create, delete, alter, describe, describe and alter configs.
ALL_TOPIC_OPERATIONS = 3576
# Partitions and topics; takes less than a millisecond.
_ROWS_PER_SLICE = 250
_SLICE_BYTES = _ROWS_PER_SLICE * 500  # measured: 390 each
_ASKING_BY_ID_SINCE, _NO_LISTENER_SINCE = 12, 6
# Takes a millisecond if all are missing.
_LOOKED_UP_PER_SLICE = 500
# A partition takes about 15 us, a topic as much as four partitions.
_PARTITIONS_PER_SLICE, _TOPIC_COST = 120, 4


_TOO_MANY = KafkaError(Code.POLICY_VIOLATION, "more than 10,000 partitions in one request")
_NOT_YET = KafkaError(Code.LEADER_NOT_AVAILABLE, "no controller is active at the moment")


def handle(
    node: "BrokerNode", context: RequestContext, request: MetadataRequest, now_ms: int
) -> Effects:
    """Answer from the committed image, after creating missing topics if that is allowed."""
    wanted = _wanted(context, request)
    errors = _Errors()

    def answer(at_ms: int) -> Effects:
        slices = _answer(node, context, request, wanted, errors)
        return in_slices(node, context, slices, at_ms, held_bytes=_SLICE_BYTES)

    may_create = request.allow_auto_topic_creation and node.config.auto_create_topics_enable
    if not (wanted and may_create):
        return answer(now_ms)
    if len(wanted) <= _LOOKED_UP_PER_SLICE and not _to_create(node, wanted):
        return answer(now_ms)
    slices = _create(node, context, wanted, errors, answer, now_ms)
    return in_slices(node, context, slices, now_ms, held_bytes=0)


def _wanted(
    context: RequestContext, request: MetadataRequest
) -> Sequence[MetadataRequestTopic] | None:
    """Return the requested topics; None for all, which is an empty list in version 0."""
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return None
    return request.topics


def _to_create(node: "BrokerNode", wanted: Sequence[MetadataRequestTopic]) -> list[str]:
    return [
        topic.name
        for topic in wanted
        if topic.name is not None
        and topic.topic_id == ZERO_UUID
        and node.image.topic(topic.name) is None
        and creation_problem(topic.name) is None
    ]


def _create(
    node: "BrokerNode",
    context: RequestContext,
    wanted: Sequence[MetadataRequestTopic],
    errors: "_Errors",
    answer: Callable[[int], Effects],
    now_ms: int,
) -> Slices:
    """Create the missing topics, then call `answer`."""
    missing: list[str] = []
    for place, some in enumerate(cut(wanted, _LOOKED_UP_PER_SLICE)):
        if place:
            now_ms = yield []
        missing += _to_create(node, some)
    # The controller refuses a request with so many partitions, too.
    if len(missing) * node.config.num_partitions > PARTITIONS_PER_REQUEST_MAX:
        errors.of_all = _TOO_MANY
        return answer(now_ms)
    return _Creating(node, context, missing, errors, answer).go_on(now_ms)


class _Errors:
    """The errors of topics that could not be created: one for each, or one for all."""

    __slots__ = ("by_name", "of_all")

    def __init__(self) -> None:
        self.by_name: dict[str, KafkaError] = {}
        self.of_all: KafkaError | None = None

    def of(self, name: str) -> KafkaError | None:
        if self.of_all is not None and creation_problem(name) is None:
            return self.of_all
        return self.by_name.get(name)


class _Creating:
    """Creates missing topics, one portion after the other, then answers.

    Internal topics come last, one by one, because each has its own configuration.
    """

    # A class and not closures: those would refer to one another, and keep a request of very many names in
    # memory until the next garbage collection.
    __slots__ = ("_answer", "_context", "_errors", "_internal", "_node", "_plain")

    def __init__(
        self,
        node: "BrokerNode",
        context: RequestContext,
        missing: Sequence[str],
        errors: "_Errors",
        answer: Callable[[int], Effects],
    ) -> None:
        self._node = node
        self._context = context
        self._errors = errors
        self._answer = answer
        self._internal = [name for name in missing if name in INTERNAL_TOPICS]
        self._plain = [name for name in missing if name not in INTERNAL_TOPICS]

    def go_on(self, now_ms: int) -> Effects:
        """Create the next portion; answer after the last one."""
        guarded = self._context.makes_replies
        if self._plain:
            count = max(
                1, _PARTITIONS_PER_SLICE // (_TOPIC_COST + self._node.config.num_partitions)
            )
            names, self._plain = self._plain[:count], self._plain[count:]
            created = guarded(partial(self._created, names))
            return self._node.create_topics([NewTopic(name) for name in names], created, now_ms)
        if self._internal:
            name = self._internal.pop()
            return [EnsureTopic(name=name, then=guarded(partial(self._made, name)))]
        return self._answer(now_ms)

    def _created(
        self, names: Sequence[str], outcome: Sequence[KafkaError | None] | KafkaError, now_ms: int
    ) -> Effects:
        if isinstance(outcome, KafkaError):
            # No controller is active: for a client the leader is not available yet.
            self._errors.by_name.update(dict.fromkeys([*names, *self._plain], _NOT_YET))
            self._plain = []
            return self.go_on(now_ms)
        for name, one in zip(names, outcome, strict=True):
            if one is not None and one.code != Code.TOPIC_ALREADY_EXISTS:
                self._errors.by_name[name] = one
        if not self._plain:
            return self.go_on(now_ms)
        return in_slices(self._node, self._context, self._next(), now_ms, held_bytes=0)

    def _next(self) -> Slices:
        now_ms = yield []  # a decision without records calls back in its own step
        return self.go_on(now_ms)

    def _made(self, name: str, error: KafkaError | None, now_ms: int) -> Effects:
        if error is not None:
            self._errors.by_name[name] = error
        return self.go_on(now_ms)


def _answer(
    node: "BrokerNode",
    context: RequestContext,
    request: MetadataRequest,
    wanted: Sequence[MetadataRequestTopic] | None,
    errors: "_Errors",
) -> Slices:
    """Answer from one version of the image, however many slices that takes."""
    image = node.image
    alive = [node_id for node_id in sorted(image.brokers) if not image.brokers[node_id].fenced]
    places = node.leaders.addresses(alive, context.listener)
    reachable = frozenset(place.node_id for place in places)
    found: Iterable[TopicImage | MetadataResponseTopic]
    if wanted is None:
        found = (image.topics_by_name[name] for name in sorted(image.topics_by_name))
    else:
        found = (_asked(image, context, topic, errors) for topic in wanted)
    topics: list[MetadataResponseTopic] = []
    count = 0
    for each in found:
        if count >= _ROWS_PER_SLICE:
            count = 0
            yield context.keeps(topics)
        count += 1
        if isinstance(each, MetadataResponseTopic):
            topics.append(each)
            continue
        topic = _topic(each)
        topics.append(topic)
        rows: list[MetadataResponsePartition] = []
        topic.partitions = rows
        for number in sorted(each.partitions):
            rows.append(_partition(image, context, reachable, number, each.partitions[number]))
            count += 1
            if count >= _ROWS_PER_SLICE:
                count = 0
                yield context.keeps(topics)
        if request.include_topic_authorized_operations:
            topic.topic_authorized_operations = ALL_TOPIC_OPERATIONS
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=p.node_id, host=p.host, port=p.port, rack=p.rack)
            for p in places
        ],
        cluster_id=node.cluster_id,
        controller_id=any_broker(image, node.quorum.leader_id, node.node_id),
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return [context.reply(response)]


def _asked(
    image: ClusterImage, context: RequestContext, asked: MetadataRequestTopic, errors: "_Errors"
) -> TopicImage | MetadataResponseTopic:
    """Return the topic, or its row with the error that it does not exist."""
    by_id, name = asked.topic_id != ZERO_UUID, asked.name or ""
    if (by_id or asked.name is None) and context.api_version < _ASKING_BY_ID_SINCE:
        return _refusal(context, asked, Code.INVALID_REQUEST)
    if by_id:
        topic = image.topics_by_id.get(asked.topic_id)
        code = Code.UNKNOWN_TOPIC_ID
    else:
        topic = image.topic(name)
        code = Code.UNKNOWN_TOPIC_OR_PARTITION
    if topic is not None:
        return topic
    if not by_id and name_problem(name) is not None:
        code = Code.INVALID_TOPIC_EXCEPTION
    elif (error := errors.of(name)) is not None:
        code = error.code
    return _refusal(context, asked, code)


def _refusal(
    context: RequestContext, asked: MetadataRequestTopic, code: Code
) -> MetadataResponseTopic:
    may_be_null = context.api_version >= _ASKING_BY_ID_SINCE
    return MetadataResponseTopic(
        error_code=code,
        name=asked.name if may_be_null else asked.name or "",
        topic_id=asked.topic_id,
        is_internal=asked.name in INTERNAL_TOPICS,
    )


def _topic(topic: TopicImage) -> MetadataResponseTopic:
    """Return the row of a topic without its partitions."""
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.name in INTERNAL_TOPICS
    )


def _partition(
    image: ClusterImage,
    context: RequestContext,
    reachable: frozenset[int],
    number: int,
    partition: PartitionImage,
) -> MetadataResponsePartition:
    code, leader = Code.NONE, partition.leader
    if leader not in reachable:
        knows_listeners = context.api_version >= _NO_LISTENER_SINCE
        broker = image.brokers.get(leader)
        is_alive = broker is not None and not broker.fenced
        code = (
            Code.LISTENER_NOT_FOUND if is_alive and knows_listeners else Code.LEADER_NOT_AVAILABLE
        )
        leader = NO_LEADER
    return MetadataResponsePartition(
        error_code=code,
        partition_index=number,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=[
            node_id
            for node_id, directory in zip(partition.replicas, partition.directories, strict=True)
            if (broker := image.brokers.get(node_id)) is None
            or broker.fenced
            or not broker.has_online(directory)
        ],
    )
