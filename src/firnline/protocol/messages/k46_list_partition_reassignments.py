"""ListPartitionReassignments: partitions that are being moved. PURE.

Source: KIP-455.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class ListedTopic(Struct):
    name = f("string", "0+", "Topic name.")
    partition_indexes = f(["int32"], "0+", "Partition numbers.")


class ListPartitionReassignmentsRequest(
    Message, Request["ListPartitionReassignmentsResponse"], key=46, valid="0", flexible="0+"
):
    timeout_ms = f("int32", "0+", "How long the broker may take.", default=60000)
    topics = f(
        [ListedTopic], "0+", "Topics to describe; null for all.", default=None, nullable="0+"
    )


class MovingPartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    replicas = f(["int32"], "0+", "All replicas, including those being removed.")
    adding_replicas = f(["int32"], "0+", "Replicas being added.")
    removing_replicas = f(["int32"], "0+", "Replicas being removed.")


class MovingTopic(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([MovingPartition], "0+", "By partition.")


class ListPartitionReassignmentsResponse(Message, key=46, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "0+", "Error message; null without an error.", nullable="0+")
    topics = f([MovingTopic], "0+", "By topic.")
