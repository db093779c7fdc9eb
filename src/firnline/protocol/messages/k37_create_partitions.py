"""CreatePartitions: more partitions for topics. PURE.

Source: KIP-195.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class CreatePartitionsAssignment(Struct):
    broker_ids = f(["int32"], "0+", "Node ids of the replicas, preferred first.")


class CreatePartitionsTopic(Struct):
    name = f("string", "0+", "Topic name.")
    count = f("int32", "0+", "Total count of partitions wanted.")
    assignments = f(
        [CreatePartitionsAssignment],
        "0+",
        "Replicas of the new partitions; null lets the broker choose.",
        nullable="0+",
    )


class CreatePartitionsRequest(
    Message, Request["CreatePartitionsResponse"], key=37, valid="0-3", flexible="2+"
):
    topics = f([CreatePartitionsTopic], "0+", "By topic.")
    timeout_ms = f("int32", "0+", "How long the broker may take.")
    validate_only = f("bool", "0+", "Only check; change nothing.")


class CreatePartitionsTopicResult(Struct):
    name = f("string", "0+", "Topic name.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f(
        "string", "0+", "Error message; null without an error.", default=None, nullable="0+"
    )


class CreatePartitionsResponse(Message, key=37, valid="0-3", flexible="2+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    results = f([CreatePartitionsTopicResult], "0+", "One result per item in the request.")
