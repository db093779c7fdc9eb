"""UnregisterBroker: removes the registration of a broker that will not return. PURE. Source: KIP-631."""

from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.protocol.messages.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode


def handle(
    node: "AnyNode", context: RequestContext, request: UnregisterBrokerRequest, now_ms: int
) -> Effects:
    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, _refusal, now_ms, here=again)

    @context.makes_replies
    def then(outcome: KafkaError | None, at_ms: int) -> Effects:
        response = UnregisterBrokerResponse(error_message=None)
        return [context.reply(response if outcome is None else _refusal(outcome))]

    return node.quorum.write(node.controller.unregister_broker(request.broker_id), then, now_ms)


def _refusal(problem: KafkaError) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=problem.code, error_message=problem.why)
