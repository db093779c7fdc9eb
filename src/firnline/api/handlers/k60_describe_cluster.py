"""DescribeCluster: the nodes of the cluster. PURE. Source: KIP-700, KIP-919, KIP-1073."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.broker.leaders import any_broker
from firnline.metadata.features import CONTROLLER_REGISTRATION_SINCE
from firnline.metadata.image import ClusterImage
from firnline.protocol.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode

_BROKERS, _CONTROLLERS = 1, 2
# All operations on a cluster: create, alter, describe, cluster action, configs, idempotent write.
ALL_CLUSTER_OPERATIONS = 8096


def handle(
    node: "AnyNode", context: RequestContext, request: DescribeClusterRequest, now_ms: int
) -> Effects:
    """Answer from the committed image, with the addresses of the listener that the client uses."""
    problem = _problem(node, request)
    if problem is not None:
        refusal = DescribeClusterResponse(error_code=problem.code, error_message=problem.why)
        return [context.reply(refusal)]
    is_broker = node.endpoint_type == _BROKERS
    response = DescribeClusterResponse(
        endpoint_type=node.endpoint_type,
        cluster_id=node.cluster_id,
        controller_id=(
            any_broker(node.image, node.quorum.leader_id, node.node_id)
            if is_broker
            else node.quorum.leader_id
        ),
        brokers=(
            _brokers(node.image, context.listener, request.include_fenced_brokers)
            if is_broker
            else _controllers(node.image, context.listener)
        ),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return [context.reply(response)]


def _problem(node: "AnyNode", request: DescribeClusterRequest) -> KafkaError | None:
    if request.endpoint_type not in (_BROKERS, _CONTROLLERS):
        why = f"there are no endpoints of type {request.endpoint_type}"
        return KafkaError(Code.UNSUPPORTED_ENDPOINT_TYPE, why)
    if request.endpoint_type != node.endpoint_type:
        here, there = ("a broker", "a controller")[:: 1 if node.endpoint_type == _BROKERS else -1]
        why = f"this is an address of {here}, not of {there}"
        return KafkaError(Code.MISMATCHED_ENDPOINT_TYPE, why)
    is_known = node.image.metadata_version >= CONTROLLER_REGISTRATION_SINCE
    if node.endpoint_type == _CONTROLLERS and not is_known:
        why = "the cluster's metadata.version knows no addresses of controllers"
        return KafkaError(Code.UNSUPPORTED_VERSION, why)
    return None


def _brokers(image: ClusterImage, listener: str, with_fenced: bool) -> list[DescribeClusterBroker]:
    found = []
    for node_id in sorted(image.brokers):
        broker = image.brokers[node_id]
        endpoint = broker.endpoint(listener)
        if endpoint is not None and (with_fenced or not broker.fenced):
            found.append(
                DescribeClusterBroker(
                    broker_id=node_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                    is_fenced=broker.fenced,
                )
            )
    return found


def _controllers(image: ClusterImage, listener: str) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(broker_id=node_id, host=endpoint.host, port=endpoint.port)
        for node_id in sorted(image.controllers)
        for endpoint in image.controllers[node_id].endpoints
        if endpoint.listener == listener
    ]
