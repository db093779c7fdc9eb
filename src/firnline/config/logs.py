"""Log directories and defaults of topics. PURE. Names, types, defaults and ranges are Kafka 4.3.1's."""

from dataclasses import dataclass

from firnline.config.define import key
from firnline.config.topic import LONG_MAX


@dataclass(frozen=True, kw_only=True)
class LogKeys:
    """Log directories, and the brokers' defaults of topic settings."""

    auto_create_topics_enable: bool = key(
        "BOOLEAN",
        True,
        "Create a topic when a client requests its metadata and allows creation.",
        importance="HIGH",
    )
    compression_gzip_level: int = key(
        "INT",
        -1,
        "Default of the topic key of the same name.",
        valid="[1,...,9] or -1",
        dynamic=True,
    )
    compression_lz4_level: int = key(
        "INT",
        9,
        "Default of the topic key of the same name.",
        valid="[1,...,17]",
        dynamic=True,
    )
    compression_type: str = key(
        "STRING",
        "producer",
        "Default of the topic key of the same name.",
        valid="[uncompressed, zstd, lz4, snappy, gzip, producer]",
        importance="HIGH",
        dynamic=True,
    )
    compression_zstd_level: int = key(
        "INT",
        3,
        "Default of the topic key of the same name.",
        valid="[-131072,...,22]",
        dynamic=True,
    )
    default_replication_factor: int = key(
        "INT", 1, "Replicas of a topic that is created without saying how many."
    )
    delete_topic_enable: bool = key(
        "BOOLEAN", True, "Whether topics may be deleted.", importance="HIGH"
    )
    firnline_producer_ids_max: int = key(
        "INT",
        500000,
        "Idempotent producers in all partitions of this node, 1.2 KB each. Above it, a new producer makes"
        " the partition that has most forget the one that has been idle longest: a retry of that producer"
        " is not recognised as a duplicate.",
        valid="[1,...]",
    )
    log_cleaner_backoff_ms: int = key(
        "LONG",
        15000,
        "Time between two checks for logs that need compaction.",
        valid="[0,...]",
        dynamic=True,
    )
    log_cleaner_dedupe_buffer_size: int = key(
        "LONG",
        134217728,
        "Memory in bytes for compaction's tables of keys, all threads together.",
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = key(
        "LONG",
        86400000,
        "Default of delete.retention.ms.",
        valid="[0,...]",
        dynamic=True,
    )
    log_cleaner_enable: bool = key("BOOLEAN", True, "Whether compacted topics are compacted.")
    log_cleaner_io_buffer_load_factor: float = key(
        "DOUBLE", 0.9, "Part of the table of keys that may be used.", dynamic=True
    )
    log_cleaner_io_max_bytes_per_second: float = key(
        "DOUBLE",
        1.7976931348623157e308,
        "Bytes per second that compaction may read and write, all threads together.",
        dynamic=True,
    )
    log_cleaner_max_compaction_lag_ms: int = key(
        "LONG",
        LONG_MAX,
        "Default of max.compaction.lag.ms.",
        valid="[1,...]",
        dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: float = key(
        "DOUBLE",
        0.5,
        "Default of min.cleanable.dirty.ratio.",
        valid="[0,...,1]",
        dynamic=True,
    )
    log_cleaner_min_compaction_lag_ms: int = key(
        "LONG", 0, "Default of min.compaction.lag.ms.", valid="[0,...]", dynamic=True
    )
    log_cleaner_threads: int = key(
        "INT",
        1,
        "Logs that are compacted at the same time, each in its own process.",
        valid="[0,...]",
        dynamic=True,
    )
    log_cleanup_policy: tuple[str, ...] = key(
        "LIST", ("delete",), "Default of cleanup.policy.", valid="[compact, delete]", dynamic=True
    )
    cordoned_log_dirs: tuple[str, ...] = key(
        "LIST",
        (),
        "Directories of log.dirs that take no new partitions; * for all.",
        dynamic=True,
        source="KIP-1066",
    )
    log_dir: tuple[str, ...] = key(
        "LIST",
        ("/tmp/kafka-logs",),
        "Directory of partition logs, used if log.dirs is not set.",
        importance="HIGH",
    )
    log_dir_failure_timeout_ms: int = key(
        "LONG",
        30000,
        "A broker stops if it cannot report a failed directory to the controller for so long.",
        valid="[1,...]",
        importance="LOW",
        source="KIP-858",
    )
    log_dirs: tuple[str, ...] = key(
        "LIST", (), "Directories of partition logs, separated by commas.", importance="HIGH"
    )
    log_flush_interval_messages: int = key(
        "LONG",
        LONG_MAX,
        "Default of flush.messages.",
        valid="[1,...]",
        importance="HIGH",
        dynamic=True,
    )
    log_flush_interval_ms: int | None = key(
        "LONG",
        None,
        "Default of flush.ms; if not set, log.flush.scheduler.interval.ms.",
        importance="HIGH",
        dynamic=True,
    )
    log_flush_offset_checkpoint_interval_ms: int = key(
        "INT",
        60000,
        "Time between two writes of the recovery points.",
        valid="[0,...]",
        importance="HIGH",
    )
    log_flush_scheduler_interval_ms: int = key(
        "LONG", LONG_MAX, "Default of log.flush.interval.ms.", importance="HIGH"
    )
    log_flush_start_offset_checkpoint_interval_ms: int = key(
        "INT",
        60000,
        "Time between two writes of the log start offsets.",
        valid="[0,...]",
        importance="HIGH",
        kind="inert",
    )
    log_index_interval_bytes: int = key(
        "INT", 4096, "Default of index.interval.bytes.", valid="[0,...]", dynamic=True
    )
    log_index_size_max_bytes: int = key(
        "INT", 10485760, "Default of segment.index.bytes.", valid="[4,...]", dynamic=True
    )
    log_initial_task_delay_ms: int = key(
        "LONG",
        30000,
        "Time from the start to the first retention and flush.",
        valid="[0,...]",
        importance="LOW",
        internal=True,
        kind="inert",
    )
    log_local_retention_bytes: int = key(
        "LONG",
        -2,
        "Default of local.retention.bytes.",
        valid="[-2,...]",
        source="KIP-405 Configs",
        dynamic=True,
    )
    log_local_retention_ms: int = key(
        "LONG",
        -2,
        "Default of local.retention.ms.",
        valid="[-2,...]",
        source="KIP-405 Configs",
        dynamic=True,
    )
    log_message_timestamp_after_max_ms: int = key(
        "LONG", 3600000, "Default of message.timestamp.after.max.ms.", valid="[0,...]", dynamic=True
    )
    log_message_timestamp_before_max_ms: int = key(
        "LONG",
        LONG_MAX,
        "Default of message.timestamp.before.max.ms.",
        valid="[0,...]",
        dynamic=True,
    )
    log_message_timestamp_type: str = key(
        "STRING",
        "CreateTime",
        "Default of message.timestamp.type.",
        valid="[CreateTime, LogAppendTime]",
        dynamic=True,
    )
    log_retention_bytes: int = key(
        "LONG", -1, "Default of retention.bytes.", importance="HIGH", dynamic=True
    )
    log_retention_check_interval_ms: int = key(
        "LONG", 300000, "Time between two checks for segments to delete.", valid="[1,...]"
    )
    log_retention_hours: int = key(
        "INT",
        168,
        "Default of retention.ms, in hours; used if the two below are not set.",
        importance="HIGH",
    )
    log_retention_minutes: int | None = key(
        "INT",
        None,
        "Default of retention.ms, in minutes; overrides log.retention.hours.",
        importance="HIGH",
    )
    log_retention_ms: int | None = key(
        "LONG",
        None,
        "Default of retention.ms; overrides log.retention.minutes.",
        importance="HIGH",
        dynamic=True,
    )
    log_roll_hours: int = key(
        "INT",
        168,
        "Default of segment.ms, in hours; used if log.roll.ms is not set.",
        valid="[1,...]",
        importance="HIGH",
    )
    log_roll_jitter_hours: int = key(
        "INT",
        0,
        "Default of segment.jitter.ms, in hours; used if log.roll.jitter.ms is not set.",
        valid="[0,...]",
        importance="HIGH",
    )
    log_roll_jitter_ms: int | None = key(
        "LONG", None, "Default of segment.jitter.ms.", importance="HIGH", dynamic=True
    )
    log_roll_ms: int | None = key(
        "LONG", None, "Default of segment.ms.", importance="HIGH", dynamic=True
    )
    log_segment_bytes: int = key(
        "INT",
        1073741824,
        "Default of segment.bytes.",
        valid="[1048576,...]",
        importance="HIGH",
        dynamic=True,
    )
    log_segment_delete_delay_ms: int = key(
        "LONG",
        60000,
        "Default of file.delete.delay.ms.",
        valid="[0,...]",
        importance="HIGH",
        dynamic=True,
    )
    message_max_bytes: int = key(
        "INT",
        1048588,
        "Default of max.message.bytes.",
        valid="[0,...]",
        importance="HIGH",
        dynamic=True,
    )
    min_insync_replicas: int = key(
        "INT",
        1,
        "Default of the topic key of the same name.",
        valid="[1,...]",
        importance="HIGH",
        dynamic=True,
    )
    num_partitions: int = key(
        "INT", 1, "Partitions of a topic that is created without saying how many.", valid="[1,...]"
    )
    producer_id_expiration_check_interval_ms: int = key(
        "INT",
        600000,
        "Time between two checks for idle producers.",
        valid="[1,...]",
        importance="LOW",
        internal=True,
    )
    producer_id_expiration_ms: int = key(
        "INT",
        86400000,
        "Partitions forget a producer that has been idle for so long.",
        valid="[1,...]",
        importance="LOW",
        source="KIP-854",
        dynamic=True,
    )
    replica_high_watermark_checkpoint_interval_ms: int = key(
        "LONG", 5000, "Time between two writes of the high watermarks.", importance="HIGH"
    )
    unclean_leader_election_enable: bool = key(
        "BOOLEAN",
        False,
        "Default of the topic key of the same name.",
        importance="HIGH",
        dynamic=True,
    )
