"""Vote: a voter requests a vote or a pre-vote. PURE. `raft` answers.

Source: KIP-595, KIP-996.
"""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.protocol.messages.k52_vote import VoteRequest

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode


def handle(
    node: "ControllerNode", context: RequestContext, request: VoteRequest, now_ms: int
) -> Effects:
    return node.quorum.raft.on_request(request, context.reply, now_ms)
