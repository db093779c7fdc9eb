"""ElectLeaders: elects preferred leaders, or leaders outside the ISR. PURE. Source: KIP-460."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.api.portions import in_portions, portions_of
from firnline.api.slices import Slices, a_step_a_slice, in_slices, let_go, naming_any
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.limits import CHANGES_PER_REQUEST_MAX
from firnline.controller.elections import Elected
from firnline.protocol.messages.k43_elect_leaders import (
    ElectedPartition,
    ElectedTopic,
    ElectionTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode

Named = tuple[str, int]
# Takes one or two milliseconds.
_PARTITIONS_PER_SLICE = 100
_RESULTS_PER_SLICE = 500


def handle(
    node: "AnyNode", context: RequestContext, request: ElectLeadersRequest, now_ms: int
) -> Effects:
    if node.forwards:
        again = partial(handle, node, context, request)
        refusal = partial(_refusal, request)
        return forward(node, context, request, refusal, now_ms, here=again)
    slices = _elect(node, context, request, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _elect(
    node: "AnyNode", context: RequestContext, request: ElectLeadersRequest, now_ms: int
) -> Slices:
    kind = request.election_type
    names_all = request.topic_partitions is None
    elected: list[Elected] = []
    problems: list[KafkaError] = []

    def on_outcome(portion: Sequence[Named], outcome: list[Elected] | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            problems.append(outcome)
        elif names_all:
            elected.extend([each for each in outcome if not each.is_omitted])
        else:
            elected.extend(outcome)

    def finish(at_ms: int) -> Effects:
        if problems:
            return in_slices(node, context, _refuse(context, request, problems[0]), at_ms)
        return in_slices(node, context, _answer(context, request, elected), at_ms)

    topics: Sequence[ElectionTopic] | None = None
    if request.topic_partitions is not None:
        steps = naming_any(request.topic_partitions, attrgetter("partitions"))
        topics, now_ms = yield from a_step_a_slice(steps, now_ms, context)
    if (yield from _is_too_much(node, kind, topics)):
        why = "more than 10,000 changes in one request"
        return (yield from _refuse(context, request, KafkaError(Code.POLICY_VIOLATION, why)))
    return (
        yield from in_portions(
            context,
            _portions(node, kind, topics),
            decide=partial(node.controller.elect_leaders, kind),
            write=node.quorum.write,
            on_outcome=on_outcome,
            finish=finish,
            now_ms=now_ms,
        )
    )


def _is_too_much(
    node: "AnyNode", kind: int, topics: Sequence[ElectionTopic] | None
) -> Generator[Effects, int, bool]:
    """Whether the request is refused as a whole."""
    count = 0
    for portion in _portions(node, kind, topics):
        count += len(portion)
        if count > CHANGES_PER_REQUEST_MAX:
            break
    else:
        return False
    changes = 0
    for portion in _portions(node, kind, topics):
        changes += len(node.controller.elect_leaders(kind, portion).records)
        if changes > CHANGES_PER_REQUEST_MAX:
            return True
        yield []
    return False


def _portions(
    node: "AnyNode", kind: int, topics: Sequence[ElectionTopic] | None
) -> Iterator[list[Named]]:
    if topics is None:
        # Partitions that need no election get no row.
        named = node.controller.in_need_of_election(kind)
    else:
        named = ((topic.topic, number) for topic in topics for number in topic.partitions)
    return portions_of(named, _PARTITIONS_PER_SLICE)


def _refuse(context: RequestContext, request: ElectLeadersRequest, problem: KafkaError) -> Slices:
    answer, _ = yield from a_step_a_slice(_refusal(request, problem), 0, context)
    return [context.reply(answer)]


def _refusal(
    request: ElectLeadersRequest, problem: KafkaError
) -> Generator[object, None, ElectLeadersResponse]:
    # Version 0 has an error code only for each partition, later versions also for the request.
    asked = request.topic_partitions or ()
    rows = (Elected(each.topic, number, problem) for each in asked for number in each.partitions)
    topics = yield from _by_topic(rows)
    return ElectLeadersResponse(error_code=problem.code, replica_election_results=topics)


def _answer(
    context: RequestContext, request: ElectLeadersRequest, elected: Sequence[Elected]
) -> Slices:
    yield from let_go(request.topic_partitions or ())
    topics, _ = yield from a_step_a_slice(_by_topic(elected), 0, context)
    return [context.reply(ElectLeadersResponse(replica_election_results=topics))]


def _by_topic(
    elected: Iterable[Elected],
) -> Generator[list[ElectedTopic], None, list[ElectedTopic]]:
    topics: list[ElectedTopic] = []
    rows: list[ElectedPartition] = []
    for count, each in enumerate(elected):
        if count and count % _RESULTS_PER_SLICE == 0:
            yield topics
        if not topics or topics[-1].topic != each.topic:
            rows = []
            topics.append(ElectedTopic(topic=each.topic, partition_result=rows))
        rows.append(_row(each))
    return topics


def _row(each: Elected) -> ElectedPartition:
    if each.problem is None:
        return ElectedPartition(partition_id=each.partition, error_message=None)
    return ElectedPartition(
        partition_id=each.partition,
        error_code=each.problem.code,
        error_message=each.problem.why,
    )
