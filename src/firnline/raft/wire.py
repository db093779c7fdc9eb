"""The six requests of the quorum on the wire: building, parsing and answering them. PURE.

Each has one topic and one partition (Q1). Messages have the fields of every version; the writer leaves out
those that a version lacks. Source: KIP-595, KIP-630, KIP-853, KIP-996, KIP-1166; spec 1.5.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from firnline.base.effects import Effect, Peer
from firnline.base.errors import Code
from firnline.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID, OffsetAndEpoch, Uuid
from firnline.base.slices import FileRecords
from firnline.protocol.messages import (
    k01_fetch,
    k52_vote,
    k53_begin_quorum_epoch,
    k54_end_quorum_epoch,
    k59_fetch_snapshot,
)
from firnline.protocol.messages.k01_fetch import FetchRequest, FetchResponse
from firnline.protocol.messages.k52_vote import VoteRequest, VoteResponse
from firnline.protocol.messages.k53_begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from firnline.protocol.messages.k54_end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
)
from firnline.protocol.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from firnline.protocol.messages.k59_fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from firnline.raft.election_state import NOBODY
from firnline.raft.settings import FETCH_WAIT_MAX_MS
from firnline.raft.snapshot_serve import Chunk
from firnline.raft.voters import VoterSet

__all__ = [
    "BeginQuorumEpochRequest",
    "BeginQuorumEpochResponse",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "EndQuorumEpochRequest",
    "EndQuorumEpochResponse",
    "FetchRequest",
    "FetchResponse",
    "FetchSnapshotRequest",
    "FetchSnapshotResponse",
    "VoteRequest",
    "VoteResponse",
]

PARTITION = 0
_NO_CHUNK = Chunk(OffsetAndEpoch(0, 0), 0, 0, b"")

QuorumRequest = (
    FetchRequest
    | VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | DescribeQuorumRequest
    | FetchSnapshotRequest
)
# The responses between replicas of the quorum; DescribeQuorum is sent by clients.
QuorumResponse = (
    FetchResponse
    | VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchSnapshotResponse
)
AnyResponse = QuorumResponse | DescribeQuorumResponse
# Takes the response to a request, and returns the effect that sends it.
ResponseCallback = Callable[[AnyResponse], Effect]
# The response to each request, for an error that concerns the whole request.
RESPONSES: dict[type[QuorumRequest], type[AnyResponse]] = {
    FetchRequest: FetchResponse,
    VoteRequest: VoteResponse,
    BeginQuorumEpochRequest: BeginQuorumEpochResponse,
    EndQuorumEpochRequest: EndQuorumEpochResponse,
    DescribeQuorumRequest: DescribeQuorumResponse,
    FetchSnapshotRequest: FetchSnapshotResponse,
}


class LeaderAndEpoch(NamedTuple):
    """What every response says of the quorum: the epoch, its leader (-1 if unknown) and the leader's
    address."""

    epoch: int
    leader_id: int = NOBODY
    leader: Peer | None = None


Part = (
    k01_fetch.FetchablePartitionResponse
    | k52_vote.VotePartitionResult
    | k53_begin_quorum_epoch.BeginQuorumEpochPartitionResult
    | k54_end_quorum_epoch.EndQuorumEpochPartitionResult
    | k59_fetch_snapshot.FetchSnapshotPartitionResult
)


class ParsedResponse(NamedTuple):
    """A parsed response; `part` is its content for the one partition."""

    error: int
    leader_and_epoch: LeaderAndEpoch
    part: Part


Row = TypeVar("Row", covariant=True)


class _Topic(Protocol[Row]):
    @property
    def partitions(self) -> Sequence[Row]: ...


class NamesTopics(Protocol[Row]):
    """A request of the quorum, by its partitions."""

    @property
    def topics(self) -> Sequence[_Topic[Row]]: ...


# ------------------------------------------------------------------------------------------- requests


def vote_request(
    cluster_id: str,
    *,
    epoch: int,
    candidate_id: int,
    directory_id: Uuid,
    voter_id: int,
    last: OffsetAndEpoch,
    is_pre_vote: bool,
) -> VoteRequest:
    """Ask one voter for its vote; `last` is the end of the candidate's log."""
    partition = k52_vote.VotePartition(
        partition_index=PARTITION,
        replica_epoch=epoch,
        replica_id=candidate_id,
        replica_directory_id=directory_id,
        voter_directory_id=ZERO_UUID,
        last_offset_epoch=last.epoch,
        last_offset=last.offset,
        pre_vote=is_pre_vote,
    )
    topic = k52_vote.VoteTopic(topic_name=METADATA_TOPIC, partitions=[partition])
    return VoteRequest(cluster_id=cluster_id, voter_id=voter_id, topics=[topic])


def begin_request(
    cluster_id: str, *, epoch: int, leader_id: int, voter_id: int, listener: str, leader: Peer
) -> BeginQuorumEpochRequest:
    """Name the leader of `epoch` to one voter."""
    partition = k53_begin_quorum_epoch.BeginQuorumEpochPartition(
        partition_index=PARTITION,
        voter_directory_id=ZERO_UUID,
        leader_id=leader_id,
        leader_epoch=epoch,
    )
    return BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=voter_id,
        topics=[
            k53_begin_quorum_epoch.BeginQuorumEpochTopic(
                topic_name=METADATA_TOPIC, partitions=[partition]
            )
        ],
        leader_endpoints=[
            k53_begin_quorum_epoch.LeaderEndpoint(name=listener, host=leader.host, port=leader.port)
        ],
    )


def end_request(
    cluster_id: str, *, epoch: int, leader_id: int, successors: Sequence[tuple[int, Uuid]]
) -> EndQuorumEpochRequest:
    """Say that the leader of `epoch` resigns; `successors` are ids and directories, best first."""
    partition = k54_end_quorum_epoch.EndQuorumEpochPartition(
        partition_index=PARTITION,
        leader_id=leader_id,
        leader_epoch=epoch,
        preferred_successors=[node_id for node_id, _ in successors],
        preferred_candidates=[
            k54_end_quorum_epoch.PreferredCandidate(
                candidate_id=node_id, candidate_directory_id=directory_id
            )
            for node_id, directory_id in successors
        ],
    )
    topic = k54_end_quorum_epoch.EndQuorumEpochTopic(
        topic_name=METADATA_TOPIC, partitions=[partition]
    )
    return EndQuorumEpochRequest(cluster_id=cluster_id, topics=[topic])


def fetch_request(
    cluster_id: str,
    *,
    epoch: int,
    replica_id: int,
    directory_id: Uuid,
    end: OffsetAndEpoch,
    high_watermark: int | None,
    max_bytes: int,
) -> FetchRequest:
    """Ask for the records after `end`, the end of this node's log."""
    partition = k01_fetch.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        replica_directory_id=directory_id,
        high_watermark=-1 if high_watermark is None else high_watermark,
    )
    topic = k01_fetch.FetchTopic(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    return FetchRequest(
        cluster_id=cluster_id,
        replica_id=replica_id,
        replica_state=k01_fetch.ReplicaState(replica_id=replica_id),
        max_wait_ms=FETCH_WAIT_MAX_MS,
        max_bytes=max_bytes,
        topics=[topic],
    )


def fetch_snapshot_request(
    cluster_id: str,
    *,
    epoch: int,
    replica_id: int,
    directory_id: Uuid,
    snapshot_id: OffsetAndEpoch,
    position: int,
    max_bytes: int,
) -> FetchSnapshotRequest:
    """Ask for the snapshot's bytes from `position` on."""
    partition = k59_fetch_snapshot.FetchSnapshotPartition(
        partition=PARTITION,
        current_leader_epoch=epoch,
        snapshot_id=k59_fetch_snapshot.SnapshotId(
            end_offset=snapshot_id.offset, epoch=snapshot_id.epoch
        ),
        position=position,
        replica_directory_id=directory_id,
    )
    topic = k59_fetch_snapshot.FetchSnapshotTopic(name=METADATA_TOPIC, partitions=[partition])
    return FetchSnapshotRequest(
        cluster_id=cluster_id, replica_id=replica_id, max_bytes=max_bytes, topics=[topic]
    )


# ---------------------------------------------------------------------------------- reading requests


def only_partition(request: NamesTopics[Row]) -> Row | None:
    """Return the one partition of a request; None unless it names the metadata partition and no other."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    partition = topic.partitions[0]
    by_name = isinstance(request, (FetchRequest, FetchSnapshotRequest))
    index = getattr(partition, "partition" if by_name else "partition_index")
    return partition if index == PARTITION and _is_metadata(topic) else None


def _is_metadata(topic: Any) -> bool:
    """Compare the id in a Fetch; older versions lack it, and Kafka 4.3.1 refuses those too. Elsewhere the
    name."""
    if hasattr(topic, "topic_id"):
        return bool(topic.topic_id == METADATA_TOPIC_ID)
    name = topic.topic_name if hasattr(topic, "topic_name") else topic.name
    return bool(name == METADATA_TOPIC)


def leader_of(
    request: BeginQuorumEpochRequest | EndQuorumEpochRequest,
    leader_id: int,
    voters: VoterSet,
    listener: str,
) -> Peer | None:
    """Return the address of the leader in a Begin- or EndQuorumEpoch; in older versions, the voter's."""
    endpoints = request.leader_endpoints
    for endpoint in endpoints:
        if endpoint.name == listener:
            return Peer(leader_id, endpoint.host, endpoint.port)
    if endpoints and leader_id not in voters:
        return Peer(leader_id, endpoints[0].host, endpoints[0].port)
    return voters.peer(leader_id)


def fetcher_id(request: FetchRequest) -> int:
    """Node id of the replica that fetches; -1 for a consumer."""
    return max(request.replica_id, request.replica_state.replica_id)


# ------------------------------------------------------------------------------------------ responses


def vote_response(error: Code, known: LeaderAndEpoch, *, is_granted: bool = False) -> VoteResponse:
    """Answer a Vote."""
    partition = k52_vote.VotePartitionResult(
        partition_index=PARTITION,
        error_code=error,
        leader_id=known.leader_id,
        leader_epoch=known.epoch,
        vote_granted=is_granted,
    )
    topic = k52_vote.VoteTopicResult(topic_name=METADATA_TOPIC, partitions=[partition])
    return VoteResponse(topics=[topic], node_endpoints=_endpoints(k52_vote.NodeEndpoint, known))


def begin_response(error: Code, known: LeaderAndEpoch) -> BeginQuorumEpochResponse:
    """Answer a BeginQuorumEpoch."""
    m = k53_begin_quorum_epoch
    partition = m.BeginQuorumEpochPartitionResult(
        partition_index=PARTITION,
        error_code=error,
        leader_id=known.leader_id,
        leader_epoch=known.epoch,
    )
    topic = m.BeginQuorumEpochTopicResult(topic_name=METADATA_TOPIC, partitions=[partition])
    return BeginQuorumEpochResponse(
        topics=[topic], node_endpoints=_endpoints(m.NodeEndpoint, known)
    )


def end_response(error: Code, known: LeaderAndEpoch) -> EndQuorumEpochResponse:
    """Answer an EndQuorumEpoch."""
    m = k54_end_quorum_epoch
    partition = m.EndQuorumEpochPartitionResult(
        partition_index=PARTITION,
        error_code=error,
        leader_id=known.leader_id,
        leader_epoch=known.epoch,
    )
    topic = m.EndQuorumEpochTopicResult(topic_name=METADATA_TOPIC, partitions=[partition])
    return EndQuorumEpochResponse(topics=[topic], node_endpoints=_endpoints(m.NodeEndpoint, known))


def fetch_response(
    error: Code,
    known: LeaderAndEpoch,
    *,
    log_start_offset: int,
    high_watermark: int | None = None,
    records: bytes = b"",
    diverging: tuple[int, int] | None = None,
    snapshot_id: OffsetAndEpoch | None = None,
) -> FetchResponse:
    """Answer a Fetch of a replica; `diverging` is epoch and end offset."""
    partition = k01_fetch.FetchablePartitionResponse(
        partition_index=PARTITION,
        error_code=error,
        high_watermark=-1 if high_watermark is None else high_watermark,
        log_start_offset=log_start_offset,
        current_leader=k01_fetch.LeaderIdAndEpoch(
            leader_id=known.leader_id, leader_epoch=known.epoch
        ),
        records=records,
    )
    if diverging is not None:
        epoch, end_offset = diverging
        partition.diverging_epoch = k01_fetch.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    if snapshot_id is not None:
        partition.snapshot_id = k01_fetch.SnapshotId(
            end_offset=snapshot_id.offset, epoch=snapshot_id.epoch
        )
    topic = k01_fetch.FetchableTopicResponse(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    return FetchResponse(
        responses=[topic], node_endpoints=_endpoints(k01_fetch.NodeEndpoint, known)
    )


def fetch_snapshot_response(
    error: Code,
    known: LeaderAndEpoch,
    *,
    chunk: Chunk | None = None,
) -> FetchSnapshotResponse:
    """Answer a FetchSnapshot."""
    m = k59_fetch_snapshot
    snapshot_id, size_bytes, position, data = chunk or _NO_CHUNK
    partition = m.FetchSnapshotPartitionResult(
        index=PARTITION,
        error_code=error,
        snapshot_id=m.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        current_leader=m.LeaderIdAndEpoch(leader_id=known.leader_id, leader_epoch=known.epoch),
        size=size_bytes,
        position=position,
        unaligned_records=data,
    )
    topic = m.FetchSnapshotTopicResult(name=METADATA_TOPIC, partitions=[partition])
    return FetchSnapshotResponse(topics=[topic], node_endpoints=_endpoints(m.NodeEndpoint, known))


def unknown_snapshot_partition(
    request: FetchSnapshotRequest, known: LeaderAndEpoch
) -> FetchSnapshotResponse:
    """Answer a FetchSnapshot of another partition: UNKNOWN_TOPIC_OR_PARTITION."""
    m = k59_fetch_snapshot
    topic = request.topics[0]
    partition = m.FetchSnapshotPartitionResult(
        index=topic.partitions[0].partition, error_code=Code.UNKNOWN_TOPIC_OR_PARTITION
    )
    return FetchSnapshotResponse(
        topics=[m.FetchSnapshotTopicResult(name=topic.name, partitions=[partition])],
        node_endpoints=_endpoints(m.NodeEndpoint, known),
    )


def _endpoints(kind: Any, known: LeaderAndEpoch) -> list[Any]:
    if known.leader is None or known.leader_id < 0:
        return []
    return [kind(node_id=known.leader_id, host=known.leader.host, port=known.leader.port)]


# ---------------------------------------------------------------------------------- reading responses


def read_response(response: QuorumResponse, voters: VoterSet) -> ParsedResponse | None:
    """Parse the one partition of a response; None for another partition or a malformed response."""
    topics: Any = response.responses if isinstance(response, FetchResponse) else response.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1 or not _is_metadata(topics[0]):
        return None
    part = topics[0].partitions[0]
    index = part.index if isinstance(response, FetchSnapshotResponse) else part.partition_index
    if index != PARTITION:
        return None
    named = getattr(part, "current_leader", part)
    leader_id = max(named.leader_id, NOBODY)
    leader = None
    if leader_id != NOBODY:
        leader = voters.peer(leader_id)
        for endpoint in response.node_endpoints:
            if endpoint.node_id == leader_id:
                leader = Peer(leader_id, endpoint.host, endpoint.port)
    return ParsedResponse(
        part.error_code, LeaderAndEpoch(named.leader_epoch, leader_id, leader), part
    )


def read_chunk(said: ParsedResponse) -> Chunk:
    """Parse the piece of a snapshot in a FetchSnapshot response; an incomplete id counts as none (Q36)."""
    part = said.part
    assert isinstance(part, k59_fetch_snapshot.FetchSnapshotPartitionResult)
    data = part.unaligned_records
    return Chunk(
        OffsetAndEpoch(part.snapshot_id.end_offset, part.snapshot_id.epoch),
        part.size,
        part.position,
        data.read() if isinstance(data, FileRecords) else bytes(data or b""),
    )
