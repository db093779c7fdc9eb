"""CreateTopics: create topics. PURE.

Source: KIP-4, KIP-525, KIP-516.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class CreatableReplicaAssignment(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    broker_ids = f(["int32"], "0+", "Node ids of the replicas, preferred first.")


class CreatableTopicConfig(Struct):
    name = f("string", "0+", "Configuration key.")
    value = f("string", "0+", "Setting; null when secret or unset.", nullable="0+")


class CreatableTopic(Struct):
    name = f("string", "0+", "Topic name.")
    num_partitions = f(
        "int32", "0+", "Count of partitions; -1 for the broker's setting or the assignment's."
    )
    replication_factor = f(
        "int16", "0+", "Count of replicas; -1 for the broker's setting or the assignment's."
    )
    assignments = f(
        [CreatableReplicaAssignment], "0+", "Replicas by partition; empty lets the broker choose."
    )
    configs = f([CreatableTopicConfig], "0+", "Settings that differ from the broker's.")


class CreateTopicsRequest(
    Message, Request["CreateTopicsResponse"], key=19, valid="2-7", flexible="5+"
):
    topics = f([CreatableTopic], "0+", "By topic.")
    timeout_ms = f("int32", "0+", "How long the broker may take.", default=60000)
    validate_only = f("bool", "1+", "Only check; change nothing.")


class CreatableTopicResultConfig(Struct):
    name = f("string", "5+", "Configuration key.")
    value = f("string", "5+", "Setting; null when secret or unset.", nullable="5+")
    read_only = f("bool", "5+", "Cannot be changed at run time.")
    config_source = f("int8", "5+", "Where the setting comes from.", default=-1)
    is_sensitive = f("bool", "5+", "Whether it is secret.")


class CreatableTopicResult(Struct):
    name = f("string", "0+", "Topic name.")
    topic_id = f("uuid", "7+", "Topic id.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "1+", "Error message; null without an error.", nullable="0+")
    topic_config_error_code = f("int16", "5+", "0, or why the settings are not shown.", tag=0)
    num_partitions = f("int32", "5+", "Count of partitions.", default=-1)
    replication_factor = f("int16", "5+", "Count of replicas.", default=-1)
    configs = f([CreatableTopicResultConfig], "5+", "Settings of the new topic.", nullable="5+")


class CreateTopicsResponse(Message, key=19, valid="2-7", flexible="5+"):
    throttle_time_ms = f("int32", "2+", "How long the client must wait because of its quota.")
    topics = f([CreatableTopicResult], "0+", "By topic.")
