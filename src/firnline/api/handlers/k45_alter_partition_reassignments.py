"""AlterPartitionReassignments: starts and cancels reassignments. PURE. Source: KIP-455, KIP-860."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.api.portions import in_portions, portions_of
from firnline.api.slices import Slices, a_step_a_slice, in_slices, naming_any, taken_out
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.controller.reassignments import Reassignment
from firnline.metadata.result import ControllerResult
from firnline.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignableTopic,
    ReassignedPartition,
    ReassignedTopic,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode

# Takes one or two milliseconds.
_PARTITIONS_PER_SLICE = 40
_RESULTS_PER_SLICE = 1_000


def handle(
    node: "AnyNode",
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
    now_ms: int,
) -> Effects:
    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, partial(_refusal, request), now_ms, here=again)
    slices = _alter(node, context, request, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _refusal(
    request: AlterPartitionReassignmentsRequest, problem: KafkaError
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=problem.code,
        error_message=problem.why,
    )


def _alter(
    node: "AnyNode",
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
    now_ms: int,
) -> Slices:
    may_change_factor = request.allow_replication_factor_change

    rows: list[ReassignedPartition] = []
    problems: list[KafkaError] = []
    changes = 0

    def decide(portion: Sequence[Reassignment]) -> ControllerResult[list[KafkaError | None]]:
        nonlocal changes
        result = node.controller.alter_reassignments(
            portion, may_change_factor=may_change_factor, changes_before=changes
        )
        changes += len(result.records)
        return result

    def on_outcome(
        portion: Sequence[Reassignment], outcome: Sequence[KafkaError | None] | KafkaError
    ) -> None:
        if isinstance(outcome, KafkaError):
            problems.append(outcome)
        else:  # decisions are committed in order
            asked = zip(portion, outcome, strict=True)
            rows.extend([_row(each.partition, problem) for each, problem in asked])

    def finish(at_ms: int) -> Effects:
        if problems:
            return [context.reply(_refusal(request, problems[0]))]
        return in_slices(node, context, _answer(context, request, rows), at_ms)

    steps = naming_any(request.topics, attrgetter("partitions"))
    topics, now_ms = yield from a_step_a_slice(steps, now_ms, context)
    return (
        yield from in_portions(
            context,
            portions_of(_wanted(topics), _PARTITIONS_PER_SLICE),
            decide=decide,
            write=node.quorum.write,
            on_outcome=on_outcome,
            finish=finish,
            now_ms=now_ms,
        )
    )


def _wanted(topics: Sequence[ReassignableTopic]) -> Iterable[Reassignment]:
    return (
        Reassignment(
            topic.name,
            each.partition_index,
            None if each.replicas is None else tuple(each.replicas),
        )
        for topic in topics
        for each in topic.partitions
    )


def _answer(
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
    rows: Sequence[ReassignedPartition],
) -> Slices:
    """Answer with a row for each partition, in the order of the request."""
    in_order = iter(rows)
    topics: list[ReassignedTopic] = []
    left = _RESULTS_PER_SLICE
    for topic in taken_out(request.topics):
        if left <= 0:
            yield []
            left = _RESULTS_PER_SLICE
        found = list(islice(in_order, len(topic.partitions)))
        topics.append(ReassignedTopic(name=topic.name, partitions=found))
        left -= 1 + len(found)
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=topics,
    )
    return [context.reply(response)]


def _row(number: int, problem: KafkaError | None) -> ReassignedPartition:
    if problem is None:
        return ReassignedPartition(partition_index=number, error_message=None)
    return ReassignedPartition(
        partition_index=number, error_code=problem.code, error_message=problem.why
    )
