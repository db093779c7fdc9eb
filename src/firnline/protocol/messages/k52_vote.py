"""Vote: a candidate asks for a vote. PURE.

Source: KIP-595, KIP-853, KIP-996.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class VotePartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    replica_epoch = f("int32", "0+", "Epoch of the candidate.")
    replica_id = f("int32", "0+", "Node id of the candidate.")
    replica_directory_id = f("uuid", "1+", "Metadata log directory of the candidate.")
    voter_directory_id = f("uuid", "1+", "Metadata log directory of the voter. KIP-853.")
    last_offset_epoch = f("int32", "0+", "Epoch of the candidate's last record.")
    last_offset = f("int64", "0+", "End of the candidate's log.")
    pre_vote = f("bool", "2+", "A pre-vote: only asks whether it would get the vote. KIP-996.")


class VoteTopic(Struct):
    topic_name = f("string", "0+", "Topic name.")
    partitions = f([VotePartition], "0+", "By partition.")


class VoteRequest(Message, Request["VoteResponse"], key=52, valid="0-2", flexible="0+"):
    cluster_id = f("string", "0+", "Cluster id; null when not known.", default=None, nullable="0+")
    voter_id = f("int32", "1+", "Node id of the voter.", default=-1)
    topics = f([VoteTopic], "0+", "By topic.")


class VotePartitionResult(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")
    leader_id = f("int32", "0+", "Node id of the leader; -1 when unknown.")
    leader_epoch = f("int32", "0+", "Leader epoch; -1 when unknown.")
    vote_granted = f("bool", "0+", "Whether the vote is granted.")


class VoteTopicResult(Struct):
    topic_name = f("string", "0+", "Topic name.")
    partitions = f([VotePartitionResult], "0+", "By partition.")


class NodeEndpoint(Struct):
    node_id = f("int32", "1+", "Node id.")
    host = f("string", "1+", "Host name or address.")
    port = f("uint16", "1+", "TCP port.")


class VoteResponse(Message, key=52, valid="0-2", flexible="0+"):
    error_code = f("int16", "0+", "0, or why it failed.")
    topics = f([VoteTopicResult], "0+", "By topic.")
    node_endpoints = f([NodeEndpoint], "1+", "Addresses of the leaders named above.", tag=0)
