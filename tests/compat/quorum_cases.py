"""Requests to a controller, good and bad, and what Apache Kafka 4.3.1 answers to each. WORLD.

The table is the arbiter's word: `test_quorum_requests.py` asks Kafka and us the same questions. An answer is
compared as a line of words (`reported`), in which ids, epochs and offsets of this run have names.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from firnline.base.errors import Code
from firnline.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from firnline.client.wire import encode_request
from firnline.protocol.messages import (
    k01_fetch,
    k19_create_topics,
    k20_delete_topics,
    k52_vote,
    k53_begin_quorum_epoch,
    k54_end_quorum_epoch,
    k55_describe_quorum,
    k58_envelope,
    k59_fetch_snapshot,
    k60_describe_cluster,
    k62_broker_registration,
    k63_broker_heartbeat,
    k67_allocate_producer_ids,
    k70_controller_registration,
)
from firnline.protocol.schema import Message, Struct

LEADER, FOLLOWER = "leader", "follower"
UNKNOWN_ID = 77  # no voter, no broker
OTHER_ID = b"another dir id.."
HUGE = 1 << 40


@dataclass(frozen=True)
class World:
    """What is true of the quorum when a question is asked."""

    cluster_id: str
    leader: int
    follower: int  # one that follows
    other: int  # the third voter
    epoch: int
    end_offset: int  # all of it committed
    snapshot: tuple[int, int]  # end offset and epoch of the newest
    snapshot_bytes: int
    # A node that was slow to come up loaded a snapshot: its log starts behind it, in whatever epoch that was.
    start_offset: int  # of the leader's log
    first_epoch: int  # of the first record of that log
    first_epoch_end: int  # where it ends; every node has a snapshot of it


@dataclass(frozen=True)
class Case:
    """A question: whom to ask, in which version, the request, and what Apache Kafka 4.3.1 tells.

    `ours` is what we tell where that differs, for the reason that stands beside the case; `kafka` is then
    "" for what must not be asked of Kafka, because its process ends.
    """

    name: str
    to: str
    version: int
    ask: Callable[[World], Message]
    kafka: str
    ours: str | None = None


# ------------------------------------------------------------------------------------------ requests


def fetch(w: World, **changes: Any) -> Message:
    """What a voter's Fetch looks like; `p_` goes to the partition."""
    partition = {
        "partition": 0,
        "current_leader_epoch": w.epoch,
        "fetch_offset": w.end_offset,
        "last_fetched_epoch": w.epoch,
        "log_start_offset": -1,
        "partition_max_bytes": 0,
        "replica_directory_id": OTHER_ID,
        "high_watermark": -1,
    } | {name[2:]: value for name, value in changes.items() if name.startswith("p_")}
    topic = {"topic_id": METADATA_TOPIC_ID} | {
        name[2:]: value for name, value in changes.items() if name.startswith("t_")
    }
    rest = {name: value for name, value in changes.items() if name[:2] not in ("p_", "t_")}
    rows = rest.pop("rows", 1)
    replica_id = rest.pop("replica_id", w.other)
    body = {
        "cluster_id": w.cluster_id,
        "replica_id": replica_id,
        "replica_state": k01_fetch.ReplicaState(replica_id=replica_id, replica_epoch=-1),
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
    } | rest
    partitions = [k01_fetch.FetchPartition(**partition)] * rows
    topics = [k01_fetch.FetchTopic(topic=METADATA_TOPIC, **topic, partitions=partitions)]
    return k01_fetch.FetchRequest(topics=topics, **body)


def snapshot(w: World, **changes: Any) -> Message:
    """A FetchSnapshot of the newest snapshot from its first byte."""
    end_offset, epoch = changes.pop("id", w.snapshot)
    partition = {
        "partition": 0,
        "current_leader_epoch": w.epoch,
        "snapshot_id": k59_fetch_snapshot.SnapshotId(end_offset=end_offset, epoch=epoch),
        "position": 0,
        "replica_directory_id": OTHER_ID,
    } | {name[2:]: value for name, value in changes.items() if name.startswith("p_")}
    rest = {name: value for name, value in changes.items() if not name.startswith("p_")}
    rows, name = rest.pop("rows", 1), rest.pop("name", METADATA_TOPIC)
    body = {"cluster_id": w.cluster_id, "replica_id": w.other, "max_bytes": 1 << 20} | rest
    partitions = [k59_fetch_snapshot.FetchSnapshotPartition(**partition)] * rows
    topics = [k59_fetch_snapshot.FetchSnapshotTopic(name=name, partitions=partitions)]
    return k59_fetch_snapshot.FetchSnapshotRequest(topics=topics, **body)


def vote(w: World, **changes: Any) -> Message:
    """A pre-vote in the current epoch by a voter whose log is as long as the leader's."""
    rest = {n: changes.pop(n) for n in ("cluster_id", "voter_id", "rows", "name") if n in changes}
    partition = {
        "partition_index": 0,
        "replica_epoch": w.epoch,
        "replica_id": w.other,
        "replica_directory_id": OTHER_ID,
        "voter_directory_id": bytes(16),
        "last_offset_epoch": w.epoch,
        "last_offset": w.end_offset,
        "pre_vote": True,
    } | changes
    rows, name = rest.pop("rows", 1), rest.pop("name", METADATA_TOPIC)
    topic = k52_vote.VoteTopic(
        topic_name=name, partitions=[k52_vote.VotePartition(**partition)] * rows
    )
    body = {"cluster_id": w.cluster_id, "voter_id": w.leader} | rest
    return k52_vote.VoteRequest(topics=[topic] if rows else [], **body)


def begin(w: World, **changes: Any) -> Message:
    """BeginQuorumEpoch of the leader that there is."""
    rest = {n: changes.pop(n) for n in ("cluster_id", "voter_id", "name", "rows") if n in changes}
    partition = {
        "partition_index": 0,
        "voter_directory_id": bytes(16),
        "leader_id": w.leader,
        "leader_epoch": w.epoch,
    } | changes
    rows, name = rest.pop("rows", 1), rest.pop("name", METADATA_TOPIC)
    topic = k53_begin_quorum_epoch.BeginQuorumEpochTopic(
        topic_name=name,
        partitions=[k53_begin_quorum_epoch.BeginQuorumEpochPartition(**partition)] * rows,
    )
    body = {"cluster_id": w.cluster_id, "voter_id": w.follower} | rest
    endpoint = k53_begin_quorum_epoch.LeaderEndpoint(name="CONTROLLER", host="127.0.0.1", port=1)
    return k53_begin_quorum_epoch.BeginQuorumEpochRequest(
        topics=[topic], leader_endpoints=[endpoint], **body
    )


def end(w: World, **changes: Any) -> Message:
    """EndQuorumEpoch of an epoch before this one, by the leader of this one."""
    cluster_id = changes.pop("cluster_id", w.cluster_id)
    name = changes.pop("name", METADATA_TOPIC)
    partition = {
        "partition_index": 0,
        "leader_id": w.leader,
        "leader_epoch": w.epoch - 1,
    } | changes
    topic = k54_end_quorum_epoch.EndQuorumEpochTopic(
        topic_name=name, partitions=[k54_end_quorum_epoch.EndQuorumEpochPartition(**partition)]
    )
    return k54_end_quorum_epoch.EndQuorumEpochRequest(cluster_id=cluster_id, topics=[topic])


def describe(name: str = METADATA_TOPIC, partition: int = 0) -> Message:
    """DescribeQuorum of one partition."""
    row = k55_describe_quorum.DescribeQuorumPartition(partition_index=partition)
    topic = k55_describe_quorum.DescribeQuorumTopic(topic_name=name, partitions=[row])
    return k55_describe_quorum.DescribeQuorumRequest(topics=[topic])


def register(w: World, **changes: Any) -> Message:
    """BrokerRegistration of a broker nobody knows."""
    features = changes.pop("features", {"metadata.version": (7, 30)})
    rows = [
        k62_broker_registration.BrokerSupportedFeature(
            name=name, min_supported_version=low, max_supported_version=high
        )
        for name, (low, high) in features.items()
    ]
    body = {
        "broker_id": UNKNOWN_ID,
        "cluster_id": w.cluster_id,
        "incarnation_id": OTHER_ID,
        "listeners": [
            k62_broker_registration.BrokerListener(
                name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0
            )
        ],
        "log_dirs": [OTHER_ID],
    } | changes
    return k62_broker_registration.BrokerRegistrationRequest(features=rows, **body)


def heartbeat(w: World, **changes: Any) -> Message:
    """A heartbeat of a broker that is not there."""
    body = {"broker_id": UNKNOWN_ID, "broker_epoch": 5, "current_metadata_offset": 1} | changes
    return k63_broker_heartbeat.BrokerHeartbeatRequest(**body)


def register_controller(w: World, **changes: Any) -> Message:
    """ControllerRegistration of a node that is no voter."""
    features = changes.pop("features", {"metadata.version": (7, 30)})
    rows = [
        k70_controller_registration.ControllerSupportedFeature(
            name=name, min_supported_version=low, max_supported_version=high
        )
        for name, (low, high) in features.items()
    ]
    body = {"controller_id": UNKNOWN_ID, "incarnation_id": OTHER_ID} | changes
    return k70_controller_registration.ControllerRegistrationRequest(features=rows, **body)


def producer_ids(w: World, **changes: Any) -> Message:
    """AllocateProducerIds for a broker that is not there."""
    body = {"broker_id": UNKNOWN_ID, "broker_epoch": 5} | changes
    return k67_allocate_producer_ids.AllocateProducerIdsRequest(**body)


def create_topic() -> Message:
    """CreateTopics of one topic; no broker is there to hold it."""
    topic = k19_create_topics.CreatableTopic(name="x", num_partitions=1, replication_factor=1)
    return k19_create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=2000)


def delete_topic() -> Message:
    """DeleteTopics of a topic that is not there."""
    topic = k20_delete_topics.DeleteTopicState(name="x")
    return k20_delete_topics.DeleteTopicsRequest(topics=[topic], timeout_ms=2000)


def describe_cluster(endpoint_type: int) -> Message:
    """DescribeCluster: 1 asks for brokers, 2 for controllers."""
    return k60_describe_cluster.DescribeClusterRequest(endpoint_type=endpoint_type)


# Version 0, type User, name ANONYMOUS, no token, no tags.
ANONYMOUS = b"\0\0" + b"\x05User" + b"\x0aANONYMOUS" + b"\0" + b"\0"


def envelope(
    data: bytes, principal: bytes | None = ANONYMOUS, host: bytes = b"\x7f\0\0\1"
) -> Message:
    """An Envelope around these bytes."""
    return k58_envelope.EnvelopeRequest(
        request_data=data, request_principal=principal, client_host_address=host
    )


def in_envelope(request: Message, version: int, *, cut: int = 0, **rest: Any) -> Message:
    """An Envelope around a request that lacks its last `cut` bytes."""
    data = encode_request(request, version=version, correlation_id=9, client_id="c")[4:]
    return envelope(data[: len(data) - cut], **rest)


# ------------------------------------------------------------------------------------------ answers


def reported(answer: Any, w: World) -> str:
    """Say what an answer tells, with names for what differs between runs."""
    words = list(_codes(answer))
    row = _partition_row(answer)
    if row is not None:
        words += list(_reported_of(row, w))
    endpoints = getattr(answer, "node_endpoints", None) or ()
    words += [f"at:{_node(e.node_id, w)}" for e in endpoints]
    return " ".join(words)


def _codes(message: Any) -> Iterator[str]:
    for name in message.fields:
        value = getattr(message, name)
        if name == "error_code":
            yield Code(value).name
        elif isinstance(value, Struct):
            yield from _codes(value)
        elif isinstance(value, list | tuple):
            for item in value:
                if isinstance(item, Struct):
                    yield from _codes(item)


def _partition_row(answer: Any) -> Any:
    topics = getattr(answer, "topics", None) or getattr(answer, "responses", None) or ()
    for topic in topics:
        for row in getattr(topic, "partitions", ()):
            return row
    return None


def _reported_of(row: Any, w: World) -> Iterator[str]:
    leader = getattr(row, "current_leader", row)
    if hasattr(leader, "leader_id"):
        yield f"leader:{_node(leader.leader_id, w)}@{_epoch(leader.leader_epoch, w)}"
    if hasattr(row, "vote_granted"):
        yield "granted" if row.vote_granted else "refused"
    if hasattr(row, "diverging_epoch"):
        diverging, snap = row.diverging_epoch, row.snapshot_id
        if diverging.end_offset != -1:
            yield f"diverging:{_epoch(diverging.epoch, w)},{_offset(diverging.end_offset, w)}"
        if snap.end_offset != -1:
            yield "load-newest" if (snap.end_offset, snap.epoch) == w.snapshot else "load-other"
        yield f"hw:{_offset(row.high_watermark, w)}"
        yield "records" if row.records else "empty"
    if hasattr(row, "unaligned_records"):
        yield f"bytes:{_size(len(row.unaligned_records or b''), w)} of {_size(row.size, w)}"


def _node(node_id: int, w: World) -> str:
    names = {w.leader: LEADER, w.follower: FOLLOWER, w.other: "other", -1: "none"}
    return names.get(node_id, str(node_id))


def _epoch(epoch: int, w: World) -> str:
    names = {w.first_epoch: "first", w.epoch: "now", w.epoch + 1: "next"}
    return names.get(epoch, str(epoch))


def _offset(offset: int, w: World) -> str:
    names = {w.first_epoch_end: "first-end", w.end_offset: "end"}
    return names.get(offset, str(offset))


def _size(size: int, w: World) -> str:
    return {w.snapshot_bytes: "all", w.snapshot_bytes - 10: "all-10"}.get(size, str(size))
