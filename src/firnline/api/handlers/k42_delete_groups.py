"""DeleteGroups: groups without members go, with their offsets. PURE. Source: KIP-229."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effect, Effects
from firnline.base.errors import Code
from firnline.protocol.messages.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode


def handle(
    node: "BrokerNode", context: RequestContext, request: DeleteGroupsRequest, now_ms: int
) -> Effects:
    def answer(results: Sequence[tuple[str, Code]]) -> Effect:
        rows = [DeletableGroupResult(group_id=name, error_code=code) for name, code in results]
        return context.reply(DeleteGroupsResponse(results=rows))

    return node.groups.delete_groups(request.groups_names, answer, now_ms)
