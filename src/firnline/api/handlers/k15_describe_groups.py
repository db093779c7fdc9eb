"""DescribeGroups: answers with the state, protocol and members of groups. PURE. Source: KIP-430, KIP-1043."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import Slices, cut, in_slices
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.coordinator import membership
from firnline.protocol.messages.k15_describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

_NOT_FOUND_VERSION = 6
# Groups and members; each takes 3 us.
_ROWS_PER_SLICE = 300
_SLICE_BYTES = _ROWS_PER_SLICE * 500  # measured: 385 each, without members
# The memory of a member's row. The group's own bytes are copied only when it is encoded.
_MEMBER_BYTES = 300
_NOT_ASKED = -(2**31)
# The operations that an ACL can permit on a group, as bits, by operation number: READ 3, DELETE 6, DESCRIBE
# 8, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11. Without an authorizer all are permitted.
_ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def handle(
    node: "BrokerNode", context: RequestContext, request: DescribeGroupsRequest, now_ms: int
) -> Effects:
    answer = _answer(node, context, request)
    return in_slices(node, context, answer, now_ms, held_bytes=_SLICE_BYTES)


def _answer(node: "BrokerNode", context: RequestContext, request: DescribeGroupsRequest) -> Slices:
    operations = _ALL_OPERATIONS if request.include_authorized_operations else _NOT_ASKED
    groups: list[DescribedGroup] = []
    found: dict[str, DescribedGroup] = {}
    count = 0
    for group_id in request.groups:
        if count >= _ROWS_PER_SLICE:
            count = 0
            yield context.keeps(groups, found)
        count += 1
        known = found.get(group_id)
        if known is not None:  # a repeated group gets another row, as in Kafka
            groups.append(known)
            continue
        described = node.groups.describe(group_id)
        group = found[group_id] = _wire(described, operations)
        if group.error_code == Code.GROUP_ID_NOT_FOUND:
            if context.api_version < _NOT_FOUND_VERSION:
                group.error_code = Code.NONE  # the state Dead has the answer
            else:
                group.error_message = _not_found(group_id).why
        groups.append(group)
        context.grow(_MEMBER_BYTES * len(described.members))
        members: list[DescribedGroupMember] = []
        group.members = members
        for some in cut(described.members, _ROWS_PER_SLICE):
            if count + len(some) > _ROWS_PER_SLICE:
                count = 0
                yield context.keeps(groups, found)
            count += len(some)
            members += map(_wire_member, some)
    return [context.reply(DescribeGroupsResponse(groups=groups))]


def _not_found(group_id: str) -> KafkaError:
    return KafkaError(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


def _wire(group: membership.DescribedGroup, operations: int) -> DescribedGroup:
    """Return the row of a group without its members."""
    return DescribedGroup(
        error_code=group.code,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_data,
        members=[],
        authorized_operations=operations if group.code is Code.NONE else _NOT_ASKED,
    )


def _wire_member(member: membership.DescribedMember) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )
