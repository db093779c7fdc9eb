"""CreatePartitions: adds partitions to topics. PURE. Source: KIP-195."""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.api.portions import DecisionSteps, grouped, in_portions, on_newest, together
from firnline.api.slices import (
    Slices,
    a_row_for_each,
    a_step_a_slice,
    cut,
    emptied,
    in_slices,
)
from firnline.base.background import run_to_completion
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

# A partition takes about 15 us.
_PARTITIONS_PER_SLICE = 100
_TOPIC_COST = 1
_LARGE_TOPIC = 300
_ROWS_PER_SLICE = 500
_Outcomes = list[KafkaError | None]
_Decision = ControllerResult[_Outcomes]


def handle(
    node: "AnyNode", context: RequestContext, request: CreatePartitionsRequest, now_ms: int
) -> Effects:
    """Answer once the new partitions are committed and, within a bound, open."""

    def refusal(problem: KafkaError) -> Generator[object, None, CreatePartitionsResponse]:
        names = (topic.name for topic in request.topics)
        rows = yield from a_row_for_each(names, lambda name: _result(name, problem))
        return CreatePartitionsResponse(results=rows)

    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, refusal, now_ms, here=again)
    slices = _create(node, context, request, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _create(
    node: "AnyNode", context: RequestContext, request: CreatePartitionsRequest, now_ms: int
) -> Slices:
    """Create partitions in portions; those of one topic are in one batch."""
    wanted, now_ms = yield from a_step_a_slice(_growths(request.topics), now_ms, context)
    answers: list[KafkaError | None] = [None] * len(wanted)
    sizes: list[int] = []
    for some in cut(wanted, _ROWS_PER_SLICE):
        if sizes:
            now_ms = yield []
        sizes += [new_partitions(node.quorum.newest, growth) for growth in some]
    partitions_before = 0

    def decide(portion: Sequence[int]) -> _Decision | DecisionSteps[_Outcomes]:
        asked = partial(
            node.controller.create_partitions_steps,
            [wanted[place] for place in portion],
            validate_only=request.validate_only,
            partitions_before=partitions_before,
        )
        if sum(sizes[place] for place in portion) < _LARGE_TOPIC:
            return counted(portion, run_to_completion(asked()))
        return large(portion, asked)

    def large(
        portion: Sequence[int], asked: Callable[[], DecisionSteps[_Outcomes]]
    ) -> DecisionSteps[_Outcomes]:
        return counted(portion, (yield from on_newest(node.quorum, asked)))

    def counted(portion: Sequence[int], result: _Decision) -> _Decision:
        nonlocal partitions_before
        rows = zip(portion, result.response, strict=True)
        partitions_before += sum(sizes[place] for place, answer in rows if answer is None)
        return result

    def on_outcome(portion: Sequence[int], outcome: _Outcomes | KafkaError) -> None:
        found = [outcome] * len(portion) if isinstance(outcome, KafkaError) else outcome
        for place, answer in zip(portion, found, strict=True):
            answers[place] = answer

    def finish(at_ms: int) -> Effects:
        return in_slices(node, context, _answer(context, wanted, answers), at_ms)

    steps = grouped(range(len(wanted)), lambda place: wanted[place].name)
    by_name, now_ms = yield from a_step_a_slice(
        steps, now_ms, context
    )  # the controller refuses a topic that is named twice
    return (
        yield from in_portions(
            context,
            together(by_name, _PARTITIONS_PER_SLICE, lambda place: _TOPIC_COST + sizes[place]),
            decide=decide,
            write=node.write_topics,
            on_outcome=on_outcome,
            finish=finish,
            now_ms=now_ms,
        )
    )


def _growths(topics: Sequence[CreatePartitionsTopic]) -> Generator[None, None, list[NewPartitions]]:
    """Return the requested partitions, in slices."""
    wanted: list[NewPartitions] = []
    count = 0
    for topic in chain.from_iterable(emptied(topics, 1)):
        lists: list[tuple[int, ...]] = []
        for rows in emptied(topic.assignments or [], _ROWS_PER_SLICE):
            lists += [tuple(row.broker_ids) for row in rows]
            count += 1 + len(rows)
            if count >= _ROWS_PER_SLICE:
                count = 0
                yield
        wanted.append(
            NewPartitions(topic.name, topic.count, None if topic.assignments is None else lists)
        )
    return wanted


def _answer(
    context: RequestContext, wanted: list[NewPartitions], answers: list[KafkaError | None]
) -> Slices:
    # A topic that is named twice has one row, that of its last mention.
    results: dict[str, CreatePartitionsTopicResult] = {}
    place = 0
    for some in emptied(wanted, _ROWS_PER_SLICE):
        if place:
            yield []
        for growth in some:
            results[growth.name] = _result(growth.name, answers[place])
            answers[place] = None
            place += 1
    return [context.reply(CreatePartitionsResponse(results=list(results.values())))]


def _result(name: str, answer: KafkaError | None) -> CreatePartitionsTopicResult:
    if answer is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=answer.code, error_message=answer.why)
