"""DescribeTopicPartitions: topics page by page. PURE.

Source: KIP-966.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class DescribeTopicPartitionsTopic(Struct):
    name = f("string", "0+", "Topic name.")


class Cursor(Struct):
    topic_name = f("string", "0+", "Topic name.")
    partition_index = f("int32", "0+", "Partition number.")


class DescribeTopicPartitionsRequest(
    Message, Request["DescribeTopicPartitionsResponse"], key=75, valid="0", flexible="0+"
):
    topics = f([DescribeTopicPartitionsTopic], "0+", "Topics to describe; empty for all.")
    response_partition_limit = f(
        "int32", "0+", "Limit of partitions in the response.", default=2000
    )
    cursor = f(Cursor, "0+", "Where to begin; null for the start.", nullable="0+")


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code = f("int16", "0+", "0, or why it failed.")
    partition_index = f("int32", "0+", "Partition number.")
    leader_id = f("int32", "0+", "Node id of the leader; -1 when unknown.")
    leader_epoch = f("int32", "0+", "Leader epoch; -1 when unknown.", default=-1)
    replica_nodes = f(["int32"], "0+", "Node ids of all replicas, preferred first.")
    isr_nodes = f(["int32"], "0+", "Node ids of the in-sync replicas.")
    eligible_leader_replicas = f(
        ["int32"],
        "0+",
        "Replicas that may lead without loss. KIP-966.",
        default=None,
        nullable="0+",
    )
    last_known_elr = f(
        ["int32"],
        "0+",
        "The last known eligible leaders, if none is left. KIP-966.",
        default=None,
        nullable="0+",
    )
    offline_replicas = f(["int32"], "0+", "Node ids of replicas that are down.")


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code = f("int16", "0+", "0, or why it failed.")
    name = f("string", "0+", "Topic name.", nullable="0+")
    topic_id = f("uuid", "0+", "Topic id.")
    is_internal = f("bool", "0+", "Whether the topic is internal.")
    partitions = f([DescribeTopicPartitionsResponsePartition], "0+", "By partition.")
    topic_authorized_operations = f(
        "int32",
        "0+",
        "Bits of permitted operations; the minimum when not asked.",
        default=-0x80000000,
    )


class DescribeTopicPartitionsResponse(Message, key=75, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    topics = f([DescribeTopicPartitionsResponseTopic], "0+", "Topics found.")
    next_cursor = f(Cursor, "0+", "Where to go on; null at the end.", nullable="0+")
