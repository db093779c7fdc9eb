"""What the tier is told by configuration, in one value. PURE. Names and defaults: spec 3.2."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from firnline.base.errors import ConfigError
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC
from firnline.base.units import HOUR_MS, INT64_MAX, MIB

NO_LIMIT = -1


class BrokerSettings(Protocol):
    """The keys of `config.broker.BrokerConfig` that the tier reads."""

    @property
    def node_id(self) -> int: ...
    @property
    def remote_log_manager_task_interval_ms(self) -> int: ...
    @property
    def remote_log_manager_task_retry_backoff_ms(self) -> int: ...
    @property
    def remote_log_manager_task_retry_backoff_max_ms(self) -> int: ...
    @property
    def remote_log_manager_task_retry_jitter(self) -> float: ...
    @property
    def remote_log_metadata_custom_metadata_max_bytes(self) -> int: ...
    @property
    def remote_log_index_file_cache_total_size_bytes(self) -> int: ...
    @property
    def remote_log_manager_copy_max_bytes_per_second(self) -> int: ...
    @property
    def remote_log_manager_copy_quota_window_num(self) -> int: ...
    @property
    def remote_log_manager_copy_quota_window_size_seconds(self) -> int: ...
    @property
    def remote_log_manager_fetch_max_bytes_per_second(self) -> int: ...
    @property
    def remote_log_manager_fetch_quota_window_num(self) -> int: ...
    @property
    def remote_log_manager_fetch_quota_window_size_seconds(self) -> int: ...
    @property
    def remote_fetch_max_wait_ms(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """Resolved settings of one node's tier. Milliseconds, bytes."""

    node_id: int = 0
    task_interval_ms: int = 30_000
    retry_backoff_ms: int = 500
    retry_backoff_max_ms: int = 30_000
    retry_jitter: float = 0.2
    custom_metadata_max_bytes: int = 128
    index_cache_bytes: int = 1024 * MIB
    copy_bytes_per_second: int = INT64_MAX
    copy_quota_windows: int = 11
    copy_quota_window_ms: int = 1000
    fetch_bytes_per_second: int = INT64_MAX
    fetch_quota_windows: int = 11
    fetch_quota_window_ms: int = 1000
    fetch_max_wait_ms: int = 500
    # A COPY_STARTED of another broker that is older than this is nobody's any more (rel-T13).
    dangling_after_ms: int = HOUR_MS
    remover_interval_ms: int = HOUR_MS  # remote.partition.remover.task.interval.ms, the seed's
    metadata_partitions: int = 50
    metadata_replication_factor: int = 3
    metadata_retention_ms: int = NO_LIMIT
    metadata_consume_wait_ms: int = 120_000
    metadata_init_retry_ms: int = 100
    metadata_init_retry_max_ms: int = 120_000

    def metadata_topic_configs(self) -> dict[str, str]:
        """Return the topic configs `__remote_log_metadata` is created with (spec T17)."""
        return {
            "cleanup.policy": "delete",
            "retention.ms": str(self.metadata_retention_ms),
            "remote.storage.enable": "false",
        }


_METADATA_KEYS = {
    "remote.log.metadata.topic.num.partitions": "metadata_partitions",
    "remote.log.metadata.topic.replication.factor": "metadata_replication_factor",
    "remote.log.metadata.topic.retention.ms": "metadata_retention_ms",
    "remote.log.metadata.consume.wait.ms": "metadata_consume_wait_ms",
    "remote.log.metadata.initialization.retry.interval.ms": "metadata_init_retry_ms",
    "remote.log.metadata.initialization.retry.max.timeout.ms": "metadata_init_retry_max_ms",
    "remote.partition.remover.task.interval.ms": "remover_interval_ms",
}
# Given to the clients of a metadata manager that has some; ours appends and reads in the node itself.
_CLIENT_PREFIXES = (
    "remote.log.metadata.common.client.",
    "remote.log.metadata.producer.",
    "remote.log.metadata.consumer.",
)


def tier_settings(config: BrokerSettings, metadata_keys: Mapping[str, str]) -> TierSettings:
    """Resolve settings from the broker's keys and those below `rlmm.config.` (prefix cut off).

    Raises ConfigError for a value that cannot be used or a key that the topic-based metadata manager
    does not have.
    """
    settings = TierSettings(
        node_id=config.node_id,
        task_interval_ms=config.remote_log_manager_task_interval_ms,
        retry_backoff_ms=config.remote_log_manager_task_retry_backoff_ms,
        retry_backoff_max_ms=config.remote_log_manager_task_retry_backoff_max_ms,
        retry_jitter=config.remote_log_manager_task_retry_jitter,
        custom_metadata_max_bytes=config.remote_log_metadata_custom_metadata_max_bytes,
        index_cache_bytes=config.remote_log_index_file_cache_total_size_bytes,
        copy_bytes_per_second=config.remote_log_manager_copy_max_bytes_per_second,
        copy_quota_windows=config.remote_log_manager_copy_quota_window_num,
        copy_quota_window_ms=1000 * config.remote_log_manager_copy_quota_window_size_seconds,
        fetch_bytes_per_second=config.remote_log_manager_fetch_max_bytes_per_second,
        fetch_quota_windows=config.remote_log_manager_fetch_quota_window_num,
        fetch_quota_window_ms=1000 * config.remote_log_manager_fetch_quota_window_size_seconds,
        fetch_max_wait_ms=config.remote_fetch_max_wait_ms,
    )
    return replace(settings, **_metadata_values(metadata_keys))


def _metadata_values(keys: Mapping[str, str]) -> dict[str, int]:
    values: dict[str, int] = {}
    for key, text in keys.items():
        if key.startswith(_CLIENT_PREFIXES):
            continue
        attribute = _METADATA_KEYS.get(key)
        if attribute is None:
            raise ConfigError("the topic-based metadata manager has no such key", key=key)
        try:
            value = int(text)
        except ValueError:
            raise ConfigError("not a whole number", key=key, value=text) from None
        is_no_limit = attribute == "metadata_retention_ms" and value == NO_LIMIT
        if value <= 0 and not is_no_limit:
            raise ConfigError("must be above 0", key=key, value=value)
        values[attribute] = value
    return values


# ------------------------------------------------------------------------------- rules for topics


class TopicTier(Protocol):
    """The keys of `config.topic.TopicConfig` that the tier reads."""

    @property
    def cleanup_policy(self) -> tuple[str, ...]: ...
    @property
    def retention_ms(self) -> int: ...
    @property
    def retention_bytes(self) -> int: ...
    @property
    def local_retention_ms(self) -> int: ...
    @property
    def local_retention_bytes(self) -> int: ...
    @property
    def remote_storage_enable(self) -> bool: ...
    @property
    def remote_log_copy_disable(self) -> bool: ...
    @property
    def remote_log_delete_on_disable(self) -> bool: ...


def is_tiered(topic: str, config: TopicTier) -> bool:
    """Whether the tier has anything to do with the topic, given that the node has one (spec T4)."""
    return config.remote_storage_enable and refusal_of_policy(topic, config) is None


def refusal_of_policy(topic: str, config: TopicTier) -> str | None:
    """Say why this topic cannot be tiered, or None."""
    if topic.startswith("__") and topic in _NEVER_TIERED:
        return f"{topic} is internal and cannot be tiered"
    if "compact" in config.cleanup_policy:
        return "a compacted topic cannot be tiered: remove compact from cleanup.policy"
    return None


_NEVER_TIERED = frozenset(
    {
        REMOTE_LOG_METADATA_TOPIC,
        "__cluster_metadata",
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
    }
)


def topic_refusal(
    topic: str,
    config: TopicTier,
    *,
    is_system_enabled: bool,
    was_enabled: bool,
    metadata_retention_ms: int = NO_LIMIT,
) -> str | None:
    """Say why a topic may not be created or altered to `config` (INVALID_CONFIG), or None. T7, T52.

    `was_enabled` is remote.storage.enable before the change; False for a new topic.
    """
    if not config.remote_storage_enable:
        if was_enabled and not config.remote_log_delete_on_disable:
            return (
                "remote.storage.enable can be turned off only with "
                "remote.log.delete.on.disable=true, which deletes what the tier holds"
            )
        return None
    if not is_system_enabled:
        return "remote.storage.enable needs remote.log.storage.system.enable=true on the brokers"
    return (
        refusal_of_policy(topic, config)
        or _refusal_of_limits(config, "ms", config.local_retention_ms, config.retention_ms)
        or _refusal_of_limits(config, "bytes", config.local_retention_bytes, config.retention_bytes)
        or _refusal_of_metadata(config, metadata_retention_ms)
    )


def _refusal_of_limits(config: TopicTier, unit: str, local: int, total: int) -> str | None:
    if local == -2:
        return None
    if config.remote_log_copy_disable and local != total:
        return (
            f"with remote.log.copy.disable=true local.retention.{unit} must be -2 or equal to "
            f"retention.{unit}, for nothing new leaves the local log for the tier"
        )
    if local == NO_LIMIT and total != NO_LIMIT:
        return f"local.retention.{unit} is -1 (no limit) while retention.{unit} is {total}"
    if local > total >= 0:
        return f"local.retention.{unit} ({local}) exceeds retention.{unit} ({total})"
    return None


def _refusal_of_metadata(config: TopicTier, metadata_retention_ms: int) -> str | None:
    """A metadata topic that forgets before its topics do loses their segments (spec T52)."""
    if metadata_retention_ms == NO_LIMIT:
        return None
    if config.retention_ms == NO_LIMIT or config.retention_ms >= metadata_retention_ms:
        return (
            f"retention.ms ({config.retention_ms}) must be below "
            f"remote.log.metadata.topic.retention.ms ({metadata_retention_ms}), "
            "or the tier forgets segments that are still to be read"
        )
    return None
