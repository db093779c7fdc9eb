"""Which log is compacted when, and what becomes of a round when the log changes under it."""

from typing import Any

import pytest

from firnline.base.effects import Compact, Effects, SetTimer
from firnline.base.errors import StorageError
from firnline.base.ids import TopicPartition
from firnline.formats.producer_snapshot import SnapshotEntry
from firnline.log import checkpoint
from firnline.log.log import Log
from firnline.log.producer_state import Producer
from firnline.log.truncation import Kept
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from firnline.records.build import NewRecord, build_batch
from firnline.replica import compacting
from firnline.server import compaction_metrics
from tests.worlds.effects import only
from tests.worlds.harness import DATA, Harness
from tests.worlds.log import ABORT, found_records, marker

LOOK_MS = 1000
SETTINGS: dict[str, Any] = {
    "log_cleaner_backoff_ms": str(LOOK_MS),
    "log_flush_offset_checkpoint_interval_ms": "100",
    "replica_high_watermark_checkpoint_interval_ms": "100",
    "log_segment_bytes": "1048576",
}


def node(**more: Any) -> Harness:
    return Harness(**(SETTINGS | more))


def topic(harness: Harness, name: str = "t", **configs: Any) -> Log:
    """Make a compacted topic with closed segments full of old values; return its log."""
    settings: dict[str, Any] = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.1"}
    harness.create_topic(name, **(settings | configs))
    log = harness.node.hosted.by_name[TopicPartition(name, 0)].log
    dirty(harness, log)
    return log


def dirty(harness: Harness, log: Log) -> None:
    for number in range(30):
        data = build_batch([NewRecord(b"k%d" % (number % 3), b"%d" % number, harness.now_ms)])
        answer = harness.produced(topic=log.topic_partition.topic, data=data)
        assert answer.error_code == 0
        if number % 10 == 9:
            log.roll(harness.now_ms)


def test_a_compacted_topic_is_compacted_and_others_are_not() -> None:
    harness = node()
    log, plain = topic(harness), topic(harness, "plain", cleanup_policy="delete")
    before, plain_before = log.size_bytes, plain.size_bytes
    harness.pass_time(10 * LOOK_MS)
    assert log.size_bytes < before / 4
    assert plain.size_bytes == plain_before
    assert log.compaction.first_dirty_offset == 30
    facts = harness.node.parts.compacting.facts
    assert (facts.rounds, facts.failed) == (1, 0)


def test_the_disk_knows_of_the_gaps_before_there_are_any() -> None:
    harness = node()
    log = topic(harness)
    harness.holds_rounds = True
    harness.pass_time(3 * LOOK_MS)
    assert harness.rounds
    said = checkpoint.read_offsets(harness.fs, f"{DATA}/{checkpoint.CLEANER_OFFSETS}")
    points = checkpoint.read_offsets(harness.fs, f"{DATA}/{checkpoint.RECOVERY_POINTS}")
    assert said[log.topic_partition] == 0
    assert points[log.topic_partition] >= harness.rounds[0].job.upto_offset


def test_no_log_is_touched_where_the_cleaner_is_off() -> None:
    harness = node(log_cleaner_enable="false")
    log = topic(harness)
    before = log.size_bytes
    harness.pass_time(10 * LOOK_MS)
    assert log.size_bytes == before


def test_so_many_rounds_at_a_time_as_there_are_threads_the_dirtiest_first() -> None:
    for threads in (1, 2):
        harness = node(log_cleaner_threads=str(threads))
        once = topic(harness, "once")
        harness.pass_time(3 * LOOK_MS)
        harness.holds_rounds = True
        dirty(harness, once)
        dirty(harness, once)
        logs = [topic(harness, name) for name in ("a", "b")]
        harness.pass_time(3 * LOOK_MS)
        begun = {effect.job.path for effect in harness.rounds}
        assert len(begun) == threads
        assert begun <= {log.path for log in logs}, "one that is cleaner came first"


def test_a_log_with_a_damaged_batch_is_left_out_and_the_others_go_on() -> None:
    harness = node()
    log, other = topic(harness, "bad"), topic(harness, "good")
    segment = log.closed_segments()[0]
    harness.fs.files(log.path)[segment.stem_path.rpartition("/")[2] + ".log"].data[80] ^= 1
    before = log.size_bytes
    harness.pass_time(20 * LOOK_MS)
    assert log.size_bytes == before
    assert other.size_bytes < before / 4
    reported = [
        line for line in harness.warnings if "log is not compacted topic=bad partition=0" in line
    ]
    assert len(reported) == 1
    assert "offset=1 " in reported[0]
    facts = compaction_metrics.look(harness.node.parts.compacting, [DATA], harness.now_ms)
    assert facts.uncleanable == [(DATA, 1, before)]
    names = {family.name for family in compaction_metrics.families(facts)}
    assert "kafka_log_logcleanermanager_uncleanable_partitions_count" in names


def test_a_topic_that_is_deleted_before_its_round_begins_has_none() -> None:
    """The disk is told of the gaps first, which takes a while."""
    harness = node()
    topic(harness)
    harness.holds_work = True
    [look] = [timer for key, timer in harness.timers.items() if key[0] == "compaction"]
    harness.run(look.then(harness.now_ms))
    assert harness.work
    harness.holds_work = False
    harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    while harness.work:
        harness.work_once()
    harness.pass_time(3 * LOOK_MS)
    facts = harness.node.parts.compacting.facts
    assert (harness.rounds, facts.rounds, facts.failed, facts.void) == ([], 0, 0, 0)


def test_a_round_of_a_topic_that_was_deleted_meanwhile_changes_nothing() -> None:
    harness = node()
    topic(harness)
    harness.holds_rounds = True
    harness.pass_time(3 * LOOK_MS)
    job = harness.rounds[0]
    harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    again = topic(harness)
    before = again.size_bytes
    harness.compact_once()
    assert again.size_bytes == before
    assert job.job.path == again.path
    facts = harness.node.parts.compacting.facts
    assert (facts.void, facts.rounds, facts.failed) == (1, 0, 0)


def test_a_round_that_a_stop_overtakes_changes_nothing() -> None:
    harness = node()
    log = topic(harness)
    harness.holds_rounds = True
    harness.pass_time(3 * LOOK_MS)
    before = log.size_bytes
    fs = harness.stop()
    harness.compact_once()
    assert log.size_bytes == before
    again = Harness(fs, **SETTINGS)
    again.pass_time(10 * LOOK_MS)
    found = again.node.hosted.by_name[TopicPartition("t", 0)].log
    assert found.size_bytes < before / 4


def test_a_round_of_a_topic_that_is_to_be_compacted_no_more_changes_nothing() -> None:
    harness = node()
    log = topic(harness)
    harness.holds_rounds = True
    harness.pass_time(3 * LOOK_MS)
    before = log.size_bytes
    change = AlterableConfig(name="cleanup.policy", config_operation=0, value="delete")
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    harness.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    harness.compact_once()
    assert log.size_bytes == before
    facts = harness.node.parts.compacting.facts
    assert (facts.void, facts.rounds, facts.failed) == (1, 0, 0)


def test_a_full_disk_is_reported_once_and_tried_again() -> None:
    harness = node()
    log = topic(harness)
    before = log.size_bytes
    harness.fs.fail("append", ".cleaned", "ENOSPC", times=3)
    harness.pass_time(3 * LOOK_MS)
    assert len([line for line in harness.warnings if "not compacted" in line]) == 1
    harness.pass_time(10 * LOOK_MS)
    assert log.size_bytes < before / 4


def test_a_disk_that_fails_while_a_segment_is_put_in_place_is_out_of_use() -> None:
    """What is in the files then, only a start can tell; this node has no other directory, and ends."""
    harness = node()
    topic(harness)
    harness.fs.fail("rename", ".swap", "EIO", times=1)
    with pytest.raises(StorageError, match="a log directory failed"):
        harness.pass_time(3 * LOOK_MS)


def test_tombstones_go_when_their_time_is_over() -> None:
    harness = node(log_cleaner_delete_retention_ms="1")
    log = topic(harness, "u", delete_retention_ms="1")
    gone = build_batch([NewRecord(b"k0", None, harness.now_ms)])
    harness.produced(topic=log.topic_partition.topic, data=gone)
    for turn in range(3):
        data = build_batch([NewRecord(b"n%d" % turn, b"v", harness.now_ms)])
        harness.produced(topic=log.topic_partition.topic, data=data)
        log.roll(harness.now_ms)
        harness.pass_time(5 * LOOK_MS)
    assert harness.fetched(0, topic=log.topic_partition.topic).error_code == 0
    keys = [record.key for record in found_records(log)]
    assert keys == [b"k1", b"k2", b"n0", b"n1", b"n2"]


def test_a_round_that_retention_overtakes_is_void_and_no_failure() -> None:
    """The operator read that a file could not be opened, of a topic that was as it should be."""
    harness = node()
    log = topic(harness, cleanup_policy="compact,delete", retention_ms="3600000")
    harness.holds_rounds = True
    harness.pass_time(3 * LOOK_MS)
    assert harness.rounds
    harness.run(log.delete_due_segments(harness.now_ms + 7_200_000))
    assert log.first_base_offset > 0
    harness.compact_once()
    facts = harness.node.parts.compacting.facts
    assert (facts.void, facts.failed, facts.rounds) == (1, 0, 0)
    assert not [line for line in harness.warnings if "is not compacted" in line]


def test_a_file_that_is_missing_without_retention_is_a_failure_that_is_reported() -> None:
    harness = node()
    log = topic(harness, cleanup_policy="compact,delete")
    harness.holds_rounds = True
    harness.pass_time(3 * LOOK_MS)
    path = log.closed_segments()[0].stem_path + ".log"
    harness.fs.rename(path, "/gone")
    harness.compact_once()
    facts = harness.node.parts.compacting.facts
    assert (facts.void, facts.failed) == (0, 1)
    assert [line for line in harness.warnings if "is not compacted" in line]


def test_a_topic_that_is_made_again_under_the_name_of_a_damaged_one_is_compacted() -> None:
    """It was put aside with the old one until the next start, and its directory counted both for ever."""
    harness = node()
    log = topic(harness)
    segment = log.closed_segments()[0]
    harness.fs.files(log.path)[segment.stem_path.rpartition("/")[2] + ".log"].data[80] ^= 1
    harness.pass_time(3 * LOOK_MS)
    facts = harness.node.parts.compacting.facts
    assert [list(known) for known in facts.uncleanable.values()] == [[log]]
    harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    again = topic(harness)
    before = again.size_bytes
    harness.pass_time(10 * LOOK_MS)
    assert again.size_bytes < before / 4
    assert compaction_metrics.look(harness.node.parts.compacting, [DATA], 0).uncleanable == [
        (DATA, 0, 0)
    ]


def test_a_look_over_many_logs_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting, "_SLICE_COST", 1)
    harness = node(log_cleaner_threads="2")
    logs = [topic(harness, name) for name in ("a", "b")]
    before = [log.size_bytes for log in logs]
    [look] = [timer for key, timer in harness.timers.items() if key[0] == "compaction"]
    effects = look.then(harness.now_ms)
    assert only(effects, SetTimer).at_ms == harness.now_ms, (
        "it goes on at once, in a step of its own"
    )
    harness.run(effects)
    harness.pass_time(10 * LOOK_MS)
    assert all(log.size_bytes < was / 4 for log, was in zip(logs, before, strict=True))


@pytest.mark.parametrize("name", [checkpoint.CLEANER_OFFSETS, checkpoint.RECOVERY_POINTS])
def test_a_disk_that_is_full_when_a_round_is_due_stops_no_broker(name: str) -> None:
    """The checkpoint before the round found no room; the directory was out of use, and the node went."""
    harness = node()
    log = topic(harness)
    before = log.size_bytes
    harness.fs.fail("append", name, "ENOSPC", times=1000)
    harness.pass_time(5 * LOOK_MS)
    partition = harness.node.hosted.by_name[log.topic_partition]
    assert not partition.is_offline
    assert log.size_bytes == before
    reported = [
        line for line in harness.warnings if "log is not compacted topic=t partition=0" in line
    ]
    assert len(reported) == 1
    assert "ENOSPC" in reported[0]
    compacting_now = harness.node.parts.compacting
    assert compaction_metrics.look(compacting_now, [DATA], 0).failing == 1
    harness.fs.forgive()
    harness.pass_time(5 * LOOK_MS)
    assert log.size_bytes < before / 4
    assert compaction_metrics.look(compacting_now, [DATA], 0).failing == 0


def test_a_disk_that_fails_when_a_round_is_due_is_out_of_use() -> None:
    harness = node()
    log = topic(harness)
    harness.fs.fail("append", checkpoint.CLEANER_OFFSETS, "EIO", times=1000)
    with pytest.raises(StorageError, match="out of use"):
        harness.pass_time(5 * LOOK_MS)
    assert harness.node.hosted.by_name[log.topic_partition].is_offline


def test_a_log_that_cannot_be_compacted_keeps_no_other_from_it() -> None:
    """The dirtiest came first, failed, and came first again."""
    harness = node(log_cleaner_threads="1")
    bad, good = topic(harness, "bad"), topic(harness, "good")
    before = good.size_bytes
    dirty(harness, bad)
    harness.fs.fail("append", f"{bad.path}/", "ENOSPC", times=1_000_000)
    harness.pass_time(20 * LOOK_MS)
    facts = harness.node.parts.compacting.facts
    assert facts.failed > 1
    assert good.size_bytes < before / 4
    assert harness.node.parts.compacting.failing == 1
    harness.ask(DeleteTopicsRequest(topic_names=["bad"], timeout_ms=1000), 5)
    harness.pass_time(3 * LOOK_MS)
    assert harness.node.parts.compacting.failing == 0


def test_a_full_disk_in_the_middle_of_a_swap_leaves_the_log_as_it_was() -> None:
    """A longer name may need room; half a swap put the directory out of use."""
    names_changed = 0
    while True:
        harness = node()
        log = topic(harness)
        before, records = log.size_bytes, [record.offset for record in found_records(log)]
        harness.fs.fail("rename", f"{log.path}/", "ENOSPC", skip=names_changed)
        reported: list[str] = []
        while not reported and log.size_bytes == before:
            harness.pass_time(LOOK_MS // 10)
            reported = [
                line
                for line in harness.warnings
                if "log is not compacted topic=t partition=0" in line
            ]
        if not reported:
            break
        assert "ENOSPC" in reported[0]
        assert not harness.node.hosted.by_name[log.topic_partition].is_offline
        assert (log.size_bytes, [record.offset for record in found_records(log)]) == (
            before,
            records,
        )
        swaps = [name for name in harness.fs.list_dir(log.path) if ".swap" in name]
        assert not swaps
        again = Harness(harness.fs.kill(), **SETTINGS)
        found = again.node.hosted.by_name[log.topic_partition].log
        assert [record.offset for record in found_records(found)] == records
        again.pass_time(10 * LOOK_MS)
        assert found.size_bytes < before / 4
        names_changed += 1
    assert names_changed > 8


# Asked of Kafka 4.3.1: LogCleaner's METRIC_NAMES, LogCleanerManager's GAUGE_METRIC_NAME_NO_TAG, and two by
# directory.
OF_KAFKA = {
    "LogCleaner": [
        "max-buffer-utilization-percent",
        "cleaner-recopy-percent",
        "max-clean-time-secs",
        "max-compaction-delay-secs",
        "DeadThreadCount",
    ],
    "LogCleanerManager": [
        "max-dirty-percent",
        "time-since-last-run-ms",
        "uncleanable-partitions-count",
        "uncleanable-bytes",
    ],
}


def test_every_gauge_of_kafkas_cleaner_is_there_under_the_name_its_exporter_gives_it() -> None:
    harness = node()
    topic(harness)
    harness.pass_time(10 * LOOK_MS)
    found = compaction_metrics.look(harness.node.parts.compacting, [DATA], harness.now_ms, stuck=3)
    values = {
        family.name: [sample.value for sample in family.samples]
        for family in compaction_metrics.families(found)
    }
    for bean, gauges in OF_KAFKA.items():
        for gauge in gauges:
            name = f"kafka_log_{bean}_{gauge}".replace("-", "_").lower()
            assert len(values[name]) == 1, name
    assert values["kafka_log_logcleaner_deadthreadcount"] == [3]
    assert values["kafka_log_logcleanermanager_time_since_last_run_ms"][0] <= LOOK_MS
    assert 0 < values["kafka_log_logcleaner_cleaner_recopy_percent"][0] < 25
    assert values["kafka_log_logcleanermanager_max_dirty_percent"] == [0]


def test_an_abort_that_a_full_disk_kept_from_its_index_is_no_commit_to_a_round() -> None:
    """The process that compacts reads from files what was aborted: a committed value gave way to that."""
    harness = node()
    log = topic(harness)
    aborted = NewRecord(b"k1", b"aborted", harness.now_ms)
    batch = build_batch(
        [aborted], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    epoch = log.epochs.latest_epoch
    for data in (batch, marker(7, ABORT)):
        log.roll(harness.now_ms)
        harness.fs.fail("open", ".txnindex", "EMFILE", times=1000)
        log.append_as_leader(data, leader_epoch=epoch, now_ms=harness.now_ms, origin="coordinator")
    partition = harness.node.hosted.by_name[log.topic_partition]
    log.advance_high_watermark(log.log_end_offset)
    before = log.size_bytes
    harness.pass_time(5 * LOOK_MS)
    assert not partition.is_offline
    assert log.size_bytes == before
    assert (
        len(
            [
                line
                for line in harness.warnings
                if "log is not compacted topic=t partition=0" in line
            ]
        )
        == 1
    )
    harness.fs.forgive()
    harness.pass_time(5 * LOOK_MS)
    assert log.size_bytes < before / 3
    assert {r.key: r.value for r in found_records(log) if r.key == b"k1"} == {b"k1": b"28"}


def test_a_round_that_finds_no_descriptor_to_look_again_stops_no_broker() -> None:
    harness = node()
    log = topic(harness, min_compaction_lag_ms="1")
    before = log.size_bytes

    def kept(log: Log, then: Kept) -> Effects:
        harness.fs.fail("open", ".timeindex", "EMFILE")  # the next look at all logs finds one
        for segment in log._segments.all()[:-1]:
            segment._max_time_ms = -2  # as after a start: not looked at yet
        return then(None, harness.now_ms)

    compacting_now = harness.node.parts.compacting
    keep = harness.node.storage.keep_for_compaction
    harness.node.storage.keep_for_compaction = kept  # type: ignore[method-assign]
    harness.pass_time(3 * LOOK_MS)
    assert compacting_now.failing == 1
    harness.node.storage.keep_for_compaction = keep  # type: ignore[method-assign]
    harness.fs.forgive()
    harness.pass_time(5 * LOOK_MS)
    assert log.size_bytes < before / 4


def a_round_of_many_producers(harness: Harness) -> tuple[Log, SetTimer]:
    """A round that may begin, of a log that 7,000 producers have written to."""
    log = topic(harness)
    entries = [SnapshotEntry(n, 0, 0, n % 9, 0, harness.now_ms, -1, -1) for n in range(7_000)]
    log.producers.load(entries, log.log_end_offset)
    log.sync_now()
    rounds = harness.node.parts.compacting
    partition = harness.node.hosted.by_name[log.topic_partition]
    running = compacting._Running(
        partition, log, log.compaction.cuts, log.recovery_start, harness.now_ms
    )
    rounds._running[log.path] = running
    (timer,) = rounds._kept(running, None, harness.now_ms)
    assert isinstance(timer, SetTimer)
    return log, timer


def test_a_round_gets_many_producers_and_nobody_waits_until_all_were_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = [0]

    def looked(producer: Producer) -> int:
        checks[0] += 1
        return producer.batches[-1].last_offset

    harness = node()
    _, timer = a_round_of_many_producers(harness)
    monkeypatch.setattr(Producer, "last_offset", property(looked))
    turns, effects = 0, [timer]
    while isinstance(effects[0], SetTimer):
        checks[0] = 0
        effects = effects[0].then(harness.now_ms)
        turns += 1
        assert checks[0] <= 500
    assert turns >= 14
    (effect,) = effects
    assert isinstance(effect, Compact)
    assert len(effect.job.last_batches) == 7_000


def test_a_log_that_is_cut_while_a_round_is_put_together_is_left_alone() -> None:
    harness = node()
    log, timer = a_round_of_many_producers(harness)
    (timer,) = timer.then(harness.now_ms)
    log.truncate_to(log.log_end_offset - 1)
    assert timer.then(harness.now_ms) == []
    assert log.path not in harness.node.parts.compacting._running, "the next look finds it"
