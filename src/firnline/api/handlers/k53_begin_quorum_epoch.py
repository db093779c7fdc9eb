"""BeginQuorumEpoch: a voter has won an election. PURE. `raft` answers.

Source: KIP-595.
"""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochRequest

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode


def handle(
    node: "ControllerNode", context: RequestContext, request: BeginQuorumEpochRequest, now_ms: int
) -> Effects:
    return node.quorum.raft.on_request(request, context.reply, now_ms)
