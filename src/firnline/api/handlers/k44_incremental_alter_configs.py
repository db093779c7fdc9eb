"""IncrementalAlterConfigs: change single settings. PURE. Source: KIP-339."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.controller.configs import Alteration
from firnline.metadata.image import ConfigResource, ResourceType
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode


def handle(
    node: "BrokerNode",
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
    now_ms: int,
) -> Effects:
    """Answer each resource once its changes are committed and this broker has seen them."""
    refused = [_wrong_broker(node, resource) for resource in request.resources]
    taken = [
        (
            _key(resource),
            [Alteration(c.name, c.config_operation, c.value) for c in resource.configs],
        )
        for resource, refusal in zip(request.resources, refused, strict=True)
        if refusal is None
    ]

    def then(outcome: list[KafkaError | None] | KafkaError, at_ms: int) -> Effects:
        answers = iter([outcome] * len(taken) if isinstance(outcome, KafkaError) else outcome)
        responses = [
            _response(resource, next(answers) if refusal is None else refusal)
            for resource, refusal in zip(request.resources, refused, strict=True)
        ]
        return [context.reply(IncrementalAlterConfigsResponse(responses=responses))]

    result = node.controller.incremental_alter_configs(taken, validate_only=request.validate_only)
    return node.quorum.write(result, then, now_ms)


def _key(resource: AlterConfigsResource) -> ConfigResource:
    return ConfigResource(resource.resource_type, resource.resource_name)


def _wrong_broker(node: "BrokerNode", resource: AlterConfigsResource) -> KafkaError | None:
    """A broker changes its own settings and those of all brokers, not another's."""
    name = resource.resource_name
    if resource.resource_type != ResourceType.BROKER or not name.isdecimal():
        return None
    if int(name) == node.node_id:
        return None
    return KafkaError(Code.INVALID_REQUEST, f"this is broker {node.node_id}, and not {name}")


def _response(
    resource: AlterConfigsResource, answer: KafkaError | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=Code.NONE if answer is None else answer.code,
        error_message=None if answer is None else answer.why,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
