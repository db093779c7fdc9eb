"""Metrics of compaction, under Kafka's names. WORLD."""

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from firnline.replica.compacting import Compacting

_MANAGER = "kafka_log_logcleanermanager_"
_CLEANER = "kafka_log_logcleaner_"
_FAILING = "firnline_compaction_failing_partitions"


class CompactionFacts(NamedTuple):
    """Percent, seconds, milliseconds, bytes; `uncleanable` is (directory, partitions, bytes).

    stuck  rounds whose process cannot be killed: each uses one of log.cleaner.threads
    """

    uncleanable: list[tuple[str, int, int]]
    max_dirty_percent: int
    since_last_run_ms: int
    delay_s: int
    recopy_percent: int
    map_percent: int
    last_s: float
    rounds: int
    failed: int
    failing: int
    stuck: int
    read_bytes: int
    written_bytes: int


def look(
    compacting: Compacting, directories: list[str], now_ms: int, stuck: int = 0
) -> CompactionFacts:
    """Read the values, on the loop."""
    facts = compacting.facts
    known = facts.uncleanable
    return CompactionFacts(
        [
            (path, len(known.get(path, ())), sum(known.get(path, {}).values()))
            for path in directories
        ],
        facts.max_dirty_percent,
        now_ms - facts.looked_ms if facts.looked_ms else 0,
        facts.max_delay_ms // 1000,
        facts.last_recopy_percent,
        facts.last_map_percent,
        facts.last_seconds,
        facts.rounds,
        facts.failed,
        compacting.failing,
        stuck,
        facts.bytes_read,
        facts.bytes_written,
    )


def families(found: CompactionFacts | None) -> Iterator[Metric]:
    """Yield them as Prometheus families; none on a node without a broker."""
    if found is None:
        return
    count = GaugeMetricFamily(
        _MANAGER + "uncleanable_partitions_count",
        "Logs that are not compacted because a batch is damaged.",
        labels=["logDirectory"],
    )
    size = GaugeMetricFamily(
        _MANAGER + "uncleanable_bytes", "Bytes in these logs.", labels=["logDirectory"]
    )
    for path, partitions, size_bytes in found.uncleanable:
        count.add_metric([path], partitions)
        size.add_metric([path], size_bytes)
    yield count
    yield size
    for name, value, words in (
        (
            _MANAGER + "max_dirty_percent",
            found.max_dirty_percent,
            "Dirty part of the dirtiest log.",
        ),
        (
            _MANAGER + "time_since_last_run_ms",
            found.since_last_run_ms,
            "Time since the last check.",
        ),
        (_CLEANER + "max_compaction_delay_secs", found.delay_s, "Beyond max.compaction.lag.ms."),
        (
            _CLEANER + "cleaner_recopy_percent",
            found.recopy_percent,
            "Part that the last round kept.",
        ),
        (
            _CLEANER + "max_buffer_utilization_percent",
            found.map_percent,
            "Used part of its table of keys.",
        ),
        (_CLEANER + "max_clean_time_secs", found.last_s, "How long the last round took."),
        (_CLEANER + "deadthreadcount", found.stuck, "Rounds whose process cannot be killed."),
        (_FAILING, found.failing, "Logs whose last round failed."),
    ):
        yield GaugeMetricFamily(name, words, value)
    for name, value, words in (
        ("rounds", found.rounds, "Rounds of compaction that were completed."),
        ("failed_rounds", found.failed, "Rounds of compaction that failed."),
        ("read_bytes", found.read_bytes, "Bytes read by rounds."),
        ("written_bytes", found.written_bytes, "Bytes written by rounds."),
    ):
        yield CounterMetricFamily("firnline_compaction_" + name, words, value)
