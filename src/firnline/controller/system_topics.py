"""Protects the internal topics: no client may delete them, or configure them to lose records. PURE.

Coordinators keep groups and transactions in two of them, brokers the remote log metadata in the third.
Kafka 4.3.1 allows their deletion and every setting (observed). Source: KIP-405; spec T17, T52;
docs/decisions/0025-unreadable-records.md.
"""

from collections.abc import Generator, Iterator, Mapping

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import INTERNAL_TOPICS, REMOTE_LOG_METADATA_TOPIC
from firnline.config.broker import BrokerConfig
from firnline.config.layers import check_topic, topic_config
from firnline.config.topic import TopicConfig
from firnline.metadata.image import ClusterImage, ResourceType

_NOT_DELETED = KafkaError(
    Code.POLICY_VIOLATION,
    f"{REMOTE_LOG_METADATA_TOPIC} says what the tier holds, and cannot be deleted",
)
_SWITCH = "remote.storage.enable"
_NO_LIMIT = -1
# To resolve the settings of so many topics takes a few ms.
TOPICS_PER_SLICE = 100


def deletion_problem(topic: str) -> KafkaError | None:
    """Say why the topic cannot be deleted, or return None."""
    if topic == REMOTE_LOG_METADATA_TOPIC:
        return _NOT_DELETED
    if topic not in INTERNAL_TOPICS:
        return None
    why = f"{topic} holds what coordinators wrote, and cannot be deleted"
    return KafkaError(Code.POLICY_VIOLATION, why)


def growth_problem(topic: str) -> KafkaError | None:
    """Say why the topic cannot have more partitions, or return None.

    The number of partitions determines which of them has the records of a tiered partition, and partitions
    cannot be removed again.
    """
    if topic != REMOTE_LOG_METADATA_TOPIC:
        return None
    why = f"what {topic} said would not be found any more: it has as many partitions as at first"
    return KafkaError(Code.POLICY_VIOLATION, why)


def settings_problem(
    image: ClusterImage, config: BrokerConfig, topic: str, overrides: Mapping[str, str]
) -> KafkaError | None:
    """Say why `topic` may not have these overrides, or return None."""
    if topic not in INTERNAL_TOPICS:
        return _tier_problem(image, config, topic, overrides)
    wanted = topic_config(config, overrides)
    limits = {"retention.ms": wanted.retention_ms, "retention.bytes": wanted.retention_bytes}
    if "delete" in wanted.cleanup_policy:
        for name, value in limits.items():
            if value != _NO_LIMIT:
                why = (
                    f"{topic} holds what coordinators wrote: with delete in cleanup.policy, {name}={value}"
                    " would let it forget; leave cleanup.policy=compact"
                )
                return KafkaError(Code.INVALID_CONFIG, why)
    return None


def tiered_by_default(
    image: ClusterImage, config: BrokerConfig, topic: str, overrides: Mapping[str, str]
) -> dict[str, str]:
    """Return the overrides of a new topic, with remote.storage.enable=true if that is the default here.

    The creator has not stated it: so where a rule forbids it, the topic is created without.
    """
    given = dict(overrides)
    if not config.firnline_new_topics_remote_storage_enable or _SWITCH in given:
        return given
    wanted = {**given, _SWITCH: "true"}
    problem = check_topic(config, wanted, topic=topic) or _tier_problem(
        image, config, topic, wanted
    )
    return wanted if problem is None else given


def _tier_problem(
    image: ClusterImage, config: BrokerConfig, topic: str, overrides: Mapping[str, str]
) -> KafkaError | None:
    """Check the retention of `__remote_log_metadata` against that of the tiered topics.

    Only this topic lists the remote segments. If a record expires before its segment, nobody deletes that
    segment.
    """
    if topic == REMOTE_LOG_METADATA_TOPIC:
        broken = _metadata_problem(image, config, topic_config(config, overrides))
    elif _SWITCH in overrides:
        broken = _topic_problem(image, config, topic_config(config, overrides))
    else:
        return None
    return None if broken is None else KafkaError(Code.INVALID_CONFIG, broken)


def _metadata_problem(image: ClusterImage, config: BrokerConfig, wanted: TopicConfig) -> str | None:
    if "compact" in wanted.cleanup_policy:
        return f"{REMOTE_LOG_METADATA_TOPIC} has records without keys: it cannot be compacted"
    if wanted.retention_bytes != _NO_LIMIT and "delete" in wanted.cleanup_policy:
        return (
            f"retention.bytes={wanted.retention_bytes} would let {REMOTE_LOG_METADATA_TOPIC} forget"
            " segments that the tier holds, whatever their age: it has to be -1"
        )
    if wanted.retention_ms == _NO_LIMIT or "delete" not in wanted.cleanup_policy:
        return None
    for name, theirs in _tiered(image, config):
        if not _is_below(theirs.retention_ms, wanted.retention_ms):
            return (
                f"retention.ms={wanted.retention_ms} of {REMOTE_LOG_METADATA_TOPIC} must be above that of"
                f" every tiered topic, and {name} has {theirs.retention_ms}"
            )
    return None


def _topic_problem(image: ClusterImage, config: BrokerConfig, wanted: TopicConfig) -> str | None:
    """Check T52 against the present settings of the metadata topic."""
    if not wanted.remote_storage_enable or REMOTE_LOG_METADATA_TOPIC not in image.topics_by_name:
        return None
    held = topic_config(config, image.topic_config_overrides(REMOTE_LOG_METADATA_TOPIC))
    if held.retention_ms == _NO_LIMIT or _is_below(wanted.retention_ms, held.retention_ms):
        return None
    return (
        f"retention.ms={wanted.retention_ms} must be below that of {REMOTE_LOG_METADATA_TOPIC},"
        f" which is {held.retention_ms}"
    )


def outliving_topics(image: ClusterImage, config: BrokerConfig) -> Generator[None, None, list[str]]:
    """Return the tiered topics that are kept as long as the records about their segments, or longer.

    In slices. Changes of topics that would make one are refused, but not those of the brokers' defaults.
    """
    if REMOTE_LOG_METADATA_TOPIC not in image.topics_by_name:
        return []
    held = topic_config(config, image.topic_config_overrides(REMOTE_LOG_METADATA_TOPIC))
    if held.retention_ms == _NO_LIMIT or "delete" not in held.cleanup_policy:
        return []
    found = []
    for count, (name, theirs) in enumerate(_tiered(image, config), 1):
        if not _is_below(theirs.retention_ms, held.retention_ms):
            found.append(name)
        if count % TOPICS_PER_SLICE == 0:
            yield
    return sorted(found)


def _tiered(image: ClusterImage, config: BrokerConfig) -> Iterator[tuple[str, TopicConfig]]:
    for (kind, name), overrides in image.configs.items():
        if kind == ResourceType.TOPIC and _SWITCH in overrides:
            found = topic_config(config, overrides)
            if found.remote_storage_enable:
                yield name, found


def _is_below(topic_ms: int, metadata_ms: int) -> bool:
    return topic_ms != _NO_LIMIT and topic_ms < metadata_ms
