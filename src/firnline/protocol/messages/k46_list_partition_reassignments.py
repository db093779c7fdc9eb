"""ListPartitionReassignments: which partitions are on the move. PURE.

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
        [ListedTopic], "0+", "What to look at; null for everything.", default=None, nullable="0+"
    )


class MovingPartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    replicas = f(["int32"], "0+", "All replicas, those on their way out too.")
    adding_replicas = f(["int32"], "0+", "Replicas on their way in.")
    removing_replicas = f(["int32"], "0+", "Replicas on their way out.")


class MovingTopic(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([MovingPartition], "0+", "By partition.")


class ListPartitionReassignmentsResponse(Message, key=46, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "Time the client is asked to wait for its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "0+", "The failure in words; null without one.", nullable="0+")
    topics = f([MovingTopic], "0+", "By topic.")
