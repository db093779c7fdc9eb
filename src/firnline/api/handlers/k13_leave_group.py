"""LeaveGroup: removes one or more members. PURE. Source: KIP-345 (batches, static members), KIP-800."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import in_slices, taken_out
from firnline.base.effects import Effect, Effects
from firnline.base.errors import Code
from firnline.coordinator.membership import LeaveResult, MemberIdentity
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
    leavers: Iterable[MemberIdentity] = [MemberIdentity(request.member_id, None)]
    if is_batch:
        members = taken_out(request.members)
        leavers = (MemberIdentity(m.member_id, m.group_instance_id) for m in members)
    rows: list[MemberResponse] = []

    def on_left(left: list[LeaveResult]) -> None:
        for who, code in left:
            rows.append(
                MemberResponse(
                    member_id=who.member_id,
                    group_instance_id=who.instance_id,
                    error_code=code,
                )
            )

    @context.makes_reply
    def answer(code: Code) -> Effect:
        if not is_batch:
            return context.reply(LeaveGroupResponse(error_code=code or rows[0].error_code))
        members = [] if code else rows
        return context.reply(LeaveGroupResponse(error_code=code, members=members))

    slices = node.groups.leave(request.group_id, leavers, on_left, answer, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)
