"""UpdateFeatures: change feature levels. PURE.

Source: KIP-584, KIP-778.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class FeatureUpdateKey(Struct):
    feature = f("string", "0+", "Feature name.")
    max_version_level = f("int16", "0+", "Level wanted; 0 removes the feature.")
    allow_downgrade = f("bool", "0", "A downgrade is allowed.")
    upgrade_type = f("int8", "1+", "1 upgrade, 2 safe downgrade, 3 unsafe downgrade.", default=1)


class UpdateFeaturesRequest(
    Message, Request["UpdateFeaturesResponse"], key=57, valid="0-2", flexible="0+"
):
    timeout_ms = f("int32", "0+", "How long the broker may take.", default=60000)
    feature_updates = f([FeatureUpdateKey], "0+", "Levels to set.")
    validate_only = f("bool", "1+", "Only check; change nothing.")


class UpdatableFeatureResult(Struct):
    feature = f("string", "0+", "Feature name.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "0+", "Error message; null without an error.", nullable="0+")


class UpdateFeaturesResponse(Message, key=57, valid="0-2", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "0+", "Error message; null without an error.", nullable="0+")
    results = f([UpdatableFeatureResult], "0-1", "One result per item in the request.")
