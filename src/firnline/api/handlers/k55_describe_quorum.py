"""DescribeQuorum: voters, observers and their log end offsets. PURE. The leader of the quorum answers.

Source: KIP-595, KIP-836, KIP-853.
"""

from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.api.slices import Slices, a_step_a_slice, in_slices, let_go
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.protocol.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from firnline.raft.leader import refusing_to_describe
from firnline.raft.wire import only_partition

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode


def handle(
    node: "AnyNode", context: RequestContext, request: DescribeQuorumRequest, now_ms: int
) -> Effects:
    def refusal(problem: KafkaError) -> DescribeQuorumResponse:
        return DescribeQuorumResponse(error_code=problem.code, error_message=problem.why)

    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, refusal, now_ms, here=again)
    if only_partition(request) is None:
        return in_slices(node, context, _refuse(context, request), now_ms)
    return node.quorum.raft.on_request(request, context.reply, now_ms)


def _refuse(context: RequestContext, request: DescribeQuorumRequest) -> Slices:
    answer, _ = yield from a_step_a_slice(refusing_to_describe(request), 0, context)
    yield from let_go(request.topics)
    return [context.reply(answer)]
