"""Metadata: brokers, topics and who leads what; makes a topic that is asked for, where that is allowed. PURE.

A topic that is made here is answered once it is there, where Kafka answers at once that it does not exist
and has the client ask again. Source: KIP-4, KIP-516; spec C12.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.handlers.k60_describe_cluster import ALL_CLUSTER_OPERATIONS
from firnline.api.slices import Slices, in_slices
from firnline.base.effects import Effects, EnsureTopic
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import INTERNAL_TOPICS, ZERO_UUID
from firnline.broker.leaders import any_broker
from firnline.controller.topic_names import creation_problem, name_problem
from firnline.controller.topics import NewTopic
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

# Read, write, create, delete, alter, describe and both for configs: all that a topic has.
ALL_TOPIC_OPERATIONS = 3576
# Partitions and topics, less than a millisecond.
_ROWS_PER_SLICE = 250
_SLICE_BYTES = _ROWS_PER_SLICE * 500  # measured: 390 each
_ASKING_BY_ID_SINCE, _NO_LISTENER_SINCE = 12, 6
Errors = Mapping[str, KafkaError]


_NOT_YET = KafkaError(Code.LEADER_NOT_AVAILABLE, "no controller is active at the moment")


def handle(
    node: "BrokerNode", context: RequestContext, request: MetadataRequest, now_ms: int
) -> Effects:
    """Answer from the committed image, after making what is missing and may be made."""
    wanted = _wanted(context, request)
    errors: dict[str, KafkaError] = {}
    missing = _to_create(node, wanted, request)

    def answer(at_ms: int) -> Effects:
        slices = _answer(node, context, request, wanted, errors)
        return in_slices(node, context, slices, at_ms, held_bytes=_SLICE_BYTES)

    if not missing:
        # The functions below know each other, so the garbage collector has to find them: a request of a
        # million names would stay in memory until it does.
        return answer(now_ms)

    def create_next(at_ms: int) -> Effects:
        """The broker's own topics one after the other: each has its own plan."""
        if not internal:
            return answer(at_ms)
        name = internal.pop()

        @context.makes_replies
        def made(error: KafkaError | None, later_ms: int) -> Effects:
            if error is not None:
                errors[name] = error
            return create_next(later_ms)

        return [EnsureTopic(name=name, then=made)]

    internal = [name for name in missing if name in INTERNAL_TOPICS]
    plain = [NewTopic(name) for name in missing if name not in INTERNAL_TOPICS]
    if not plain:
        return create_next(now_ms)

    @context.makes_replies
    def created(outcome: Sequence[KafkaError | None] | KafkaError, at_ms: int) -> Effects:
        # Nobody decides at the moment: to a client that is a leader that is not there yet.
        answers = [_NOT_YET] * len(plain) if isinstance(outcome, KafkaError) else outcome
        for topic, one in zip(plain, answers, strict=True):
            if one is not None and one.code != Code.TOPIC_ALREADY_EXISTS:
                errors[topic.name] = one
        return create_next(at_ms)

    return node.create_topics(plain, created, now_ms)


def _wanted(
    context: RequestContext, request: MetadataRequest
) -> Sequence[MetadataRequestTopic] | None:
    """What is asked for; None for all topics, which version 0 says by an empty list."""
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return None
    return request.topics


def _to_create(
    node: "BrokerNode",
    wanted: Sequence[MetadataRequestTopic] | None,
    request: MetadataRequest,
) -> list[str]:
    if not (wanted and request.allow_auto_topic_creation and node.config.auto_create_topics_enable):
        return []
    return [
        topic.name
        for topic in wanted
        if topic.name is not None
        and topic.topic_id == ZERO_UUID
        and node.image.topic(topic.name) is None
        and creation_problem(topic.name) is None
    ]


def _answer(
    node: "BrokerNode",
    context: RequestContext,
    request: MetadataRequest,
    wanted: Sequence[MetadataRequestTopic] | None,
    errors: Errors,
) -> Slices:
    """All of it is told as it is at the beginning, however many slices it takes."""
    image = node.image
    alive = [node_id for node_id in sorted(image.brokers) if not image.brokers[node_id].fenced]
    places = node.leaders.places(alive, context.listener)
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
    image: ClusterImage, context: RequestContext, asked: MetadataRequestTopic, errors: Errors
) -> TopicImage | MetadataResponseTopic:
    """Return the topic, or the answer that there is none."""
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
    elif name in errors:
        code = errors[name].code
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
    """The answer about a topic without its partitions."""
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
