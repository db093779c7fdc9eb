"""UpdateRaftVoter: a voter reports its listeners. PURE. Source: KIP-853.

Voters of Apache Kafka send it to each new leader, even if the voters are static. The request is validated
and not stored: the addresses of static voters are those of controller.quorum.voters.
"""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.protocol.messages.k82_update_raft_voter import (
    CurrentLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode


def handle(
    node: "ControllerNode", context: RequestContext, request: UpdateRaftVoterRequest, now_ms: int
) -> Effects:
    quorum = node.quorum
    response = UpdateRaftVoterResponse(error_code=_code(node, request))
    leader = quorum.raft.leader_peer()
    if leader is not None:
        response.current_leader = CurrentLeader(
            leader_id=leader.node_id,
            leader_epoch=quorum.epoch,
            host=leader.host,
            port=leader.port,
        )
    return quorum.raft.send_when_saved(context.reply(response))


def _code(node: "ControllerNode", request: UpdateRaftVoterRequest) -> Code:
    quorum = node.quorum
    if request.cluster_id not in (None, node.cluster_id):
        return Code.INCONSISTENT_CLUSTER_ID
    if request.current_leader_epoch < quorum.epoch:
        return Code.FENCED_LEADER_EPOCH
    if request.current_leader_epoch > quorum.epoch:
        return Code.UNKNOWN_LEADER_EPOCH
    if not quorum.is_leader:
        return Code.NOT_LEADER_OR_FOLLOWER
    return Code.NONE if request.voter_id in quorum.raft.voters else Code.VOTER_NOT_FOUND
