"""ListPartitionReassignments: what is on the move. PURE. Source: KIP-455."""

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.controller.reassignments import list_reassignments
from firnline.metadata.result import ControllerResult
from firnline.protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    MovingPartition,
    MovingTopic,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode


def handle(
    node: "AnyNode",
    context: RequestContext,
    request: ListPartitionReassignmentsRequest,
    now_ms: int,
) -> Effects:
    """Answer what is committed, once this controller knows that it is still the active one."""

    def refusal(problem: KafkaError) -> ListPartitionReassignmentsResponse:
        return ListPartitionReassignmentsResponse(
            error_code=problem.code, error_message=problem.why
        )

    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, refusal, now_ms, here=again)

    def then(outcome: KafkaError | None, at_ms: int) -> Effects:
        return [context.reply(_listing(node, request) if outcome is None else refusal(outcome))]

    return node.quorum.write(ControllerResult([], None), then, now_ms)


def _listing(
    node: "AnyNode", request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    asked = request.topics
    wanted = None if asked is None else [(each.name, each.partition_indexes) for each in asked]
    moving = list_reassignments(node.image, wanted)
    topics = [
        MovingTopic(
            name=name,
            partitions=[
                MovingPartition(
                    partition_index=each.partition,
                    replicas=each.replicas,
                    adding_replicas=each.adding,
                    removing_replicas=each.removing,
                )
                for each in group
            ],
        )
        for name, group in groupby(moving, lambda each: each.topic)
    ]
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)
