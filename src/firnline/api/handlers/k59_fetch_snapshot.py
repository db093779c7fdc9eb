"""FetchSnapshot: answers with a part of a metadata snapshot. PURE. `raft` answers.

Source: KIP-630.
"""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.protocol.messages.k59_fetch_snapshot import FetchSnapshotRequest

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode


def handle(
    node: "ControllerNode", context: RequestContext, request: FetchSnapshotRequest, now_ms: int
) -> Effects:
    return node.quorum.raft.on_request(request, context.reply, now_ms)
