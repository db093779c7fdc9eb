"""ElectLeaders: give partitions their preferred leader, or any at all. PURE.

Source: KIP-460.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class ElectionTopic(Struct):
    topic = f("string", "0+", "Topic name.")
    partitions = f(["int32"], "0+", "Partition numbers.")


class ElectLeadersRequest(
    Message, Request["ElectLeadersResponse"], key=43, valid="0-2", flexible="2+"
):
    election_type = f("int8", "1+", "0 preferred; 1 unclean, where nobody in sync can lead.")
    topic_partitions = f(
        [ElectionTopic], "0+", "Partitions to elect for; null for all.", nullable="0+"
    )
    timeout_ms = f("int32", "0+", "How long the broker may take.", default=60000)


class ElectedPartition(Struct):
    partition_id = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "0+", "Error message; null without an error.", nullable="0+")


class ElectedTopic(Struct):
    topic = f("string", "0+", "Topic name.")
    partition_result = f([ElectedPartition], "0+", "By partition.")


class ElectLeadersResponse(Message, key=43, valid="0-2", flexible="2+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "1+", "0, or why it failed.")
    replica_election_results = f([ElectedTopic], "0+", "By topic.")
