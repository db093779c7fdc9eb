"""TierStatus: which offsets of each partition are in which tier. Only ours, never advertised. PURE.

Answered by the leader of each partition for the partitions it leads. Offsets are -1 where there is none.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class TierStatusRequest(
    Message, Request["TierStatusResponse"], key=32001, valid="0", flexible="0+"
):
    topics = f(["string"], "0+", "Topics to describe; null for all that are tiered.", nullable="0+")


class TierStatusPartition(Struct):
    partition = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")
    log_start_offset = f("int64", "0+", "First offset that can be read.", default=-1)
    local_log_start_offset = f("int64", "0+", "First offset on the broker's disk.", default=-1)
    log_end_offset = f("int64", "0+", "Offset after the last record.", default=-1)
    highest_remote_offset = f("int64", "0+", "Last offset in the remote tier.", default=-1)
    local_segments = f("int32", "0+", "Count of segments on the broker's disk.")
    local_bytes = f("int64", "0+", "Their size in bytes.")
    remote_segments = f("int32", "0+", "Count of segments in the remote tier.")
    remote_bytes = f("int64", "0+", "Their size in bytes.")
    waiting_segments = f("int32", "0+", "Count of closed segments that are not copied yet.")
    waiting_bytes = f("int64", "0+", "Their size in bytes.")
    waiting_ms = f(
        "int64",
        "0+",
        "How long ago the newest record of the oldest waiting segment was written; -1: nothing waits.",
        default=-1,
    )
    state = f("string", "0+", "Idle, copying, failing, loading or off.")
    problem = f(
        "string",
        "0+",
        "Error of the last attempt; null without an error.",
        nullable="0+",
        default=None,
    )
    problem_ms = f(
        "int64", "0+", "How long it has failed without a success; -1: not known.", default=-1
    )


class TierStatusTopic(Struct):
    error_code = f("int16", "0+", "0, or why it failed.")
    name = f("string", "0+", "Topic name.")
    topic_id = f("uuid", "0+", "Topic id.")
    partitions = f([TierStatusPartition], "0+", "By partition.")


class TierStatusCircuit(Struct):
    operation = f(
        "string", "0+", "What this broker does not ask its store for: read, write, copy or delete."
    )
    open_ms = f("int64", "0+", "For how long it has not.")
    problem = f("string", "0+", "Error of the last attempt.")


class TierStatusResponse(Message, key=32001, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f(
        "string", "0+", "Error message; null without an error.", nullable="0+", default=None
    )
    topics = f([TierStatusTopic], "0+", "By topic.")
    problem = f(
        "string",
        "0+",
        "What fails for all partitions of this broker; null if nothing does.",
        nullable="0+",
        default=None,
    )
    circuits = f([TierStatusCircuit], "0+", "Operations that the store fails.")
    unanswered = f(
        "string",
        "0+",
        "The call of the store that should have had its answer for the longest time; null: there is none.",
        tag=0,
        nullable="0+",
        default=None,
    )
    unanswered_ms = f("int64", "0+", "For how long it has had none.", tag=1)
