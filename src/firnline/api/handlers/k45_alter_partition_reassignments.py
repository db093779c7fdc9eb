"""AlterPartitionReassignments: move partitions, or call moves off. PURE. Source: KIP-455, KIP-860."""

from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.controller.reassignments import Reassignment
from firnline.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignedPartition,
    ReassignedTopic,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode


def handle(
    node: "AnyNode",
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
    now_ms: int,
) -> Effects:
    may_change_factor = request.allow_replication_factor_change

    def refusal(problem: KafkaError) -> AlterPartitionReassignmentsResponse:
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=may_change_factor,
            error_code=problem.code,
            error_message=problem.why,
        )

    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, refusal, now_ms, here=again)

    def then(outcome: list[KafkaError | None] | KafkaError, at_ms: int) -> Effects:
        if isinstance(outcome, KafkaError):
            return [context.reply(refusal(outcome))]
        in_order = iter(outcome)
        responses = [
            ReassignedTopic(
                name=topic.name,
                partitions=[
                    _answer(each.partition_index, next(in_order)) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        response = AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=may_change_factor,
            error_message=None,
            responses=responses,
        )
        return [context.reply(response)]

    wanted = [
        Reassignment(
            topic.name,
            each.partition_index,
            None if each.replicas is None else tuple(each.replicas),
        )
        for topic in request.topics
        for each in topic.partitions
    ]
    result = node.controller.alter_reassignments(wanted, may_change_factor=may_change_factor)
    return node.quorum.write(result, then, now_ms)


def _answer(number: int, problem: KafkaError | None) -> ReassignedPartition:
    if problem is None:
        return ReassignedPartition(partition_index=number, error_message=None)
    return ReassignedPartition(
        partition_index=number, error_code=problem.code, error_message=problem.why
    )
