"""ListOffsets: find offsets by time, or at either end. PURE.

Source: KIP-79, KIP-734, KIP-405, KIP-1005.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class ListOffsetsPartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    current_leader_epoch = f(
        "int32", "4+", "Leader epoch the sender knows; -1 when unknown.", default=-1
    )
    timestamp = f("int64", "0+", "Timestamp to search, or a special value: -1 latest, -2 earliest.")


class ListOffsetsTopic(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([ListOffsetsPartition], "0+", "By partition.")


class ListOffsetsRequest(
    Message, Request["ListOffsetsResponse"], key=2, valid="1-11", flexible="6+"
):
    replica_id = f("int32", "0+", "Node id of the follower; -1 for a consumer.")
    isolation_level = f("int8", "2+", "0 reads everything, 1 committed transactions alone.")
    topics = f([ListOffsetsTopic], "0+", "By topic.")
    timeout_ms = f("int32", "10+", "How long the broker may take.")


class ListOffsetsPartitionResponse(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")
    timestamp = f("int64", "1+", "Timestamp of the record found; -1 for none.", default=-1)
    offset = f("int64", "1+", "Offset found; -1 for none.", default=-1)
    leader_epoch = f("int32", "4+", "Leader epoch; -1 when unknown.", default=-1)


class ListOffsetsTopicResponse(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([ListOffsetsPartitionResponse], "0+", "By partition.")


class ListOffsetsResponse(Message, key=2, valid="1-11", flexible="6+"):
    throttle_time_ms = f("int32", "2+", "How long the client must wait because of its quota.")
    topics = f([ListOffsetsTopicResponse], "0+", "By topic.")
