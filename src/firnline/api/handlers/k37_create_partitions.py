"""CreatePartitions: more partitions for topics. PURE. Source: KIP-195."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.api.portions import Steps, in_portions, on_newest, together
from firnline.api.slices import Slices, in_slices
from firnline.base.background import whole
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.controller.topics import NewPartitions, new_partitions
from firnline.metadata.result import ControllerResult
from firnline.protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode

# Some 15 us each.
_PARTITIONS_PER_SLICE = 100
_TOPIC_COST = 1
_LARGE_TOPIC = 300


def handle(
    node: "AnyNode", context: RequestContext, request: CreatePartitionsRequest, now_ms: int
) -> Effects:
    """Answer each topic once its new partitions are committed, and for a while until they are open."""
    wanted = [_growth(topic) for topic in request.topics]

    def response(answers: Sequence[KafkaError | None]) -> CreatePartitionsResponse:
        # A topic that was named twice is answered once.
        by_name = {growth.name: answer for growth, answer in zip(wanted, answers, strict=True)}
        results = [_result(name, answer) for name, answer in by_name.items()]
        return CreatePartitionsResponse(results=results)

    def refusal(problem: KafkaError) -> CreatePartitionsResponse:
        return response([problem] * len(wanted))

    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, refusal, now_ms, here=again)
    slices = _create(node, context, wanted, request.validate_only, response, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _create(
    node: "AnyNode",
    context: RequestContext,
    wanted: Sequence[NewPartitions],
    validate_only: bool,
    response: Callable[[Sequence[KafkaError | None]], CreatePartitionsResponse],
    now_ms: int,
) -> Slices:
    """Decide on so many new partitions at a time; all of one topic come with one batch."""
    answers: list[KafkaError | None] = [None] * len(wanted)
    sizes = [new_partitions(node.quorum.newest, growth) for growth in wanted]
    partitions_before = 0

    def decide(portion: Sequence[int]) -> ControllerResult[Any] | Steps:
        asked = partial(
            node.controller.create_partitions_steps,
            [wanted[place] for place in portion],
            validate_only=validate_only,
            partitions_before=partitions_before,
        )
        if sum(sizes[place] for place in portion) < _LARGE_TOPIC:
            return counted(portion, whole(asked()))
        return large(portion, asked)

    def large(portion: Sequence[int], asked: Callable[[], Steps]) -> Steps:
        return counted(portion, (yield from on_newest(node.quorum, asked)))

    def counted(portion: Sequence[int], result: ControllerResult[Any]) -> ControllerResult[Any]:
        nonlocal partitions_before
        rows = zip(portion, result.response, strict=True)
        partitions_before += sum(sizes[place] for place, answer in rows if answer is None)
        return result

    def told(portion: Sequence[int], outcome: Sequence[KafkaError | None] | KafkaError) -> None:
        found = [outcome] * len(portion) if isinstance(outcome, KafkaError) else outcome
        for place, answer in zip(portion, found, strict=True):
            answers[place] = answer

    by_name: dict[str, list[int]] = {}  # as a topic must not be named twice
    for place, growth in enumerate(wanted):
        by_name.setdefault(growth.name, []).append(place)
    return in_portions(
        context,
        together(by_name.values(), _PARTITIONS_PER_SLICE, lambda place: _TOPIC_COST + sizes[place]),
        decide=decide,
        write=node.write_topics,
        told=told,
        finish=lambda at_ms: [context.reply(response(answers))],
        now_ms=now_ms,
    )


def _growth(topic: CreatePartitionsTopic) -> NewPartitions:
    chosen = topic.assignments
    lists = None if chosen is None else [tuple(each.broker_ids) for each in chosen]
    return NewPartitions(topic.name, topic.count, lists)


def _result(name: str, answer: KafkaError | None) -> CreatePartitionsTopicResult:
    if answer is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=answer.code, error_message=answer.why)
