"""LeaveGroup: members go, one or many. PURE. Source: KIP-345 (batches, static members), KIP-800."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import in_slices
from firnline.base.effects import Effect, Effects
from firnline.base.errors import Code
from firnline.coordinator.membership import Identity, Left
from firnline.protocol.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

_MEMBERS_VERSION = 3


def handle(
    node: "BrokerNode", context: RequestContext, request: LeaveGroupRequest, now_ms: int
) -> Effects:
    is_batch = context.api_version >= _MEMBERS_VERSION
    leavers = [Identity(request.member_id, None)]
    if is_batch:
        leavers = [Identity(m.member_id, m.group_instance_id) for m in request.members]

    @context.makes_reply
    def answer(code: Code, left: list[Left]) -> Effect:
        if not is_batch:
            only = left[0].code if left else code
            return context.reply(LeaveGroupResponse(error_code=only))
        members = [
            MemberResponse(
                member_id=one.who.member_id,
                group_instance_id=one.who.instance_id,
                error_code=one.code,
            )
            for one in left
        ]
        return context.reply(LeaveGroupResponse(error_code=code, members=members))

    slices = node.groups.leave(request.group_id, leavers, answer, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)
