"""A broker without a tier in a cluster with tiered topics: what it refuses, and its warnings. PURE.

The local files of such a partition are only its end: the broker would take the start of its files for the log
start. So it does not start with a replica of a tiered topic, and does not serve one that it gets later. Kafka
4.3.1 logs the same refusal as a metadata publishing fault, and stays up. Source: spec T7, T61.
"""

from collections.abc import Mapping
from itertools import islice

from firnline.base.errors import ConfigError, StorageError
from firnline.config.broker import BrokerConfig
from firnline.config.layers import topic_config
from firnline.log.retention import is_tiered
from firnline.metadata.image import ClusterImage, ResourceType

SWITCH = "remote.log.storage.system.enable"
_KEY = "remote.storage.enable"
_NAMED = 5
_REMEDY = (
    f"start it with {SWITCH}=true and the tier that it had (`firnline dev`: --tier URI); or first delete"
    " these topics on a broker with the tier"
)


def needs_disabled_tier(config: BrokerConfig, topic: str, overrides: Mapping[str, str]) -> bool:
    """Whether the topic is tiered, and this broker has no tier."""
    if config.remote_log_storage_system_enable or _KEY not in overrides:
        return False
    return is_tiered(topic, topic_config(config, overrides))


def refuse_start(config: BrokerConfig, image: ClusterImage) -> None:
    """Raise ConfigError if this broker, without a tier, has replicas of tiered topics."""
    if config.remote_log_storage_system_enable:
        return
    found = (
        name
        for (kind, name), overrides in image.configs.items()
        if kind == ResourceType.TOPIC
        and needs_disabled_tier(config, name, overrides)
        and _is_here(image, name, config.node_id)
    )
    topics = list(islice(found, _NAMED + 1))
    if topics:
        more = " and more" if len(topics) > _NAMED else ""
        raise ConfigError(
            f"{SWITCH} is false, and this broker holds tiered topics: {', '.join(topics[:_NAMED])}{more}."
            f" Nothing was changed: {_REMEDY}"
        )


def _is_here(image: ClusterImage, name: str, node_id: int) -> bool:
    topic = image.topics_by_name.get(name)
    return topic is not None and any(node_id in p.replicas for p in topic.partitions.values())


def not_served() -> StorageError:
    """Return the error of a tiered partition that was assigned to a running broker without a tier."""
    return StorageError(
        f"its topic is tiered, and this broker has no tier ({SWITCH} is false)",
        remedy="move it to a broker with a tier, or start this one with the tier of the cluster",
    )
