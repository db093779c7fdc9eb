"""What a log derives from its topic's configuration, once for each change. PURE."""

from dataclasses import dataclass

from crc32c import crc32c

from firnline.config.topic import TopicConfig
from firnline.log.segment import IndexRules, index_rules
from firnline.records.compression import STORED_CODECS
from firnline.records.validate import BatchLimits


# Slots: an append reads six of these, and a class with more than some thirty attributes of its own, as the
# log would be with them, makes each read of an attribute slower.
@dataclass(frozen=True, slots=True)
class LogSettings:
    """A topic's configuration, in the form that an append needs.

    limits              what a producer's batch is checked against
    stored_codec        the codec that every stored batch has; None: the one that its producer chose
    segment_bytes       a segment that would grow beyond it is rolled
    segment_ms          a segment that has been open for longer is rolled; less the jitter of this log
    index_rules         of each segment
    is_log_append_time  whether the log replaces the timestamps of producers
    flush_messages      after that many an append waits for a sync; INT64_MAX: never for that reason
    """

    config: TopicConfig
    limits: BatchLimits
    stored_codec: int | None
    segment_bytes: int
    segment_ms: int
    index_rules: IndexRules
    is_log_append_time: bool
    flush_messages: int


def log_settings(config: TopicConfig, path: str) -> LogSettings:
    """Return the settings of the log at `path`."""
    is_log_append_time = config.message_timestamp_type == "LogAppendTime"
    is_compacted = "compact" in config.cleanup_policy
    segment_ms = config.segment_ms - _jitter_ms(config, path)
    if is_compacted:
        segment_ms = min(segment_ms, config.max_compaction_lag_ms)
    return LogSettings(
        config=config,
        limits=BatchLimits(
            config.max_message_bytes,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
            is_log_append_time,
            is_compacted,
        ),
        stored_codec=STORED_CODECS[config.compression_type],
        segment_bytes=config.segment_bytes,
        segment_ms=segment_ms,
        index_rules=index_rules(config),
        is_log_append_time=is_log_append_time,
        flush_messages=config.flush_messages,
    )


def _jitter_ms(config: TopicConfig, path: str) -> int:
    """Spread the rolls of partitions over segment.jitter.ms: a fixed share of it for each path."""
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return crc32c(path.encode()) % limit if limit > 0 else 0
