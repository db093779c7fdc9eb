"""DescribeProducers: the producer state of a partition. PURE.

Source: KIP-664.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class DescribeProducersTopic(Struct):
    name = f("string", "0+", "Topic name.")
    partition_indexes = f(["int32"], "0+", "Partition numbers.")


class DescribeProducersRequest(
    Message, Request["DescribeProducersResponse"], key=61, valid="0", flexible="0+"
):
    topics = f([DescribeProducersTopic], "0+", "Partitions to describe.")


class ProducerState(Struct):
    producer_id = f("int64", "0+", "Producer id; -1 for none.")
    producer_epoch = f("int32", "0+", "Producer epoch; -1 for none.")
    last_sequence = f("int32", "0+", "Sequence of its last record; -1 for none.", default=-1)
    last_timestamp = f("int64", "0+", "Time of its last record; -1 for none.", default=-1)
    coordinator_epoch = f("int32", "0+", "Epoch of the transaction coordinator.")
    current_txn_start_offset = f(
        "int64", "0+", "First offset of its open transaction; -1 for none.", default=-1
    )


class DescribeProducersPartitionResult(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f(
        "string", "0+", "Error message; null without an error.", default=None, nullable="0+"
    )
    active_producers = f([ProducerState], "0+", "Producers with state in the partition.")


class DescribeProducersTopicResult(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([DescribeProducersPartitionResult], "0+", "By partition.")


class DescribeProducersResponse(Message, key=61, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    topics = f([DescribeProducersTopicResult], "0+", "By topic.")
