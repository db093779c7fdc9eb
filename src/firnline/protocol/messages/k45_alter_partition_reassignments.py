"""AlterPartitionReassignments: move partitions to other brokers, or cancel a move. PURE.

Source: KIP-455, KIP-860.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class ReassignablePartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    replicas = f(
        ["int32"],
        "0+",
        "The new replicas, preferred first; null cancels the reassignment.",
        default=None,
        nullable="0+",
    )


class ReassignableTopic(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([ReassignablePartition], "0+", "By partition.")


class AlterPartitionReassignmentsRequest(
    Message, Request["AlterPartitionReassignmentsResponse"], key=45, valid="0-1", flexible="0+"
):
    timeout_ms = f("int32", "0+", "How long the broker may take.", default=60000)
    allow_replication_factor_change = f(
        "bool", "1+", "Whether the replication factor may change.", default=True
    )
    topics = f([ReassignableTopic], "0+", "By topic.")


class ReassignedPartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "0+", "Error message; null without an error.", nullable="0+")


class ReassignedTopic(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([ReassignedPartition], "0+", "By partition.")


class AlterPartitionReassignmentsResponse(Message, key=45, valid="0-1", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    allow_replication_factor_change = f("bool", "1+", "As in the request.", default=True)
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "0+", "Error message; null without an error.", nullable="0+")
    responses = f([ReassignedTopic], "0+", "By topic.")
