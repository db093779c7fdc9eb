"""BrokerRegistration: registers a broker, fenced at first. PURE. Source: KIP-631, KIP-858, KIP-966; I1-I3."""

from typing import TYPE_CHECKING

from immutables import Map

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.controller.brokers import Registration
from firnline.metadata.image import Endpoint, FeatureRange
from firnline.protocol.messages.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode


def handle(
    node: "ControllerNode",
    context: RequestContext,
    request: BrokerRegistrationRequest,
    now_ms: int,
) -> Effects:
    @context.makes_replies
    def then(outcome: int | KafkaError, at_ms: int) -> Effects:
        if isinstance(outcome, KafkaError):
            return [context.reply(BrokerRegistrationResponse(error_code=outcome.code))]
        return [context.reply(BrokerRegistrationResponse(broker_epoch=outcome))]

    problem = node.inactive_problem
    if problem is None and request.cluster_id != node.cluster_id:
        problem = KafkaError(Code.INCONSISTENT_CLUSTER_ID)
    if problem is None and request.is_migrating_zk_broker:
        # Kafka's code: it has none for a broker that was registered earlier.
        problem = KafkaError(Code.BROKER_ID_NOT_REGISTERED)
    if problem is not None:
        return then(problem, now_ms)
    result = node.controller.register_broker(_registration(request), now_ms)
    return node.quorum.write(result, then, now_ms)


def _registration(request: BrokerRegistrationRequest) -> Registration:
    return Registration(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(
            Endpoint(each.name, each.host, each.port, each.security_protocol)
            for each in request.listeners
        ),
        features=Map(
            {
                each.name: FeatureRange(each.min_supported_version, each.max_supported_version)
                for each in request.features
            }
        ),
        rack=request.rack,
        log_dirs=tuple(request.log_dirs),
    )
