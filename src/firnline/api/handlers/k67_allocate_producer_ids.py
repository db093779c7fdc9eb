"""AllocateProducerIds: gives a broker a block of producer ids. PURE. Source: KIP-730."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.base.ids import ProducerIdBlock
from firnline.protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode


def handle(
    node: "ControllerNode",
    context: RequestContext,
    request: AllocateProducerIdsRequest,
    now_ms: int,
) -> Effects:
    @context.makes_replies
    def then(outcome: ProducerIdBlock | KafkaError, at_ms: int) -> Effects:
        if isinstance(outcome, KafkaError):
            return [context.reply(AllocateProducerIdsResponse(error_code=outcome.code))]
        answer = AllocateProducerIdsResponse(
            producer_id_start=outcome.first_id, producer_id_len=outcome.size
        )
        return [context.reply(answer)]

    result = node.controller.allocate_producer_ids(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch
    )
    return node.quorum.write(result, then, now_ms)
