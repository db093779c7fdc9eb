"""What nobody may do to the topics that the system believes: delete them, or let them forget. PURE.

Coordinators keep groups and transactions in theirs, brokers what the tier holds in another. Kafka 4.3.1 takes
the deletion of each, and every setting (asked). Source: docs/decisions/0025-unreadable-records.md.
"""

from collections.abc import Mapping

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import INTERNAL_TOPICS, REMOTE_LOG_METADATA_TOPIC
from firnline.config.broker import BrokerConfig
from firnline.config.layers import topic_config
from firnline.controller import tier_rules
from firnline.metadata.image import ClusterImage

_NO_LIMIT = -1


def deletion_problem(topic: str) -> KafkaError | None:
    """Say why the topic cannot be deleted, or return None."""
    if topic == REMOTE_LOG_METADATA_TOPIC:
        return tier_rules.NOT_DELETED
    if topic not in INTERNAL_TOPICS:
        return None
    why = f"{topic} holds what coordinators wrote, and cannot be deleted"
    return KafkaError(Code.POLICY_VIOLATION, why)


def settings_problem(
    image: ClusterImage, config: BrokerConfig, topic: str, overrides: Mapping[str, str]
) -> KafkaError | None:
    """Say why `topic` may not have these overrides, or return None."""
    if topic not in INTERNAL_TOPICS:
        return tier_rules.settings_problem(image, config, topic, overrides)
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
