"""Fetch on a controller's listener: only the metadata log. PURE. `raft` answers, perhaps later.

Source: KIP-595, KIP-630, KIP-1166.
"""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.protocol.messages.k01_fetch import FetchRequest

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode


def handle(
    node: "ControllerNode", context: RequestContext, request: FetchRequest, now_ms: int
) -> Effects:
    return node.quorum.raft.on_request(request, context.reply, now_ms)
