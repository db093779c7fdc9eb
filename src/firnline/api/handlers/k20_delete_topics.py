"""DeleteTopics: by name, or from version 6 by name or id. PURE. Source: KIP-4, KIP-516."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.api.portions import in_portions, together
from firnline.api.slices import Slices, cut, in_slices
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import ZERO_UUID, Uuid
from firnline.controller.topics import TopicRef, find_topic
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
# Some 15 us for a topic, and as much for thirty of its partitions.
_TOPIC_COST = 30
_COST_PER_SLICE = 3_000
_LOOKED_UP_PER_SLICE = 250
_RESULTS_PER_SLICE = 500


def handle(
    node: "AnyNode", context: RequestContext, request: DeleteTopicsRequest, now_ms: int
) -> Effects:
    """Answer each topic once its removal is committed and this broker has seen it."""
    states = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    refused: list[DeletableTopicResult] = []
    wanted: list[TopicRef] = []
    for state in states:
        if (state.name is None) == (state.topic_id == ZERO_UUID):
            refused.append(_malformed(state))
        else:
            wanted.append(state.topic_id if state.name is None else state.name)

    def refusal(problem: KafkaError) -> DeleteTopicsResponse:
        results = [_result(ref, problem, context.api_version) for ref in dict.fromkeys(wanted)]
        return DeleteTopicsResponse(responses=refused + results)

    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, refusal, now_ms, here=again)

    slices = _delete(node, context, refused, wanted, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _delete(
    node: "AnyNode",
    context: RequestContext,
    refused: Sequence[DeletableTopicResult],
    wanted: Sequence[TopicRef],
    now_ms: int,
) -> Slices:
    """Decide on so many topics at a time; a topic that is named twice is decided on once."""
    answers: dict[int, Answer] = {}

    def told(portion: Sequence[int], outcome: Sequence[Answer] | KafkaError) -> None:
        found = [outcome] * len(portion) if isinstance(outcome, KafkaError) else outcome
        answers.update(zip(portion, found, strict=True))

    def finish(at_ms: int) -> Effects:
        return in_slices(node, context, _answer(context, refused, wanted, answers), at_ms)

    image = node.quorum.newest
    by_topic: dict[TopicRef, list[int]] = {}
    costs: dict[int, int] = {}
    for some in cut(range(len(wanted)), _LOOKED_UP_PER_SLICE):
        if costs:
            now_ms = yield []
        for place in some:
            topic = find_topic(image, wanted[place])
            key = wanted[place] if topic is None else topic.topic_id
            by_topic.setdefault(key, []).append(place)
            costs[place] = _TOPIC_COST + (0 if topic is None else len(topic.partitions))
    return (
        yield from in_portions(
            context,
            together(by_topic.values(), _COST_PER_SLICE, costs.__getitem__),
            decide=lambda portion: node.controller.delete_topics([wanted[at] for at in portion]),
            write=node.quorum.write,
            told=told,
            finish=finish,
            now_ms=now_ms,
        )
    )


def _answer(
    context: RequestContext,
    refused: Sequence[DeletableTopicResult],
    wanted: Sequence[TopicRef],
    answers: Mapping[int, Answer],
) -> Slices:
    # A topic that was named twice is answered once.
    places = {ref: place for place, ref in enumerate(wanted)}
    results = list(refused)
    for count, (ref, place) in enumerate(places.items(), 1):
        results.append(_result(ref, answers[place], context.api_version))
        if count % _RESULTS_PER_SLICE == 0:
            yield []
    return [context.reply(DeleteTopicsResponse(responses=results))]


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
