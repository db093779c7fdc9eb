"""Heartbeat: keeps a member alive; the response says whether to join again. PURE.

Source: KIP-62, KIP-345; C15.
"""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode


def handle(
    node: "BrokerNode", context: RequestContext, request: HeartbeatRequest, now_ms: int
) -> Effects:
    return node.groups.heartbeat(
        request.group_id,
        request.member_id,
        instance_id=request.group_instance_id,
        generation_id=request.generation_id,
        answer=context.makes_reply(lambda code: context.reply(HeartbeatResponse(error_code=code))),
        now_ms=now_ms,
    )
