"""SyncGroup: takes the leader's assignment, and answers each member with its part. PURE.

Source: KIP-345, KIP-559.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext, UntilGone
from firnline.api.slices import Slices, in_slices, taken_out
from firnline.base.effects import Effect, Effects
from firnline.base.errors import Code
from firnline.coordinator.membership import SyncRequest, SyncResult
from firnline.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

_PROTOCOL_VERSION = 5
# Takes half a millisecond.
_ROWS_PER_SLICE = 1_000


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
    rows = request.assignments
    if len(rows) <= _ROWS_PER_SLICE:
        found = {row.member_id: bytes(row.assignment) for row in rows}
        held_bytes = sum(map(len, found.values()))
        return _sync(node, context, request, found, held_bytes, answer, now_ms)
    slices = _sync_many(node, context, request, answer, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _sync_many(
    node: "BrokerNode",
    context: RequestContext,
    request: SyncGroupRequest,
    answer: Callable[[SyncResult], Effect],
    now_ms: int,
) -> Slices:
    """Collect the rows of many members in slices, then sync with the group in its state by then."""
    found: dict[str, bytes] = {}
    held_bytes = 0
    for place, row in enumerate(taken_out(request.assignments), 1):
        held_bytes += len(row.assignment) - len(found.get(row.member_id, b""))
        found[row.member_id] = bytes(row.assignment)
        if place % _ROWS_PER_SLICE == 0:
            now_ms = yield context.keeps(found)
    return _sync(node, context, request, found, held_bytes, answer, now_ms)


def _sync(
    node: "BrokerNode",
    context: RequestContext,
    request: SyncGroupRequest,
    assignments: dict[str, bytes],
    assigned_bytes: int,
    answer: Callable[[SyncResult], Effect],
    now_ms: int,
) -> Effects:
    asked = SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation_id=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=assignments,
        assigned_bytes=assigned_bytes,
    )
    waiting = UntilGone(answer)
    effects = node.groups.sync(asked, waiting, now_ms)
    waiting.waits(context)
    return effects
