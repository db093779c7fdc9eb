"""OffsetCommit: remember how far a group has read. PURE.

Source: KIP-211, KIP-320, KIP-848.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class OffsetCommitRequestPartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    committed_offset = f("int64", "0+", "Next offset to read.")
    committed_leader_epoch = f(
        "int32", "6+", "Epoch of the last record read; -1 when unknown.", default=-1
    )
    committed_metadata = f(
        "string", "0+", "Text the client keeps beside the offset.", nullable="0+"
    )


class OffsetCommitRequestTopic(Struct):
    name = f("string", "0-9", "Topic name.")
    topic_id = f("uuid", "10+", "Topic id.")
    partitions = f([OffsetCommitRequestPartition], "0+", "By partition.")


class OffsetCommitRequest(
    Message, Request["OffsetCommitResponse"], key=8, valid="2-10", flexible="8+"
):
    group_id = f("string", "0+", "Group id.")
    generation_id_or_member_epoch = f(
        "int32",
        "1+",
        "Generation, or member epoch in the newer protocol; -1 outside a group.",
        default=-1,
    )
    member_id = f("string", "1+", "Member id.")
    group_instance_id = f(
        "string", "7+", "Static member's id; null for a dynamic one.", default=None, nullable="7+"
    )
    retention_time_ms = f(
        "int64", "2-4", "How long to keep the offset; -1 for the broker's setting.", default=-1
    )
    topics = f([OffsetCommitRequestTopic], "0+", "By topic.")


class OffsetCommitResponsePartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")


class OffsetCommitResponseTopic(Struct):
    name = f("string", "0-9", "Topic name.")
    topic_id = f("uuid", "10+", "Topic id.")
    partitions = f([OffsetCommitResponsePartition], "0+", "By partition.")


class OffsetCommitResponse(Message, key=8, valid="2-10", flexible="8+"):
    throttle_time_ms = f("int32", "3+", "How long the client must wait because of its quota.")
    topics = f([OffsetCommitResponseTopic], "0+", "By topic.")
