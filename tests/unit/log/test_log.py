"""One log: offsets are assigned and never change, reads are whole batches, marks keep their order."""

import struct
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from firnline.base.effects import Appended
from firnline.base.errors import Code, KafkaError, SegmentDamaged, StorageError
from firnline.log.log import Log
from firnline.log.recovery import open_log
from firnline.log.segments import OPEN_SEGMENTS_MAX
from firnline.records.batch import BatchHeader, crc_is_right, headers, parse_header
from firnline.runtime.disk import RealFs
from firnline.sim.disk import CrashableFs
from tests.open_files import open_files
from tests.worlds.log import (
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
    greatest_time,
    offset_at_time,
    opened,
    patched,
    read_all,
    refused,
    small,
)

# -- append ----------------------------------------------------------------------------------------


def test_the_leader_stamps_offset_and_epoch_and_leaves_the_crc_right(log: Log) -> None:
    assert append(log, batch("a", "b", "c"), epoch=3) == Appended(
        base_offset=0, last_offset=2, log_append_time_ms=-1, log_start_offset=0
    )
    assert append(log, batch("d"), epoch=4).base_offset == 3
    data = read_all(log).read()
    first, second = headers(data)
    assert (first.base_offset, first.leader_epoch) == (0, 3)
    assert (second.base_offset, second.leader_epoch) == (3, 4)
    assert crc_is_right(data, first)
    assert crc_is_right(data, second)
    assert [r.value for r in found_records(log)] == [b"a", b"b", b"c", b"d"]
    assert log.epochs.entries() == ((3, 0), (4, 3))


def test_an_append_to_a_file_that_somebody_else_wrote_to_is_an_error_of_the_disk() -> None:
    """Every place in the index from there on would be wrong, and nobody knows what the others wrote."""
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 2)
    fs.open(f"{PATH}/{0:020d}.log").append(bytes(batch("not ours")))
    with pytest.raises(StorageError, match=r"another writer used this file.*path=/data/t-0/0"):
        append(log, batch("ours"))
    assert log.log_end_offset == 2


def test_log_append_time_overwrites_the_producers_time(log: Log) -> None:
    log.config = small(message_timestamp_type="LogAppendTime")
    done = append(log, batch("a", "b", time_ms=5), now_ms=NOW + 7)
    assert done.log_append_time_ms == NOW + 7
    data = read_all(log).read()
    header = parse_header(data)
    assert header.is_log_append_time
    assert header.max_timestamp == NOW + 7
    assert crc_is_right(data, header)
    assert [r.timestamp_ms for r in found_records(log)] == [NOW + 7] * 2


def test_log_append_time_of_what_coordinators_write_is_found_by_time(log: Log) -> None:
    log.config = small(message_timestamp_type="LogAppendTime")
    append(log, batch("a", time_ms=5), now_ms=NOW + 7, origin="coordinator")
    assert greatest_time(log) == (0, NOW + 7)


def test_a_type_bit_set_by_a_producer_is_cleared_under_create_time(log: Log) -> None:
    """As 4.3.1: a consumer would else take the batch's last time for that of every record."""
    append(log, batch("a", is_log_append_time=True))
    data = read_all(log).read()
    header = parse_header(data)
    assert not header.is_log_append_time
    assert crc_is_right(data, header)


def test_less_than_a_batch_after_the_batch_is_not_written(log: Log) -> None:
    append(log, batch("a") + b"12345")
    append(log, batch("b") + batch("c")[:40])
    assert [r.value for r in found_records(log)] == [b"a", b"b"]


def test_a_batch_larger_than_a_segment_is_refused(log: Log) -> None:
    assert refused(log, batch(b"x" * 1200)).code == Code.RECORD_LIST_TOO_LARGE


def test_a_batch_of_our_own_is_not_refused_for_the_size_of_segments(log: Log) -> None:
    """Nobody could write a change of the metadata in smaller ones: the node would stop."""
    append(log, batch("before"))
    append(log, batch(b"x" * 1200), origin="coordinator")
    append(log, batch("after"))
    assert [record.value for record in found_records(log)] == [b"before", b"x" * 1200, b"after"]


def test_a_patched_header_is_refused_and_nothing_is_written(log: Log) -> None:
    assert (
        refused(log, patched(batch("a"), ">I", 17, 1, fix_crc=False)).code == Code.CORRUPT_MESSAGE
    )


def test_a_memoryview_of_a_receive_buffer_is_stamped_in_place(log: Log) -> None:
    buffer = bytearray(b"....") + batch("a")
    append(log, batch("0"))
    append(log, memoryview(buffer)[4:], epoch=9)  # type: ignore[arg-type]
    assert struct.unpack_from(">q", buffer, 4) == (1,)
    assert struct.unpack_from(">i", buffer, 16) == (9,)


def test_a_failed_write_leaves_the_log_as_it_was() -> None:
    fs = CrashableFs()
    log = opened(fs)
    append(log, batch("a"))
    fs.fail("append", ".log", "ENOSPC")
    with pytest.raises(StorageError, match="ENOSPC"):
        log.append_as_leader(batch("b"), leader_epoch=0, now_ms=NOW)
    assert append(log, batch("c")).base_offset == 1
    assert [r.value for r in found_records(log)] == [b"a", b"c"]


def test_a_leader_of_an_older_epoch_cannot_write(log: Log) -> None:
    """It would rewrite the lineage: entries of newer epochs are dropped when an older one is assigned."""
    append(log, batch("a"), epoch=3)
    for origin in ("client", "coordinator"):
        found = log.append_as_leader(batch("b"), leader_epoch=2, now_ms=NOW, origin=origin)  # type: ignore[arg-type]
        assert isinstance(found, KafkaError)
        assert found.code == Code.FENCED_LEADER_EPOCH
    old = patched(patched(batch("b"), ">q", 0, 1), ">i", 12, 2)
    found = log.append_as_follower(old, leader_epoch=3, now_ms=NOW)
    assert isinstance(found, KafkaError)
    assert found.code == Code.FENCED_LEADER_EPOCH
    assert log.epochs.entries() == ((3, 0),)


# -- follower --------------------------------------------------------------------------------------


def copy(log: Log, other: Log, start: int = 0) -> None:
    done = other.append_as_follower(read_all(log, start).read(), leader_epoch=2, now_ms=NOW)
    assert isinstance(done, Appended), done


def test_a_follower_has_the_leaders_bytes_epochs_and_transactions(log: Log) -> None:
    for number in range(30):
        append(log, batch("a", pid=7, seq=number, is_transactional=True), epoch=number // 10)
        end_txn(log, 7, number % 2, leader_epoch=number // 10)
    follower = opened(CrashableFs())
    copy(log, follower)
    assert read_all(follower).read() == read_all(log).read()
    assert follower.epochs.entries() == log.epochs.entries() == ((0, 0), (1, 20), (2, 40))
    assert follower.aborted_transactions(0, 60) == log.aborted_transactions(0, 60)
    assert len(follower.aborted_transactions(0, 60)) == 15
    assert [p.entry() for p in follower.producers.all()] == [p.entry() for p in log.producers.all()]
    assert len(follower.closed_segments()) > 3


def test_a_follower_refuses_what_it_already_has_and_damaged_bytes(log: Log) -> None:
    append(log, batch("a"))
    follower = opened(CrashableFs())
    copy(log, follower)
    again = follower.append_as_follower(read_all(log).read(), leader_epoch=0, now_ms=NOW)
    assert isinstance(again, KafkaError)
    assert again.code == Code.OFFSET_OUT_OF_RANGE
    append(log, batch("b"))
    damaged = bytearray(read_all(log, 1).read())
    damaged[-1] ^= 1
    found = follower.append_as_follower(damaged, leader_epoch=0, now_ms=NOW)
    assert isinstance(found, KafkaError)
    assert found.code == Code.CORRUPT_MESSAGE
    assert follower.log_end_offset == 1


def test_a_follower_takes_the_complete_batches_before_a_partial_one(log: Log) -> None:
    append(log, batch("a"))
    append(log, batch("b"))
    follower = opened(CrashableFs())
    done = follower.append_as_follower(read_all(log).read()[:-1], leader_epoch=0, now_ms=NOW)
    assert isinstance(done, Appended)
    assert follower.log_end_offset == 1


# -- read ------------------------------------------------------------------------------------------


def test_a_read_begins_with_the_batch_that_holds_the_offset(log: Log) -> None:
    append(log, batch("a", "b", "c"))
    append(log, batch("d"))
    found = list(headers(log.read(1, max_bytes=1 << 20, upto_offset=4).read()))
    assert [h.base_offset for h in found] == [0, 3]


def test_a_read_ends_at_the_bound_and_not_inside_a_batch(log: Log) -> None:
    append(log, batch("a"))
    append(log, batch("b", "c"))
    assert [h.base_offset for h in headers(log.read(0, max_bytes=999, upto_offset=2).read())] == [0]
    assert log.read(1, max_bytes=999, upto_offset=2).size_bytes == 0
    assert log.read(3, max_bytes=999, upto_offset=3).size_bytes == 0


@pytest.mark.parametrize("max_bytes", [0, 1, 70, 250, 900, 2500, 10**6])
def test_every_batch_is_read_once_whatever_the_size_of_a_read(max_bytes: int) -> None:
    log = opened(CrashableFs())
    fill(log, 60)
    offset, seen = 0, []
    while offset < log.log_end_offset:
        found = log.read(offset, max_bytes=max_bytes, upto_offset=log.log_end_offset)
        assert found.size_bytes <= max_bytes or len(list(headers(found.read()))) == 1
        batches: list[BatchHeader] = list(headers(found.read()))
        assert sum(h.size_bytes for h in batches) == found.size_bytes, "whole batches only"
        seen += [h.base_offset for h in batches]
        offset = batches[-1].next_offset
    assert seen == list(range(60))


def test_what_is_given_at_once_is_what_a_read_would_give(log: Log) -> None:
    fill(log, 6)
    assert not log.closed_segments()
    for upto_offset in (2, 4, 6, 3):
        for offset in range(upto_offset):
            for max_bytes in (1, 300, 1 << 20, 300):
                slow = log.read(
                    offset, max_bytes=max_bytes, upto_offset=upto_offset, min_one_batch=False
                )
                quick = log.slice_at_once(offset, max_bytes, upto_offset)
                assert quick is None or quick.read() == slow.read()
    assert log.slice_at_once(3, 300, 6) is not None
    assert log.slice_at_once(3, 1 << 20, 6) is not None
    assert log.slice_at_once(3, 1 << 20, 7) is None
    assert log.slice_at_once(3, 1, 6) is None


def test_a_first_batch_that_reaches_beyond_the_bound_is_not_given_away(log: Log) -> None:
    """A consumer asks with a small limit, and the high watermark is inside of the batch."""
    append(log, batch("a"))
    append(log, batch("b", "c", "d"))
    assert log.read(1, max_bytes=1, upto_offset=3, min_one_batch=True).read() == b""


def test_a_first_batch_larger_than_the_limit_comes_in_full_or_not_at_all(log: Log) -> None:
    append(log, batch(b"x" * 500))
    append(log, batch("y"))
    assert len(list(headers(log.read(0, max_bytes=10, upto_offset=2).read()))) == 1
    strict = log.read(0, max_bytes=10, upto_offset=2, min_one_batch=False)
    assert strict.size_bytes == 0


def test_a_read_after_a_truncation_ends_where_a_batch_does(log: Log) -> None:
    for value in "aaaa":
        append(log, batch(value))
    limit = len(batch("a")) * 2 + 10
    assert [h.base_offset for h in _read(log, limit)] == [0, 1]
    assert [h.base_offset for h in _read(log, limit)] == [0, 1], "the place is known by now"
    log.truncate_to(1)
    for _ in range(3):
        append(log, batch("b" * 7))
    again = log.read(0, max_bytes=limit, upto_offset=log.log_end_offset)
    found = list(headers(again.read()))
    assert [h.base_offset for h in found] == [0, 1]
    assert sum(h.size_bytes for h in found) == again.size_bytes, "whole batches only"


def _read(log: Log, max_bytes: int) -> list[BatchHeader]:
    found = log.read(0, max_bytes=max_bytes, upto_offset=log.log_end_offset)
    return list(headers(found.read()))


def test_a_read_goes_on_into_the_next_segments(log: Log) -> None:
    fill(log, 60)
    found = read_all(log)
    assert len(found.slices) == len(log.closed_segments()) + 1 > 5
    assert [h.base_offset for h in headers(found.read())] == list(range(60))


def on_a_real_disk(path: Path) -> Log:
    where = f"{path}/t-0"
    return open_log(RealFs(), where, TP, topic_id=TOPIC_ID, config=small(), now_ms=NOW)


def test_a_slice_stays_readable_after_its_segment_is_gone(tmp_path: Path) -> None:
    log = on_a_real_disk(tmp_path)
    fill(log, 30)
    held = log.read(0, max_bytes=1 << 20, upto_offset=30)
    before = held.read()
    log.truncate_fully(30)
    assert held.read() == before
    assert log.log_start_offset == 30


def test_a_reader_of_a_long_log_does_not_use_up_the_descriptors(tmp_path: Path) -> None:
    log = on_a_real_disk(tmp_path)
    before = len(open_files(tmp_path))
    fill(log, 200)
    assert len(log.closed_segments()) > 2 * OPEN_SEGMENTS_MAX
    for offset in (*range(200), *range(0, 200, 7)):
        log.read(offset, max_bytes=1, upto_offset=200)
    assert before < len(open_files(tmp_path)) <= before + OPEN_SEGMENTS_MAX


def test_batches_bytes_for_loaders(log: Log) -> None:
    fill(log, 10)
    assert len(list(headers(log.read_batches(4, max_bytes=1 << 20)))) == 6


# -- time ------------------------------------------------------------------------------------------


def test_lookup_by_time_finds_the_first_record_that_is_late_enough(log: Log) -> None:
    for number in range(60):
        append(log, batch("a", "b", time_ms=NOW + number * 10))
    for wanted in (0, 5, 10, 11, 299, 300, 590):
        first = -(-wanted // 10)
        assert offset_at_time(log, NOW + wanted) == (first * 2, NOW + first * 10)
    assert offset_at_time(log, NOW + 591) is None
    assert offset_at_time(log, 0) == (0, NOW)


def test_lookup_by_time_where_times_go_back(log: Log) -> None:
    times = [50, 40, 90, 10, 60, 90, 20]
    for time_ms in times:
        append(log, batch("a", time_ms=NOW + time_ms))
    assert offset_at_time(log, NOW + 45) == (0, NOW + 50)
    assert offset_at_time(log, NOW + 55) == (2, NOW + 90)
    assert greatest_time(log) == (2, NOW + 90)


@pytest.mark.parametrize("bit", range(64))
@pytest.mark.parametrize("number", range(3))
def test_a_bit_that_flips_in_an_offset_gives_no_wrong_answer_by_time(
    tmp_path: Path, number: int, bit: int
) -> None:
    """No CRC covers the base offset of a batch: offset 2^62 was "no such record", and 2 was another one."""
    log = on_a_real_disk(tmp_path)
    for n in range(3):
        append(log, batch("a", "b", time_ms=NOW + n))
    (path,) = tmp_path.rglob("*.log")
    data = bytearray(path.read_bytes())
    position = list(headers(bytes(data)))[number].position
    data[position + bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    for search, right in (
        (partial(offset_at_time, log, NOW + number), (2 * number, NOW + number)),
        (partial(greatest_time, log), (4, NOW + 2)),
    ):
        with suppress(SegmentDamaged):
            assert search() == right


def test_the_greatest_time_over_segments(log: Log) -> None:
    for number in range(40):
        append(log, batch("a", time_ms=NOW + (number * 7) % 40))
    best = max(range(40), key=lambda n: ((n * 7) % 40, -n))
    assert greatest_time(log) == (best, NOW + 39)


def test_an_offset_and_a_time_are_found_without_a_walk_over_their_segment() -> None:
    fs = CrashableFs()
    config = small(segment_bytes=1 << 20, segment_index_bytes=12_000)
    log = opened(fs, config)
    for number in range(200):
        append(log, batch("x" * 900, time_ms=NOW + number))
    few_bytes = log.size_bytes / 5
    before = fs.read_bytes
    assert log.read(150, max_bytes=1, upto_offset=200).read()
    assert fs.read_bytes - before < few_bytes
    log.roll(NOW)
    log.close()
    log = opened(fs, config, was_clean=True)
    before = fs.read_bytes
    assert offset_at_time(log, NOW + 190) == (190, NOW + 190)
    assert fs.read_bytes - before < few_bytes
    before = fs.read_bytes
    assert greatest_time(log) == (199, NOW + 199)
    assert fs.read_bytes - before < few_bytes


def test_a_reader_at_the_end_of_a_log_searches_neither_index_nor_file() -> None:
    """Each consumer that is not behind asks there, again and again."""
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 9)
    before = fs.read_bytes
    found = log.read(8, max_bytes=1 << 20, upto_offset=9)
    assert fs.read_bytes == before
    assert [header.base_offset for header in headers(found.read())] == [8]


def test_who_read_on_into_the_newest_segment_does_not_miss_what_lies_before_it() -> None:
    """Places of that one are remembered: none of them may be of an offset that lies in another."""
    log = opened(CrashableFs())
    fill(log, 9)
    log.roll(NOW)
    fill(log, 9)
    assert [header.base_offset for header in found_headers(log, 5)][:5] == [5, 6, 7, 8, 9]
    assert log.slice_at_once(5, 1 << 20, 18) is None
    newest = log.slice_at_once(9, 1 << 20, 18)
    assert newest is not None
    assert next(headers(newest.read())).base_offset == 9


def test_who_reads_on_after_so_many_bytes_searches_neither_index_nor_file() -> None:
    log = opened(CrashableFs(), small(index_interval_bytes=100_000))
    fill(log, 9)
    segment = log._segments.active
    [_, _, third, *_] = [header.position for header in segment.headers(0)]
    segment._forget_places()
    assert segment.last_batch_end(0, third + 10) == third
    assert segment._hints == {2: third}


def test_a_look_at_the_times_of_all_segments_keeps_none_of_their_indexes_in_memory() -> None:
    fs = CrashableFs()
    log = opened(fs)
    for number in range(60):
        append(log, batch("x" * 40, time_ms=NOW + number))
    log.close()
    log = opened(fs, was_clean=True)
    closed = log._segments.all()[:-1]
    assert len(closed) > 5
    assert greatest_time(log) == (59, NOW + 59)
    assert [len(segment.time_index) for segment in closed] == [0] * len(closed)


def test_records_without_a_time_are_not_found_by_time(log: Log) -> None:
    append(log, batch("a", time_ms=-1))
    assert offset_at_time(log, 0) is None
    assert greatest_time(log) is None


# -- marks -----------------------------------------------------------------------------------------


def test_the_high_watermark_only_rises_and_never_passes_the_end(log: Log) -> None:
    fill(log, 5)
    assert log.advance_high_watermark(3)
    assert not log.advance_high_watermark(2)
    assert log.advance_high_watermark(9)
    assert log.high_watermark == 5


def test_deleting_records_moves_both_starts_and_the_lineage(log: Log) -> None:
    append(log, batch("a", "b"), epoch=1)
    append(log, batch("c", "d"), epoch=2)
    log.advance_high_watermark(4)
    assert log.advance_log_start(3)
    assert not log.advance_log_start(2)
    assert (log.log_start_offset, log.local_log_start_offset) == (3, 3)
    assert log.epochs.entries() == ((2, 3),)


# -- durability ------------------------------------------------------------------------------------


def test_the_recovery_point_is_what_was_synced(log: Log) -> None:
    fill(log, 3)
    assert log.recovery_point == 0
    end = log.log_end_offset
    files = log.dirty_files()
    append(log, batch("late"))
    for file in files:
        file.sync()
    log.flushed(end)
    assert log.recovery_point == 3
    flush(log)
    assert log.recovery_point == 4
    assert log.dirty_files() == []


def test_closing_leaves_nothing_to_recover() -> None:
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 33)
    log.close()
    again = opened(fs, was_clean=True, high_watermark=20)
    assert (again.log_end_offset, again.recovery_point, again.high_watermark) == (33, 33, 20)
    assert again.recovery.segments_scanned == 0  # type: ignore[attr-defined]
    assert append(again, batch("a")).base_offset == 33


def test_a_stop_right_after_a_start_syncs_nothing() -> None:
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 30)
    log.close()
    again = opened(fs, was_clean=True, recovery_point=30)
    before = fs.syncs
    again.close()
    assert fs.syncs == before


# -- offsets that are missing ----------------------------------------------------------------------


def damaged(base_offset: int) -> bytearray:
    """A batch as a leader sends it, whose base offset was damaged on the way: its CRC is right."""
    return batch("x", "y", base_offset=base_offset, leader_epoch=0)


def test_a_base_offset_that_was_damaged_on_the_way_is_not_taken_for_a_gap(log: Log) -> None:
    """The log would end far behind its leader's, and what it was about to get would be missing for good."""
    append(log, batch("a", "b"))
    for far in (2 + (1 << 40), 2 + (1 << 20)):
        found = log.append_as_follower(damaged(far), leader_epoch=0, now_ms=NOW)
        assert isinstance(found, KafkaError)
        assert found.code is Code.CORRUPT_MESSAGE
        assert f"2 to {far - 1} are missing" in found.why
    assert log.log_end_offset == 2
    assert not log.compaction.may_have_gaps
    log.append_as_follower(damaged(2), leader_epoch=0, now_ms=NOW)
    assert log.log_end_offset == 4


def test_a_gap_that_the_leader_reports_twice_is_one(log: Log) -> None:
    """As of a topic that is not compacted any more."""
    append(log, batch("a"))
    for expected in (1, 12):
        log.append_as_follower(damaged(10), leader_epoch=0, now_ms=NOW)
        assert log.log_end_offset == expected
    log.append_as_follower(damaged(20), leader_epoch=0, now_ms=NOW)
    assert log.log_end_offset == 22


def test_a_log_of_a_compacted_topic_takes_gaps_at_once() -> None:
    log = opened(CrashableFs(), small(cleanup_policy="compact"))
    append(log, batch("a"))
    log.append_as_follower(damaged(10), leader_epoch=0, now_ms=NOW)
    assert log.log_end_offset == 12


@pytest.mark.parametrize("target", [3, 5, 10, 1 << 21])
def test_a_log_that_loses_its_end_ends_with_what_is_left(log: Log, target: int) -> None:
    """Where offsets are missing before the cut it went on behind them, and nobody asked for them again."""
    append(log, batch("a", "b"))
    for _ in range(2):
        log.append_as_follower(damaged(1 << 20), leader_epoch=0, now_ms=NOW)
    log.truncate_to(target)
    assert log.log_end_offset == (2 if target < 1 << 20 else (1 << 20) + 2)
