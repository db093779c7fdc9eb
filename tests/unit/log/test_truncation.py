"""What a truncation takes back: of the log, of its marks, and when the power goes in the midst of it."""

import pytest

from firnline.base.errors import Code, StorageError
from firnline.formats.producer_snapshot import SnapshotEntry, decode_snapshot
from firnline.log.log import Log
from firnline.log.producer_state import snapshot_offsets
from firnline.log.segments import OPEN_SEGMENTS_MAX
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.log import (
    ABORT,
    COMMIT,
    NOW,
    PATH,
    append,
    batch,
    end_txn,
    fill,
    flush,
    found_headers,
    greatest_time,
    has_open_transaction,
    opened,
    refused,
    small,
)


def test_truncation_takes_back_offsets_epochs_and_transactions(log: Log) -> None:
    for number in range(20):
        append(log, batch("a", pid=7, seq=number, is_transactional=True), epoch=number // 5)
        end_txn(log, 7, ABORT, leader_epoch=number // 5)
    log.advance_high_watermark(40)
    log.truncate_to(21)
    assert (log.log_end_offset, log.high_watermark) == (21, 21)
    assert log.epochs.entries() == ((0, 0), (1, 10), (2, 20))
    assert len(log.aborted_transactions(0, 99)) == 10
    assert has_open_transaction(log, 7)
    assert log.last_stable_offset == 20
    end_txn(log, 7, COMMIT, leader_epoch=4)
    done = append(log, batch("b", pid=7, seq=11, is_transactional=True), epoch=5)
    assert done.base_offset == 22
    assert [h.base_offset for h in found_headers(log)] == list(range(23))


def test_truncation_takes_back_what_producers_had_done_beyond_it(log: Log) -> None:
    """A snapshot above the cut would be believed once the log has come there again, with other records."""
    for number in range(6):
        append(log, batch("a", pid=7, seq=number))
    log.roll(NOW)
    append(log, batch("a", pid=7, seq=6))
    assert snapshot_offsets(log._fs, PATH) == [6]
    log.truncate_to(2)
    assert snapshot_offsets(log._fs, PATH) == []
    for number in range(6):
        append(log, batch("b", pid=8, seq=number))
    log.truncate_to(7)
    assert [entry.producer_id for entry in log.producers.entries()] == [7, 8]
    assert [entry.last_sequence for entry in log.producers.entries()] == [1, 4]
    append(log, batch("b", pid=7, seq=2))
    assert refused(log, batch("b", pid=8, seq=6)).code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_truncation_inside_a_batch_drops_it_entirely(log: Log) -> None:
    append(log, batch("a"))
    append(log, batch("b", "c", "d"))
    log.truncate_to(2)
    assert log.log_end_offset == 1
    assert append(log, batch("e")).base_offset == 1


def test_the_greatest_time_is_found_after_a_greater_one_was_cut_off(log: Log) -> None:
    """The times of what was cut stand in no index: what is left is looked at again."""
    for time_ms in (1, 2, 9, 3, 4, 5, 6, 99):
        append(log, batch("x" * 30, time_ms=NOW + time_ms))
    assert not log.closed_segments()
    log.truncate_to(7)
    assert greatest_time(log) == (2, NOW + 9)


def test_indexes_after_a_truncation_are_those_of_a_log_that_was_never_longer() -> None:
    """A replica that was cut and one that was not have the same files, as Kafka's tools compare them."""

    def filled(cuts: list[int]) -> dict[str, bytes]:
        fs = CrashableFs()
        log = opened(fs)
        for end in [*cuts, 9]:
            fill(log, end - log.log_end_offset)
            if end != 9:
                log.truncate_to(end - 1)
        assert not log.closed_segments()
        log.close()
        files = [name for name in fs.list_dir(PATH) if name.endswith("index")]
        return {name: fs.open(f"{PATH}/{name}").read(0, 1 << 20) for name in files}

    wanted = filled([])
    assert any(wanted.values())
    assert filled([2, 5, 6, 7]) == wanted


def test_reads_of_others_do_not_close_the_segment_that_a_truncation_made_the_active_one(
    log: Log,
) -> None:
    fill(log, 120)
    closed = log.closed_segments()
    assert len(closed) > OPEN_SEGMENTS_MAX + 2
    last = closed[-1]
    log.read(last.base_offset, max_bytes=1, upto_offset=last.end_offset)
    log.truncate_to(last.base_offset + 1)
    for segment in closed[:-1]:
        log.read(segment.base_offset, max_bytes=1, upto_offset=last.base_offset)
    append(log, batch("a"))
    assert found_headers(log)[-1].next_offset == last.base_offset + 2


def test_the_next_flush_syncs_the_batches_of_the_segment_that_a_truncation_made_the_active_one(
    log: Log,
) -> None:
    """And nothing else: its indexes can be built again (rel-P8)."""
    fill(log, 12)
    last = log.closed_segments()[-1]
    log.truncate_to(last.base_offset + 2)
    paths = [file.path for file in log.dirty_files()]
    assert paths.count(last.stem_path + ".log") == 1
    assert last.stem_path + ".index" not in paths


def test_an_index_that_somebody_removed_stops_no_truncation() -> None:
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 12)
    last = log.closed_segments()[-1]
    log.read(last.base_offset, max_bytes=1, upto_offset=last.end_offset)
    fs.remove(last.stem_path + ".index")
    log.truncate_to(last.end_offset)
    assert log.log_end_offset == last.end_offset


def test_a_truncated_log_that_comes_to_the_same_end_keeps_its_producers_for_the_next_start() -> (
    None
):
    fs = CrashableFs()
    log = opened(fs)
    for value in ("a", "b"):
        for number in range(log.log_end_offset, 5):
            append(log, batch(value, pid=7, seq=number))
        log.close()
        assert snapshot_offsets(fs, PATH) == [5]
        log.truncate_to(3)


def test_an_abort_that_was_cut_off_does_not_come_back_with_the_next_start() -> None:
    """Else readers would leave out what was written in its place."""
    fs = CrashableFs()
    log = opened(fs)
    for number in range(2):
        append(log, batch("a", pid=7, seq=number, is_transactional=True))
        end_txn(log, 7, ABORT)
    log.truncate_to(3)
    log.close()
    again = opened(fs, was_clean=True)
    assert [tuple(txn)[:3] for txn in again.aborted_transactions(0, 9)] == [(7, 0, 1)]


def test_what_takes_the_place_of_half_a_batch_that_was_cut_is_dirty(log: Log) -> None:
    append(log, batch("a"))
    append(log, batch("b", "c", "d"))
    log.compaction.found(4)
    log.truncate_to(2)
    assert (log.log_end_offset, log.compaction.first_dirty_offset) == (1, 1)


def test_truncation_above_the_end_changes_nothing(log: Log) -> None:
    fill(log, 3)
    log.truncate_to(3)
    log.truncate_to(9)
    assert log.log_end_offset == 3
    assert len(found_headers(log)) == 3


def test_truncation_lowers_the_recovery_point_on_disk_first() -> None:
    log = opened(CrashableFs())
    fill(log, 12)
    flush(log)
    assert log.recovery_point == 12
    seen = []
    log.before_truncation = lambda: seen.append((log.recovery_point, log.log_end_offset))
    log.truncate_to(5)
    assert seen == [(5, 12)]


def test_a_flush_that_began_before_a_truncation_vouches_for_nothing_after_it(log: Log) -> None:
    fill(log, 6)
    log.dirty_files()
    log.truncate_to(2)
    fill(log, 4)
    log.flushed(6)
    assert log.recovery_point == 2
    flush(log)
    assert log.recovery_point == 6


def test_a_truncation_takes_back_what_was_reported_of_the_tier() -> None:
    """T1, T2: what comes in place of the records is not in the tier, and must not go because they were."""
    log = opened(CrashableFs(), small(remote_storage_enable=True))
    fill(log, 10)
    log.set_highest_remote(7)
    log.truncate_to(9)
    assert log.highest_remote_offset == 7
    log.truncate_to(4)
    assert log.highest_remote_offset == 3


def test_a_full_truncation_begins_again_elsewhere(log: Log) -> None:
    fill(log, 20)
    log.advance_high_watermark(20)
    log.truncate_fully(100)
    marks = (log.log_start_offset, log.local_log_start_offset, log.high_watermark)
    assert marks == (100, 100, 100)
    assert (log.log_end_offset, log.recovery_point, log.size_bytes) == (100, 100, 0)
    assert log.epochs.entries() == ()
    assert append(log, batch("a"), epoch=7).base_offset == 100
    assert log.epochs.entries() == ((7, 100),)


def test_a_log_that_begins_anew_knows_no_producer_and_no_transaction_of_before(log: Log) -> None:
    append(log, batch("a", pid=7, seq=0))
    fill(log, 2)
    append(log, batch("b", pid=8, seq=0, is_transactional=True))
    end_txn(log, 8, COMMIT)
    log.truncate_fully(1)
    assert list(log.producers.all()) == []
    append(log, batch("a", pid=7, seq=3))
    fill(log, 2)
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 4


def test_a_log_that_is_cut_below_its_start_begins_where_it_ends(log: Log) -> None:
    fill(log, 6)
    log.advance_high_watermark(6)
    log.advance_log_start(5)
    log.truncate_to(3)
    marks = (log.log_start_offset, log.local_log_start_offset, log.log_end_offset)
    assert marks == (3, 3, 3)


def test_a_log_that_began_elsewhere_does_not_go_back_to_0_when_the_power_is_cut() -> None:
    """A replica that begins where its leader's records begin may lead next, before it has any."""
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 3)
    log.sync_now()
    for path in ("", "/data"):
        fs.sync_dir(path)
    log.truncate_fully(6_992)
    assert opened(fs.crash(SeededRng(1), keep="none")).log_end_offset == 6_992


def test_a_tiered_follower_begins_with_the_local_part() -> None:
    log = opened(CrashableFs(), small(remote_storage_enable=True))
    log.truncate_fully(100, log_start_offset=10, lineage=((0, 4), (3, 60), (5, 100)))
    assert log.epochs.entries() == ((0, 10), (3, 60))
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (10, 100, 100)
    assert log.recovery_start == 100, "the lineage is on disk, too"
    append(log, batch("a"), epoch=3)
    assert log.epochs.entries() == ((0, 10), (3, 60))


def test_a_follower_cut_below_its_files_keeps_its_log_start() -> None:
    """What the tier has below stays the log's, with its lineage, whatever became of local files."""
    log = opened(CrashableFs(), small(remote_storage_enable=True))
    log.truncate_fully(100, log_start_offset=10, lineage=((0, 10), (3, 60), (5, 90)))
    log.truncate_to(80)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (10, 80, 80)
    assert log.epochs.entries() == ((0, 10), (3, 60))
    log.truncate_to(5)
    assert (log.log_start_offset, log.log_end_offset, log.epochs.entries()) == (5, 5, ())


def test_producer_state_is_taken_over_from_elsewhere(log: Log) -> None:
    append(log, batch("a", pid=7, seq=0))
    log.roll(NOW)
    fs = log._fs
    data = fs.open(log.closed_segments()[0].snapshot_path).read(0, 999)
    other = opened(CrashableFs())
    other.truncate_fully(1, producers=decode_snapshot(data))
    assert refused(other, batch("a", pid=7, seq=5)).code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(other, batch("b", pid=7, seq=1))


def steps_of(fs: CrashableFs, crash_at: int) -> None:
    """Cut the power at the n-th change of the disk from now on."""
    seen = [0]
    check = fs.check

    def counted(operation: str, path: str) -> None:
        seen[0] += operation != "read"
        if seen[0] > crash_at:
            raise StorageError("the power is off", path=path)
        check(operation, path)  # type: ignore[arg-type]

    fs.check = counted  # type: ignore[method-assign]


@pytest.mark.parametrize("keep", ["none", "some", "all"])
def test_a_crash_while_a_log_begins_anew_leaves_all_of_it_or_nothing(keep: str) -> None:
    """rel-T17: half a beginning would make a leader that lacks epochs or producers of what the tier has."""
    lineage, rules = ((0, 0), (3, 60)), small(remote_storage_enable=True)
    producers = [SnapshotEntry(7, 0, 4, 88, 0, NOW, -1, -1)]
    outcomes = set()
    for crash_at in range(100):
        fs = CrashableFs()
        log = opened(fs, rules)
        for directory in ("/", "/data"):
            fs.sync_dir(directory)
        fill(log, 20)
        log.sync_now()
        steps_of(fs, crash_at)
        try:
            log.truncate_fully(90, log_start_offset=0, lineage=lineage, producers=producers)
        except StorageError:
            is_done = False
        else:
            is_done = True
        del fs.check
        for seed in range(20 if keep == "some" else 1):
            after = fs.crash(SeededRng(seed), keep=keep)  # type: ignore[arg-type]
            found = opened(after, rules)
            outcomes.add(found.log_end_offset)
            if found.log_end_offset == 90:
                assert found.epochs.entries() == lineage
                assert [entry.producer_id for entry in found.producers.entries()] == [7]
            else:
                # It begins where the log does; the leader sends it to the tier again.
                assert found.log_end_offset in range(21)
        if is_done:
            break
    else:
        raise AssertionError("it never came to an end")
    assert 90 in outcomes
