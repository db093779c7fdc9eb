"""CreateTopics: make topics. PURE. Source: KIP-4, KIP-525, KIP-599; reliability d 46-50."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.config.layers import Entry, describe_topic
from firnline.controller.topics import CreatedTopic, NewTopic
from firnline.metadata.image import ResourceType
from firnline.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreatableTopicResultConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode

Answer = CreatedTopic | KafkaError


def handle(
    node: "AnyNode", context: RequestContext, request: CreateTopicsRequest, now_ms: int
) -> Effects:
    """Answer each topic once its records are committed, and for a while until its partitions are open."""
    wanted = [_new_topic(topic) for topic in request.topics]

    def response(outcome: Sequence[Answer] | KafkaError) -> CreateTopicsResponse:
        answers = [outcome] * len(wanted) if isinstance(outcome, KafkaError) else outcome
        # A topic that was asked for twice is answered once.
        by_name = {topic.name: answer for topic, answer in zip(wanted, answers, strict=True)}
        results = [_result(node, name, answer) for name, answer in by_name.items()]
        return CreateTopicsResponse(topics=results)

    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, response, now_ms, here=again)

    def then(outcome: Sequence[Answer] | KafkaError, at_ms: int) -> Effects:
        return [context.reply(response(outcome))]

    result = node.controller.create_topics(wanted, validate_only=request.validate_only)
    return node.write_topics(result, then, now_ms)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    numbers = [a.partition_index for a in topic.assignments]
    assignments = {a.partition_index: tuple(a.broker_ids) for a in topic.assignments}
    if len(assignments) != len(numbers):
        # Said twice: what is left cannot be numbered without a gap, and is refused for that.
        assignments = {place - 1: () for place in range(len(numbers))}
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignments,
        {config.name: config.value for config in topic.configs},
    )


def _result(node: "AnyNode", name: str, answer: Answer) -> CreatableTopicResult:
    if isinstance(answer, KafkaError):
        return CreatableTopicResult(
            name=name, error_code=answer.code, error_message=answer.why, configs=()
        )
    image = node.quorum.newest
    entries = describe_topic(
        node.config,
        answer.configs,
        cluster=image.config(ResourceType.BROKER, ""),
        node=image.config(ResourceType.BROKER, str(node.node_id)),
    )
    return CreatableTopicResult(
        name=name,
        topic_id=answer.topic_id,
        error_message=None,
        num_partitions=answer.num_partitions,
        replication_factor=answer.replication_factor,
        configs=[_config(entry) for entry in entries],
    )


def _config(entry: Entry) -> CreatableTopicResultConfig:
    return CreatableTopicResultConfig(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
    )
