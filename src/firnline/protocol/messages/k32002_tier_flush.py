"""TierFlush: close the active segments and copy everything now. Only ours, never advertised. PURE.

Answered when everything written before the request is in the remote tier, or at the timeout.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class TierFlushTopic(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f(["int32"], "0+", "Partitions; empty for all that the broker leads.")


class TierFlushRequest(Message, Request["TierFlushResponse"], key=32002, valid="0", flexible="0+"):
    topics = f([TierFlushTopic], "0+", "What to copy.")
    timeout_ms = f("int32", "0+", "How long the broker may take.", default=60000)


class TierFlushPartitionResult(Struct):
    partition = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f(
        "string", "0+", "Error message; null without an error.", nullable="0+", default=None
    )
    log_end_offset = f("int64", "0+", "Log end when the request came.", default=-1)
    highest_remote_offset = f("int64", "0+", "Last offset in the remote tier.", default=-1)


class TierFlushTopicResult(Struct):
    name = f("string", "0+", "Topic name.")
    partitions = f([TierFlushPartitionResult], "0+", "By partition.")


class TierFlushResponse(Message, key=32002, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    topics = f([TierFlushTopicResult], "0+", "By topic.")
