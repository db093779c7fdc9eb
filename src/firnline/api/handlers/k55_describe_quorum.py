"""DescribeQuorum: voters, observers and their log end offsets. PURE. The leader of the quorum answers.

Source: KIP-595, KIP-836, KIP-853.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.api.slices import Slices, a_step_a_slice, in_slices, let_go
from firnline.base.effects import Effect, Effects
from firnline.base.errors import KafkaError
from firnline.protocol.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
)
from firnline.raft.leader import refusing_to_describe
from firnline.raft.wire import only_partition

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode
    from firnline.broker.controller_node import ControllerNode
    from firnline.broker.node import BrokerNode

_CONTROLLERS = 2  # endpoint type


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

    def answer(response: Any) -> Effect:
        controller = _controller(node)
        if response.nodes and controller and node.quorum.raft.voters.is_sole(node.node_id):
            response.nodes = [_listening(controller)]
        return context.reply(response)

    return node.quorum.raft.on_request(request, answer, now_ms)


def _controller(node: "AnyNode") -> "ControllerNode | None":
    if node.endpoint_type == _CONTROLLERS:
        return cast("ControllerNode", node)
    return cast("BrokerNode", node).controller_node


def _listening(node: "ControllerNode") -> QuorumNode:
    """Return where the only voter listens. Its own entry in the settings may name any address: nobody calls
    it. `firnline dev` has no controllers' listener."""
    listeners = [
        QuorumListener(name=each.listener, host=each.host, port=each.port)
        for each in node.registration.endpoints
    ]
    return QuorumNode(node_id=node.node_id, listeners=listeners)


def _refuse(context: RequestContext, request: DescribeQuorumRequest) -> Slices:
    answer, _ = yield from a_step_a_slice(refusing_to_describe(request), 0, context)
    yield from let_go(request.topics)
    return [context.reply(answer)]
