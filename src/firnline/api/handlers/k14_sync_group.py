"""SyncGroup: the leader's assignment in, each member's part out. PURE. Source: KIP-345, KIP-559."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext, UntilGone
from firnline.base.effects import Effect, Effects
from firnline.base.errors import Code
from firnline.coordinator.membership import SyncRequest, SyncResult
from firnline.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

_PROTOCOL_VERSION = 5


def handle(
    node: "BrokerNode", context: RequestContext, request: SyncGroupRequest, now_ms: int
) -> Effects:
    @context.makes_reply
    def answer(result: SyncResult) -> Effect:
        return context.reply(
            SyncGroupResponse(
                error_code=result.code,
                protocol_type=result.protocol_type,
                protocol_name=result.protocol_name,
                assignment=result.assignment,
            )
        )

    unnamed = request.protocol_type is None or request.protocol_name is None
    if context.api_version >= _PROTOCOL_VERSION and unnamed:
        return [answer(SyncResult(code=Code.INCONSISTENT_GROUP_PROTOCOL))]
    asked = SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation_id=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={a.member_id: bytes(a.assignment) for a in request.assignments},
    )
    waiting = UntilGone(answer)
    effects = node.groups.sync(asked, waiting, now_ms)
    waiting.waits(context)
    return effects
