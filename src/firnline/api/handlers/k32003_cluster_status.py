"""ClusterStatus: brokers and replicas with what no public API tells; ours alone. PURE.

Source: KIP-631 (broker epochs, states), KIP-497 (partition epochs), KIP-903 (whose epoch a follower states).
"""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.metadata.image import ClusterImage, PartitionImage
from firnline.protocol.messages.k32003_cluster_status import (
    ClusterStatusBroker,
    ClusterStatusPartition,
    ClusterStatusReplica,
    ClusterStatusRequest,
    ClusterStatusResponse,
    ClusterStatusTopic,
)
from firnline.replica.isr import Follower

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode


def handle(
    node: "BrokerNode", context: RequestContext, request: ClusterStatusRequest, now_ms: int
) -> Effects:
    """Answer from the committed image and, for partitions that are led here, from their logs."""
    image = node.image
    names = sorted(image.topics_by_name) if request.topics is None else request.topics
    response = ClusterStatusResponse(
        metadata_offset=image.offset,
        brokers=_brokers(image),
        topics=[_topic(node, name, request.only_led, now_ms) for name in names],
    )
    return [context.reply(response)]


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


def _topic(node: "BrokerNode", name: str, only_led: bool, now_ms: int) -> ClusterStatusTopic:
    topic = node.image.topic(name)
    if topic is None:
        return ClusterStatusTopic(name=name, error_code=Code.UNKNOWN_TOPIC_OR_PARTITION)
    found = [
        _partition(node, name, index, decided, now_ms)
        for index, decided in sorted(topic.partitions.items())
        if decided.leader == node.node_id or not only_led
    ]
    return ClusterStatusTopic(name=name, partitions=found)


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


def _replica(follower: Follower, now_ms: int) -> ClusterStatusReplica:
    epoch = follower.broker_epoch
    was_caught_up = follower.caught_up_ms >= 0
    return ClusterStatusReplica(
        broker_id=follower.broker_id,
        broker_epoch=-1 if epoch is None else epoch,
        log_end_offset=follower.end_offset,
        behind_ms=max(0, now_ms - follower.caught_up_ms) if was_caught_up else -1,
    )
