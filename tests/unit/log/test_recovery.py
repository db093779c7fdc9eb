"""Opening a log: no scan after a clean stop; after a crash nothing bad is kept and nothing good is lost."""

from pathlib import Path

import pytest

from firnline.base.errors import StorageError
from firnline.base.units import MIB
from firnline.log.checkpoint import LEADER_EPOCHS
from firnline.log.epochs import LeaderEpochs
from firnline.log.log import Log
from firnline.log.recovery import opening_steps
from firnline.records.batch import headers
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.log import (
    ABORT,
    COMMIT,
    NOW,
    PATH,
    TOPIC_ID,
    TP,
    append,
    batch,
    end_txn,
    fill,
    flush,
    found_headers,
    found_records,
    offset_at_time,
    opened,
    small,
)
from tests.worlds.recovery import filled, overwrite, read_file, report, segment_files


def test_a_killed_process_loses_nothing() -> None:
    fs = CrashableFs()
    before = filled(fs)
    wanted = found_records(before)
    log = opened(fs.crash(SeededRng(), keep="all"))
    assert found_records(log) == wanted
    assert log.epochs.entries() == before.epochs.entries()
    assert [p.entry() for p in log.producers.all()] == [p.entry() for p in before.producers.all()]
    assert not report(log).was_clean
    assert report(log).segments_scanned == len(log.closed_segments()) + 1
    assert log.recovery_point == 0, "what recovery found is not synced yet"
    flush(log)
    assert log.recovery_point == 40
    assert log.dirty_files() == []


def test_recovery_begins_at_the_segment_of_the_recovery_point() -> None:
    fs = CrashableFs()
    log = filled(fs)
    third = log.closed_segments()[2]
    again = opened(fs.crash(SeededRng(), keep="all"), recovery_point=third.base_offset + 1)
    assert report(again).segments_scanned == len(log.closed_segments()) - 2 + 1
    assert len(found_records(again)) == 40


@pytest.mark.parametrize(
    "tail",
    [b"\0" * 4096, b"garbage" * 30, batch("late")[:-3], b"\0" * 30, b"\xff" * 100],
    ids=["zero page", "garbage", "torn batch", "zeros shorter than a header", "ones"],
)
def test_a_bad_tail_is_cut_off(tail: bytes) -> None:
    fs = CrashableFs()
    wanted = found_records(filled(fs))
    path = segment_files(fs, ".log")[-1]
    good = fs.open(path).size()
    fs.open(path).append(tail)
    log = opened(fs)
    assert found_records(log) == wanted
    assert report(log).bytes_cut == len(tail)
    assert fs.open(path).size() == good
    assert append(log, batch("a"), epoch=9).base_offset == 40


def test_a_clean_start_that_was_not_clean_is_recovered() -> None:
    """The marker says clean, the file says otherwise: what follows the last batch must not stay."""
    fs = CrashableFs()
    filled(fs).close()
    fs.open(segment_files(fs, ".log")[-1]).append(b"garbage")
    log = opened(fs, was_clean=True)
    assert not report(log).was_clean
    assert len(found_records(log)) == 40
    assert append(log, batch("a"), epoch=9).base_offset == 40


# 5 and 7 are of the offset, 12 is of the epoch: the CRC covers neither.
@pytest.mark.parametrize("byte", [0, 5, 7, 9, 12, 16, 20, 22, 60, 70])
def test_a_flipped_byte_ends_the_log_before_it(byte: int) -> None:
    fs = CrashableFs()
    log = filled(fs)
    closed = log.closed_segments()[1]
    path = closed.stem_path + ".log"
    data = bytearray(read_file(fs, path))
    size = found_headers(log)[0].size_bytes
    data[size * 2 + byte] ^= 0x80
    overwrite(fs, path, bytes(data))
    again = opened(fs)
    end = closed.base_offset + 2
    assert again.log_end_offset == end
    assert [r.offset for r in found_records(again)] == list(range(end))
    assert report(again).segments_dropped == len(log.closed_segments()) - 1
    assert again.epochs.entries() == tuple((e, s) for e, s in log.epochs.entries() if s < end)
    assert append(again, batch("a", pid=7, seq=end), epoch=9).base_offset == end


def cleaned(fs: CrashableFs) -> int:
    """Take a batch out of a closed segment, as compaction does; return the offset it had."""
    log = filled(fs)
    closed = log.closed_segments()[1]
    path, size = closed.stem_path + ".log", found_headers(log)[0].size_bytes
    data = read_file(fs, path)
    overwrite(fs, path, data[: size * 2] + data[size * 3 :])
    return closed.base_offset + 2


def test_what_compaction_left_out_is_no_damage() -> None:
    fs = CrashableFs()
    gone = cleaned(fs)
    log = opened(fs, small(cleanup_policy=("compact",)))
    assert [r.offset for r in found_records(log)] == [n for n in range(40) if n != gone]


@pytest.mark.parametrize("which", [0, 2, -1])
@pytest.mark.parametrize("is_synced", [False, True])
def test_a_base_offset_that_flipped_where_offsets_may_be_missing_is_no_log_end(
    which: int, is_synced: bool
) -> None:
    """No CRC covers it: what follows says that it is wrong, and the replica is not at offset 65,000."""
    fs = CrashableFs()
    cleaned(fs)
    config = small(cleanup_policy=("compact",))
    log = opened(fs, config)
    segment = log.closed_segments()[1]
    path = segment.stem_path + ".log"
    data = bytearray(read_file(fs, path))
    bad = list(headers(bytes(data)))[which]
    data[bad.position + 5] ^= 1
    overwrite(fs, path, bytes(data))
    if is_synced:
        with pytest.raises(StorageError, match="below its recovery point"):
            opened(fs.kill(), config, recovery_point=bad.next_offset)
    else:
        again = opened(fs.kill(), config)
        assert again.log_end_offset <= bad.base_offset
        on_disk = LeaderEpochs(again._fs, f"{PATH}/{LEADER_EPOCHS}")
        assert on_disk.entries() == again.epochs.entries()


@pytest.mark.parametrize("flipped", [1, 2])
def test_a_batch_that_recovery_believed_at_first_is_held_against_no_producer(flipped: int) -> None:
    """What follows says that its base offset is wrong: it is cut off, so its producer sends it again."""
    fs, config = CrashableFs(), small(segment_bytes=10**6, cleanup_policy=("compact",))
    log = opened(fs, config)
    append(log, batch("a", pid=8, seq=0, is_transactional=True))
    end_txn(log, 8, ABORT)
    append(log, batch("b", pid=9, seq=0))
    append(log, batch("c"))
    (path,) = segment_files(fs, ".log")
    data = bytearray(read_file(fs, path))
    data[list(headers(bytes(data)))[flipped].position + 5] ^= 1
    overwrite(fs, path, bytes(data))
    again = opened(fs.kill(), config)
    assert again.log_end_offset == flipped
    if flipped == 1:
        end_txn(again, 8, ABORT)
    assert append(again, batch("b", pid=9, seq=0)).base_offset == 2
    again.advance_high_watermark(3)
    assert again.last_stable_offset == 3


def test_a_topic_that_is_compacted_no_longer_keeps_what_was_synced_with_its_gaps() -> None:
    fs = CrashableFs()
    gone = cleaned(fs)
    log = opened(fs, recovery_point=gone + 2)  # the segment with the gap is looked over
    assert [r.offset for r in found_records(log)] == [n for n in range(40) if n != gone]


def test_a_gap_that_no_compaction_left_ends_the_log() -> None:
    fs = CrashableFs()
    gone = cleaned(fs)
    assert opened(fs).log_end_offset == gone


@pytest.mark.parametrize("at", [5, 9])
@pytest.mark.parametrize("recovery_point", [0, 5, 9])
def test_an_empty_segment_that_a_power_cut_gave_back_ends_nothing(
    at: int, recovery_point: int
) -> None:
    """At 5 it is in the middle; at 9 the newest of all."""
    fs = CrashableFs()
    log = opened(fs, small(segment_bytes=10**6))
    fill(log, 8)
    log.roll(NOW)
    fill(log, 3)
    fs.open(f"{log.path}/{at:020d}.log", create=True)
    config = small(segment_bytes=10**6)
    again = opened(fs.kill(), config, recovery_point=recovery_point)
    assert [h.base_offset for h in found_headers(again)] == list(range(11))
    assert again.log_end_offset == 11
    assert [name for name in again._fs.list_dir(again.path) if name == f"{at:020d}.log"] == []


def test_an_empty_segment_that_kafka_compacted_stays() -> None:
    fs = CrashableFs()
    log = opened(fs, small(segment_bytes=10**6))
    fill(log, 8)
    log.roll(NOW)
    fill(log, 3)
    log.close()
    names = [f"{5:020d}.log", f"{5:020d}.index"]
    for name in names:
        fs.open(f"{log.path}/{name}", create=True)
    again = opened(fs, small(segment_bytes=10**6), was_clean=True)
    assert again.log_end_offset == 11
    assert set(names) <= set(fs.list_dir(log.path))


def test_an_offset_that_compaction_took_away_below_an_empty_segment_is_not_given_out_again() -> (
    None
):
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 5)
    log.roll(NOW)
    path = log.closed_segments()[0].stem_path + ".log"
    last = found_headers(log)[-1]
    overwrite(fs, path, read_file(fs, path)[: last.position])
    again = opened(fs.kill(), small(cleanup_policy=("compact",)), recovery_point=5)
    assert again.log_end_offset == 5
    assert append(again, batch("a")).base_offset == 5


def test_batches_at_the_edge_of_what_is_read_at_once_are_not_taken_for_damaged() -> None:
    fs = CrashableFs()
    log = opened(fs, small(segment_bytes=8 * MIB))
    for _ in range(4):
        append(log, batch(b"x" * 700_000))
    again = opened(fs, small(segment_bytes=8 * MIB))
    assert (again.log_end_offset, report(again).bytes_cut) == (4, 0)


def test_what_is_torn_above_the_recovery_point_does_not_stop_the_replay_of_producers_below() -> (
    None
):
    fs = CrashableFs()
    log = filled(fs)
    third, last = log.closed_segments()[2], log.closed_segments()[-1]
    for path in [*segment_files(fs, ".snapshot"), last.stem_path + ".index"]:
        fs.remove(path)
    overwrite(fs, last.stem_path + ".log", read_file(fs, last.stem_path + ".log")[:-1])
    again = opened(fs, recovery_point=third.base_offset + 1)
    assert again.log_end_offset == last.end_offset
    assert [p.last_sequence for p in again.producers.all()] == [last.end_offset - 1]


def test_damage_below_the_recovery_point_is_not_cut_off() -> None:
    """It was synced and acknowledged: the operator has to know, and other replicas may have it."""
    fs = CrashableFs()
    log = filled(fs)
    path = log.closed_segments()[1].stem_path + ".log"
    data = bytearray(read_file(fs, path))
    data[200] ^= 1
    overwrite(fs, path, bytes(data))
    with pytest.raises(StorageError, match="below its recovery point"):
        opened(fs, recovery_point=log.closed_segments()[1].end_offset + 1 - 1)
    assert read_file(fs, path) == bytes(data), "nothing was cut"


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "damage",
    ["missing", "empty", "zeroed", "odd", "garbage", "of another segment", "beyond the log"],
)
def test_a_bad_index_is_built_again(suffix: str, damage: str) -> None:
    """Reliability d 91, after a clean stop, where nothing else would notice."""
    fs = CrashableFs()
    log = filled(fs, 60)
    wanted, late = found_records(log), offset_at_time(log, NOW + 33)
    log.close()
    paths = segment_files(fs, suffix)
    good = {path: read_file(fs, path) for path in paths}
    for path, other in zip(paths, paths[1:] + paths[:1]):
        data = good[path]
        if damage == "missing":
            fs.remove(path)
        else:
            bad = {
                "empty": b"",
                "zeroed": bytes(len(data)),
                "odd": data + b"\0\1\2",
                "garbage": b"\xfe" * len(data),
                "of another segment": good[other] + b"\x7f" * 24,
                "beyond the log": data + b"\0\0\x0f\xff" * 6,
            }[damage]
            overwrite(fs, path, bad)
    again = opened(fs, was_clean=True)
    assert found_records(again) == wanted
    assert offset_at_time(again, NOW + 33) == late == (33, NOW + 33)
    for offset in range(60):
        found = again.read(offset, max_bytes=1, upto_offset=60).read()
        assert int.from_bytes(found[:8], "big") == offset
    if suffix == ".timeindex":
        assert [s.largest_time_ms() for s in again.closed_segments()] == [
            NOW + s.end_offset for s in again.closed_segments()
        ]


@pytest.mark.parametrize("which", [0, -1])
def test_a_damaged_index_does_not_stop_a_start_after_a_crash(which: int) -> None:
    """Each batch is read then, and the index is written anew: of a closed segment, and of the newest."""
    fs = CrashableFs()
    filled(fs).close()
    path = segment_files(fs, ".index")[which]
    good = read_file(fs, path)
    overwrite(fs, path, good[:-1] + bytes([good[-1] ^ 1]))
    killed = fs.kill()
    assert opened(killed).log_end_offset == 40
    assert read_file(killed, path) == good


def test_a_recovered_segment_is_as_young_as_its_newest_record_after_the_next_start_too() -> None:
    """The index of times has an entry for it: retention would take the segment before its time."""
    fs = CrashableFs()
    log = opened(fs)
    for number in range(40):
        append(log, batch("x" * (10 + number), time_ms=NOW + number))
    for path in segment_files(fs, ".timeindex"):
        fs.remove(path)
    opened(fs).close()
    closed = opened(fs, was_clean=True).closed_segments()
    assert len(closed) > 2
    assert [s.largest_time_ms() for s in closed] == [NOW + s.end_offset for s in closed]


def test_indexes_are_equal_whether_written_or_built_again() -> None:
    fs = CrashableFs()
    filled(fs, 60).close()
    paths = segment_files(fs, "index")
    written = {path: read_file(fs, path) for path in paths}
    for path in paths:
        fs.remove(path)
    log = opened(fs)
    log.close()
    assert {path: read_file(fs, path) for path in paths} == written


def test_a_preallocated_index_with_a_tail_of_zeros_is_trimmed() -> None:
    """What Kafka leaves after a crash (rel-P14)."""
    fs = CrashableFs()
    filled(fs, 60).close()
    path = segment_files(fs, ".index")[0]
    good = read_file(fs, path)
    overwrite(fs, path, good + bytes(4096))
    log = opened(fs, was_clean=True)
    assert len(found_records(log)) == 60
    assert read_file(fs, path) == good


def test_missing_producer_snapshots_are_replayed_from_the_log() -> None:
    fs = CrashableFs()
    before = filled(fs)
    before.close()
    for path in segment_files(fs, ".snapshot"):
        fs.remove(path)
    log = opened(fs, was_clean=True)
    assert [p.entry() for p in log.producers.all()] == [p.entry() for p in before.producers.all()]


def test_a_damaged_producer_snapshot_gives_way_to_an_older_one() -> None:
    fs = CrashableFs()
    before = filled(fs)
    before.close()
    for path in segment_files(fs, ".snapshot")[-2:]:
        overwrite(fs, path, read_file(fs, path)[:-1] + b"\xff")
    log = opened(fs, was_clean=True)
    assert [p.entry() for p in log.producers.all()] == [p.entry() for p in before.producers.all()]


def test_a_snapshot_beyond_the_recovered_end_is_not_believed() -> None:
    fs = CrashableFs()
    log = filled(fs)
    closed = log.closed_segments()[-1]
    overwrite(fs, closed.stem_path + ".log", read_file(fs, closed.stem_path + ".log")[:-1])
    again = opened(fs)
    end = again.log_end_offset
    assert end == closed.end_offset
    assert all(int(path[-29:-9]) <= end for path in segment_files(fs, ".snapshot"))
    assert append(again, batch("a", pid=7, seq=end), epoch=9).base_offset == end


def test_aborted_transactions_are_found_again_after_a_crash() -> None:
    fs = CrashableFs()
    log = opened(fs)
    for number in range(30):
        append(log, batch("a" * 30, pid=7, seq=number, is_transactional=True))
        append(log, batch("b" * 30, pid=8, seq=number, is_transactional=True))
        end_txn(log, 8, ABORT if number % 3 else COMMIT)
        if number % 2:
            end_txn(log, 7, ABORT)
    append(log, batch("a", pid=9, seq=0, is_transactional=True))
    log.advance_high_watermark(log.log_end_offset)
    wanted = log.aborted_transactions(0, log.log_end_offset)
    assert len(wanted) == 35
    for path in segment_files(fs, ".txnindex"):
        fs.remove(path)
    again = opened(fs, high_watermark=log.high_watermark)
    assert again.aborted_transactions(0, log.log_end_offset) == wanted
    assert again.last_stable_offset == log.last_stable_offset == log.log_end_offset - 1
    again.close()
    assert opened(fs, was_clean=True).aborted_transactions(0, log.log_end_offset) == wanted


def test_a_damaged_transaction_index_is_built_again_after_a_clean_stop() -> None:
    """Reading less of it would show aborted records to read_committed."""
    fs = CrashableFs()
    log = opened(fs)
    for number in range(30):
        append(log, batch("a" * 60, pid=7, seq=number, is_transactional=True))
        end_txn(log, 7, ABORT)
    wanted = log.aborted_transactions(0, 60)
    log.close()
    path = segment_files(fs, ".txnindex")[2]
    overwrite(fs, path, read_file(fs, path)[:-5])
    again = opened(fs, was_clean=True, recovery_point=40)
    assert again.aborted_transactions(0, 60) == wanted
    assert not report(again).was_clean
    assert again.recovery_point == 40, "what was written anew is not synced yet"


@pytest.mark.parametrize("damage", ["missing", "garbage", "negative"])
def test_a_bad_epoch_checkpoint_is_built_again_from_the_batches(damage: str) -> None:
    fs = CrashableFs()
    log = filled(fs)
    wanted = log.epochs.entries()
    log.close()
    path = f"{PATH}/leader-epoch-checkpoint"
    if damage == "missing":
        fs.remove(path)
    else:
        overwrite(fs, path, b"x" if damage == "garbage" else b"0\n1\n-1 -1\n")
    assert opened(fs, was_clean=True).epochs.entries() == wanted
    overwrite(fs, path, b"x")
    assert opened(fs).epochs.entries() == wanted


def test_epochs_never_claim_offsets_beyond_the_log() -> None:
    fs = CrashableFs()
    log = filled(fs, 30)
    overwrite(fs, f"{PATH}/leader-epoch-checkpoint", b"0\n4\n0 0\n1 10\n2 20\n8 31\n")
    log = opened(fs)
    assert log.epochs.entries() == ((0, 0), (1, 10), (2, 20))


def test_an_epoch_that_ended_without_a_batch_does_not_take_those_of_another_leader() -> None:
    """It was led here; then a leader of the epoch before it was followed, and the power went."""
    fs = CrashableFs()
    log = opened(fs)
    for _ in range(15):
        append(log, batch("x"), epoch=4)
    overwrite(fs, f"{PATH}/leader-epoch-checkpoint", b"0\n2\n4 0\n5 10\n")
    assert opened(fs).epochs.entries() == ((4, 0),)


def test_records_that_were_deleted_are_in_no_epoch_again_though_their_segment_is_there() -> None:
    fs = CrashableFs()
    log = opened(fs)
    for number in range(8):
        append(log, batch("x"), epoch=1 + number // 4)
    overwrite(fs, f"{PATH}/leader-epoch-checkpoint", b"0\n1\n2 6\n")
    assert opened(fs).epochs.entries() == ((2, 6),)


def test_an_epoch_in_the_middle_of_a_recovered_segment_keeps_its_start() -> None:
    """The scan begins in the middle of an epoch: the batch it begins with must not become its start."""
    fs = CrashableFs()
    log = opened(fs)
    for _ in range(40):
        append(log, batch("x" * 40), epoch=5)
    again = opened(fs, recovery_point=35)
    assert again.epochs.entries() == ((5, 0),)


def test_left_over_files_are_finished_off() -> None:
    fs = CrashableFs()
    filled(fs).close()
    for name in (
        "00000000000000000003.log.deleted",
        "00000000000000000003.index.cleaned",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000777.index",
    ):
        overwrite(fs, f"{PATH}/{name}", b"left over")
    log = opened(fs, was_clean=True)
    assert len(found_records(log)) == 40
    kept = ("log", "index", "timeindex", "snapshot", "checkpoint")
    assert all(name.endswith(kept) for name in fs.list_dir(PATH))
    assert not fs.exists(f"{PATH}/00000000000000000777.index")


def test_a_compaction_that_was_decided_is_completed() -> None:
    fs = CrashableFs()
    log = filled(fs)
    closed = log.closed_segments()
    first, second = closed[0], closed[1]
    log.close()
    kept = read_file(fs, first.stem_path + ".log")[:-1][: found_headers(log)[0].size_bytes]
    kept += read_file(fs, second.stem_path + ".log")
    for suffix in (".log", ".index", ".timeindex"):
        overwrite(fs, first.stem_path + suffix + ".swap", kept if suffix == ".log" else b"")
    again = opened(fs, was_clean=True)
    assert again.closed_segments()[0].end_offset == second.end_offset
    wanted = [0, *range(second.base_offset, 40)]
    assert [r.offset for r in found_records(again)] == wanted
    assert not any(name.endswith(".swap") for name in fs.list_dir(PATH))


def test_a_log_that_ends_below_its_start_begins_anew_there() -> None:
    fs = CrashableFs()
    filled(fs).close()
    log = opened(fs, was_clean=True, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (100, 100, 0)
    assert append(log, batch("a"), epoch=9).base_offset == 100
    for _ in range(30):
        append(log, batch("a"), epoch=9)
    assert len(log.closed_segments()) > 1
    log = opened(fs, log_start_offset=200)
    assert append(log, batch("a"), epoch=9).base_offset == 200
    flush(log)
    assert log.recovery_point == 201
    assert segment_files(fs, "index") == [], "no file of a segment that is gone comes back"


def test_marks_are_lifted_to_what_the_files_say() -> None:
    """Spec T5: the local start is where files begin; a high watermark lies between start and end."""
    fs = CrashableFs()
    log = filled(fs)
    log.advance_high_watermark(40)
    second = log.closed_segments()[1].base_offset
    log.advance_log_start(second)
    log.delete_due_segments(NOW)
    log.close()
    again = opened(fs, was_clean=True, log_start_offset=0, high_watermark=3)
    marks = (again.log_start_offset, again.local_log_start_offset, again.high_watermark)
    assert marks == (second, second, second)
    again.close()
    tiered = opened(
        fs,
        small(remote_storage_enable=True),
        was_clean=True,
        log_start_offset=0,
        high_watermark=99,
    )
    marks = (tiered.log_start_offset, tiered.local_log_start_offset, tiered.high_watermark)
    assert marks == (0, second, 40)


def test_what_is_in_the_tier_was_committed_though_the_checkpoint_of_the_high_watermark_is_lost() -> (
    None
):
    fs = CrashableFs()
    log = opened(fs, small(remote_storage_enable=True))
    log.truncate_fully(100, log_start_offset=10)
    log.close()
    again = opened(fs, small(remote_storage_enable=True), was_clean=True, log_start_offset=10)
    assert (again.log_start_offset, again.high_watermark) == (10, 100)


def test_a_first_start_makes_the_directory() -> None:
    fs = CrashableFs()
    log = opened(fs, log_start_offset=0)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)
    assert fs.list_dir(PATH) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
    ]


def test_messages_before_v2_are_not_taken_for_garbage() -> None:
    """Kafka 4 still reads them; cutting them off would lose them."""
    import struct
    import zlib

    fs = CrashableFs()
    fs.make_dir(PATH)
    message = (
        b"\x01\x00" + struct.pack(">q", NOW) + struct.pack(">i", -1) + struct.pack(">i", 3) + b"abc"
    )
    entry = struct.pack(">I", zlib.crc32(message)) + message
    old = struct.pack(">qi", 0, len(entry)) + entry
    overwrite(fs, f"{PATH}/00000000000000000000.log", old * 3)
    with pytest.raises(StorageError, match="format before v2"):
        opened(fs)
    assert fs.open(f"{PATH}/00000000000000000000.log").size() == len(old) * 3


def test_old_producers_are_forgotten_at_a_start() -> None:
    fs = CrashableFs()
    filled(fs).close()
    from firnline.log.recovery import open_log
    from tests.worlds.log import TOPIC_ID, TP

    late = NOW + 2 * 86_400_000
    log = open_log(fs, PATH, TP, topic_id=TOPIC_ID, config=small(), now_ms=late, was_clean=True)
    assert len(log.producers) == 0


def test_the_real_file_system_is_opened_the_same(tmp_path: Path) -> None:
    from firnline.log.recovery import open_log
    from firnline.runtime.disk import RealFs
    from tests.worlds.log import TOPIC_ID, TP

    def start(**more: bool) -> Log:
        return open_log(
            RealFs(), f"{tmp_path}/t-0", TP, topic_id=TOPIC_ID, config=small(), now_ms=NOW, **more
        )

    log = start()
    for number in range(40):
        append(log, batch("x" * 40, pid=7, seq=number))
    log.close()
    assert len(found_records(start(was_clean=True))) == 40
    with (
        (tmp_path / "t-0" / log.closed_segments()[-1].stem_path)
        .with_suffix(".log")
        .open("ab") as file
    ):
        file.write(b"junk")
    assert len(found_records(start())) == log.closed_segments()[-1].end_offset + 1


def test_a_long_recovery_gives_the_loop_back_after_some_batches() -> None:
    """Whoever opens logs while it answers others goes on with them after each slice."""
    fs = CrashableFs()
    log = opened(fs, small(segment_bytes=1 << 20))
    fill(log, 2_000)
    wanted = found_records(log)
    crashed = fs.crash(SeededRng(), keep="all")
    where = log.topic_partition
    steps = opening_steps(
        crashed, PATH, where, topic_id=log.topic_id, config=log.config, now_ms=NOW
    )
    count = 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as end:
            again = end.value
            break
    assert 2_000 // 256 <= count <= 2_000 // 20
    assert found_records(again) == wanted


def test_a_recovery_that_is_given_up_half_way_loses_no_aborted_transaction() -> None:
    """A damaged index was built again from the batches; a stop in between left half of it, and no damage:
    consumers that read what is committed were given what had been aborted."""
    fs = CrashableFs()
    log = opened(fs, small(segment_bytes=1 << 20))
    for number in range(300):
        append(log, batch("bad", pid=7, seq=number, is_transactional=True))
        end_txn(log, 7, ABORT)
    log.roll(NOW)
    append(log, batch("good"))
    before = log.aborted_transactions(0, log.log_end_offset)
    assert len(before) == 300
    log.close()
    index = fs.open(log.closed_segments()[0].stem_path + ".txnindex")
    index.truncate(index.size() - 1)
    mark, slices = log.recovery_point, 0
    while True:
        found = fs.crash(SeededRng(), keep="all")
        steps = opening_steps(
            found,
            PATH,
            TP,
            topic_id=TOPIC_ID,
            config=small(),
            now_ms=NOW,
            was_clean=True,
            recovery_point=mark,
        )
        slices += 1
        was_given_up = all(next(steps, steps) is not steps for _ in range(slices))
        steps.close()
        again = opened(found, was_clean=True, recovery_point=mark)
        assert again.aborted_transactions(0, again.log_end_offset) == before
        if not was_given_up:
            break
    assert slices > 3
