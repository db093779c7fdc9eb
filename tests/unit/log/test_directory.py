"""One log directory: whose it is, what survives a stop and a crash, what deletion leaves behind."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.effects import Submit
from firnline.base.errors import StorageError
from firnline.base.ids import TopicPartition, uuid_text
from firnline.log.checkpoint import (
    CLEANER_OFFSETS,
    RECOVERY_POINTS,
    format_directory,
    read_meta_properties,
    read_offsets,
    write_offsets,
)
from firnline.log.directory import LogDirectory
from firnline.log.log import Log
from firnline.log.recovery import RecoveryReport
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.compaction import compacted, put, round_of, rows, settled
from tests.worlds.effects import carried_out
from tests.worlds.log import NOW, append, batch, flush, found_headers, found_records, small

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
ID, OTHER_ID, DIR_ID = bytes(range(16)), bytes(range(1, 17)), bytes(range(2, 18))


@pytest.fixture
def fs() -> CrashableFs:
    fs = CrashableFs()
    format_directory(fs, "/data", cluster_id="cluster", node_id=4, directory_id=DIR_ID)
    return fs


def started(fs: CrashableFs, **more: object) -> LogDirectory:
    rules: dict[str, object] = {"cluster_id": "cluster", "node_id": 4, "unique": SeededRng().uuid}
    directory = LogDirectory(fs, "/data", **(rules | more))  # type: ignore[arg-type]
    directory.start()
    return directory


REMOVAL_MS = 60_000


def opened(directory: LogDirectory, topic_partition: TopicPartition, **more: Any) -> Log:
    """A log that may be served: what making it left unsynced is on disk."""
    log = directory.open(topic_partition, ID, small(**more), NOW)
    for file in directory.unsynced(log):
        file.sync()
    return log


def report_of(directory: LogDirectory, tp: TopicPartition) -> RecoveryReport:
    report = directory.logs[tp].recovery
    assert isinstance(report, RecoveryReport)
    return report


def text(fs: CrashableFs, name: str) -> str:
    return fs.open(f"/data/{name}").read(0, 1 << 20).decode()


def test_a_directory_knows_whose_it_is(fs: CrashableFs) -> None:
    directory = started(fs)
    assert directory.directory_id == DIR_ID
    meta = read_meta_properties(fs, "/data")
    assert meta == {
        "version": "1",
        "cluster.id": "cluster",
        "node.id": "4",
        "directory.id": uuid_text(DIR_ID),
    }


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"cluster_id": "x"}, "another cluster"), ({"node_id": 5}, "another node")],
)
def test_a_directory_of_somebody_else_is_refused(
    fs: CrashableFs, wrong: dict[str, object], said: str
) -> None:
    with pytest.raises(StorageError, match=said) as caught:
        started(fs, **wrong)
    assert "remedy" in caught.value.facts
    started(fs)  # the refusal let go of the lock


def test_a_directory_that_is_gone_is_not_made_where_it_is_to_be_put_back() -> None:
    """`mv` of the old one would put it into the new one, and the start after that would not find it."""
    fs = CrashableFs()
    with pytest.raises(StorageError, match="not formatted") as caught:
        started(fs)
    assert not fs.exists("/data")
    assert not fs.exists("/data/.lock")
    remedy = str(caught.value.facts["remedy"])
    assert remedy.startswith("mount its disk, or put the directory back")
    assert "--ignore-formatted" in remedy


def test_an_unformatted_directory_and_another_version_are_refused() -> None:
    fs = CrashableFs()
    fs.make_dir("/data")
    with pytest.raises(StorageError, match="not formatted"):
        started(fs)
    file = fs.open("/data/meta.properties", create=True)
    file.append(b"version=0\nbroker.id=4\n")
    with pytest.raises(StorageError, match="another version"):
        started(fs)


def test_a_directory_from_before_directory_ids_gets_one(fs: CrashableFs) -> None:
    file = fs.open("/data/meta.properties")
    file.truncate(0)
    file.append(b"#\n#Sat Nov 21 10:17:25 UTC 2026\nnode.id=4\nversion=1\ncluster.id=cluster\n")
    found = started(fs).directory_id
    assert found != bytes(16)
    meta = read_meta_properties(fs, "/data")
    assert meta is not None
    assert meta["directory.id"] == uuid_text(found)


def test_two_servers_cannot_share_a_directory(fs: CrashableFs) -> None:
    started(fs)
    with pytest.raises(StorageError, match="in use"):
        started(fs)


def test_a_clean_stop_and_start(fs: CrashableFs) -> None:
    directory = started(fs)
    assert not directory.was_clean
    log = directory.open(A, ID, small(), NOW)
    for _ in range(30):
        append(log, batch("x" * 40))
    log.advance_high_watermark(25)
    directory.close(broker_epoch=17)
    assert json.loads(text(fs, ".kafka_cleanshutdown")) == {"version": 0, "brokerEpoch": 17}
    assert text(fs, "recovery-point-offset-checkpoint") == "0\n1\na 0 30\n"
    assert text(fs, "replication-offset-checkpoint") == "0\n1\na 0 25\n"
    assert text(fs, "log-start-offset-checkpoint") == "0\n0\n"
    assert fs.open("/data/a-0/partition.metadata").size() == 43

    again = started(fs.crash(SeededRng(), keep="none"))
    assert (again.was_clean, again.last_broker_epoch) == (True, 17)
    log = again.open(A, ID, small(), NOW)
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (30, 25, 30)
    assert report_of(again, A).segments_scanned == 0


def flip(fs: CrashableFs, path: str, at: int, bit: int) -> None:
    fs.files(path.rpartition("/")[0])[path.rpartition("/")[2]].flip(at, bit)


def closed_with(fs: CrashableFs, batches: int, **rules: Any) -> int:
    """Stop in order a log of some batches; return where the last one begins in its file."""
    directory = started(fs)
    log = opened(directory, A, **rules)
    for _ in range(batches):
        append(log, batch("x" * 40))
    log.advance_high_watermark(batches)
    last = [header.position for header in found_headers(log)][-1]
    directory.close()
    return last


# Of the header of the last batch: where it begins, how long it is, its last offset.
ENDS = [(0, 7), (4, 6), (6, 0), (7, 0), (7, 1), (8, 7), (11, 0), (23, 0), (24, 4), (26, 7)]


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize(("at", "bit"), ENDS)
def test_a_flipped_bit_does_not_move_the_end_of_a_log_after_a_clean_stop(
    fs: CrashableFs, at: int, bit: int, batches: int, policy: str
) -> None:
    """What is appended would leave offsets out, or give them twice. No CRC covers the base offset.

    A log that seemed to end below its start was emptied; one whose last batch seemed longer than the file
    lost it.
    """
    rules: dict[str, Any] = {"segment_bytes": 10**6, "cleanup_policy": (policy,)}
    last = closed_with(fs, batches, **rules)
    flip(fs, "/data/a-0/00000000000000000000.log", last + at, bit)
    with pytest.raises(StorageError, match="damaged below its recovery point"):
        opened(started(fs), A, **rules)


def test_the_start_of_a_compacted_log_comes_to_its_end_where_a_batch_begins_below_its_segment(
    fs: CrashableFs,
) -> None:
    """Recovery took the batches before it for wrong, of which there are none, and began anew for ever."""
    rules: dict[str, Any] = {"segment_bytes": 150, "cleanup_policy": ("compact",)}
    directory = started(fs)
    log = opened(directory, A, **rules)
    for _ in range(2):
        append(log, batch("x" * 40))
    log.sync_now()
    directory.checkpoint()
    directory.abandon()
    flip(fs, "/data/a-0/00000000000000000001.log", 7, 0)
    with pytest.raises(StorageError, match="damaged below its recovery point"):
        opened(started(fs), A, **rules)


def test_a_flipped_bit_that_leaves_the_end_alone_costs_no_other_batch_after_a_clean_stop(
    fs: CrashableFs,
) -> None:
    last = closed_with(fs, 3, segment_bytes=10**6)
    flip(fs, "/data/a-0/00000000000000000000.log", last + 70, 0)
    log = opened(started(fs), A, segment_bytes=10**6)
    assert log.log_end_offset == 3
    assert len(found_headers(log)) == 3


def test_a_recovery_point_of_before_costs_a_look_at_the_last_batch_and_nothing_else(
    fs: CrashableFs,
) -> None:
    closed_with(fs, 3, segment_bytes=10**6)
    write_offsets(fs, f"/data/{RECOVERY_POINTS}", {A: 1})
    again = started(fs)
    assert opened(again, A, segment_bytes=10**6).log_end_offset == 3
    assert report_of(again, A).segments_scanned == 0


def test_the_marker_is_gone_for_good_before_anything_is_appended(fs: CrashableFs) -> None:
    """rel-P7: else a crash of this run would be taken for the clean stop of the last one."""
    started(fs).close()
    directory = started(fs)
    directory.open(A, ID, small(), NOW)
    again = started(fs.crash(SeededRng(), keep="none"))
    assert (again.was_clean, again.last_broker_epoch) == (False, -1)


def test_a_garbled_marker_still_means_a_clean_stop(fs: CrashableFs) -> None:
    started(fs).close()
    file = fs.open("/data/.kafka_cleanshutdown")
    file.truncate(0)
    directory = started(fs)
    assert (directory.was_clean, directory.last_broker_epoch) == (True, -1)


def test_a_failed_close_leaves_no_marker(fs: CrashableFs) -> None:
    directory = started(fs)
    append(directory.open(A, ID, small(), NOW), batch("x"))
    fs.fail("sync", ".log", "EIO")
    with pytest.raises(StorageError, match="sync"):
        directory.close()
    assert not fs.exists("/data/.kafka_cleanshutdown")


def test_a_log_that_nobody_recovered_is_not_declared_clean(fs: CrashableFs) -> None:
    directory = started(fs)
    append(directory.open(A, ID, small(), NOW), batch("x"))
    append(directory.open(B, ID, small(), NOW), batch("x"))
    after = fs.crash(SeededRng(), keep="all")
    directory = started(after)
    directory.open(A, ID, small(), NOW)
    assert directory.unopened() == [B]
    directory.close()
    assert not started(after).was_clean


def test_a_crash_recovers_from_the_saved_point(fs: CrashableFs) -> None:
    directory = started(fs)
    log = directory.open(A, ID, small(), NOW)
    for number in range(60):
        append(log, batch("x" * 40))
        if number == 40:
            log.sync_now()
            directory.checkpoint()
    again = started(fs.crash(SeededRng(), keep="all"))
    assert len(found_records(again.open(A, ID, small(), NOW))) == 60
    assert report_of(again, A).segments_scanned < len(log.closed_segments())


def test_a_truncation_is_checkpointed_before_the_log_is_cut(fs: CrashableFs) -> None:
    """New bytes in the place of old ones that were synced: their loss is no damage below the point."""
    directory = started(fs)
    log = opened(directory, A, segment_bytes=10**6)
    for _ in range(10):
        append(log, batch("x" * 600))
    log.sync_now()
    directory.checkpoint()
    assert text(fs, "recovery-point-offset-checkpoint") == "0\n1\na 0 10\n"
    log.truncate_to(4)
    assert text(fs, "recovery-point-offset-checkpoint") == "0\n1\na 0 4\n"
    for _ in range(10):
        append(log, batch("y" * 600), epoch=1)
    for seed in range(20):
        copy = fs.crash(SeededRng(seed))
        end = started(copy).open(A, ID, small(segment_bytes=10**6), NOW).log_end_offset
        assert 4 <= end <= 14


@pytest.mark.parametrize("is_flushed", [True, False])
def test_an_epoch_that_was_given_up_does_not_come_back_with_a_power_cut(
    fs: CrashableFs, is_flushed: bool
) -> None:
    """rel-P13: the file still has it, and what follows in its place is of the epoch before."""
    directory = started(fs)
    log = opened(directory, A)
    for epoch in (3, 3, 4):
        append(log, batch("x"), epoch=epoch)
        flush(log)
    flush(log)
    directory.checkpoint()
    log.truncate_to(2)
    assert log.epochs.entries() == ((3, 0),)
    for _ in range(2):
        append(log, batch("y"), epoch=3)
    if is_flushed:
        flush(log)
        directory.checkpoint()
    for seed in range(20):
        again = opened(started(fs.crash(SeededRng(seed))), A)
        found = found_headers(again)
        epochs = [header.leader_epoch for header in found]
        assert epochs in ([3, 3], [3, 3, 3], [3, 3, 3, 3])
        assert len(epochs) == 4 or not is_flushed
        assert [again.epochs.epoch_at(header.base_offset) for header in found] == epochs
        assert again.epochs.latest_epoch == 3


def test_deleted_records_stay_deleted_after_a_crash(fs: CrashableFs) -> None:
    directory = started(fs)
    log = opened(directory, A)
    for _ in range(30):
        append(log, batch("x" * 40))
    flush(log)
    log.advance_high_watermark(30)
    log.advance_log_start(13)
    directory.checkpoint()
    assert text(fs, "log-start-offset-checkpoint") == "0\n1\na 0 13\n"
    again = started(fs.crash(SeededRng(), keep="none"))
    log = again.open(A, ID, small(), NOW)
    assert (log.log_start_offset, log.local_log_start_offset) == (13, 13)


def test_a_log_that_was_lost_below_its_start_knows_no_epoch_there(fs: CrashableFs) -> None:
    """Records were deleted up to 13, and a power cut took what was not synced: the epoch of the last record
    that is left is not that of the start, and a leader that is told so has the log cut below its start."""
    directory = started(fs)
    log = opened(directory, A, segment_bytes=10**6)
    for number in range(13):
        append(log, batch("x" * 40), epoch=number // 5)
        if number < 4:
            flush(log)
    log.advance_high_watermark(13)
    log.advance_log_start(13)
    directory.checkpoint()
    log = opened(started(fs.crash(SeededRng(), keep="none")), A, segment_bytes=10**6)
    assert (log.log_start_offset, log.log_end_offset) == (13, 13)
    assert (log.epochs.entries(), log.epochs.latest_epoch) == ((), -1)


def test_a_log_all_of_which_was_deleted_knows_no_epoch_that_its_file_does_not(
    fs: CrashableFs,
) -> None:
    """The epochs wait for the next sync, and the segments whose batches say them are gone."""
    directory = started(fs)
    log = opened(directory, A)
    append(log, batch("x" * 40), epoch=0)
    flush(log)
    flush(log)
    for number in range(30):
        append(log, batch("x" * 40), epoch=number // 5)
    log.roll(NOW)
    log.advance_high_watermark(31)
    log.advance_log_start(31)
    log.delete_due_segments(NOW)
    directory.checkpoint()
    log = opened(started(fs.kill()), A)
    assert (log.log_start_offset, log.log_end_offset) == (31, 31)
    assert (log.epochs.entries(), log.epochs.latest_epoch) == ((), -1)


def test_a_tiered_logs_start_is_kept_though_its_files_begin_later(fs: CrashableFs) -> None:
    tiered = small(remote_storage_enable=True)
    directory = started(fs)
    log = directory.open(A, ID, tiered, NOW)
    log.truncate_fully(50, log_start_offset=7)
    directory.close()
    again = started(fs)
    log = again.open(A, ID, tiered, NOW)
    assert (log.log_start_offset, log.local_log_start_offset) == (7, 50)


def test_a_dropped_log_is_renamed_at_once_and_removed_later(fs: CrashableFs) -> None:
    directory = started(fs)
    log = directory.open(A, ID, small(), NOW)
    append(log, batch("x"))
    directory.checkpoint()
    world = carried_out(directory.drop(log, NOW), NOW)
    [timer] = world.timers.values()
    assert timer.at_ms == NOW + REMOVAL_MS
    (condemned,) = [name for name in fs.list_dir("/data") if name.startswith("a-0")]
    assert condemned.endswith("-delete")
    assert len(condemned) == len("a-0.") + 32 + len("-delete")
    assert directory.unopened() == []
    world.pass_time(REMOVAL_MS)
    assert not fs.exists(f"/data/{condemned}")


def test_a_dropped_log_is_not_taken_for_one_that_is_here(fs: CrashableFs) -> None:
    """Where its directory fails later nobody is to wait for it, and new logs are spread by what there is."""
    directory = started(fs)
    log = directory.open(A, ID, small(), NOW)
    assert (directory.had(A), directory.partition_count) == (True, 1)
    directory.drop(log, NOW)
    assert (directory.had(A), directory.partition_count) == (False, 0)


def test_a_topic_that_comes_back_under_its_name_begins_empty(fs: CrashableFs) -> None:
    directory = started(fs)
    log = directory.open(A, ID, small(), NOW)
    for _ in range(20):
        append(log, batch("x"))
    flush(log)
    directory.checkpoint()
    directory.drop(log, NOW)
    log = directory.open(A, OTHER_ID, small(), NOW)
    assert text(fs, "recovery-point-offset-checkpoint") == "0\n0\n"  # before the new log has a byte
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)
    append(log, batch("y"))
    copy = fs.crash(SeededRng(), keep="all")
    found = started(copy).open(A, OTHER_ID, small(), NOW)
    assert [r.value for r in found_records(found)] == [b"y"]


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_replica_that_comes_back_after_its_move_does_not_inherit_what_was_verified(
    fs: CrashableFs, is_killed: bool
) -> None:
    """The checkpoints that a killed run left told of the directory that it had removed (rel-P13)."""
    directory = started(fs)
    log = opened(directory, A)
    for value in "abcdef":
        append(log, batch(value))
    flush(log)
    log.advance_high_watermark(6)
    log.advance_log_start(4)
    directory.checkpoint()
    carried_out(directory.drop(log, NOW), NOW, for_ms=REMOVAL_MS)
    if is_killed:
        fs = fs.kill()
        directory = started(fs)
    log = opened(directory, A)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        assert "a 0" not in text(fs, name)
    for value in "abcdef":
        append(log, batch(value))
    again = opened(started(fs.crash(SeededRng(), keep="none")), A)
    assert (again.log_start_offset, again.log_end_offset) == (0, 0)


def test_a_topic_recreated_while_we_were_away_does_not_inherit_data(fs: CrashableFs) -> None:
    directory = started(fs)
    append(directory.open(A, ID, small(), NOW), batch("x"))
    directory.close()
    again = started(fs)
    log = again.open(A, OTHER_ID, small(), NOW)
    assert log.log_end_offset == 0
    again.close()
    (left,) = [name for name in fs.list_dir("/data") if name.endswith("-stray")]
    assert [f"/data/{left}"] == again.stray_paths
    assert [n for n in fs.list_dir(f"/data/{left}") if n.endswith(".log")], (
        "as Kafka: nothing is deleted"
    )


def test_what_a_crash_left_of_a_deletion_is_removed_at_the_next_start(fs: CrashableFs) -> None:
    directory = started(fs)
    directory.drop(directory.open(A, ID, small(), NOW), NOW)
    directory.abandon()
    next_run = LogDirectory(fs, "/data", cluster_id="cluster", node_id=4, unique=SeededRng(1).uuid)
    carried_out(next_run.start(), NOW, for_ms=REMOVAL_MS)
    assert not any(name.endswith("-delete") for name in fs.list_dir("/data"))


def test_a_long_topic_name_fits_its_condemned_directory(fs: CrashableFs) -> None:
    directory = started(fs)
    log = directory.open(TopicPartition("x" * 249, 12), ID, small(), NOW)
    directory.drop(log, NOW)
    assert max(map(len, fs.list_dir("/data"))) == 255


def test_the_metadata_log_is_not_taken_for_a_partition(fs: CrashableFs) -> None:
    fs.make_dir("/data/__cluster_metadata-0")
    fs.make_dir("/data/a-0-stray")
    fs.make_dir("/data/not a partition")
    assert started(fs).unopened() == []


def test_a_partition_that_was_made_before_a_kill_survives_a_power_cut_once_it_is_served(
    fs: CrashableFs,
) -> None:
    """rel-P10: it is there, and its name may not be on the disk: what is acknowledged would go with it."""
    started(fs).open(A, ID, small(), NOW)
    fs = fs.kill()
    log = opened(started(fs), A)
    append(log, batch("x"))
    flush(log)
    found = opened(started(fs.crash(SeededRng(), keep="none")), A)
    assert [record.value for record in found_records(found)] == [b"x"]


def test_what_was_served_before_a_kill_is_not_synced_again_to_be_served(fs: CrashableFs) -> None:
    """Ten thousand partitions start after a kill; their names are on the disk since long."""
    directory = started(fs)
    log = opened(directory, A)
    append(log, batch("x"))
    flush(log)
    directory.checkpoint()
    again = started(fs.kill())
    assert again.unsynced(again.open(A, ID, small(), NOW)) == []


def test_a_new_partition_survives_a_power_cut_once_it_was_flushed(fs: CrashableFs) -> None:
    """rel-P10: the directory of the partition is durable before data in it counts."""
    directory = started(fs)
    log = opened(directory, A)
    append(log, batch("x"))
    flush(log)
    again = started(fs.crash(SeededRng(), keep="none"))
    assert [r.value for r in found_records(again.open(A, ID, small(), NOW))] == [b"x"]


@pytest.mark.parametrize("seed", range(20))
def test_a_partition_that_the_power_cut_off_while_it_was_made_is_made_again(
    fs: CrashableFs, seed: int
) -> None:
    """Whose it is had been written and not synced: half of it beside no record refuses nothing."""
    directory = started(fs)
    directory.open(A, ID, small(), NOW)
    again = started(fs.crash(SeededRng(seed)))
    log = opened(again, A)
    assert (log.topic_id, log.log_end_offset) == (ID, 0)


def test_records_of_nobody_knows_which_topic_are_refused(fs: CrashableFs) -> None:
    directory = started(fs)
    append(opened(directory, A), batch("x"))
    fs.open("/data/a-0/partition.metadata").truncate(9)
    with pytest.raises(StorageError, match="damaged"):
        started(fs.crash(SeededRng(), keep="all")).open(A, ID, small(), NOW)


def test_many_deletions_cost_no_sync_on_the_loop(fs: CrashableFs) -> None:
    directory = started(fs)
    logs = [opened(directory, TopicPartition("t", index)) for index in range(50)]
    directory.checkpoint()
    before = fs.syncs
    effects = [effect for log in logs for effect in directory.drop(log, NOW)]
    assert fs.syncs == before
    carried_out(effects, NOW, for_ms=REMOVAL_MS)
    assert fs.syncs == before + 1
    assert [name for name in fs.list_dir("/data") if name.startswith("t-")] == []


def test_no_half_of_a_later_deletion_comes_back_with_a_power_cut(fs: CrashableFs) -> None:
    directory = started(fs)
    logs = [opened(directory, TopicPartition("t", index)) for index in range(2)]
    fs.sync_dir("/data")
    for log in logs:
        carried_out(directory.drop(log, NOW), NOW, for_ms=REMOVAL_MS)
    after = fs.crash(SeededRng(), keep="none")
    assert [name for name in after.list_dir("/data") if name in ("t-0", "t-1")] == []


def with_gaps(fs: CrashableFs, directory: LogDirectory) -> Log:
    """A log that was compacted after the last checkpoint, with a gap between two segments."""
    log = directory.open(A, ID, compacted(), NOW)
    for number in range(40):
        put(log, f"k{number}" if number % 4 == 0 else "k", "v" * 40)
    settled(log)
    directory.checkpoint()
    round_of(fs, log)
    starts = [each.base_offset for each in log.closed_segments()]
    assert starts[1] - 1 not in [header.last_offset for header in found_headers(log)]
    return log


def test_gaps_of_a_compacted_log_are_no_damage_after_the_recovery_points_were_lost(
    fs: CrashableFs,
) -> None:
    """The other checkpoints were written before the round, too: they say nothing of where it went."""
    wanted = rows(with_gaps(fs, started(fs)))
    fs.open(f"/data/{RECOVERY_POINTS}").truncate(1)
    again = started(fs.crash(SeededRng(), keep="all")).open(A, ID, compacted(), NOW)
    assert rows(again) == wanted


def checkpoint_now(directory: LogDirectory, log: Log) -> None:
    directory.checkpoint()


def checkpoint_off_the_loop(directory: LogDirectory, log: Log) -> None:
    assert not carried_out(directory.checkpoint_later(0), 0).timers


def compact_another(directory: LogDirectory, log: Log) -> None:
    notified: list[Exception | None] = []
    then = lambda problem, now_ms: notified.append(problem) or []  # type: ignore[func-returns-value]  # noqa: E731
    carried_out(directory.keep_for_compaction(log, then), 0)
    assert notified == [None]


def stop(directory: LogDirectory, log: Log) -> None:
    directory.close()


@pytest.mark.parametrize("write", [checkpoint_now, checkpoint_off_the_loop, compact_another, stop])
def test_gaps_of_a_log_that_was_not_opened_before_a_kill_are_no_damage_either(
    fs: CrashableFs, write: Callable[[LogDirectory, Log], None]
) -> None:
    """The recovery points were written again, without its own, while it waited for its turn."""
    directory = started(fs)
    wanted = rows(with_gaps(fs, directory))
    fs.open(f"/data/{RECOVERY_POINTS}").truncate(1)
    fs = fs.crash(SeededRng(), keep="all")
    directory = started(fs)
    write(directory, opened(directory, B))
    fs = fs.crash(SeededRng(), keep="all")
    directory = started(fs)
    assert rows(directory.open(A, ID, compacted(), NOW)) == wanted
    directory.checkpoint()
    assert A in read_offsets(fs, f"/data/{RECOVERY_POINTS}")


def test_what_the_power_took_from_the_middle_of_a_log_does_not_pass_for_compacted(
    fs: CrashableFs,
) -> None:
    """The replica kept what followed, and led without the records: its leader had nothing to send again."""
    directory = started(fs)
    log = directory.open(A, ID, compacted(), NOW)
    for file in directory.unsynced(log):
        file.sync()
    for number in range(12):
        put(log, f"k{number}", "v" * 40)
    closed = [each.stem_path for each in log.closed_segments()]
    assert len(closed) >= 3
    for path in (closed[0], closed[2]):
        fs.open(f"{path}.log").sync()
    fs.sync_dir("/data/a-0")
    # Of the first checkpoints this is the first; the power goes before the second has its name.
    write_offsets(fs, f"/data/{CLEANER_OFFSETS}", {A: log.compaction.first_dirty_offset})
    again = started(fs.crash(SeededRng(), keep="none")).open(A, ID, compacted(), NOW)
    offsets = [record.offset for record in found_records(again)]
    assert offsets == list(range(len(offsets)))


def test_a_log_that_is_served_again_in_one_run_knows_what_was_committed_in_it(
    fs: CrashableFs,
) -> None:
    """Consumers would be told of an end far behind what they had read."""
    directory = started(fs)
    log = opened(directory, A)
    append(log, batch("a"))
    log.advance_high_watermark(1)
    directory.close()
    directory = started(fs)
    log = opened(directory, A)
    for value in "bcd":
        append(log, batch(value))
    log.advance_high_watermark(4)
    directory.checkpoint()
    carried_out(directory.let_go(log), NOW, for_ms=REMOVAL_MS)
    assert opened(directory, A).high_watermark == 4


def test_a_log_that_is_served_no_longer_is_closed_beside_the_loop_where_a_file_is_open() -> None:
    """To close thousands that rest would fill the pool with work that is none."""
    fs = CrashableFs()
    format_directory(fs, "/data", cluster_id="cluster", node_id=4, directory_id=DIR_ID)
    directory = started(fs)
    busy, resting = opened(directory, A), opened(directory, B)
    append(busy, batch("a"))
    resting.close()
    assert [type(effect) for effect in directory.let_go(busy)] == [Submit]
    assert directory.let_go(resting) == []
