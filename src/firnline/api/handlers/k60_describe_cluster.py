"""DescribeCluster: the nodes of the cluster. PURE. Source: KIP-700, KIP-919, KIP-1073."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.protocol.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

_BROKERS, _CONTROLLERS = 1, 2
# Create, alter, describe, cluster action, both for configs, idempotent write: all that a cluster has.
ALL_CLUSTER_OPERATIONS = 8096


def handle(
    node: "BrokerNode", context: RequestContext, request: DescribeClusterRequest, now_ms: int
) -> Effects:
    """Answer from the committed image, with addresses under the asker's listener."""
    if request.endpoint_type == _CONTROLLERS:
        return [
            context.reply(
                DescribeClusterResponse(
                    error_code=Code.MISMATCHED_ENDPOINT_TYPE,
                    error_message="this is an address of a broker, not of a controller",
                )
            )
        ]
    if request.endpoint_type != _BROKERS:
        return [
            context.reply(
                DescribeClusterResponse(
                    error_code=Code.UNSUPPORTED_ENDPOINT_TYPE,
                    error_message=f"there are no endpoints of type {request.endpoint_type}",
                )
            )
        ]
    brokers = node.image.brokers
    shown = [
        node_id
        for node_id in sorted(brokers)
        if request.include_fenced_brokers or not brokers[node_id].fenced
    ]
    response = DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=node.quorum.leader_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=place.node_id,
                host=place.host,
                port=place.port,
                rack=place.rack,
                is_fenced=brokers[place.node_id].fenced,
            )
            for place in node.leaders.places(shown, context.listener)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return [context.reply(response)]
