"""ClusterStatus: details of brokers and replicas that no public API has. Only ours, never advertised. PURE.

Every broker answers from the committed image; log offsets only for the partitions that it leads. Offsets are
-1 where there is none.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class ClusterStatusRequest(
    Message, Request["ClusterStatusResponse"], key=32003, valid="0", flexible="0+"
):
    topics = f(["string"], "0+", "Topics to describe; null for all.", nullable="0+")
    only_led = f("bool", "0+", "Leave out the partitions that this broker does not lead.")


class ClusterStatusBroker(Struct):
    broker_id = f("int32", "0+", "Node id of the broker.")
    broker_epoch = f("int64", "0+", "Epoch of its registration.", default=-1)
    is_fenced = f("bool", "0+", "Whether the broker is fenced.")
    in_controlled_shutdown = f("bool", "0+", "Whether it is shutting down.")


class ClusterStatusReplica(Struct):
    broker_id = f("int32", "0+", "Node id of a follower.")
    broker_epoch = f("int64", "0+", "Epoch of the incarnation that fetches.", default=-1)
    log_end_offset = f("int64", "0+", "The broker's wanted state.", default=-1)
    behind_ms = f("int64", "0+", "How long ago it had everything; -1 for never.", default=-1)


class ClusterStatusPartition(Struct):
    partition = f("int32", "0+", "Partition number.")
    leader_id = f("int32", "0+", "Node id of the leader; -1 for none.", default=-1)
    leader_epoch = f("int32", "0+", "Leader epoch.", default=-1)
    partition_epoch = f("int32", "0+", "Count of changes of the partition.", default=-1)
    log_start_offset = f("int64", "0+", "First offset that can be read.", default=-1)
    high_watermark = f("int64", "0+", "Offset after the last committed record.", default=-1)
    log_end_offset = f("int64", "0+", "Offset after the last record.", default=-1)
    min_insync_replicas = f("int32", "0+", "In-sync replicas that acks=all needs.", default=-1)
    followers = f([ClusterStatusReplica], "0+", "The other replicas, as the leader knows them.")


class ClusterStatusTopic(Struct):
    error_code = f("int16", "0+", "0, or why it failed.")
    name = f("string", "0+", "Topic name.")
    partitions = f([ClusterStatusPartition], "0+", "By partition.")


class ClusterStatusUnreadable(Struct):
    topic = f("string", "0+", "The topic is internal.")
    records = f("int64", "0+", "Count of its unreadable records, which were skipped.")


class ClusterStatusProblem(Struct):
    kind = f("string", "0+", "One word, as in the label of the metric firnline_problems.")
    what = f("string", "0+", "What is wrong, for people.")
    see = f("string", "0+", "What tells more: a command in backticks, or a place.")


class ClusterStatusController(Struct):
    node_id = f("int32", "0+", "Node id of a voter of the metadata quorum.")
    host = f("string", "0+", "Its host.")
    port = f("int32", "0+", "Its port.")


class ClusterStatusResponse(Message, key=32003, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    metadata_offset = f("int64", "0+", "Last metadata record in the image.", default=-1)
    brokers = f([ClusterStatusBroker], "0+", "All registered brokers.")
    topics = f([ClusterStatusTopic], "0+", "By topic.")
    unreadable = f(
        [ClusterStatusUnreadable],
        "0+",
        "Unreadable records that the answering broker has skipped.",
        tag=0,
    )
    problems = f([ClusterStatusProblem], "0+", "What is wrong with the answering broker.", tag=1)
    controllers = f([ClusterStatusController], "0+", "The voters, as configured.", tag=2)
    controller_id = f(
        "int32",
        "0+",
        "The active controller that the broker knows; -1 for none.",
        default=-1,
        tag=3,
    )
    controller_epoch = f(
        "int32", "0+", "Epoch of the quorum that the broker knows.", default=-1, tag=4
    )
