"""DeleteGroups: deletes groups without members, and their offsets. PURE. Source: KIP-229."""

from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import Outstanding, Slices, in_slices
from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.protocol.messages.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode


# Takes two milliseconds for tombstones of groups; those of their offsets take less.
_TOMBS_PER_SLICE = 200
_TOMBS_OF_A_GROUP = 4


def handle(
    node: "BrokerNode", context: RequestContext, request: DeleteGroupsRequest, now_ms: int
) -> Effects:
    slices = _delete(node, context, request, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _delete(
    node: "BrokerNode", context: RequestContext, request: DeleteGroupsRequest, now_ms: int
) -> Slices:
    rows: list[DeletableGroupResult] = []

    @context.makes_replies
    def finish() -> Effects:
        return [context.reply(DeleteGroupsResponse(results=rows))]

    def settle(row: DeletableGroupResult, code: Code) -> Effects:
        row.error_code = code
        return outstanding.one_less()

    outstanding = Outstanding(finish)
    effects: Effects = []
    count = 0
    for group_id in request.groups_names:
        if count >= _TOMBS_PER_SLICE:
            now_ms = yield effects
            effects, count = [], 0
        outstanding.left += 1
        count += _TOMBS_OF_A_GROUP + node.groups.offset_count(group_id)
        row = DeletableGroupResult(group_id=group_id)
        rows.append(row)
        effects += node.groups.delete_group(group_id, partial(settle, row), now_ms)
    return effects + outstanding.one_less()
