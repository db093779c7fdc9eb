"""ConsumerGroupHeartbeat: refused, because groups of the consumer protocol do not exist here yet. PURE.

It is advertised because librdkafka 2.16 would otherwise retry for ever without a word. UNSUPPORTED_VERSION is
what Kafka answers if `group.version` is 0; clients give up at once. Source: KIP-848.
"""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.unbuilt import CONSUMER_PROTOCOL, note_refusal
from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode


def handle(
    node: "BrokerNode",
    context: RequestContext,
    request: ConsumerGroupHeartbeatRequest,
    now_ms: int,
) -> Effects:
    answer = ConsumerGroupHeartbeatResponse(
        error_code=Code.UNSUPPORTED_VERSION, error_message=CONSUMER_PROTOCOL
    )
    return [*note_refusal(node, CONSUMER_PROTOCOL, context, now_ms), context.reply(answer)]
