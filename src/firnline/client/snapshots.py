"""Snapshots of the metadata, asked of every node: each has its own. WORLD.

Brokers are asked where the cluster says that they listen, other voters where the quorum does. A node that
does not answer, or cannot be asked from where we are, says so in its row.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from firnline.base.errors import FirnlineError
from firnline.client.connection import Connection, Unreachable, parse_address
from firnline.client.quorum import QuorumState, describe_quorum
from firnline.client.wire import refuse
from firnline.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from firnline.protocol.messages.k32011_metadata_snapshots import MetadataSnapshotsRequest
from firnline.protocol.messages.k32012_take_snapshot import TakeSnapshotRequest

_ANSWER_S = 5.0
# A snapshot of a million partitions takes some seconds, and disks have bad days.
_TAKE_S = 120.0


class Member(NamedTuple):
    """One node; `address` is "" where nothing that was asked tells it."""

    node_id: int
    role: str
    address: str


class NodeSnapshots(NamedTuple):
    """What one node says; `found` None with the `problem` where it said nothing."""

    member: Member
    found: Any | None
    problem: str = ""


class Taken(NamedTuple):
    """The snapshot that a node has now, or why not."""

    member: Member
    end_offset: int
    epoch: int
    problem: str = ""


def members(bootstrap: str, *, is_controller: bool, timeout_s: float) -> list[Member]:
    """Return every node of the cluster that is known to its quorum, voters first."""
    quorum = describe_quorum(bootstrap, is_controller=is_controller, timeout_s=timeout_s)
    return members_of(quorum, bootstrap, is_controller=is_controller)


def members_of(quorum: QuorumState, bootstrap: str, *, is_controller: bool) -> list[Member]:
    """Return every node that a quorum knows, with where it is reached from here."""
    brokers = {} if is_controller else _brokers(bootstrap)
    # Who reached one broker reaches the others; a node alone listens nowhere as a controller.
    return [
        Member(row.node_id, row.role, brokers.get(row.node_id) or row.address)
        for row in quorum.replicas
    ]


def _brokers(bootstrap: str) -> dict[int, str]:
    problem: FirnlineError | None = None
    for text in bootstrap.split(","):
        try:
            with Connection(*parse_address(text.strip()), timeout_s=_ANSWER_S) as broker:
                answer = broker.ask(DescribeClusterRequest(endpoint_type=1))
        except Unreachable as silent:
            problem = silent
            continue
        refuse(answer.error_code, answer.error_message, "the cluster")
        return {each.broker_id: f"{each.host}:{each.port}" for each in answer.brokers}
    raise problem or Unreachable("no address is given")


def snapshots_of(found: Sequence[Member], *, timeout_s: float = _ANSWER_S) -> list[NodeSnapshots]:
    """Ask each node what it has; one that does not answer costs `timeout_s`."""
    told = []
    for member in found:
        try:
            answer = _ask(member, MetadataSnapshotsRequest(), timeout_s)
            told.append(NodeSnapshots(member, answer))
        except FirnlineError as problem:
            told.append(NodeSnapshots(member, None, str(problem)))
    return told


def take_snapshots(found: Sequence[Member], node_ids: Collection[int] | None) -> list[Taken]:
    """Have nodes take one now, one after the other; None: all of them. Unreachable for an unknown node."""
    unknown = set(node_ids or ()) - {member.node_id for member in found}
    if unknown:
        raise Unreachable(f"the quorum knows no node {', '.join(map(str, sorted(unknown)))}")
    told = []
    for member in found:
        if node_ids is not None and member.node_id not in node_ids:
            continue
        try:
            answer = _ask(member, TakeSnapshotRequest(), _TAKE_S)
            refuse(answer.error_code, answer.error_message, f"node {member.node_id}")
            told.append(Taken(member, answer.end_offset, answer.epoch))
        except FirnlineError as problem:
            told.append(Taken(member, -1, -1, str(problem)))
    return told


def _ask(member: Member, request: Any, timeout_s: float) -> Any:
    if not member.address:
        raise Unreachable("its address is not told to controllers: ask by --bootstrap-server")
    with Connection(*parse_address(member.address), timeout_s=timeout_s) as node:
        return node.ask(request)
