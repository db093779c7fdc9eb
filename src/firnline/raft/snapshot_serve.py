"""The leader's half of FetchSnapshot: a slice of a snapshot file, or why not. PURE.

Refusals and their order are those of Kafka 4.3.1; where that takes a request apart wrongly (more than one
partition) ours is refused. Each request opens the file anew: a snapshot that cleaning took away in the
middle of a download is not found any more, and the follower starts over (X12). Source: KIP-630; spec 1.5, Q1.
"""

from typing import NamedTuple, Protocol

from firnline.base.effects import Peer
from firnline.base.errors import Code
from firnline.base.ids import METADATA_TOPIC, OffsetAndEpoch
from firnline.base.limits import SNAPSHOT_SLICE_BYTES_MAX
from firnline.protocol.messages.k59_fetch_snapshot import (
    FetchSnapshotPartition,
    FetchSnapshotPartitionResult,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotTopicResult,
    LeaderIdAndEpoch,
    NodeEndpoint,
    SnapshotId,
)
from firnline.raft.ports import SnapshotFile

_PARTITION = 0


class SnapshotSource(Protocol):
    """Where snapshots are; every `ReplicatedLog` is one."""

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotFile | None: ...


class Leadership(NamedTuple):
    """What this node says of the quorum. `leader_id` -1: nobody is known; `leader` None: nor where."""

    epoch: int
    leader_id: int
    leader: Peer | None
    is_leader: bool
    is_stopping: bool = False


class Served(NamedTuple):
    """The answer. `is_contact`: bytes were sent, which counts for check-quorum as a Fetch does (X7)."""

    response: FetchSnapshotResponse
    is_contact: bool = False


def serve_snapshot(
    request: FetchSnapshotRequest,
    source: SnapshotSource,
    *,
    cluster_id: str,
    quorum: Leadership,
) -> Served:
    """Answer one request. StorageError when the file cannot be read."""
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        return _refused(Code.INCONSISTENT_CLUSTER_ID)
    if [len(topic.partitions) for topic in request.topics] != [1] or request.max_bytes < 0:
        return _refused(Code.INVALID_REQUEST)
    (topic,) = request.topics
    (asked,) = topic.partitions
    if (topic.name, asked.partition) != (METADATA_TOPIC, _PARTITION):
        result = FetchSnapshotPartitionResult(
            index=asked.partition, error_code=Code.UNKNOWN_TOPIC_OR_PARTITION
        )
        return Served(_response(topic.name, result, None))
    problem = judge_leadership(quorum, asked.current_leader_epoch)
    result = FetchSnapshotPartitionResult(
        index=_PARTITION,
        current_leader=LeaderIdAndEpoch(leader_id=quorum.leader_id, leader_epoch=quorum.epoch),
    )
    if problem is Code.NONE:
        problem = _read_into(result, asked, source, request.max_bytes)
    result.error_code = problem
    return Served(_response(topic.name, result, quorum.leader), problem is Code.NONE)


def judge_leadership(quorum: Leadership, epoch: int) -> Code:
    """Say why a request of that epoch, to the leader alone, is refused; NONE: it is not (Fetch too)."""
    if epoch < quorum.epoch:
        return Code.FENCED_LEADER_EPOCH
    if epoch > quorum.epoch:
        return Code.UNKNOWN_LEADER_EPOCH
    if not quorum.is_leader:
        return Code.NOT_LEADER_OR_FOLLOWER
    return Code.BROKER_NOT_AVAILABLE if quorum.is_stopping else Code.NONE


def _read_into(
    result: FetchSnapshotPartitionResult,
    asked: FetchSnapshotPartition,
    source: SnapshotSource,
    max_bytes: int,
) -> Code:
    wanted = OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    # The bootstrap snapshot 0-0 is never one (Q12).
    file = source.open_snapshot(wanted)
    if file is None:
        return Code.SNAPSHOT_NOT_FOUND
    try:
        if not 0 <= asked.position < file.size_bytes:
            return Code.POSITION_OUT_OF_RANGE
        size = min(max_bytes, SNAPSHOT_SLICE_BYTES_MAX)
        result.unaligned_records = file.read(asked.position, size)
        result.size = file.size_bytes
    finally:
        file.close()
    result.position = asked.position
    result.snapshot_id = SnapshotId(end_offset=wanted.offset, epoch=wanted.epoch)
    return Code.NONE


def _refused(code: Code) -> Served:
    return Served(FetchSnapshotResponse(error_code=code))


def _response(
    topic: str, result: FetchSnapshotPartitionResult, leader: Peer | None
) -> FetchSnapshotResponse:
    endpoints = []
    if leader is not None:
        endpoint = NodeEndpoint(node_id=leader.node_id, host=leader.host, port=leader.port)
        endpoints.append(endpoint)
    return FetchSnapshotResponse(
        topics=[FetchSnapshotTopicResult(name=topic, partitions=[result])],
        node_endpoints=endpoints,
    )
