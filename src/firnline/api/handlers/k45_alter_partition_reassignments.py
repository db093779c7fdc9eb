"""AlterPartitionReassignments: move partitions, or call moves off. PURE. Source: KIP-455, KIP-860."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.api.portions import in_portions
from firnline.api.slices import Slices, in_slices
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.controller.reassignments import Reassignment
from firnline.metadata.result import ControllerResult
from firnline.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignedPartition,
    ReassignedTopic,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode

# A millisecond or two.
_PARTITIONS_PER_SLICE = 40


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

    def told(
        portion: Sequence[Reassignment], outcome: Sequence[KafkaError | None] | KafkaError
    ) -> None:
        if isinstance(outcome, KafkaError):
            problems.append(outcome)
        else:  # decisions are committed in the order they were made
            asked = zip(portion, outcome, strict=True)
            rows.extend([_answer(each.partition, problem) for each, problem in asked])

    def finish(at_ms: int) -> Effects:
        if problems:
            return [context.reply(_refusal(request, problems[0]))]
        in_order = iter(rows)
        response = AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=may_change_factor,
            error_message=None,
            responses=[
                ReassignedTopic(
                    name=topic.name, partitions=list(islice(in_order, len(topic.partitions)))
                )
                for topic in request.topics
            ],
        )
        return [context.reply(response)]

    return in_portions(
        context,
        _portions(request),
        decide=decide,
        write=node.quorum.write,
        told=told,
        finish=finish,
        now_ms=now_ms,
    )


def _portions(request: AlterPartitionReassignmentsRequest) -> Iterator[list[Reassignment]]:
    """Cut what is asked for; the first portion is there even where that is nothing."""
    wanted = (
        Reassignment(
            topic.name,
            each.partition_index,
            None if each.replicas is None else tuple(each.replicas),
        )
        for topic in request.topics
        for each in topic.partitions
    )
    yield list(islice(wanted, _PARTITIONS_PER_SLICE))
    while portion := list(islice(wanted, _PARTITIONS_PER_SLICE)):
        yield portion


def _answer(number: int, problem: KafkaError | None) -> ReassignedPartition:
    if problem is None:
        return ReassignedPartition(partition_index=number, error_message=None)
    return ReassignedPartition(
        partition_index=number, error_code=problem.code, error_message=problem.why
    )
