"""ControllerRegistration: the listeners and the supported features of a controller. PURE. Source: KIP-919."""

from typing import TYPE_CHECKING

from immutables import Map

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.metadata.image import ControllerImage, Endpoint, FeatureRange
from firnline.protocol.messages.k70_controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode


def handle(
    node: "ControllerNode",
    context: RequestContext,
    request: ControllerRegistrationRequest,
    now_ms: int,
) -> Effects:
    @context.makes_replies
    def then(outcome: KafkaError | None, at_ms: int) -> Effects:
        code, why = (0, "") if outcome is None else (outcome.code, outcome.why)
        answer = ControllerRegistrationResponse(error_code=code, error_message=why)
        return [context.reply(answer)]

    controller = ControllerImage(
        request.controller_id,
        request.incarnation_id,
        tuple(
            Endpoint(each.name, each.host, each.port, each.security_protocol)
            for each in request.listeners
        ),
        Map(
            {
                each.name: FeatureRange(each.min_supported_version, each.max_supported_version)
                for each in request.features
            }
        ),
    )
    return node.quorum.write(node.controller.register_controller(controller), then, now_ms)
