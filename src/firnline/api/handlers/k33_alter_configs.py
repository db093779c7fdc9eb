"""AlterConfigs: replaces all configs of a resource. PURE. Source: KIP-133."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from firnline.api.config_changes import Shape, alter, resource_of
from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.metadata.result import ControllerResult
from firnline.protocol.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode


def handle(
    node: "AnyNode", context: RequestContext, request: AlterConfigsRequest, now_ms: int
) -> Effects:
    """Answer once the changes are committed and applied on this broker."""
    return alter(node, context, request, now_ms, _SHAPE)


def _decide(
    node: "AnyNode", resources: Sequence[AlterConfigsResource], validate_only: bool
) -> ControllerResult[Any]:
    wanted = [(resource_of(each), [(c.name, c.value) for c in each.configs]) for each in resources]
    return node.controller.replace_configs(wanted, validate_only=validate_only)


_SHAPE = Shape(AlterConfigsRequest, AlterConfigsResponse, AlterConfigsResourceResponse, _decide)
