"""JoinGroup: a member joins; it gets its generation when all members have joined. PURE.

Source: KIP-394, KIP-814.
"""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext, UntilGone
from firnline.base.effects import Effect, Effects
from firnline.base.limits import GROUP_PROTOCOLS_MAX
from firnline.coordinator.membership import JoinRequest, JoinResult, Protocol
from firnline.protocol.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

_REBALANCE_TIMEOUT_VERSION = 1
_KNOWN_MEMBER_ID_VERSION = 4
_NULL_PROTOCOL_VERSION = 7
_SKIP_ASSIGNMENT_VERSION = 9
_MEMBERS_AT_ONCE = 200


def handle(
    node: "BrokerNode", context: RequestContext, request: JoinGroupRequest, now_ms: int
) -> Effects:
    version = context.api_version
    protocols = request.protocols[
        : GROUP_PROTOCOLS_MAX + 1
    ]  # so that too many are refused without going over all of them
    asked = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.peer_host}",  # Kafka's form of an address without a host name
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms
            if version >= _REBALANCE_TIMEOUT_VERSION
            else request.session_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(p.name, bytes(p.metadata)) for p in protocols),
        needs_known_member_id=version >= _KNOWN_MEMBER_ID_VERSION,
        may_skip_assignment=version >= _SKIP_ASSIGNMENT_VERSION,
    )

    @context.makes_reply
    def answer(result: JoinResult) -> Effect:
        # The response of the leader has all members: it is encoded in slices.
        context.is_large = len(result.members) > _MEMBERS_AT_ONCE
        no_name = None if version >= _NULL_PROTOCOL_VERSION else ""
        return context.reply(
            JoinGroupResponse(
                error_code=result.code,
                generation_id=result.generation_id,
                protocol_type=result.protocol_type,
                protocol_name=no_name if result.protocol_name is None else result.protocol_name,
                leader=result.leader,
                skip_assignment=result.skip_assignment,
                member_id=result.member_id,
                members=[
                    JoinGroupResponseMember(
                        member_id=m.member_id,
                        group_instance_id=m.instance_id,
                        metadata=m.metadata,
                    )
                    for m in result.members
                ],
            )
        )

    waiting = UntilGone(answer)
    effects = node.groups.join(asked, waiting, now_ms)
    waiting.waits(context)
    return effects
