"""UpdateFeatures: changes feature levels, all of a request or none. PURE. Source: KIP-584, 778."""

from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.controller.feature_levels import FeatureUpdate, UpdateType
from firnline.protocol.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode

# From this version on the response has one error for all features.
_NO_RESULTS_SINCE = 2


def handle(
    node: "AnyNode", context: RequestContext, request: UpdateFeaturesRequest, now_ms: int
) -> Effects:
    def response(outcome: KafkaError | None) -> UpdateFeaturesResponse:
        if outcome is not None:
            return UpdateFeaturesResponse(error_code=outcome.code, error_message=outcome.why)
        rows = () if context.api_version >= _NO_RESULTS_SINCE else request.feature_updates
        results = [
            UpdatableFeatureResult(feature=each.feature, error_message=None) for each in rows
        ]
        return UpdateFeaturesResponse(error_message=None, results=results)

    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, response, now_ms, here=again)

    @context.makes_replies
    def then(outcome: KafkaError | None, at_ms: int) -> Effects:
        return [context.reply(response(outcome))]

    result = node.controller.update_features(
        [_update(each) for each in request.feature_updates],
        voters=node.quorum.raft.voters.node_ids,
        validate_only=request.validate_only,
    )
    return node.quorum.write(result, then, now_ms)


def _update(row: FeatureUpdateKey) -> FeatureUpdate:
    kind = UpdateType.SAFE_DOWNGRADE if row.allow_downgrade else row.upgrade_type
    return FeatureUpdate(row.feature, row.max_version_level, kind)
