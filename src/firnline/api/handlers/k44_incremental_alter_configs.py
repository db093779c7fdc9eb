"""IncrementalAlterConfigs: change single settings. PURE. Source: KIP-339."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
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
from firnline.protocol.schema import Message

_BROKERS = 1
_NOT_SAID = KafkaError(Code.UNKNOWN_SERVER_ERROR, "the active controller did not say")
Answers = Sequence[KafkaError | None]
Row = tuple[AlterConfigsResource, KafkaError | None]

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode


def handle(
    node: "AnyNode",
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
    now_ms: int,
) -> Effects:
    """Answer each resource once its changes are committed and this broker has seen them."""
    rows = [(resource, _wrong_broker(node, resource)) for resource in request.resources]
    taken = [resource for resource, refusal in rows if refusal is None]

    def response(outcome: Answers | KafkaError) -> IncrementalAlterConfigsResponse:
        answers = iter([outcome] * len(taken) if isinstance(outcome, KafkaError) else outcome)
        responses = [
            _response(resource, next(answers) if refusal is None else refusal)
            for resource, refusal in rows
        ]
        return IncrementalAlterConfigsResponse(responses=responses)

    if node.forwards and taken:
        rest = IncrementalAlterConfigsRequest(resources=taken, validate_only=request.validate_only)
        again = partial(handle, node, context, request)
        merged = partial(_merged, rows)
        return forward(node, context, rest, response, now_ms, here=again, finish=merged)

    def then(outcome: Answers | KafkaError, at_ms: int) -> Effects:
        return [context.reply(response(outcome))]

    wanted = [
        (_key(each), [Alteration(c.name, c.config_operation, c.value) for c in each.configs])
        for each in taken
    ]
    if not wanted:
        return then([], now_ms)
    result = node.controller.incremental_alter_configs(wanted, validate_only=request.validate_only)
    return node.quorum.write(result, then, now_ms)


def _key(resource: AlterConfigsResource) -> ConfigResource:
    return ConfigResource(resource.resource_type, resource.resource_name)


def _merged(rows: list[Row], answer: IncrementalAlterConfigsResponse) -> Message:
    """Put what the active controller said of the rest between what was refused here."""
    answers = iter(answer.responses)
    responses = [
        next(answers, None) or _response(resource, _NOT_SAID)
        if refusal is None
        else _response(resource, refusal)
        for resource, refusal in rows
    ]
    return IncrementalAlterConfigsResponse(responses=responses)


def _wrong_broker(node: "AnyNode", resource: AlterConfigsResource) -> KafkaError | None:
    """A broker changes its own settings and those of all brokers, not another's; a controller anyone's."""
    name = resource.resource_name
    if node.endpoint_type != _BROKERS or resource.resource_type != ResourceType.BROKER:
        return None
    if not name.isdecimal():
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
