"""DeleteRecords: move the log start offset. PURE.

Source: KIP-107.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class DeleteRecordsPartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    offset = f("int64", "0+", "Delete records below it; -1 for the high watermark.")


class DeleteRecordsTopic(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([DeleteRecordsPartition], "0+", "By partition.")


class DeleteRecordsRequest(
    Message, Request["DeleteRecordsResponse"], key=21, valid="0-2", flexible="2+"
):
    topics = f([DeleteRecordsTopic], "0+", "By topic.")
    timeout_ms = f("int32", "0+", "How long the broker may take.")


class DeleteRecordsPartitionResult(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    low_watermark = f("int64", "0+", "The new log start offset; -1 on error.")
    error_code = f("int16", "0+", "0, or why it failed.")


class DeleteRecordsTopicResult(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([DeleteRecordsPartitionResult], "0+", "By partition.")


class DeleteRecordsResponse(Message, key=21, valid="0-2", flexible="2+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    topics = f([DeleteRecordsTopicResult], "0+", "By topic.")
