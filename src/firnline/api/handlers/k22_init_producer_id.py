"""InitProducerId: assigns an id to an idempotent producer. PURE. Source: KIP-98, KIP-360.

With a transactional id: UNSUPPORTED_VERSION. There are no transactions yet. Clients give up at once on this
code; on any error of a coordinator they would retry until their timeout.
"""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.unbuilt import TRANSACTIONS, note_refusal
from firnline.base.effects import Effect, Effects
from firnline.base.errors import Code, KafkaError
from firnline.coordinator.producer_ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NewProducer
from firnline.protocol.messages.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode


def handle(
    node: "BrokerNode", context: RequestContext, request: InitProducerIdRequest, now_ms: int
) -> Effects:
    @context.makes_reply
    def answer(result: NewProducer | KafkaError) -> Effect:
        if isinstance(result, KafkaError):
            code, result = result.code, NewProducer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        else:
            code = Code.NONE
        return context.reply(
            InitProducerIdResponse(
                error_code=code,
                producer_id=result.producer_id,
                producer_epoch=result.producer_epoch,
            )
        )

    if request.transactional_id is not None:
        if request.transactional_id == "":
            return [answer(KafkaError(Code.INVALID_REQUEST))]
        noted = note_refusal(node, TRANSACTIONS, context, now_ms)
        return [*noted, answer(KafkaError(Code.UNSUPPORTED_VERSION))]
    return node.producer_ids.init(
        producer_id=request.producer_id, producer_epoch=request.producer_epoch, answer=answer
    )
