"""The configuration of the tier in one object. PURE. Names and defaults: spec 3.2."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from firnline.base.errors import ConfigError
from firnline.base.units import HOUR_MS, INT64_MAX, MIB, MINUTE_MS, SECOND_MS
from firnline.config.broker import BrokerConfig

NO_LIMIT = -1
# Kafka leaves the time limits of a store to its plug-in, and has no settings for them. A call that is still
# unanswered after this time is one of a store that hangs: clients of object stores end theirs after a minute.
STORE_TIMEOUT_MS = MINUTE_MS
# The slowest store that is of use. Work that moves many bytes, or makes many calls, may take longer by that.
_STORE_BYTES_PER_MS = MIB // 1000
_STORE_CALL_MS = 200


def store_timeout_ms(size_bytes: int = 0, calls: int = 0) -> int:
    """Return the time limit of work that moves that many bytes from or to the store, in so many calls."""
    return STORE_TIMEOUT_MS + size_bytes // _STORE_BYTES_PER_MS + calls * _STORE_CALL_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """The resolved settings of one node's tier, in milliseconds and bytes."""

    node_id: int = 0
    task_interval_ms: int = 30_000
    # The interval at which the total limits of a partition are applied; 0: in each run.
    retention_interval_ms: int = 0
    # Within this time a segment that is due is copied, synced and deleted, if nothing stands still.
    local_audit_interval_ms: int = 390 * SECOND_MS
    # An active segment is closed after this time without an append; 0: never because of it.
    roll_idle_ms: int = 0
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
    copier_threads: int = 10
    reader_threads: int = 10
    # Memory for what is read ahead of consumers from a distant store; 0: nothing is.
    read_ahead_bytes: int = 64 * MIB
    list_offsets_timeout_ms: int = 30_000
    # A COPY_STARTED of another broker that is older than this is abandoned (rel-T13).
    dangling_after_ms: int = HOUR_MS
    # A put of an abandoned copy may end this long after its deletion: then it is deleted once more.
    late_put_ms: int = 10 * MINUTE_MS
    # `file.delete.delay.ms` for the objects of deleted topics, whose configuration is gone.
    delete_delay_ms: int = MINUTE_MS
    remover_interval_ms: int = HOUR_MS  # remote.partition.remover.task.interval.ms of KIP-405
    metadata_partitions: int = 50
    metadata_replication_factor: int = 3
    metadata_retention_ms: int = NO_LIMIT
    metadata_consume_wait_ms: int = 120_000
    metadata_init_retry_ms: int = 100
    metadata_init_retry_max_ms: int = 120_000

    def metadata_topic_configs(self) -> dict[str, str]:
        """Return the topic configs with which `__remote_log_metadata` is created (spec T17)."""
        return {
            "cleanup.policy": "delete",
            # The limits of the brokers' defaults must not apply to it.
            "retention.bytes": "-1",
            "retention.ms": str(self.metadata_retention_ms),
            "remote.storage.enable": "false",
            # A broker whose clock is hours ahead must still be able to say what it did with its segments.
            "message.timestamp.after.max.ms": str(INT64_MAX),
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
# For the clients of other metadata managers; ours appends and reads inside the node.
_CLIENT_PREFIXES = (
    "remote.log.metadata.common.client.",
    "remote.log.metadata.producer.",
    "remote.log.metadata.consumer.",
)


def tier_settings(config: BrokerConfig) -> TierSettings:
    """Resolve the broker's keys, and those for the topic-based metadata manager.

    Raises ConfigError for an invalid value, or a key that this metadata manager does not have.
    """
    metadata_keys = config.with_prefix(config.remote_log_metadata_manager_impl_prefix)
    settings = TierSettings(
        node_id=config.node_id,
        task_interval_ms=config.remote_log_manager_task_interval_ms,
        retention_interval_ms=(
            config.log_retention_check_interval_ms
            if config.firnline_local_retention_check_interval_ms
            else 0
        ),
        local_audit_interval_ms=(
            config.remote_log_manager_task_interval_ms
            + config.log_flush_offset_checkpoint_interval_ms
            + (
                config.firnline_local_retention_check_interval_ms
                or config.log_retention_check_interval_ms
            )
        ),
        roll_idle_ms=config.firnline_remote_log_roll_idle_ms,
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
        delete_delay_ms=config.log_segment_delete_delay_ms,
        copier_threads=config.remote_log_manager_copier_thread_pool_size,
        reader_threads=config.remote_log_reader_threads,
        read_ahead_bytes=config.firnline_remote_read_ahead_max_bytes,
        list_offsets_timeout_ms=config.remote_list_offsets_request_timeout_ms,
    )
    if not config.has_metadata_topic:  # then the keys are those of the user's own
        return settings
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
