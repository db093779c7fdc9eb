"""AlterReplicaLogDirs: move replicas to other directories of a broker. PURE. Source: KIP-113."""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class AlterReplicaLogDirTopic(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f(["int32"], "0+", "Partition numbers.")


class AlterReplicaLogDir(Struct):
    path = f("string", "0+", "Absolute path of the directory.")
    topics = f([AlterReplicaLogDirTopic], "0+", "The replicas it should have.")


class AlterReplicaLogDirsRequest(
    Message, Request["AlterReplicaLogDirsResponse"], key=34, valid="1-2", flexible="2+"
):
    dirs = f([AlterReplicaLogDir], "0+", "By directory.")


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")


class AlterReplicaLogDirTopicResult(Struct):
    topic_name = f("string", "0+", "Topic name.")
    partitions = f([AlterReplicaLogDirPartitionResult], "0+", "By partition.")


class AlterReplicaLogDirsResponse(Message, key=34, valid="1-2", flexible="2+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    results = f([AlterReplicaLogDirTopicResult], "0+", "By topic.")
