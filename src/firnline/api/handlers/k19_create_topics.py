"""CreateTopics: creates topics. PURE. Source: KIP-4, KIP-525, KIP-599; reliability d 46-50."""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.api.portions import on_newest
from firnline.api.slices import (
    Outstanding,
    Slices,
    a_row_for_each,
    a_step_a_slice,
    cut,
    emptied,
    in_slices,
)
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.base.limits import PARTITIONS_PER_REQUEST_MAX
from firnline.config.layers import Entry, describe_topic
from firnline.controller.topics import CreatedTopic, NewTopic
from firnline.metadata.image import ResourceType
from firnline.metadata.partition_counts import metric_name
from firnline.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreatableTopicResultConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode

CreateTopicOutcome = CreatedTopic | KafkaError
# A partition takes about 15 us, a topic as much as four partitions.
_PARTITIONS_PER_SLICE = 120
_TOPIC_COST = 4
_LARGE_TOPIC = 300
_ROWS_PER_SLICE = 500
# All configs of a topic take a quarter of a millisecond.
_RESULTS_PER_SLICE = 6


def handle(
    node: "AnyNode", context: RequestContext, request: CreateTopicsRequest, now_ms: int
) -> Effects:
    """Answer once the topics are committed and, within a bound, their partitions are open."""

    def refusal(problem: KafkaError) -> Generator[object, None, CreateTopicsResponse]:
        names = (topic.name for topic in request.topics)
        rows = yield from a_row_for_each(names, lambda name: _result(node, name, problem))
        return CreateTopicsResponse(topics=rows)

    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, refusal, now_ms, here=again)
    slices = _decide(node, context, request, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _decide(
    node: "AnyNode", context: RequestContext, request: CreateTopicsRequest, now_ms: int
) -> Slices:
    """Refuse a request for too many partitions as a whole; else create the topics."""
    counts: list[int] = []
    rows: Any
    for rows in cut(request.topics, _ROWS_PER_SLICE):
        if counts:
            now_ms = yield []
        counts += node.controller.partitions_asked(rows)  # the rows have the fields that it reads
    if sum(counts) > PARTITIONS_PER_REQUEST_MAX:
        names, now_ms = yield from a_step_a_slice(_names(request.topics), now_ms, context)
        return _refuse(node, context, names, sum(counts), request.validate_only, now_ms)
    wanted: list[NewTopic] = []
    for rows in emptied(request.topics, _ROWS_PER_SLICE):
        if wanted:
            now_ms = yield context.keeps(wanted)
        wanted += map(_new_topic, rows)
    return (yield from _create(node, context, wanted, counts, request.validate_only, now_ms))


def _names(topics: Sequence[CreatableTopic]) -> Generator[None, None, list[str]]:
    """Return the names of topics, and free the rest of the rows."""
    names: list[str] = []
    count = 0
    for topic in chain.from_iterable(emptied(topics, 1)):
        names.append(topic.name)
        rows: Sequence[Any]
        for rows in chain(
            emptied(topic.assignments, _ROWS_PER_SLICE), emptied(topic.configs, _ROWS_PER_SLICE)
        ):
            count += 1 + len(rows)
            if count >= _ROWS_PER_SLICE:
                count = 0
                yield
    return names


def _refuse(
    node: "AnyNode",
    context: RequestContext,
    names: Sequence[str],
    partitions: int,
    validate_only: bool,
    now_ms: int,
) -> Effects:
    """Answer each topic with the controller's error for too many partitions."""

    @context.makes_replies
    def on_outcome(outcome: Sequence[CreateTopicOutcome] | KafkaError, at_ms: int) -> Effects:
        problem = outcome if isinstance(outcome, KafkaError) else outcome[0]
        slices = _answer(node, context, names, lambda place: problem)
        return in_slices(node, context, slices, at_ms)

    one = NewTopic(names[0], partitions)
    result = node.controller.create_topics([one], validate_only=validate_only)
    return node.write_topics(result, on_outcome, now_ms)


def _create(
    node: "AnyNode",
    context: RequestContext,
    wanted: Sequence[NewTopic],
    counts: Sequence[int],
    validate_only: bool,
    now_ms: int,
) -> Slices:
    """Create topics in portions, each a decision and a batch of its own.

    A topic is one decision and one batch, however many partitions it has.
    """
    answers: dict[int, CreateTopicOutcome] = {}
    latest_ms = now_ms

    @context.makes_replies
    def finish() -> Effects:
        names = [topic.name for topic in wanted]
        slices = _answer(node, context, names, answers.__getitem__)
        return in_slices(node, context, slices, latest_ms)

    def settle(
        portion: Sequence[int], outcome: Sequence[CreateTopicOutcome] | KafkaError, at_ms: int
    ) -> Effects:
        nonlocal latest_ms
        latest_ms = at_ms
        found = [outcome] * len(portion) if isinstance(outcome, KafkaError) else outcome
        answers.update(zip(portion, found, strict=True))
        return outstanding.one_less()

    outstanding = Outstanding(finish)
    effects: Effects = []
    for count, (portion, size) in enumerate(_portions(wanted, counts)):
        if count:
            now_ms = latest_ms = yield effects
        some = [wanted[place] for place in portion]
        if size < _LARGE_TOPIC:
            result = node.controller.create_topics(some, validate_only=validate_only)
        else:
            decide = partial(node.controller.create_topics_steps, some, validate_only=validate_only)
            result, now_ms = yield from a_step_a_slice(
                on_newest(node.quorum, decide), now_ms, context
            )
            latest_ms = now_ms
        outstanding.left += 1
        effects = node.write_topics(result, partial(settle, portion), now_ms)
    return effects + outstanding.one_less()


def _portions(wanted: Sequence[NewTopic], counts: Sequence[int]) -> Iterator[tuple[list[int], int]]:
    """Split the indexes of `wanted`, with the cost of each portion; names that may collide stay together."""
    by_name: dict[str, list[int]] = {}
    for place, topic in enumerate(wanted):
        by_name.setdefault(metric_name(topic.name), []).append(place)
    portion: list[int] = []
    size = 0
    for places in by_name.values():
        portion += places
        size += sum([_TOPIC_COST + counts[place] for place in places])
        if size >= _PARTITIONS_PER_SLICE:
            yield portion, size
            portion, size = [], 0
    if portion:
        yield portion, size


def _answer(
    node: "AnyNode",
    context: RequestContext,
    names: Sequence[str],
    answer_to: Callable[[int], CreateTopicOutcome],
) -> Slices:
    """Answer the topics of these names, in this order; a repeated name once."""
    results: dict[str, CreatableTopicResult] = {}
    for place, name in enumerate(names):
        if place and place % _RESULTS_PER_SLICE == 0:
            yield context.keeps(results)
        results[name] = _result(node, name, answer_to(place))
    return [context.reply(CreateTopicsResponse(topics=list(results.values())))]


def _new_topic(topic: CreatableTopic) -> NewTopic:
    numbers = [a.partition_index for a in topic.assignments]
    assignments = {a.partition_index: tuple(a.broker_ids) for a in topic.assignments}
    if len(assignments) != len(numbers):
        # A repeated index leaves a gap in the numbers, for which the controller refuses the topic.
        assignments = {place - 1: () for place in range(len(numbers))}
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignments,
        {config.name: config.value for config in topic.configs},
    )


def _result(node: "AnyNode", name: str, answer: CreateTopicOutcome) -> CreatableTopicResult:
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
