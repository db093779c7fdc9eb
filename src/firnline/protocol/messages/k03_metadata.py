"""Metadata: brokers, topics and the leaders of partitions. PURE.

Source: KIP-4, KIP-516.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class MetadataRequestTopic(Struct):
    topic_id = f("uuid", "10+", "Topic id.")
    name = f("string", "0+", "Topic name; null when asked by id.", nullable="10+")


class MetadataRequest(Message, Request["MetadataResponse"], key=3, valid="0-13", flexible="9+"):
    topics = f([MetadataRequestTopic], "0+", "Topics to describe; null for all.", nullable="1+")
    allow_auto_topic_creation = f(
        "bool", "4+", "Whether the broker may create missing topics.", default=True
    )
    include_cluster_authorized_operations = f(
        "bool", "8-10", "Include the authorized operations of the cluster."
    )
    include_topic_authorized_operations = f(
        "bool", "8+", "Include the authorized operations of each topic."
    )


class MetadataResponseBroker(Struct):
    node_id = f("int32", "0+", "Node id.")
    host = f("string", "0+", "Host name or address.")
    port = f("int32", "0+", "TCP port.")
    rack = f(
        "string", "1+", "Rack of the node; null when not configured.", default=None, nullable="1+"
    )


class MetadataResponsePartition(Struct):
    error_code = f("int16", "0+", "0, or why it failed.")
    partition_index = f("int32", "0+", "Partition number.")
    leader_id = f("int32", "0+", "Node id of the leader; -1 when unknown.")
    leader_epoch = f("int32", "7+", "Leader epoch; -1 when unknown.", default=-1)
    replica_nodes = f(["int32"], "0+", "Node ids of all replicas, preferred first.")
    isr_nodes = f(["int32"], "0+", "Node ids of the in-sync replicas.")
    offline_replicas = f(["int32"], "5+", "Node ids of replicas that are down.")


class MetadataResponseTopic(Struct):
    error_code = f("int16", "0+", "0, or why it failed.")
    name = f("string", "0+", "Topic name; null for an unknown id.", nullable="12+")
    topic_id = f("uuid", "10+", "Topic id.")
    is_internal = f("bool", "1+", "Whether the topic is internal.")
    partitions = f([MetadataResponsePartition], "0+", "By partition.")
    topic_authorized_operations = f(
        "int32",
        "8+",
        "Bits of permitted operations; the minimum when not asked.",
        default=-0x80000000,
    )


class MetadataResponse(Message, key=3, valid="0-13", flexible="9+"):
    throttle_time_ms = f("int32", "3+", "How long the client must wait because of its quota.")
    brokers = f([MetadataResponseBroker], "0+", "Live brokers.")
    cluster_id = f("string", "2+", "Cluster id; null when not known.", default=None, nullable="2+")
    controller_id = f("int32", "1+", "Node id of the controller; -1 when unknown.", default=-1)
    topics = f([MetadataResponseTopic], "0+", "By topic.")
    cluster_authorized_operations = f(
        "int32",
        "8-10",
        "Bits of permitted operations; the minimum when not asked.",
        default=-0x80000000,
    )
    error_code = f("int16", "13+", "0, or why it failed.")
