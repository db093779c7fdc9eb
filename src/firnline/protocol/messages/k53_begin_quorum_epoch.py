"""BeginQuorumEpoch: a new metadata leader makes itself known. PURE.

Source: KIP-595, KIP-853.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class BeginQuorumEpochPartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    voter_directory_id = f("uuid", "1+", "Metadata log directory of the voter. KIP-853.")
    leader_id = f("int32", "0+", "Node id of the leader; -1 when unknown.")
    leader_epoch = f("int32", "0+", "Leader epoch; -1 when unknown.")


class BeginQuorumEpochTopic(Struct):
    topic_name = f("string", "0+", "Topic name.")
    partitions = f([BeginQuorumEpochPartition], "0+", "By partition.")


class LeaderEndpoint(Struct):
    name = f("string", "1+", "Listener name.")
    host = f("string", "1+", "Host name or address.")
    port = f("uint16", "1+", "TCP port.")


class BeginQuorumEpochRequest(
    Message, Request["BeginQuorumEpochResponse"], key=53, valid="0-1", flexible="1+"
):
    cluster_id = f("string", "0+", "Cluster id; null when not known.", default=None, nullable="0+")
    voter_id = f("int32", "1+", "Node id of the voter.", default=-1)
    topics = f([BeginQuorumEpochTopic], "0+", "By topic.")
    leader_endpoints = f([LeaderEndpoint], "1+", "Addresses of the leader.")


class BeginQuorumEpochPartitionResult(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")
    leader_id = f("int32", "0+", "Node id of the leader; -1 when unknown.")
    leader_epoch = f("int32", "0+", "Leader epoch; -1 when unknown.")


class BeginQuorumEpochTopicResult(Struct):
    topic_name = f("string", "0+", "Topic name.")
    partitions = f([BeginQuorumEpochPartitionResult], "0+", "By partition.")


class NodeEndpoint(Struct):
    node_id = f("int32", "1+", "Node id.")
    host = f("string", "1+", "Host name or address.")
    port = f("uint16", "1+", "TCP port.")


class BeginQuorumEpochResponse(Message, key=53, valid="0-1", flexible="1+"):
    error_code = f("int16", "0+", "0, or why it failed.")
    topics = f([BeginQuorumEpochTopicResult], "0+", "By topic.")
    node_endpoints = f([NodeEndpoint], "1+", "Addresses of the leaders named above.", tag=0)
