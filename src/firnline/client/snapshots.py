"""Snapshots of the metadata, as every node reports its own. WORLD.

Brokers are asked at the addresses that the cluster gives to clients, other voters at those that the quorum
gives. A node that does not answer, or that has no address for us, says so in its row.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from firnline.base.errors import FirnlineError
from firnline.client.admin import Admin
from firnline.client.connection import Connection, Unreachable, parse_address
from firnline.client.deadline import Deadline, at_once
from firnline.client.quorum import QuorumInfo, describe_quorum
from firnline.client.wire import refuse
from firnline.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from firnline.protocol.messages.k32011_metadata_snapshots import MetadataSnapshotsRequest
from firnline.protocol.messages.k32012_take_snapshot import TakeSnapshotRequest

_ANSWER_S = 5.0


class QuorumMember(NamedTuple):
    """One node; `address` is "" if it is unknown."""

    node_id: int
    role: str
    address: str


class NodeSnapshots(NamedTuple):
    """What one node reports; `found` is None, with the `problem`, if it did not answer."""

    member: QuorumMember
    found: Any | None
    problem: str = ""


class Taken(NamedTuple):
    """The snapshot that a node has now, or the problem."""

    member: QuorumMember
    end_offset: int
    epoch: int
    problem: str = ""


def members(bootstrap: str, *, is_controller: bool, deadline: Deadline) -> list[QuorumMember]:
    """Return every node that the quorum knows, voters first."""
    quorum = describe_quorum(bootstrap, is_controller=is_controller, deadline=deadline)
    return members_of(quorum, bootstrap, is_controller=is_controller, deadline=deadline)


def members_of(
    quorum: QuorumInfo, bootstrap: str, *, is_controller: bool, deadline: Deadline
) -> list[QuorumMember]:
    """Return every node that a quorum knows, with its address for us."""
    brokers = {} if is_controller else _brokers(bootstrap, deadline)
    # A client that reached one broker reaches the others. A node alone has no listener as a controller.
    return [
        QuorumMember(row.node_id, row.role, brokers.get(row.node_id) or row.address)
        for row in quorum.replicas
    ]


def _brokers(bootstrap: str, deadline: Deadline) -> dict[int, str]:
    with Admin(bootstrap, timeout_s=_ANSWER_S, deadline=deadline) as admin:
        answer = admin.first.ask(DescribeClusterRequest(endpoint_type=1))
        refuse(answer.error_code, answer.error_message, "the cluster")
        return {each.broker_id: f"{each.host}:{each.port}" for each in answer.brokers}


def snapshots_of(found: Sequence[QuorumMember], *, deadline: Deadline) -> list[NodeSnapshots]:
    """Ask each node for its snapshots, all at the same time."""

    def ask(member: QuorumMember) -> NodeSnapshots:
        try:
            return NodeSnapshots(member, _ask(member, MetadataSnapshotsRequest(), deadline))
        except FirnlineError as problem:
            return NodeSnapshots(member, None, str(problem))

    return at_once(ask, found)


def take_snapshots(
    found: Sequence[QuorumMember], node_ids: Collection[int] | None, *, deadline: Deadline
) -> list[Taken]:
    """Make nodes take a snapshot, one after the other; None: all nodes. Unreachable for an unknown node."""
    unknown = set(node_ids or ()) - {member.node_id for member in found}
    if unknown:
        there = ", ".join(str(member.node_id) for member in found)
        raise Unreachable(
            f"the quorum knows no node {', '.join(map(str, sorted(unknown)))}: there are {there}"
        )
    answers = []
    for member in found:
        if node_ids is not None and member.node_id not in node_ids:
            continue
        try:
            answer = _ask(member, TakeSnapshotRequest(), deadline)
            refuse(answer.error_code, answer.error_message, f"node {member.node_id}")
            answers.append(Taken(member, answer.end_offset, answer.epoch))
        except FirnlineError as problem:
            answers.append(Taken(member, -1, -1, str(problem)))
    return answers


def _ask(member: QuorumMember, request: Any, deadline: Deadline) -> Any:
    if not member.address:
        raise Unreachable("controllers do not know its address: use --bootstrap-server")
    with Connection(
        *parse_address(member.address), timeout_s=deadline.timeout_s, deadline=deadline
    ) as node:
        return node.ask(request)
