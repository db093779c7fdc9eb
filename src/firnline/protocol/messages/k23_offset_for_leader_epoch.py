"""OffsetForLeaderEpoch: where a leader epoch ends. PURE.

Source: KIP-101, KIP-320.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class OffsetForLeaderPartition(Struct):
    partition = f("int32", "0+", "Partition number.")
    current_leader_epoch = f(
        "int32", "2+", "Leader epoch the sender knows; -1 when unknown.", default=-1
    )
    leader_epoch = f("int32", "0+", "Leader epoch; -1 when unknown.")


class OffsetForLeaderTopic(Struct):
    topic = f("string", "0+", "Topic name.")
    partitions = f([OffsetForLeaderPartition], "0+", "By partition.")


class OffsetForLeaderEpochRequest(
    Message, Request["OffsetForLeaderEpochResponse"], key=23, valid="2-4", flexible="4+"
):
    replica_id = f("int32", "3+", "Node id of the follower; -1 for a consumer.", default=-2)
    topics = f([OffsetForLeaderTopic], "0+", "By topic.")


class EpochEndOffset(Struct):
    error_code = f("int16", "0+", "0, or why it failed.")
    partition = f("int32", "0+", "Partition number.")
    leader_epoch = f("int32", "1+", "Leader epoch; -1 when unknown.", default=-1)
    end_offset = f("int64", "0+", "Offset after the last record.", default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic = f("string", "0+", "Topic name.")
    partitions = f([EpochEndOffset], "0+", "By partition.")


class OffsetForLeaderEpochResponse(Message, key=23, valid="2-4", flexible="4+"):
    throttle_time_ms = f("int32", "2+", "How long the client must wait because of its quota.")
    topics = f([OffsetForLeaderTopicResult], "0+", "By topic.")
