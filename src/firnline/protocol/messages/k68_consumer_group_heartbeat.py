"""ConsumerGroupHeartbeat: a member of a group of the consumer protocol joins, is alive, or leaves. PURE.

Source: KIP-848; KIP-1082 (version 1: the member makes its own id).
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class ConsumerGroupHeartbeatRequestTopicPartitions(Struct):
    topic_id = f("uuid", "0+", "Topic id.")
    partitions = f(["int32"], "0+", "Partition numbers.")


class ConsumerGroupHeartbeatRequest(
    Message, Request["ConsumerGroupHeartbeatResponse"], key=68, valid="0-1", flexible="0+"
):
    group_id = f("string", "0+", "Group id.")
    member_id = f("string", "0+", "Member id.")
    member_epoch = f("int32", "0+", "0 to join, -1 to leave, -2: a static member will be back.")
    instance_id = f(
        "string", "0+", "Static member's id; null if unchanged.", default=None, nullable="0+"
    )
    rack_id = f("string", "0+", "Rack; null if unchanged.", default=None, nullable="0+")
    rebalance_timeout_ms = f(
        "int32", "0+", "How long it may take to revoke partitions; -1 if unchanged.", default=-1
    )
    subscribed_topic_names = f(
        ["string"], "0+", "Subscribed topics; null if unchanged.", default=None, nullable="0+"
    )
    subscribed_topic_regex = f(
        "string", "1+", "Subscribed pattern; null if unchanged.", default=None, nullable="1+"
    )
    server_assignor = f(
        "string", "0+", "Assignor of the broker; null if unchanged.", default=None, nullable="0+"
    )
    topic_partitions = f(
        [ConsumerGroupHeartbeatRequestTopicPartitions],
        "0+",
        "Partitions that the member has; null if unchanged.",
        default=None,
        nullable="0+",
    )


class ConsumerGroupHeartbeatResponseTopicPartitions(Struct):
    topic_id = f("uuid", "0+", "Topic id.")
    partitions = f(["int32"], "0+", "Partition numbers.")


class Assignment(Struct):
    topic_partitions = f(
        [ConsumerGroupHeartbeatResponseTopicPartitions], "0+", "Partitions to use from now on."
    )


class ConsumerGroupHeartbeatResponse(Message, key=68, valid="0-1", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "0+", "Why; null if it succeeded.", default=None, nullable="0+")
    member_id = f("string", "0+", "Member id.", default=None, nullable="0+")
    member_epoch = f("int32", "0+", "Member epoch.")
    heartbeat_interval_ms = f("int32", "0+", "Time until the next heartbeat.")
    assignment = f(Assignment, "0+", "Null if unchanged.", default=None, nullable="0+")
