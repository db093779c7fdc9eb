"""IncrementalAlterConfigs: changes single configs. PURE. Source: KIP-339."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from firnline.api.config_changes import Shape, alter, resource_of
from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.controller.configs import Alteration
from firnline.metadata.result import ControllerResult
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode


def handle(
    node: "AnyNode",
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
    now_ms: int,
) -> Effects:
    """Answer once the changes are committed and applied on this broker."""
    return alter(node, context, request, now_ms, _SHAPE)


def _decide(
    node: "AnyNode", resources: Sequence[AlterConfigsResource], validate_only: bool
) -> ControllerResult[Any]:
    wanted = [
        (resource_of(each), [Alteration(c.name, c.config_operation, c.value) for c in each.configs])
        for each in resources
    ]
    return node.controller.incremental_alter_configs(wanted, validate_only=validate_only)


_SHAPE = Shape(
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    AlterConfigsResourceResponse,
    _decide,
)
