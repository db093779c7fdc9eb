"""EndQuorumEpoch: a metadata leader steps down. PURE.

Source: KIP-595, KIP-853.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class PreferredCandidate(Struct):
    candidate_id = f("int32", "1+", "Node id of the candidate.")
    candidate_directory_id = f("uuid", "1+", "Metadata log directory of the candidate.")


class EndQuorumEpochPartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    leader_id = f("int32", "0+", "Node id of the leader; -1 when unknown.")
    leader_epoch = f("int32", "0+", "Leader epoch; -1 when unknown.")
    preferred_successors = f(["int32"], "0", "Node ids, the next leader first.")
    preferred_candidates = f([PreferredCandidate], "1+", "Replicas, the next leader first.")


class EndQuorumEpochTopic(Struct):
    topic_name = f("string", "0+", "Topic name.")
    partitions = f([EndQuorumEpochPartition], "0+", "By partition.")


class LeaderEndpoint(Struct):
    name = f("string", "1+", "Listener name.")
    host = f("string", "1+", "Host name or address.")
    port = f("uint16", "1+", "TCP port.")


class EndQuorumEpochRequest(
    Message, Request["EndQuorumEpochResponse"], key=54, valid="0-1", flexible="1+"
):
    cluster_id = f("string", "0+", "Cluster id; null when not known.", default=None, nullable="0+")
    topics = f([EndQuorumEpochTopic], "0+", "By topic.")
    leader_endpoints = f([LeaderEndpoint], "1+", "Addresses of the leader.")


class EndQuorumEpochPartitionResult(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")
    leader_id = f("int32", "0+", "Node id of the leader; -1 when unknown.")
    leader_epoch = f("int32", "0+", "Leader epoch; -1 when unknown.")


class EndQuorumEpochTopicResult(Struct):
    topic_name = f("string", "0+", "Topic name.")
    partitions = f([EndQuorumEpochPartitionResult], "0+", "By partition.")


class NodeEndpoint(Struct):
    node_id = f("int32", "1+", "Node id.")
    host = f("string", "1+", "Host name or address.")
    port = f("uint16", "1+", "TCP port.")


class EndQuorumEpochResponse(Message, key=54, valid="0-1", flexible="1+"):
    error_code = f("int16", "0+", "0, or why it failed.")
    topics = f([EndQuorumEpochTopicResult], "0+", "By topic.")
    node_endpoints = f([NodeEndpoint], "1+", "Addresses of the leaders named above.", tag=0)
