"""CreateTopics: make topics. PURE. Source: KIP-4, KIP-525, KIP-599; reliability d 46-50."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.api.portions import on_newest
from firnline.api.slices import Outstanding, Slices, a_step_a_slice, in_slices
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.config.layers import Entry, describe_topic
from firnline.controller.topics import PARTITIONS_PER_REQUEST_MAX, CreatedTopic, NewTopic
from firnline.metadata.census import metric_name
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
# Some 15 us each, and a topic itself as much as four.
_PARTITIONS_PER_SLICE = 120
_TOPIC_COST = 4
_LARGE_TOPIC = 300
# All settings of a topic, a quarter of a millisecond.
_RESULTS_PER_SLICE = 6


def handle(
    node: "AnyNode", context: RequestContext, request: CreateTopicsRequest, now_ms: int
) -> Effects:
    """Answer each topic once its records are committed, and for a while until its partitions are open."""
    wanted = [_new_topic(topic) for topic in request.topics]

    def refusal(problem: KafkaError) -> CreateTopicsResponse:
        # A topic that was asked for twice is answered once.
        names = dict.fromkeys(topic.name for topic in wanted)
        return CreateTopicsResponse(topics=[_result(node, name, problem) for name in names])

    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, refusal, now_ms, here=again)
    slices = _create(node, context, wanted, request.validate_only, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _create(
    node: "AnyNode",
    context: RequestContext,
    wanted: Sequence[NewTopic],
    validate_only: bool,
    now_ms: int,
) -> Slices:
    """Decide on topics of so many partitions at a time, each on its own, and write that.

    One topic is one decision, and one batch, however many partitions it has.
    """
    answers: dict[int, Answer] = {}
    latest_ms = now_ms

    @context.makes_replies
    def finish() -> Effects:
        return in_slices(node, context, _answer(node, context, wanted, answers), latest_ms)

    def settle(
        portion: Sequence[int], outcome: Sequence[Answer] | KafkaError, at_ms: int
    ) -> Effects:
        nonlocal latest_ms
        latest_ms = at_ms
        found = [outcome] * len(portion) if isinstance(outcome, KafkaError) else outcome
        answers.update(zip(portion, found, strict=True))
        return outstanding.one_less()

    outstanding = Outstanding(finish)
    effects: Effects = []
    for count, (portion, size) in enumerate(_portions(node, wanted)):
        if count:
            now_ms = latest_ms = yield effects
        some = [wanted[place] for place in portion]
        if size < _LARGE_TOPIC:
            result = node.controller.create_topics(some, validate_only=validate_only)
        else:
            decide = partial(node.controller.create_topics_steps, some, validate_only=validate_only)
            result, now_ms = yield from a_step_a_slice(on_newest(node.quorum, decide), now_ms)
            latest_ms = now_ms
        outstanding.left += 1
        effects = node.write_topics(result, partial(settle, portion), now_ms)
    return effects + outstanding.one_less()


def _portions(node: "AnyNode", wanted: Sequence[NewTopic]) -> Iterator[tuple[list[int], int]]:
    """Cut the places of `wanted`, with the cost of each portion; those whose names may collide stay together.

    More than a request may ask for is refused as a whole.
    """
    counts = node.controller.partitions_asked(wanted)
    if sum(counts) > PARTITIONS_PER_REQUEST_MAX:
        yield list(range(len(wanted))), 0
        return
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
    wanted: Sequence[NewTopic],
    answers: Mapping[int, Answer],
) -> Slices:
    # A topic that was asked for twice is answered once.
    by_name = {topic.name: answers[place] for place, topic in enumerate(wanted)}
    results: list[CreatableTopicResult] = []
    for name, answer in by_name.items():
        if results and len(results) % _RESULTS_PER_SLICE == 0:
            yield []
        results.append(_result(node, name, answer))
    return [context.reply(CreateTopicsResponse(topics=results))]


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
