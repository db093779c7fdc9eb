"""ListGroups: the groups this broker coordinates. PURE. Source: KIP-518 (states), KIP-848 (types)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import Slices, in_slices
from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.coordinator import membership
from firnline.protocol.messages.k16_list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

# Takes a millisecond.
_GROUPS_PER_SLICE = 500
_SLICE_BYTES = _GROUPS_PER_SLICE * 300  # measured: 245 each


def handle(
    node: "BrokerNode", context: RequestContext, request: ListGroupsRequest, now_ms: int
) -> Effects:
    code, groups = node.groups.list_groups(states=request.states_filter, types=request.types_filter)
    answer = _answer(context, code, groups)
    return in_slices(node, context, answer, now_ms, held_bytes=_SLICE_BYTES)


def _answer(
    context: RequestContext, code: Code, groups: Iterator[membership.ListedGroup | None]
) -> Slices:
    listed: list[ListedGroup] = []
    for place, g in enumerate(groups, 1):
        if g is not None:
            row = ListedGroup(
                group_id=g.group_id,
                protocol_type=g.protocol_type,
                group_state=g.state,
                group_type=g.group_type,
            )
            listed.append(row)
        if place % _GROUPS_PER_SLICE == 0:
            yield context.keeps(listed)
    return [context.reply(ListGroupsResponse(error_code=code, groups=listed))]
