"""DescribeQuorum: state of the metadata quorum. PURE.

Source: KIP-595, KIP-836, KIP-853.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class DescribeQuorumPartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")


class DescribeQuorumTopic(Struct):
    topic_name = f("string", "0+", "Topic name.")
    partitions = f([DescribeQuorumPartition], "0+", "By partition.")


class DescribeQuorumRequest(
    Message, Request["DescribeQuorumResponse"], key=55, valid="0-2", flexible="0+"
):
    topics = f([DescribeQuorumTopic], "0+", "By topic.")


class QuorumReplicaState(Struct):
    replica_id = f("int32", "0+", "Node id of the replica.")
    replica_directory_id = f("uuid", "2+", "Log directory of the replica. KIP-853.")
    log_end_offset = f("int64", "0+", "Last offset known of it.")
    last_fetch_timestamp = f(
        "int64", "1+", "Its last fetch, by the leader's clock, ms; -1 when unknown.", default=-1
    )
    last_caught_up_timestamp = f(
        "int64",
        "1+",
        "When it last had caught up, by the leader's clock, ms; -1 when unknown.",
        default=-1,
    )


class DescribeQuorumPartitionResult(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "2+", "Error message; null without an error.", nullable="2+")
    leader_id = f("int32", "0+", "Node id of the leader; -1 when unknown.")
    leader_epoch = f("int32", "0+", "Leader epoch; -1 when unknown.")
    high_watermark = f("int64", "0+", "High watermark.")
    current_voters = f([QuorumReplicaState], "0+", "State of the voters.")
    observers = f([QuorumReplicaState], "0+", "State of the observers.")


class DescribeQuorumTopicResult(Struct):
    topic_name = f("string", "0+", "Topic name.")
    partitions = f([DescribeQuorumPartitionResult], "0+", "By partition.")


class QuorumListener(Struct):
    name = f("string", "2+", "Listener name.")
    host = f("string", "2+", "Host name or address.")
    port = f("uint16", "2+", "TCP port.")


class QuorumNode(Struct):
    node_id = f("int32", "2+", "Node id.")
    listeners = f([QuorumListener], "2+", "Addresses by listener.")


class DescribeQuorumResponse(Message, key=55, valid="0-2", flexible="0+"):
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "2+", "Error message; null without an error.", nullable="2+")
    topics = f([DescribeQuorumTopicResult], "0+", "By topic.")
    nodes = f([QuorumNode], "2+", "Addresses of the voters.")
