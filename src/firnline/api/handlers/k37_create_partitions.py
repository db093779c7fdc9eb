"""CreatePartitions: more partitions for topics. PURE. Source: KIP-195."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.controller.topics import NewPartitions
from firnline.protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode


def handle(
    node: "AnyNode", context: RequestContext, request: CreatePartitionsRequest, now_ms: int
) -> Effects:
    """Answer each topic once its new partitions are committed, and for a while until they are open."""
    wanted = [_growth(topic) for topic in request.topics]

    def response(outcome: Sequence[KafkaError | None] | KafkaError) -> CreatePartitionsResponse:
        answers = [outcome] * len(wanted) if isinstance(outcome, KafkaError) else outcome
        # A topic that was named twice is answered once.
        by_name = {growth.name: answer for growth, answer in zip(wanted, answers, strict=True)}
        results = [_result(name, answer) for name, answer in by_name.items()]
        return CreatePartitionsResponse(results=results)

    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, response, now_ms, here=again)

    def then(outcome: Sequence[KafkaError | None] | KafkaError, at_ms: int) -> Effects:
        return [context.reply(response(outcome))]

    result = node.controller.create_partitions(wanted, validate_only=request.validate_only)
    return node.write_topics(result, then, now_ms)


def _growth(topic: CreatePartitionsTopic) -> NewPartitions:
    chosen = topic.assignments
    lists = None if chosen is None else [tuple(each.broker_ids) for each in chosen]
    return NewPartitions(topic.name, topic.count, lists)


def _result(name: str, answer: KafkaError | None) -> CreatePartitionsTopicResult:
    if answer is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=answer.code, error_message=answer.why)
