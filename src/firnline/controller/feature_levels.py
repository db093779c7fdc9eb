"""UpdateFeatures: change the finalized feature levels of the cluster. PURE.

A level is raised only when every registered node supports it and every voter has registered. metadata.version
is lowered only if no record format changed in between. Each refusal is INVALID_UPDATE_VERSION and changes
nothing, as in Kafka 4.3.1. Source: KIP-584, KIP-778, KIP-919.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from firnline.base.errors import Code, KafkaError
from firnline.metadata import records as r
from firnline.metadata.features import (
    CONTROLLER_REGISTRATION_SINCE,
    NEW_RECORDS_SINCE,
    NOT_ACTED_ON,
    SUPPORTED,
)
from firnline.metadata.image import METADATA_VERSION, ClusterImage, FeatureRange
from firnline.metadata.result import ControllerResult
from firnline.protocol.schema import Message

_NO_LEVEL = FeatureRange(0, 0)
# kafka-features --release-version sends all features of that release, also those already at its level.
_HINT = "; where a release version asks for all, raise metadata.version by itself"


class UpdateType(IntEnum):
    """What the client allows; the numbers are those of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """One feature and its wanted level; `update_type` is unchecked, as the client sent it."""

    feature: str
    level: int
    update_type: int = UpdateType.UPGRADE


def update_features(
    image: ClusterImage,
    wanted: Sequence[FeatureUpdate],
    *,
    voters: Sequence[int],
    validate_only: bool = False,
) -> ControllerResult[KafkaError | None]:
    """Change all levels or none; of several updates of one feature the last counts.

    voters  ids of the controllers that vote: all must have registered before a level is raised
    """
    records: list[Message] = []
    for update in {each.feature: each for each in wanted}.values():
        why = _refusal(image, update, voters)
        if why is not None:
            text = (
                f"no feature was changed: {update.feature!r} cannot get level {update.level}: {why}"
            )
            return ControllerResult([], KafkaError(Code.INVALID_UPDATE_VERSION, text))
        if update.level != image.features.get(update.feature, 0):
            records.append(r.FeatureLevelRecord(name=update.feature, feature_level=update.level))
    return ControllerResult([] if validate_only else records, None)


def _refusal(image: ClusterImage, update: FeatureUpdate, voters: Sequence[int]) -> str | None:
    if update.update_type not in tuple(UpdateType):
        return f"there is no update type {update.update_type}"
    if update.feature not in SUPPORTED and update.feature not in NOT_ACTED_ON:
        return "there is no such feature"
    for who, features in _nodes(image):
        lowest, highest = features.get(update.feature, _NO_LEVEL)
        if not lowest <= update.level <= highest:
            hint = _HINT if update.feature in NOT_ACTED_ON else ""
            return f"{who} supports levels {lowest} to {highest}{hint}"
    if image.metadata_version >= CONTROLLER_REGISTRATION_SINCE:
        missing = [each for each in voters if each not in image.controllers]
        if missing:
            return f"nobody knows what controller {missing[0]} supports: it has not registered"
    current = image.features.get(update.feature, 0)
    if update.level < current:
        return _downgrade_refusal(update, current)
    if update.level > current and update.update_type != UpdateType.UPGRADE:
        return f"level {current} is in force, so this is no downgrade"
    return None


def _nodes(image: ClusterImage) -> Iterator[tuple[str, Mapping[str, FeatureRange]]]:
    """Yield (name, features) of this release and of every registered node."""
    yield "this controller", SUPPORTED
    for broker_id in sorted(image.brokers):
        yield f"broker {broker_id}", image.brokers[broker_id].features
    if image.metadata_version >= CONTROLLER_REGISTRATION_SINCE:
        for controller_id in sorted(image.controllers):
            yield f"controller {controller_id}", image.controllers[controller_id].features


def _downgrade_refusal(update: FeatureUpdate, current: int) -> str | None:
    if update.update_type == UpdateType.UPGRADE:
        return f"level {current} is in force, and the request does not allow a downgrade"
    if update.feature != METADATA_VERSION:
        return None
    changed = [level for level in NEW_RECORDS_SINCE if update.level < level <= current]
    if not changed:
        return None
    return f"records look otherwise since level {changed[-1]}, and what they say would be lost"
