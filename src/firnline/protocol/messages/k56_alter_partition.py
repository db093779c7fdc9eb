"""AlterPartition: a leader proposes in-sync replicas. PURE.

Source: KIP-497, KIP-903.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class BrokerState(Struct):
    broker_id = f("int32", "3+", "Node id of the broker.")
    broker_epoch = f("int64", "3+", "Broker epoch; -1 when unknown.", default=-1)


class ProposedPartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    leader_epoch = f("int32", "0+", "Leader epoch; -1 when unknown.")
    new_isr = f(["int32"], "0-2", "In-sync replicas proposed, ids alone.")
    new_isr_with_epochs = f([BrokerState], "3+", "In-sync replicas proposed. KIP-903.")
    leader_recovery_state = f("int8", "1+", "1 while recovering from an unclean election.")
    partition_epoch = f("int32", "0+", "Counts changes to the partition.")


class AlterPartitionTopic(Struct):
    topic_id = f("uuid", "2+", "Topic id.")
    partitions = f([ProposedPartition], "0+", "By partition.")


class AlterPartitionRequest(
    Message, Request["AlterPartitionResponse"], key=56, valid="2-3", flexible="0+"
):
    broker_id = f("int32", "0+", "Node id of the broker.")
    broker_epoch = f("int64", "0+", "Broker epoch; -1 when unknown.", default=-1)
    topics = f([AlterPartitionTopic], "0+", "By topic.")


class AlteredPartition(Struct):
    partition_index = f("int32", "0+", "Partition number.")
    error_code = f("int16", "0+", "0, or why it failed.")
    leader_id = f("int32", "0+", "Node id of the leader; -1 when unknown.")
    leader_epoch = f("int32", "0+", "Leader epoch; -1 when unknown.")
    isr = f(["int32"], "0+", "In-sync replicas.")
    leader_recovery_state = f("int8", "1+", "1 while recovering from an unclean election.")
    partition_epoch = f("int32", "0+", "Counts changes to the partition.")


class AlterPartitionTopicResult(Struct):
    topic_id = f("uuid", "2+", "Topic id.")
    partitions = f([AlteredPartition], "0+", "By partition.")


class AlterPartitionResponse(Message, key=56, valid="2-3", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    topics = f([AlterPartitionTopicResult], "0+", "By topic.")
