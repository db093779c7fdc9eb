"""OffsetFetch: how far a group has read; several groups from version 8. PURE.

Source: KIP-447, KIP-709.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class OffsetFetchRequestTopic(Struct):
    name = f("string", "0-7", "Topic name.")
    partition_indexes = f(["int32"], "0-7", "Partition numbers.")


class OffsetFetchRequestGroupTopic(Struct):
    name = f("string", "8-9", "Topic name.")
    topic_id = f("uuid", "10+", "Topic id.")
    partition_indexes = f(["int32"], "8+", "Partition numbers.")


class OffsetFetchRequestGroup(Struct):
    group_id = f("string", "8+", "Group id.")
    member_id = f("string", "9+", "Member id.", default=None, nullable="9+")
    member_epoch = f("int32", "9+", "Member epoch; -1 in the classic protocol.", default=-1)
    topics = f(
        [OffsetFetchRequestGroupTopic], "8+", "Partitions wanted; null for all.", nullable="8+"
    )


class OffsetFetchRequest(
    Message, Request["OffsetFetchResponse"], key=9, valid="1-10", flexible="6+"
):
    group_id = f("string", "0-7", "Group id.")
    topics = f([OffsetFetchRequestTopic], "0-7", "Partitions wanted; null for all.", nullable="2-7")
    groups = f([OffsetFetchRequestGroup], "8+", "Groups to read.")
    require_stable = f("bool", "7+", "Return an error for offsets with a pending transaction.")


class OffsetFetchResponsePartition(Struct):
    partition_index = f("int32", "0-7", "Partition number.")
    committed_offset = f("int64", "0-7", "Next offset to read.")
    committed_leader_epoch = f(
        "int32", "5-7", "Epoch of the last record read; -1 when unknown.", default=-1
    )
    metadata = f("string", "0-7", "Text kept beside the offset.", nullable="0-7")
    error_code = f("int16", "0-7", "0, or why it failed.")


class OffsetFetchResponseTopic(Struct):
    name = f("string", "0-7", "Topic name.")
    partitions = f([OffsetFetchResponsePartition], "0-7", "By partition.")


class OffsetFetchResponseGroupPartition(Struct):
    partition_index = f("int32", "8+", "Partition number.")
    committed_offset = f("int64", "8+", "Next offset to read.")
    committed_leader_epoch = f(
        "int32", "8+", "Epoch of the last record read; -1 when unknown.", default=-1
    )
    metadata = f("string", "8+", "Text kept beside the offset.", nullable="8+")
    error_code = f("int16", "8+", "0, or why it failed.")


class OffsetFetchResponseGroupTopic(Struct):
    name = f("string", "8-9", "Topic name.")
    topic_id = f("uuid", "10+", "Topic id.")
    partitions = f([OffsetFetchResponseGroupPartition], "8+", "By partition.")


class OffsetFetchResponseGroup(Struct):
    group_id = f("string", "8+", "Group id.")
    topics = f([OffsetFetchResponseGroupTopic], "8+", "By topic.")
    error_code = f("int16", "8+", "0, or why it failed.")


class OffsetFetchResponse(Message, key=9, valid="1-10", flexible="6+"):
    throttle_time_ms = f("int32", "3+", "How long the client must wait because of its quota.")
    topics = f([OffsetFetchResponseTopic], "0-7", "By topic.")
    error_code = f("int16", "2-7", "0, or why it failed.")
    groups = f([OffsetFetchResponseGroup], "8+", "By group.")
