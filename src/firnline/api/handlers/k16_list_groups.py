"""ListGroups: the groups this broker coordinates. PURE. Source: KIP-518 (states), KIP-848 (types)."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.protocol.messages.k16_list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode


def handle(
    node: "BrokerNode", context: RequestContext, request: ListGroupsRequest, now_ms: int
) -> Effects:
    code, groups = node.groups.list_groups(states=request.states_filter, types=request.types_filter)
    listed = [
        ListedGroup(
            group_id=g.group_id,
            protocol_type=g.protocol_type,
            group_state=g.state,
            group_type=g.group_type,
        )
        for g in groups
    ]
    return [context.reply(ListGroupsResponse(error_code=code, groups=listed))]
