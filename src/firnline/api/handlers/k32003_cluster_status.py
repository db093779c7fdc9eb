"""ClusterStatus: facts about brokers and replicas that no Kafka API has. Not a Kafka API. PURE.

Source: KIP-631 (broker epochs, states), KIP-497 (partition epochs), KIP-903 (broker epochs of followers).
"""

from typing import TYPE_CHECKING, cast

from firnline.api.context import RequestContext
from firnline.api.health import Problem, controller_problems, problems
from firnline.api.slices import Slices, a_step_a_slice, cut, in_slices
from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.metadata.image import ClusterImage, PartitionImage
from firnline.protocol.messages.k32003_cluster_status import (
    ClusterStatusBroker,
    ClusterStatusController,
    ClusterStatusPartition,
    ClusterStatusProblem,
    ClusterStatusReplica,
    ClusterStatusRequest,
    ClusterStatusResponse,
    ClusterStatusTopic,
    ClusterStatusUnreadable,
)
from firnline.replica.isr import ReplicaState

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode
    from firnline.broker.controller_node import ControllerNode
    from firnline.broker.node import BrokerNode

_CONTROLLERS = 2  # endpoint type
# Takes a millisecond.
_PARTITIONS_PER_SLICE = 300


def handle(
    node: "AnyNode", context: RequestContext, request: ClusterStatusRequest, now_ms: int
) -> Effects:
    """Answer from the committed image and, for partitions that this broker leads, from their logs.

    A node that is only a controller has neither topics nor brokers to tell of: it answers with its problems.
    """
    if node.endpoint_type == _CONTROLLERS:
        wrong = controller_problems(cast("ControllerNode", node), now_ms)
        return [context.reply(ClusterStatusResponse(topics=[], problems=_rows(wrong)))]
    steps = _answer(cast("BrokerNode", node), context, request, now_ms)
    return in_slices(node, context, steps, now_ms)


def _answer(
    node: "BrokerNode", context: RequestContext, request: ClusterStatusRequest, now_ms: int
) -> Slices:
    """Answer from one version of the image, however many slices that takes."""
    image = node.image
    names = sorted(image.topics_by_name) if request.topics is None else request.topics
    topics: list[ClusterStatusTopic] = []
    count = 0
    for name in names:
        if count >= _PARTITIONS_PER_SLICE:
            count = 0
            now_ms = yield []
        topic = image.topic(name)
        if topic is None:
            code = Code.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(ClusterStatusTopic(name=name, error_code=code))
            count += 1
            continue
        rows: list[ClusterStatusPartition] = []
        topics.append(ClusterStatusTopic(name=name, partitions=rows))
        for some in cut(sorted(topic.partitions.items()), _PARTITIONS_PER_SLICE):
            if count >= _PARTITIONS_PER_SLICE:
                count = 0
                now_ms = yield []
            rows += [
                _partition(node, name, index, decided, now_ms)
                for index, decided in some
                if decided.leader == node.node_id or not request.only_led
            ]
            count += 1 + len(some)
    wrong, now_ms = yield from a_step_a_slice(problems(node, now_ms), now_ms, context)
    quorum = node.quorum.raft
    response = ClusterStatusResponse(
        metadata_offset=image.offset,
        brokers=_brokers(image),
        topics=topics,
        unreadable=[
            ClusterStatusUnreadable(topic=name, records=records)
            for name, records in node.unreadable_records
            if records
        ],
        problems=_rows(wrong),
        controllers=[
            ClusterStatusController(node_id=each.node_id, host=each.host, port=each.port)
            for each in quorum.voters.voters
            if not quorum.voters.is_sole(node.node_id)  # it may listen to no other node
        ],
        controller_id=quorum.answering_leader_id,
        controller_epoch=quorum.counters().epoch,
    )
    return [context.reply(response)]


def _rows(found: list[Problem]) -> list[ClusterStatusProblem]:
    return [ClusterStatusProblem(kind=each.kind, what=each.what, see=each.see) for each in found]


def _brokers(image: ClusterImage) -> list[ClusterStatusBroker]:
    return [
        ClusterStatusBroker(
            broker_id=broker_id,
            broker_epoch=broker.epoch,
            is_fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
        )
        for broker_id, broker in sorted(image.brokers.items())
    ]


def _partition(
    node: "BrokerNode", name: str, index: int, decided: PartitionImage, now_ms: int
) -> ClusterStatusPartition:
    row = ClusterStatusPartition(
        partition=index,
        leader_id=decided.leader,
        leader_epoch=decided.leader_epoch,
        partition_epoch=decided.partition_epoch,
    )
    hosted = node.partitions.get((name, index))
    if hosted is None or not hosted.is_leader or hosted.is_offline:
        return row
    log = hosted.log
    row.log_start_offset = log.log_start_offset
    row.high_watermark = log.high_watermark
    row.log_end_offset = log.log_end_offset
    row.min_insync_replicas = hosted.min_isr
    row.followers = [_replica(each, now_ms) for _, each in sorted(hosted.followers.items())]
    return row


def _replica(follower: ReplicaState, now_ms: int) -> ClusterStatusReplica:
    epoch = follower.broker_epoch
    was_caught_up = follower.caught_up_ms >= 0
    return ClusterStatusReplica(
        broker_id=follower.broker_id,
        broker_epoch=-1 if epoch is None else epoch,
        log_end_offset=follower.end_offset,
        behind_ms=max(0, now_ms - follower.caught_up_ms) if was_caught_up else -1,
    )
