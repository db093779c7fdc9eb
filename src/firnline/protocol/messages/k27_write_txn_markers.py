"""WriteTxnMarkers: end a transaction in the partitions it wrote to. PURE.

Source: KIP-98.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class WritableTxnMarkerTopic(Struct):
    name = f("string", "0+", "Topic name.")
    partition_indexes = f(["int32"], "0+", "Partition numbers.")


class WritableTxnMarker(Struct):
    producer_id = f("int64", "0+", "Producer id; -1 for none.")
    producer_epoch = f("int16", "0+", "Producer epoch; -1 for none.")
    transaction_result = f("bool", "0+", "True to commit, false to abort.")
    topics = f([WritableTxnMarkerTopic], "0+", "By topic.")
    coordinator_epoch = f("int32", "0+", "Epoch of the transaction coordinator.")
    transaction_version = f("int8", "2+", "Transaction protocol of the producer. KIP-1228.")


class WriteTxnMarkersRequest(
    Message, Request["WriteTxnMarkersResponse"], key=27, valid="1-2", flexible="1+"
):
    markers = f([WritableTxnMarker], "0+", "By transaction.")


class WritableTxnMarkerPartitionResult(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")


class WritableTxnMarkerTopicResult(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([WritableTxnMarkerPartitionResult], "0+", "By partition.")


class WritableTxnMarkerResult(Struct):
    producer_id = f("int64", "0+", "Producer id; -1 for none.")
    topics = f([WritableTxnMarkerTopicResult], "0+", "By topic.")


class WriteTxnMarkersResponse(Message, key=27, valid="1-2", flexible="1+"):
    markers = f([WritableTxnMarkerResult], "0+", "By transaction.")
