"""ApiVersions: what this node can do, and the cluster's feature levels. PURE.

Too new a version never comes here: `api/dispatch` answers it in the layout of version 0 (C4).
Source: KIP-35, KIP-511 (names of the client are checked), KIP-584.
"""

import re
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.usual import Fields
from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.protocol.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from firnline.protocol.session import Encoded
from firnline.protocol.versions import CONTROLLER_SERVED, SERVED

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode
    from firnline.metadata.image import ClusterImage

_pack_start = Struct(">ii").pack  # size, correlation id
_FEATURES_VERSION = 3
_ZERO_MIN_VERSION = 4
# Letters and digits at both ends; dots and dashes between them (KIP-511).
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    node: "AnyNode", context: RequestContext, request: ApiVersionsRequest, now_ms: int
) -> Effects:
    """Answer with the table of APIs; INVALID_REQUEST for a client whose name or version is none."""
    version = context.api_version
    if version >= _FEATURES_VERSION and not _is_software(
        request.client_software_name, request.client_software_version
    ):
        return [context.reply(ApiVersionsResponse(error_code=Code.INVALID_REQUEST))]
    body = _body(node, version)
    return [context.reply(Encoded([body], len(body)))]


def at_once(node: "AnyNode", connection: object, asked: Fields, now_ms: int) -> bytes | None:
    """Answer with the whole frame; None where the client's name or version is none."""
    key_and_version, correlation_id, name, software_version = asked
    if not _is_software(name, software_version):
        return None
    body = _body(node, key_and_version & 0xFFFF)
    return _pack_start(4 + len(body), correlation_id) + body


def _body(node: "AnyNode", version: int) -> bytes:
    """Return the answer without a header; it stays the same until the image changes."""
    kind = version, node.endpoint_type
    said = _said.get(kind)
    if said is None or said[0] is not node.image or said[1] is not node.supported_features:
        said = (node.image, node.supported_features, _response(node, version).write(version))
        _said[kind] = said
    return said[2]


@lru_cache(maxsize=256)
def _is_software(name: str, version: str) -> bool:
    return bool(_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version))


# By version and kind of listener: the last answer, and the image and the features that it was made of.
_said: dict[tuple[int, int], tuple["ClusterImage", object, bytes]] = {}
_ROWS = {1: SERVED, 2: CONTROLLER_SERVED}


def _response(node: "AnyNode", version: int) -> ApiVersionsResponse:
    response = ApiVersionsResponse(
        api_keys=[
            ApiVersion(
                api_key=row.key, min_version=row.advertised_min, max_version=row.advertised_max
            )
            for row in _ROWS[node.endpoint_type]
        ]
    )
    if version >= _FEATURES_VERSION:
        image = node.image
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in sorted(node.supported_features.items())
            # Before version 4 a range from 0 would be refused by older Java clients (KAFKA-17011).
            if low > 0 or version >= _ZERO_MIN_VERSION
        ]
        response.finalized_features_epoch = image.offset
        response.finalized_features = [
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in sorted(image.features.items())
            if level > 0
        ]
    return response
