"""DescribeLogDirs: which replicas are in which directory of a broker, and how large. PURE.

Source: KIP-113, KIP-827 (bytes of the volume), KIP-1066 (cordoned directories).
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class DescribableLogDirTopic(Struct):
    topic = f("string", "0+", "Topic name.")
    partitions = f(["int32"], "0+", "Partition numbers.")


class DescribeLogDirsRequest(
    Message, Request["DescribeLogDirsResponse"], key=35, valid="1-5", flexible="2+"
):
    topics = f([DescribableLogDirTopic], "0+", "By topic; null for all.", nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    partition_size = f("int64", "0+", "Bytes of its segments.")
    offset_lag = f(
        "int64",
        "0+",
        "How far it lags: behind the high watermark, or behind the current replica during a move.",
    )
    is_future_key = f("bool", "0+", "Whether this is the future replica of a move.")


class DescribeLogDirsTopic(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([DescribeLogDirsPartition], "0+", "By partition.")


class DescribeLogDirsResult(Struct):
    error_code = f("int16", "0+", "0, or why it failed.")
    log_dir = f("string", "0+", "Absolute path of the directory.")
    topics = f([DescribeLogDirsTopic], "0+", "By topic.")
    total_bytes = f("int64", "4+", "Size of the volume, without the tier.", default=-1)
    usable_bytes = f("int64", "4+", "Usable bytes of the volume.", default=-1)
    is_cordoned = f("bool", "5+", "Whether it is cordoned: takes no new replicas.")


class DescribeLogDirsResponse(Message, key=35, valid="1-5", flexible="2+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "3+", "0, or why it failed.")
    results = f([DescribeLogDirsResult], "0+", "By directory.")
