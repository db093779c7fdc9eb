"""DeleteTopics: by name, or from version 6 by name or id. PURE. Source: KIP-4, KIP-516."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import ZERO_UUID, Uuid
from firnline.controller.topics import TopicRef
from firnline.protocol.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode

Answer = tuple[str, Uuid] | KafkaError
_DELETION_DISABLED_SINCE = 3


def handle(
    node: "AnyNode", context: RequestContext, request: DeleteTopicsRequest, now_ms: int
) -> Effects:
    """Answer each topic once its removal is committed and this broker has seen it."""
    states = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    refused = [_malformed(state) for state in states if (state.name is None) == _has_no_id(state)]
    wanted = [_ref(state) for state in states if (state.name is None) != _has_no_id(state)]

    def response(outcome: Sequence[Answer] | KafkaError) -> DeleteTopicsResponse:
        answers = [outcome] * len(wanted) if isinstance(outcome, KafkaError) else outcome
        # A topic that was named twice is answered once.
        by_ref = dict(zip(wanted, answers, strict=True))
        results = [_result(ref, answer, context.api_version) for ref, answer in by_ref.items()]
        return DeleteTopicsResponse(responses=refused + results)

    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, response, now_ms, here=again)

    def then(outcome: Sequence[Answer] | KafkaError, at_ms: int) -> Effects:
        return [context.reply(response(outcome))]

    return node.quorum.write(node.controller.delete_topics(wanted), then, now_ms)


def _has_no_id(state: DeleteTopicState) -> bool:
    return state.topic_id == ZERO_UUID


def _ref(state: DeleteTopicState) -> TopicRef:
    return state.topic_id if state.name is None else state.name


def _malformed(state: DeleteTopicState) -> DeletableTopicResult:
    why = "neither name nor id is given" if state.name is None else "name and id are both given"
    return DeletableTopicResult(
        name=state.name,
        topic_id=state.topic_id,
        error_code=Code.INVALID_REQUEST,
        error_message=why,
    )


def _result(ref: TopicRef, answer: Answer, version: int) -> DeletableTopicResult:
    if not isinstance(answer, KafkaError):
        return DeletableTopicResult(name=answer[0], topic_id=answer[1])
    code = answer.code
    if code == Code.TOPIC_DELETION_DISABLED and version < _DELETION_DISABLED_SINCE:
        code = Code.INVALID_REQUEST
    is_name = isinstance(ref, str)
    return DeletableTopicResult(
        name=ref if is_name else None,
        topic_id=ZERO_UUID if is_name else ref,
        error_code=code,
        error_message=answer.why,
    )
