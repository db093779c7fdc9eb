"""A broker without a tier in a cluster that has tiered topics: what it refuses, and what it says. PURE.

Its files are not the whole of such a partition: what it takes for the log's start would be that of its own
files. So it does not start while it holds one, and does not serve one that comes later. Kafka 4.3.1 logs the
same refusal as a metadata publishing fault, and stays up. Source: spec T7, T61.
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
    f"start it with {SWITCH}=true and the tier that it had (`firnline dev`: --tier URI); or delete these"
    " topics, with the tier, before"
)


def is_beyond(config: BrokerConfig, topic: str, overrides: Mapping[str, str]) -> bool:
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
        and is_beyond(config, name, overrides)
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
    """Why a tiered partition that came while the broker ran is not served."""
    return StorageError(
        f"its topic is tiered, and this broker has no tier ({SWITCH} is false)",
        remedy="move it to a broker that has one, or start this one with the tier of the cluster",
    )


def tiered_meanwhile(topic: str) -> str:
    """What the operator is told of a topic that was made tiered under a broker without a tier."""
    return (
        f"{topic} is tiered from now on, and this broker has no tier ({SWITCH} is false): it goes on with the"
        " records it has, copies and deletes nothing, and will not start again without the tier"
    )
