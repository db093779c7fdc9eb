"""EndQuorumEpoch: the leader of the quorum resigns. PURE. `raft` answers.

Source: KIP-595.
"""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.protocol.messages.k54_end_quorum_epoch import EndQuorumEpochRequest

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode


def handle(
    node: "ControllerNode", context: RequestContext, request: EndQuorumEpochRequest, now_ms: int
) -> Effects:
    return node.quorum.raft.on_request(request, context.reply, now_ms)
