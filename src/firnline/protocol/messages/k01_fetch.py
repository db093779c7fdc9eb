"""Fetch: read record batches, as a consumer or as a follower. PURE.

Source: KIP-74, KIP-227, KIP-516 from version 13, KIP-903 from 15.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class ReplicaState(Struct):
    replica_id = f("int32", "15+", "Node id of the follower; -1 for a consumer.", default=-1)
    replica_epoch = f(
        "int64", "15+", "Broker epoch of the follower; -1 when unknown. KIP-903.", default=-1
    )


class FetchPartition(Struct):
    partition = f("int32", "0+", "Partition number.")
    current_leader_epoch = f(
        "int32", "9+", "Leader epoch the sender knows; -1 when unknown.", default=-1
    )
    fetch_offset = f("int64", "0+", "First offset wanted.")
    last_fetched_epoch = f(
        "int32", "12+", "Epoch of the record before `fetch_offset`; -1 when unknown.", default=-1
    )
    log_start_offset = f("int64", "5+", "The log start offset.", default=-1)
    partition_max_bytes = f("int32", "0+", "Soft limit for this partition.")
    replica_directory_id = f("uuid", "17+", "Log directory of the replica. KIP-853.", tag=0)
    high_watermark = f(
        "int64",
        "18+",
        "High watermark the follower knows. KIP-1166.",
        default=0x7FFFFFFFFFFFFFFF,
        tag=1,
    )


class FetchTopic(Struct):
    topic = f("string", "0-12", "Topic name.")
    topic_id = f("uuid", "13+", "Topic id.")
    partitions = f([FetchPartition], "0+", "By partition.")


class ForgottenTopic(Struct):
    topic = f("string", "7-12", "Topic name.")
    topic_id = f("uuid", "13+", "Topic id.")
    partitions = f(["int32"], "7+", "Partition numbers.")


class FetchRequest(Message, Request["FetchResponse"], key=1, valid="4-18", flexible="12+"):
    cluster_id = f(
        "string", "12+", "Cluster id; null when not known.", default=None, nullable="12+", tag=0
    )
    replica_id = f("int32", "0-14", "Node id of the follower; -1 for a consumer.", default=-1)
    replica_state = f(ReplicaState, "15+", "Who fetches, as a follower.", tag=1)
    max_wait_ms = f("int32", "0+", "Longest wait for `min_bytes`.")
    min_bytes = f("int32", "0+", "Answer when there are so many bytes.")
    max_bytes = f("int32", "3+", "Soft limit of the response. KIP-74.", default=0x7FFFFFFF)
    isolation_level = f("int8", "4+", "0 reads everything, 1 committed transactions alone.")
    session_id = f("int32", "7+", "Fetch session; 0 for none. KIP-227.")
    session_epoch = f(
        "int32", "7+", "Epoch of the fetch session; -1 without a session.", default=-1
    )
    topics = f([FetchTopic], "0+", "By topic.")
    forgotten_topics_data = f([ForgottenTopic], "7+", "Partitions to drop from the session.")
    rack_id = f("string", "11+", "Rack of the consumer.")


class EpochEndOffset(Struct):
    epoch = f("int32", "12+", "Leader epoch.", default=-1)
    end_offset = f("int64", "12+", "Offset after the last record.", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id = f("int32", "12+", "Node id of the leader; -1 when unknown.", default=-1)
    leader_epoch = f("int32", "12+", "Leader epoch; -1 when unknown.", default=-1)


class SnapshotId(Struct):
    end_offset = f("int64", "0+", "Offset after the last record.", default=-1)
    epoch = f("int32", "0+", "Leader epoch.", default=-1)


class AbortedTransaction(Struct):
    producer_id = f("int64", "4+", "Producer id; -1 for none.")
    first_offset = f("int64", "4+", "First offset of the aborted transaction.")


class FetchablePartitionResponse(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")
    high_watermark = f("int64", "0+", "High watermark.")
    last_stable_offset = f("int64", "4+", "The last stable offset.", default=-1)
    log_start_offset = f("int64", "5+", "The log start offset.", default=-1)
    diverging_epoch = f(
        EpochEndOffset, "12+", "Where the follower's log diverges from the leader's.", tag=0
    )
    current_leader = f(LeaderIdAndEpoch, "12+", "The current leader.", tag=1)
    snapshot_id = f(SnapshotId, "12+", "Snapshot to load instead.", tag=2)
    aborted_transactions = f(
        [AbortedTransaction],
        "4+",
        "Transactions whose records must be skipped; null when reading uncommitted.",
        nullable="4+",
    )
    preferred_read_replica = f(
        "int32", "11+", "Node to read from instead; -1 for this one. KIP-392.", default=-1
    )
    records = f("records", "0+", "Complete record batches.", nullable="0+")


class FetchableTopicResponse(Struct):
    topic = f("string", "0-12", "Topic name.")
    topic_id = f("uuid", "13+", "Topic id.")
    partitions = f([FetchablePartitionResponse], "0+", "By partition.")


class NodeEndpoint(Struct):
    node_id = f("int32", "16+", "Node id.")
    host = f("string", "16+", "Host name or address.")
    port = f("int32", "16+", "TCP port.")
    rack = f(
        "string", "16+", "Rack of the node; null when not configured.", default=None, nullable="16+"
    )


class FetchResponse(Message, key=1, valid="4-18", flexible="12+"):
    throttle_time_ms = f("int32", "1+", "How long the client must wait because of its quota.")
    error_code = f("int16", "7+", "0, or why it failed.")
    session_id = f("int32", "7+", "Fetch session; 0 for none. KIP-227.")
    responses = f([FetchableTopicResponse], "0+", "One result per topic.")
    node_endpoints = f([NodeEndpoint], "16+", "Addresses of the leaders named above.", tag=0)
