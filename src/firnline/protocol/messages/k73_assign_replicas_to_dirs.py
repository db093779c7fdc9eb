"""AssignReplicasToDirs: a broker reports the directories of its replicas. PURE.

Source: KIP-858.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class AssignedPartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")


class AssignedTopic(Struct):
    topic_id = f("uuid", "0+", "Topic id.")
    partitions = f([AssignedPartition], "0+", "Partitions in that directory.")


class AssignedDirectory(Struct):
    id = f("uuid", "0+", "Directory id.")
    topics = f([AssignedTopic], "0+", "By topic.")


class AssignReplicasToDirsRequest(
    Message, Request["AssignReplicasToDirsResponse"], key=73, valid="0", flexible="0+"
):
    broker_id = f("int32", "0+", "Node id of the broker.")
    broker_epoch = f("int64", "0+", "Broker epoch; -1 when unknown.", default=-1)
    directories = f([AssignedDirectory], "0+", "By directory.")


class AssignedPartitionResult(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")


class AssignedTopicResult(Struct):
    topic_id = f("uuid", "0+", "Topic id.")
    partitions = f([AssignedPartitionResult], "0+", "By partition.")


class AssignedDirectoryResult(Struct):
    id = f("uuid", "0+", "Directory id.")
    topics = f([AssignedTopicResult], "0+", "By topic.")


class AssignReplicasToDirsResponse(Message, key=73, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    directories = f([AssignedDirectoryResult], "0+", "By directory.")
