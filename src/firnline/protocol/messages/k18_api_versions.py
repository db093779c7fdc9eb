"""ApiVersions: the APIs that a node supports. The header of the response is always version 0. PURE.

Source: KIP-35, KIP-511, KIP-584.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class ApiVersionsRequest(
    Message, Request["ApiVersionsResponse"], key=18, valid="0-4", flexible="3+"
):
    client_software_name = f("string", "3+", "Name of the client library.")
    client_software_version = f("string", "3+", "Version of the client library.")


class ApiVersion(Struct):
    api_key = f("int16", "0+", "API key.")
    min_version = f("int16", "0+", "Lowest version.")
    max_version = f("int16", "0+", "Highest version.")


class SupportedFeatureKey(Struct):
    name = f("string", "3+", "Feature name.")
    min_version = f("int16", "3+", "Lowest version.")
    max_version = f("int16", "3+", "Highest version.")


class FinalizedFeatureKey(Struct):
    name = f("string", "3+", "Feature name.")
    max_version_level = f("int16", "3+", "Highest level in use.")
    min_version_level = f("int16", "3+", "Lowest level in use.")


class ApiVersionsResponse(Message, key=18, valid="0-4", flexible="3+"):
    error_code = f("int16", "0+", "0, or why it failed.")
    api_keys = f([ApiVersion], "0+", "Supported APIs.")
    throttle_time_ms = f("int32", "1+", "How long the client must wait because of its quota.")
    supported_features = f([SupportedFeatureKey], "3+", "Features that the node supports.", tag=0)
    finalized_features_epoch = f(
        "int64", "3+", "Metadata offset of the features; -1 when unknown.", default=-1, tag=1
    )
    finalized_features = f([FinalizedFeatureKey], "3+", "Finalized features of the cluster.", tag=2)
    zk_migration_ready = f("bool", "3+", "Always false: ZooKeeper is gone.", tag=3)
