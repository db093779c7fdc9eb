"""ApiVersions: answers with the APIs of this node and the feature levels of the cluster. PURE.

`api/dispatch` answers a version that is too new itself, in the layout of version 0 (C4).
Source: KIP-35, KIP-511 (the client's software name and version are validated), KIP-584.
"""

import re
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.fast_path import Fields
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
# Letters and digits at both ends, dots and dashes between them (KIP-511).
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    node: "AnyNode", context: RequestContext, request: ApiVersionsRequest, now_ms: int
) -> Effects:
    """Answer with the table of APIs; INVALID_REQUEST for an invalid software name or version."""
    version = context.api_version
    if version >= _FEATURES_VERSION and not _is_software(
        request.client_software_name, request.client_software_version
    ):
        return [context.reply(ApiVersionsResponse(error_code=Code.INVALID_REQUEST))]
    body = _body(node, version)
    return [context.reply(Encoded([body], len(body)))]


def at_once(node: "AnyNode", connection: object, asked: Fields, now_ms: int) -> bytes | None:
    """Return the complete frame; None for an invalid software name or version."""
    key_and_version, correlation_id, name, software_version = asked
    if not _is_software(name, software_version):
        return None
    body = _body(node, key_and_version & 0xFFFF)
    return _pack_start(4 + len(body), correlation_id) + body


def _body(node: "AnyNode", version: int) -> bytes:
    """Return the response without its header; it is the same until the image changes."""
    kind = version, node.endpoint_type
    said = _latest_bodies.get(kind)
    if said is None or said[0] is not node.image or said[1] is not node.supported_features:
        said = (node.image, node.supported_features, _response(node, version).write(version))
        _latest_bodies[kind] = said
    return said[2]


@lru_cache(maxsize=256)
def _is_software(name: str, version: str) -> bool:
    return bool(_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version))


# By version and kind of listener: the last response, and the image and the features that it is made of.
_latest_bodies: dict[tuple[int, int], tuple["ClusterImage", object, bytes]] = {}
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
            # Older Java clients refuse a range from 0 before version 4 (KAFKA-17011).
            if low > 0 or version >= _ZERO_MIN_VERSION
        ]
        response.finalized_features_epoch = image.offset
        response.finalized_features = [
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in sorted(image.features.items())
            if level > 0
        ]
    return response
