"""OffsetDelete: forget committed offsets of a group. PURE.

Source: KIP-496.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class OffsetDeleteRequestPartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")


class OffsetDeleteRequestTopic(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([OffsetDeleteRequestPartition], "0+", "By partition.")


class OffsetDeleteRequest(
    Message, Request["OffsetDeleteResponse"], key=47, valid="0", flexible="none"
):
    group_id = f("string", "0+", "Group id.")
    topics = f([OffsetDeleteRequestTopic], "0+", "By topic.")


class OffsetDeleteResponsePartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")


class OffsetDeleteResponseTopic(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([OffsetDeleteResponsePartition], "0+", "By partition.")


class OffsetDeleteResponse(Message, key=47, valid="0", flexible="none"):
    error_code = f("int16", "0+", "0, or why it failed.")
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    topics = f([OffsetDeleteResponseTopic], "0+", "By topic.")
