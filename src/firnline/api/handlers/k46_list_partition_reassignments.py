"""ListPartitionReassignments: answers with the reassignments in progress. PURE. Source: KIP-455."""

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.api.slices import Slices, a_step_a_slice, in_slices, naming_any
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
    """Answer from the committed image, once this controller has confirmed that it is active."""

    def refusal(problem: KafkaError) -> ListPartitionReassignmentsResponse:
        return ListPartitionReassignmentsResponse(
            error_code=problem.code, error_message=problem.why
        )

    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, refusal, now_ms, here=again)

    @context.makes_replies
    def then(outcome: KafkaError | None, at_ms: int) -> Effects:
        if outcome is not None:
            return [context.reply(refusal(outcome))]
        return in_slices(node, context, _listing(node, context, request), at_ms)

    return node.quorum.write(ControllerResult([], None), then, now_ms)


def _listing(
    node: "AnyNode", context: RequestContext, request: ListPartitionReassignmentsRequest
) -> Slices:
    """Answer from one version of the image, however many slices that takes."""
    wanted = None
    if request.topics is not None:
        steps = naming_any(request.topics, attrgetter("partition_indexes"), takes_out=True)
        asked, _ = yield from a_step_a_slice(steps, 0, context)
        wanted = ((each.name, each.partition_indexes) for each in asked)
    image = node.image
    topics: list[MovingTopic] = []
    of_topic: list[MovingPartition] = []
    is_first = True
    for found in list_reassignments(image, wanted):
        if not is_first:
            yield []
        is_first = False
        for each in found:
            if not topics or topics[-1].name != each.topic:
                of_topic = []
                topics.append(MovingTopic(name=each.topic, partitions=of_topic))
            row = MovingPartition(
                partition_index=each.partition,
                replicas=each.replicas,
                adding_replicas=each.adding,
                removing_replicas=each.removing,
            )
            of_topic.append(row)
    return [context.reply(ListPartitionReassignmentsResponse(error_message=None, topics=topics))]
