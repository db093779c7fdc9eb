"""FetchSnapshot: a follower asks the metadata leader for a piece of a snapshot file. PURE.

Source: KIP-630, KIP-853.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class SnapshotId(Struct):
    end_offset = f("int64", "0+", "Offset after the last record.")
    epoch = f("int32", "0+", "Leader epoch.")


class FetchSnapshotPartition(Struct):
    partition = f("int32", "0+", "Partition number.")
    current_leader_epoch = f("int32", "0+", "Leader epoch the sender knows; -1 when unknown.")
    snapshot_id = f(SnapshotId, "0+", "Snapshot wanted.")
    position = f("int64", "0+", "First byte, from the start of the snapshot.")
    replica_directory_id = f("uuid", "1+", "Log directory of the replica. KIP-853.", tag=0)


class FetchSnapshotTopic(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([FetchSnapshotPartition], "0+", "By partition.")


class FetchSnapshotRequest(
    Message, Request["FetchSnapshotResponse"], key=59, valid="0-1", flexible="0+"
):
    cluster_id = f(
        "string", "0+", "Cluster id; null when not known.", default=None, nullable="0+", tag=0
    )
    replica_id = f("int32", "0+", "Node id of the follower; -1 for none.", default=-1)
    max_bytes = f("int32", "0+", "Soft limit of the response. KIP-74.", default=0x7FFFFFFF)
    topics = f([FetchSnapshotTopic], "0+", "By topic.")


class LeaderIdAndEpoch(Struct):
    leader_id = f("int32", "0+", "Node id of the leader; -1 when unknown.")
    leader_epoch = f("int32", "0+", "Leader epoch; -1 when unknown.")


class FetchSnapshotPartitionResult(Struct):
    index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")
    snapshot_id = f(SnapshotId, "0+", "Id of the snapshot.")
    current_leader = f(LeaderIdAndEpoch, "0+", "The current leader.", tag=0)
    size = f("int64", "0+", "Size of the whole snapshot in bytes.")
    position = f("int64", "0+", "First byte, from the start of the snapshot.")
    unaligned_records = f("records", "0+", "Bytes of the snapshot; may end inside a batch.")


class FetchSnapshotTopicResult(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([FetchSnapshotPartitionResult], "0+", "By partition.")


class NodeEndpoint(Struct):
    node_id = f("int32", "1+", "Node id.")
    host = f("string", "1+", "Host name or address.")
    port = f("uint16", "1+", "TCP port.")


class FetchSnapshotResponse(Message, key=59, valid="0-1", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    topics = f([FetchSnapshotTopicResult], "0+", "By topic.")
    node_endpoints = f([NodeEndpoint], "1+", "Addresses of the leaders named above.", tag=0)
