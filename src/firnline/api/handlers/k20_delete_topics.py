"""DeleteTopics: by name, or from version 6 by name or id. PURE. Source: KIP-4, KIP-516."""

from collections.abc import Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.api.portions import grouped, in_portions, together
from firnline.api.slices import Slices, a_row_for_each, a_step_a_slice, cut, emptied, in_slices
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

DeleteTopicOutcome = tuple[str, Uuid] | KafkaError
_DELETION_DISABLED_SINCE = 3
# A topic takes about 15 us, as much as thirty of its partitions.
_TOPIC_COST = 30
_COST_PER_SLICE = 3_000
_LOOKED_UP_PER_SLICE = 250
_RESULTS_PER_SLICE = 500


def handle(
    node: "AnyNode", context: RequestContext, request: DeleteTopicsRequest, now_ms: int
) -> Effects:
    """Answer each topic once its deletion is committed and applied on this broker."""

    def refusal(problem: KafkaError) -> Generator[object, None, DeleteTopicsResponse]:
        rows: Sequence[DeleteTopicState | str] = request.topics or request.topic_names
        refused: list[DeletableTopicResult] = []
        wanted: list[TopicRef] = []
        for some in cut(rows, _LOOKED_UP_PER_SLICE):
            if wanted or refused:
                yield refused
                yield wanted
            malformed, refs = _sorted_out(some)
            refused += malformed
            wanted += refs
        version = context.api_version
        results = yield from a_row_for_each(wanted, lambda ref: _result(ref, problem, version))
        return DeleteTopicsResponse(responses=refused + results)

    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, refusal, now_ms, here=again)

    slices = _delete(node, context, request, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _delete(
    node: "AnyNode",
    context: RequestContext,
    request: DeleteTopicsRequest,
    now_ms: int,
) -> Slices:
    """Delete topics in portions; a topic that is named twice once."""
    refused: list[DeletableTopicResult] = []
    wanted: list[TopicRef] = []
    answers: dict[int, DeleteTopicOutcome] = {}

    def on_outcome(
        portion: Sequence[int], outcome: Sequence[DeleteTopicOutcome] | KafkaError
    ) -> None:
        found = [outcome] * len(portion) if isinstance(outcome, KafkaError) else outcome
        answers.update(zip(portion, found, strict=True))

    def finish(at_ms: int) -> Effects:
        return in_slices(node, context, _answer(context, refused, wanted, answers), at_ms)

    image = node.quorum.newest
    keys: list[TopicRef] = []
    costs: list[int] = []
    rows: Sequence[DeleteTopicState | str] = request.topics or request.topic_names
    for some in emptied(rows, _LOOKED_UP_PER_SLICE):
        if keys or refused:
            now_ms = yield []
        malformed, refs = _sorted_out(some)
        refused += malformed
        wanted += refs
        for ref in refs:
            topic = find_topic(image, ref)
            keys.append(ref if topic is None else topic.topic_id)
            costs.append(_TOPIC_COST + (0 if topic is None else len(topic.partitions)))
    steps = grouped(range(len(wanted)), keys.__getitem__)
    by_topic, now_ms = yield from a_step_a_slice(steps, now_ms, context)
    return (
        yield from in_portions(
            context,
            together(by_topic, _COST_PER_SLICE, costs.__getitem__),
            decide=lambda portion: node.controller.delete_topics([wanted[at] for at in portion]),
            write=node.quorum.write,
            on_outcome=on_outcome,
            finish=finish,
            now_ms=now_ms,
        )
    )


def _sorted_out(
    rows: Sequence[DeleteTopicState | str],
) -> tuple[list[DeletableTopicResult], list[TopicRef]]:
    """Return the outcomes of rows without one known topic, and the topics of the other rows."""
    refused: list[DeletableTopicResult] = []
    wanted: list[TopicRef] = []
    for row in rows:
        state = DeleteTopicState(name=row) if isinstance(row, str) else row
        if (state.name is None) == (state.topic_id == ZERO_UUID):
            refused.append(_malformed(state))
        else:
            wanted.append(state.topic_id if state.name is None else state.name)
    return refused, wanted


def _answer(
    context: RequestContext,
    refused: Sequence[DeletableTopicResult],
    wanted: Sequence[TopicRef],
    answers: dict[int, DeleteTopicOutcome],
) -> Slices:
    # A topic that is named twice has one row, that of its last mention.
    results: dict[TopicRef, DeletableTopicResult] = {}
    for place, ref in enumerate(wanted):
        results[ref] = _result(ref, answers.pop(place), context.api_version)
        if (place + 1) % _RESULTS_PER_SLICE == 0:
            yield context.keeps(results)
    return [context.reply(DeleteTopicsResponse(responses=[*refused, *results.values()]))]


def _malformed(state: DeleteTopicState) -> DeletableTopicResult:
    why = "neither name nor id is given" if state.name is None else "name and id are both given"
    return DeletableTopicResult(
        name=state.name,
        topic_id=state.topic_id,
        error_code=Code.INVALID_REQUEST,
        error_message=why,
    )


def _result(ref: TopicRef, answer: DeleteTopicOutcome, version: int) -> DeletableTopicResult:
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
