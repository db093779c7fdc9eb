"""Compaction of one log: what survives, what a reader and a restart then find."""

from pathlib import Path

import pytest

from firnline.base.effects import SetTimer, Submit
from firnline.base.errors import StorageError
from firnline.base.units import INT64_MAX
from firnline.config.topic import TopicConfig
from firnline.formats import names
from firnline.log.compaction.rounds import CleanedGroup, RoundDone, compact
from firnline.log.compaction.walk import CHUNK_BYTES
from firnline.log.log import Log
from firnline.log.recovery import open_log
from firnline.records.batch import DELETE_HORIZON_MASK
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from firnline.runtime.disk import RealFs
from firnline.sim.disk import CrashableFs
from tests.open_files import open_files
from tests.worlds.compaction import RULES, compacted, data_records, put, round_of, rows, settled
from tests.worlds.effects import only
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
    flush,
    found_headers,
    found_records,
    offset_at_time,
    opened,
    patched,
)

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture
def fs() -> CrashableFs:
    return CrashableFs(clock_ms=lambda: NOW)


def new_log(fs: CrashableFs, **changes: object) -> Log:
    return opened(fs, compacted(**changes))


def test_the_last_value_of_each_key_survives_under_its_offset(fs: CrashableFs) -> None:
    log = new_log(fs)
    for number in range(20):
        put(log, f"k{number % 3}", f"v{number}")
    settled(log)
    size_bytes = log.size_bytes
    done, _ = round_of(fs, log)
    assert done is not None
    assert done.first_dirty_offset == 20
    assert (done.bytes_read, done.bytes_written) == (size_bytes, log.size_bytes)
    assert rows(log) == [(17, b"k2", b"v17"), (18, b"k0", b"v18"), (19, b"k1", b"v19")]
    assert log.log_end_offset == 20
    assert log.log_start_offset == 0
    assert log.compaction.first_dirty_offset == 20


def test_what_is_not_in_a_closed_segment_is_neither_touched_nor_counted(fs: CrashableFs) -> None:
    log = new_log(fs)
    for number in range(12):
        put(log, "k", f"v{number}")
    settled(log)
    last = put(log, "k", "new")
    log.advance_high_watermark(log.log_end_offset)
    round_of(fs, log)
    assert rows(log) == [(11, b"k", b"v11"), (last, b"k", b"new")]


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_that_loses_some_records_keeps_its_place_and_its_codec(
    fs: CrashableFs, codec: int
) -> None:
    log = new_log(fs)
    many = [NewRecord(f"k{n}".encode(), b"x" * 30, NOW + n, (("h", b"1"),)) for n in range(5)]
    append(log, build_batch(many, codec=codec))
    put(log, "k1", "later")
    put(log, "k4", "later")
    settled(log)
    round_of(fs, log)
    first = found_headers(log)[0]
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 4, 3)
    assert first.codec == codec
    assert first.max_timestamp == NOW + 3
    found = found_records(log)[:3]
    assert [(r.offset, r.key, r.timestamp_ms) for r in found] == [
        (0, b"k0", NOW),
        (2, b"k2", NOW + 2),
        (3, b"k3", NOW + 3),
    ]
    assert all(r.headers == (("h", b"1"),) and r.value == b"x" * 30 for r in found)


def test_a_tombstone_stays_for_delete_retention_ms_and_then_goes(fs: CrashableFs) -> None:
    log = new_log(fs, delete_retention_ms=HOUR)
    put(log, "k", "v")
    gone = put(log, "k", None)
    settled(log)
    round_of(fs, log)
    assert rows(log) == [(gone, b"k", None)]
    header = found_headers(log)[0]
    assert header.attributes & DELETE_HORIZON_MASK
    assert header.base_timestamp == NOW + HOUR
    assert found_records(log)[0].timestamp_ms == NOW, "the horizon changes no record's time"
    put(log, "other", "v")
    settled(log)
    round_of(fs, log, now_ms=NOW + HOUR - 1)
    assert rows(log)[0] == (gone, b"k", None)
    put(log, "another", "v")
    settled(log)
    round_of(fs, log, now_ms=NOW + HOUR)
    assert [row[1] for row in rows(log)] == [b"other", b"another"]


def test_an_aborted_record_is_dropped_and_its_marker_follows(fs: CrashableFs) -> None:
    log = new_log(fs, delete_retention_ms=HOUR)
    put(log, "k", "sound")
    append(log, batch("bad", key=b"k", pid=7, seq=0, is_transactional=True))
    marker = end_txn(log, 7, ABORT).base_offset
    for number in range(8):  # the producer goes on, so that its last batch is another
        append(log, batch("ok", key=b"j", pid=7, seq=number + 1, is_transactional=True))
        end_txn(log, 7, COMMIT)
    settled(log)
    round_of(fs, log)
    assert (0, b"k", b"sound") in rows(log), "an aborted record is no later value"
    assert b"bad" not in [row[2] for row in rows(log)]
    assert log.aborted_transactions(0, log.log_end_offset) != []
    again = opened(fs, compacted(), recovery_point=log.log_end_offset)
    assert rows(again) == rows(log)
    for hours in (1, 3):
        put(log, f"n{hours}", "v")
        settled(log)
        round_of(fs, log, now_ms=NOW + hours * HOUR)
    assert marker not in [header.base_offset for header in found_headers(log)]
    assert log.aborted_transactions(0, log.log_end_offset) == []


def test_a_marker_of_nothing_stays_until_its_horizon_and_one_of_something_stays(
    fs: CrashableFs,
) -> None:
    log = new_log(fs, delete_retention_ms=HOUR)
    append(log, batch("x", key=b"a", pid=7, seq=0, is_transactional=True))
    aborted = end_txn(log, 7, ABORT).base_offset
    append(log, batch("y", key=b"b", pid=8, seq=0, is_transactional=True))
    committed = end_txn(log, 8, COMMIT).base_offset
    append(log, batch("z", key=b"c", pid=7, seq=1))
    append(log, batch("old", key=b"d", pid=9, seq=0, is_transactional=True))
    spent = end_txn(log, 9, COMMIT).base_offset
    append(log, batch("new", key=b"d", pid=9, seq=1))

    def markers(now_ms: int) -> list[tuple[int, int]]:
        put(log, f"more{now_ms}", "v")
        settled(log)
        round_of(fs, log, now_ms=now_ms)
        found = [header for header in found_headers(log) if header.is_control]
        return [(h.base_offset, h.attributes & DELETE_HORIZON_MASK) for h in found]

    assert markers(NOW) == [(aborted, 0), (committed, 0), (spent, 0)]
    horizon = [(aborted, DELETE_HORIZON_MASK), (committed, 0), (spent, DELETE_HORIZON_MASK)]
    assert markers(NOW + 1) == horizon
    assert markers(NOW + HOUR) == horizon
    assert markers(NOW + HOUR + 1) == [(committed, 0)]


def test_the_marker_that_gave_a_producer_its_epoch_keeps_its_place(fs: CrashableFs) -> None:
    """KIP-890: it is the last batch of that epoch, and without records when its transaction is gone."""
    log = new_log(fs, delete_retention_ms=HOUR)
    append(log, batch("x", key=b"a", pid=7, seq=0, is_transactional=True))
    marker = end_txn(log, 7, COMMIT, epoch=1).base_offset
    put(log, "a", "y")
    for now_ms in (NOW, NOW + 1, NOW + HOUR + 1):
        put(log, f"more{now_ms}", "v")
        settled(log)
        round_of(fs, log, now_ms=now_ms)
    found = {header.base_offset: header for header in found_headers(log)}
    assert 0 not in found
    assert (found[marker].record_count, found[marker].producer_epoch) == (0, 1)


def test_what_a_checkpoint_does_not_vouch_for_is_not_compacted(fs: CrashableFs) -> None:
    """After one Flush the name of the lineage's file may still be lost: a start would begin below it."""
    log = new_log(fs)
    for _ in range(12):
        put(log, "k", "v")
    log.roll(NOW)
    flush(log)
    log.advance_high_watermark(log.log_end_offset)
    assert log.recovery_point == 12 > log.recovery_start
    assert round_of(fs, log)[0] is None


def test_the_names_of_a_swap_are_synced_by_the_next_flush(fs: CrashableFs) -> None:
    log = new_log(fs)
    for _ in range(12):
        put(log, "k", "v")
    settled(log)
    assert not log.dirty_files()
    round_of(fs, log)
    assert [file.path for file in log.dirty_files()] == [PATH]


def test_a_checkpoint_calls_nothing_compacted_before_the_names_of_the_round_are_on_disk(
    fs: CrashableFs,
) -> None:
    log = new_log(fs)
    for number in range(12):
        put(log, "k", f"v{number}")
    settled(log)
    round_of(fs, log)
    assert (log.compaction.first_dirty_offset, log.compaction.kept_dirty_offset) == (12, 0)
    flush(log)
    assert log.compaction.kept_dirty_offset == 12


def test_the_sequence_of_a_producer_survives_the_loss_of_its_records(fs: CrashableFs) -> None:
    log = new_log(fs)
    append(log, batch("a", key=b"k", pid=7, seq=0))
    append(log, batch("b", key=b"k", pid=7, seq=1))
    for number in range(10):
        put(log, "k", f"{number}")
    settled(log)
    round_of(fs, log)
    assert rows(log) == [(11, b"k", b"9")]
    empty = found_headers(log)[0]
    assert (empty.base_offset, empty.record_count, empty.producer_id) == (1, 0, 7)
    for name in fs.list_dir(PATH):
        if name.endswith(names.SNAPSHOT):
            fs.remove(f"{PATH}/{name}")
    again = opened(fs, compacted(), recovery_point=log.log_end_offset)
    producer = again.producers.get(7)
    assert producer is not None
    assert producer.last_sequence == 1
    append(again, batch("c", key=b"k", pid=7, seq=2))


def test_the_end_of_the_round_is_marked_where_its_last_records_go(fs: CrashableFs) -> None:
    """A follower below it would otherwise wait for ever for the offsets in between."""
    log = new_log(fs)
    first = put(log, "k", "v")
    settled(log)
    put(log, "k", "w")
    settled(log)
    log.config = compacted(min_compaction_lag_ms=0)
    round_of(fs, log)
    assert first == 0
    assert log.log_end_offset == 2
    assert found_headers(log)[-1].next_offset == 2


def test_a_log_is_not_compacted_while_a_lease_runs(fs: CrashableFs) -> None:
    """A cut would have fewer rows when it is read again."""
    log = new_log(fs, firnline_retention_leases=(f"a-cut:{NOW + 1}",))
    for _ in range(9):
        put(log, "k", "v")
    settled(log)
    assert not log.compaction.is_due(log.compaction.log_to_clean(NOW))
    assert log.compaction.is_due(log.compaction.log_to_clean(NOW + 1))


def test_the_table_of_keys_is_built_from_what_is_dirty_alone(fs: CrashableFs) -> None:
    """Else each round would read the whole of a large log once more than it has to."""
    log = new_log(fs)
    for number in range(30):
        put(log, f"k{number}", "v" * 40)
    settled(log)
    round_of(fs, log)
    clean_bytes = log.size_bytes
    put(log, "k", "v")
    settled(log)
    due = log.compaction.log_to_clean(NOW)
    paced: list[int] = []
    for _ in compact(fs, log.compaction.job(due, RULES, NOW), paced.append):
        pass
    dirty_bytes = log.size_bytes - clean_bytes
    written_bytes = log.size_bytes
    assert sum(paced) == dirty_bytes + log.size_bytes + written_bytes


def test_a_checkpoint_beyond_the_end_makes_all_dirty_and_the_gaps_are_still_expected(
    fs: CrashableFs,
) -> None:
    """A power cut took the end of the log. What is left was compacted: its gaps are no damage."""
    log = opened(fs)
    put(log, "k", "v")
    log.compaction.found(log.log_end_offset + 1)
    assert log.compaction.first_dirty_offset == 0
    assert log.compaction.may_have_gaps


def test_min_compaction_lag_leaves_young_segments_alone(fs: CrashableFs) -> None:
    log = new_log(fs, min_compaction_lag_ms=HOUR)
    put(log, "k", "old", time_ms=NOW - 2 * HOUR)
    put(log, "k", "older", time_ms=NOW - 2 * HOUR)
    settled(log)
    put(log, "k", "young")
    settled(log)
    round_of(fs, log)
    assert [row[2] for row in rows(log)] == [b"older", b"young"]
    done, _ = round_of(fs, log)
    assert done is None
    round_of(fs, log, now_ms=NOW + 2 * HOUR)
    assert [row[2] for row in rows(log)] == [b"young"]


def test_a_log_is_left_alone_until_enough_of_it_is_dirty_or_too_old(fs: CrashableFs) -> None:
    log = new_log(fs, min_cleanable_dirty_ratio=0.9)
    for number in range(20):
        put(log, f"k{number}", "v")
    settled(log)
    assert log.compaction.log_to_clean(NOW).ratio == 1.0
    round_of(fs, log)
    put(log, "k1", "w")
    settled(log)
    assert round_of(fs, log)[0] is None
    log.config = compacted(min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=HOUR)
    assert round_of(fs, log, now_ms=NOW + HOUR)[0] is None
    assert round_of(fs, log, now_ms=NOW + HOUR + 1)[0] is not None


def test_what_has_waited_too_long_is_compacted_after_a_restart_too(fs: CrashableFs) -> None:
    rules = {"min_cleanable_dirty_ratio": 1.0, "max_compaction_lag_ms": HOUR}
    log = new_log(fs, **rules)
    put(log, "k", "v", time_ms=NOW - 3 * HOUR)
    settled(log)
    log.close()
    again = opened(fs, compacted(**rules), was_clean=True, high_watermark=1)
    assert again.compaction.log_to_clean(NOW).delay_ms == 2 * HOUR


def test_nothing_above_an_open_transaction_or_the_high_watermark_is_compacted(
    fs: CrashableFs,
) -> None:
    log = new_log(fs)
    put(log, "k", "1")
    put(log, "k", "2")
    log.roll(NOW)
    append(log, batch("open", key=b"k", pid=7, seq=0, is_transactional=True))
    log.roll(NOW)
    put(log, "k", "3")
    settled(log)
    round_of(fs, log)
    assert [row[2] for row in rows(log)] == [b"2", b"open", b"3"]


def test_a_log_that_was_not_synced_is_not_compacted_yet(fs: CrashableFs) -> None:
    log = new_log(fs)
    for _ in range(12):
        put(log, "k", "v")
    log.roll(NOW)
    log.advance_high_watermark(log.log_end_offset)
    assert round_of(fs, log)[0] is None


def test_segments_that_became_small_become_one_that_fits_segment_bytes(fs: CrashableFs) -> None:
    log = new_log(fs)
    for number in range(40):
        put(log, f"k{number % 4}", f"v{number}")
    settled(log)
    round_of(fs, log)
    small = log.closed_segments()
    assert len(small) == 8
    assert sum(segment.size_bytes for segment in small) < 400
    put(log, "k0", "z")
    settled(log)
    round_of(fs, log)
    (one,) = log.closed_segments()
    assert one.size_bytes <= 400
    assert one.end_offset == 40


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_a_table_that_is_too_small_for_all_keys_takes_several_rounds(
    fs: CrashableFs, codec: int
) -> None:
    log = new_log(fs)
    for number in range(60):
        put(log, f"k{number % 30}", f"v{number}", codec=codec)
    settled(log)
    little = RULES._replace(map_bytes=24 * 12)
    seen = []
    while log.compaction.is_due(log.compaction.log_to_clean(NOW)):
        done, _ = round_of(fs, log, rules=little)
        assert done is not None
        seen.append(done.first_dirty_offset)
    assert seen == sorted(set(seen))
    assert len(seen) > 3
    assert [row[0] for row in rows(log)] == list(range(30, 60))


def test_a_batch_with_more_keys_than_the_table_holds_is_an_error_with_a_remedy(
    fs: CrashableFs,
) -> None:
    log = new_log(fs)
    append(log, batch(*(str(n) for n in range(3)), key=b"k"))
    log.config = compacted(segment_bytes=100_000)
    append(log, build_batch([NewRecord(f"{n}".encode(), b"v", NOW) for n in range(50)]))
    settled(log)
    log.compaction.first_dirty_offset = 3
    with pytest.raises(StorageError, match="do not fit"):
        round_of(fs, log, rules=RULES._replace(map_bytes=24 * 10))


def test_a_damaged_batch_stops_the_round_and_nothing_is_changed(fs: CrashableFs) -> None:
    log = new_log(fs)
    for number in range(12):
        put(log, "k", f"v{number}")
    settled(log)
    segment = log.closed_segments()[1]
    inode = fs._inode(segment.stem_path + ".log", "damage")
    inode.data[70] ^= 1
    before = fs.list_dir(PATH)
    with pytest.raises(StorageError, match="damaged") as problem:
        round_of(fs, log)
    assert problem.value.facts["path"] == segment.stem_path + ".log"
    # What lies below the damage was compacted before it was met in the second pass, or nothing was.
    assert fs.list_dir(PATH) == before


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_the_indexes_of_a_compacted_segment_are_those_that_would_be_built_from_it(
    fs: CrashableFs, codec: int
) -> None:
    log = new_log(fs, segment_bytes=1 << 20, segment_index_bytes=1 << 16)
    for number in range(60):
        put(log, f"k{number % 40}", "v" * 30, codec=codec, time_ms=NOW + number % 50)
    settled(log)
    round_of(fs, log)
    log.close()
    stem = log.closed_segments()[0].stem_path
    paths = [stem + suffix for suffix in (names.INDEX, names.TIME_INDEX)]
    written = [fs.open(path).read(0, 1 << 20) for path in paths]
    assert min(len(data) for data in written) > 3 * 12
    for path in paths:
        fs.remove(path)
    again = opened(fs, log.config, was_clean=True)
    offset_at_time(again, NOW)
    assert [fs.open(path).read(0, 1 << 20) for path in paths] == written


def test_a_round_reads_a_log_twice_and_not_more(fs: CrashableFs) -> None:
    log = new_log(fs, segment_bytes=1 << 20)
    for number in range(300):
        put(log, f"k{number % 50}", "v" * 400)
    settled(log)
    size_bytes, before = log.size_bytes, fs.read_bytes
    round_of(fs, log)
    assert fs.read_bytes - before < 2.5 * size_bytes


def test_a_batch_larger_than_what_is_read_at_once_is_compacted(fs: CrashableFs) -> None:
    log = new_log(fs, segment_bytes=1 << 20)
    put(log, "k", "old")
    put(log, "j", "v" * (CHUNK_BYTES + 1000))
    put(log, "k", "new")
    settled(log)
    round_of(fs, log)
    assert [row[0] for row in rows(log)] == [1, 2]


def test_records_that_cannot_be_decompressed_stop_the_round(fs: CrashableFs) -> None:
    log = new_log(fs)
    data = patched(build_batch([NewRecord(b"k", b"v" * 50, NOW)], codec=GZIP), ">i", 61, 7)
    log.append_as_follower(data, leader_epoch=0, now_ms=NOW)
    settled(log)
    with pytest.raises(StorageError, match="a damaged batch stops the compaction"):
        round_of(fs, log)


def test_old_files_stay_until_their_delay_is_over_and_readers_go_on(fs: CrashableFs) -> None:
    log = new_log(fs, file_delete_delay_ms=HOUR)
    for number in range(12):
        put(log, "k", f"v{number}")
    settled(log)
    answer = log.read(0, max_bytes=1 << 20, upto_offset=12)
    before = answer.read()
    _, effects = round_of(fs, log)
    assert answer.read() == before
    assert any(name.endswith(names.DELETED) for name in fs.list_dir(PATH))
    for timer in effects:
        assert isinstance(timer, SetTimer)
        assert timer.at_ms == NOW + HOUR
        for submit in timer.then(timer.at_ms):
            only([submit], Submit).work()
    assert not any(name.endswith(names.DELETED) for name in fs.list_dir(PATH))


def test_files_that_compaction_replaced_are_not_held_open(tmp_path: Path) -> None:
    """Their space would come back with the end of the process."""
    fs, config = RealFs(), compacted()
    where = f"{tmp_path}/t-0"
    log = open_log(fs, where, TP, topic_id=TOPIC_ID, config=config, now_ms=NOW)
    for value in ("old", "new"):
        put(log, "k", value)
    settled(log)
    found_headers(log)
    round_of(fs, log)
    assert len(log.closed_segments()) == 1
    held = open_files(tmp_path)
    assert held
    assert [path for path in held if names.DELETED in path] == []


def written_anew(log: Log) -> None:
    """Twelve values of one key, in closed segments and on disk."""
    for number in range(12):
        put(log, "k", f"v{number}")
    settled(log)


def cleaned(fs: CrashableFs, log: Log) -> tuple[CleanedGroup, RoundDone]:
    """What a round over the log brings, and nothing of it was put in place."""
    job = log.compaction.job(log.compaction.log_to_clean(NOW), RULES, NOW)
    groups, running = [], compact(fs, job)
    while True:
        try:
            groups.append(next(running))
        except StopIteration as stop:
            return groups[0], stop.value


def test_a_round_that_began_before_a_truncation_is_void(fs: CrashableFs) -> None:
    log = new_log(fs)
    written_anew(log)
    cuts, (group, outcome) = log.compaction.cuts, cleaned(fs, log)
    log.truncate_to(11)
    put(log, "k", "another")
    assert log.compaction.put(group, cuts, NOW) is None
    assert not log.compaction.done(outcome, cuts)
    assert log.compaction.first_dirty_offset == 0, "nothing of it is compacted"
    log.truncate_to(11)
    assert [row[0] for row in rows(log)] == list(range(11))


def test_a_round_that_began_before_the_log_began_anew_is_void(fs: CrashableFs) -> None:
    """A replica took the same offsets again: none of them is what the round cleaned."""
    log = new_log(fs)
    written_anew(log)
    cuts, (group, outcome) = log.compaction.cuts, cleaned(fs, log)
    log.truncate_fully(0)
    written_anew(log)
    assert log.compaction.put(group, cuts, NOW) is None
    assert not log.compaction.done(outcome, cuts)
    assert log.compaction.first_dirty_offset == 0, "nothing of it is compacted"
    assert [row[0] for row in rows(log)] == list(range(12))


def test_a_truncation_makes_what_follows_dirty_again(fs: CrashableFs) -> None:
    log = new_log(fs)
    for number in range(12):
        put(log, f"k{number}", "v")
    settled(log)
    round_of(fs, log)
    log.truncate_to(5)
    assert log.compaction.first_dirty_offset == 5


def test_gaps_are_announced_for_good(fs: CrashableFs) -> None:
    plain = opened(fs, TopicConfig(), partition=1)
    assert not plain.compaction.may_have_gaps
    gap = batch("x", base_offset=10, leader_epoch=0)
    plain.append_as_follower(gap, leader_epoch=0, now_ms=NOW)
    assert not plain.compaction.may_have_gaps
    plain.append_as_follower(gap, leader_epoch=0, now_ms=NOW)
    assert plain.compaction.may_have_gaps


def test_a_log_without_one_record_left_ends_where_it_ended(fs: CrashableFs) -> None:
    log = new_log(fs, delete_retention_ms=0)
    put(log, "k", "v")
    put(log, "k", None)
    settled(log)
    round_of(fs, log)
    put(log, "j", "v")
    put(log, "j", None)
    settled(log)
    round_of(fs, log, now_ms=NOW + DAY)
    put(log, "i", None)
    settled(log)
    round_of(fs, log, now_ms=NOW + 2 * DAY)
    assert [row[1] for row in rows(log)] == [b"i"]
    again = opened(fs, compacted(), recovery_point=log.log_end_offset)
    assert again.log_end_offset == log.log_end_offset == 5


def test_a_segment_of_a_compacted_topic_rolls_in_time_for_its_lag(fs: CrashableFs) -> None:
    """The active segment is never compacted: it must not wait longer than its records may."""
    log = new_log(fs, max_compaction_lag_ms=HOUR, segment_ms=DAY)
    for later_ms in (0, HOUR, HOUR + 1):
        put(log, "k", "v", time_ms=NOW - DAY + later_ms)
    assert [segment.end_offset for segment in log.closed_segments()] == [1]
    log.config = compacted(segment_ms=DAY, cleanup_policy=("delete",), max_compaction_lag_ms=HOUR)
    put(log, "k", "v", time_ms=NOW - DAY + 3 * HOUR)
    assert len(log.closed_segments()) == 1


def test_a_round_that_retention_overtook_is_void(fs: CrashableFs) -> None:
    """compact,delete: the segments that the round began with are not all there any more."""
    log = new_log(fs, cleanup_policy=("compact", "delete"), retention_ms=HOUR)
    for number in range(12):
        put(log, f"k{number}", "v", time_ms=NOW - (2 * HOUR if number < 6 else 0))
    settled(log)
    job = log.compaction.job(log.compaction.log_to_clean(NOW), RULES, NOW)
    group = next(compact(fs, job))
    assert log.delete_due_segments(NOW)
    assert log.compaction.put(group, log.compaction.cuts, NOW) is None
    assert [row[0] for row in rows(log)] == list(range(log.log_start_offset, 12))
    round_of(fs, log)
    assert rows(log)[0][0] == log.log_start_offset > 0


def test_records_without_a_time_are_as_old_as_they_were(fs: CrashableFs) -> None:
    """Else each round would make them young again, and retention would never get them."""
    log = new_log(fs)
    for _ in range(6):
        put(log, "k", "v", time_ms=-1)
    settled(log)
    fs._inode(log.closed_segments()[-1].stem_path + ".log", "age").modified_ms = NOW - DAY
    round_of(fs, log)
    assert fs.modified_ms(log.closed_segments()[-1].stem_path + ".log") == NOW - DAY


def test_a_swap_changes_the_names_of_so_many_segments_at_most(
    fs: CrashableFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firnline.log.compaction.rounds.GROUP_SEGMENTS_MAX", 3)
    log = new_log(fs, segment_bytes=100_000)
    for number in range(8):
        put(log, f"k{number}", "v")
        log.roll(NOW)
    settled(log)
    job = log.compaction.job(log.compaction.log_to_clean(NOW), RULES, NOW)
    assert [len(group.bases) for group in compact(fs, job)] == [3, 3, 2]


@pytest.mark.parametrize("base_ms", [NOW - INT64_MAX + 5, -NOW, NOW])
@pytest.mark.parametrize("later_ms", [0, -(1 << 62), (1 << 62)])
def test_a_tombstone_of_a_strange_time_does_not_end_the_compaction_of_its_topic(
    fs: CrashableFs, base_ms: int, later_ms: int
) -> None:
    """A producer's clock, or its malice: one record stopped the rounds of the log for good."""
    log = opened(fs, compacted())
    put(log, "a", "old")
    data = build_batch([NewRecord(b"a", None, NOW), NewRecord(b"b", None, NOW + later_ms)])
    append(log, patched(patched(data, ">q", 27, base_ms), ">q", 35, NOW))
    before = [record.timestamp_ms for record in data_records(log)][1:]
    settled(log)
    done, _ = round_of(fs, log)
    assert done is not None
    found = data_records(log)
    assert [record.offset for record in found] == [1, 2]
    assert [(record.timestamp_ms - time) % (1 << 64) for record, time in zip(found, before)] == [
        0,
        0,
    ]
