"""BrokerHeartbeat: keeps a broker alive, and takes the state that it wants. PURE.

Source: KIP-631, KIP-858; 2.2.
"""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.controller.brokers import Heartbeat, HeartbeatAnswer
from firnline.protocol.messages.k63_broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode


def handle(
    node: "ControllerNode", context: RequestContext, request: BrokerHeartbeatRequest, now_ms: int
) -> Effects:
    @context.makes_replies
    def then(outcome: HeartbeatAnswer | KafkaError, at_ms: int) -> Effects:
        if isinstance(outcome, KafkaError):
            return [context.reply(BrokerHeartbeatResponse(error_code=outcome.code))]
        answer = BrokerHeartbeatResponse(
            is_caught_up=outcome.is_caught_up,
            is_fenced=outcome.is_fenced,
            should_shut_down=outcome.should_shut_down,
        )
        return [context.reply(answer)]

    heartbeat = Heartbeat(
        request.broker_id,
        request.broker_epoch,
        metadata_offset=request.current_metadata_offset,
        want_fence=request.want_fence,
        want_shut_down=request.want_shut_down,
        offline_log_dirs=tuple(request.offline_log_dirs),
        cordoned_log_dirs=(
            None if request.cordoned_log_dirs is None else tuple(request.cordoned_log_dirs)
        ),
    )
    return node.quorum.write(node.controller.heartbeat(heartbeat, now_ms), then, now_ms)
