"""Produce: append record batches. PURE.

Source: KIP-98; version 13 names topics by id, KIP-516.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class PartitionProduceData(Struct):
    index = f("int32", "0+", "Partition number.")
    records = f("records", "0+", "Complete record batches.", nullable="0+")


class TopicProduceData(Struct):
    name = f("string", "0-12", "Topic name.")
    topic_id = f("uuid", "13+", "Topic id.")
    partition_data = f([PartitionProduceData], "0+", "What to append, by partition.")


class ProduceRequest(Message, Request["ProduceResponse"], key=0, valid="3-13", flexible="9+"):
    transactional_id = f(
        "string", "3+", "Transactional id; null without transactions.", default=None, nullable="3+"
    )
    acks = f("int16", "0+", "Replicas that must have it: 0, 1 or -1 for all in sync.")
    timeout_ms = f("int32", "0+", "How long the broker may take.")
    topic_data = f([TopicProduceData], "0+", "What to append, by topic.")


class BatchIndexAndErrorMessage(Struct):
    batch_index = f("int32", "8+", "Index of the record in its batch, from 0.")
    batch_index_error_message = f(
        "string", "8+", "Why this record is refused.", default=None, nullable="8+"
    )


class LeaderIdAndEpoch(Struct):
    leader_id = f("int32", "10+", "Node id of the leader; -1 when unknown.", default=-1)
    leader_epoch = f("int32", "10+", "Leader epoch; -1 when unknown.", default=-1)


class PartitionProduceResponse(Struct):
    index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")
    base_offset = f("int64", "0+", "Offset of the first record; -1 on error.")
    log_append_time_ms = f(
        "int64", "2+", "Broker's time of the append; -1 with producer timestamps.", default=-1
    )
    log_start_offset = f("int64", "5+", "The log start offset.", default=-1)
    record_errors = f(
        [BatchIndexAndErrorMessage], "8+", "Records because of which the batch was refused."
    )
    error_message = f(
        "string", "8+", "Error message; null without an error.", default=None, nullable="8+"
    )
    current_leader = f(LeaderIdAndEpoch, "10+", "The current leader.", tag=0)


class TopicProduceResponse(Struct):
    name = f("string", "0-12", "Topic name.")
    topic_id = f("uuid", "13+", "Topic id.")
    partition_responses = f([PartitionProduceResponse], "0+", "One result per partition.")


class NodeEndpoint(Struct):
    node_id = f("int32", "10+", "Node id.")
    host = f("string", "10+", "Host name or address.")
    port = f("int32", "10+", "TCP port.")
    rack = f(
        "string", "10+", "Rack of the node; null when not configured.", default=None, nullable="10+"
    )


class ProduceResponse(Message, key=0, valid="3-13", flexible="9+"):
    responses = f([TopicProduceResponse], "0+", "One result per topic.")
    throttle_time_ms = f("int32", "1+", "How long the client must wait because of its quota.")
    node_endpoints = f([NodeEndpoint], "10+", "Addresses of the leaders named above.", tag=0)
