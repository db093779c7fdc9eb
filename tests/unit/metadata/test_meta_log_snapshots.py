"""Snapshots beside the metadata log: taken over, cleaned up, and repaired after a stop at any moment."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from firnline.base.errors import Code, ConfigError, KafkaError, StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.base.limits import SNAPSHOT_BATCH_BYTES_MAX
from firnline.metadata.meta_log import MetaLog, open_meta_log
from firnline.metadata.snapshot_file import SnapshotCheck, snapshot_name
from firnline.records.batch import headers
from firnline.runtime.disk import RealFs
from firnline.sim.disk import CrashableFs
from tests.open_files import open_files
from tests.worlds.chance import SeededRng
from tests.worlds.meta_log import (
    DELETE_DELAY_MS,
    DIR,
    NOW,
    CuttingFs,
    PowerCut,
    a_disk,
    batch_at,
    check,
    commit,
    extend,
    found,
    freeze,
    ids,
    in_use,
    install,
    opened,
    part_of,
    retire,
    snapshot_bytes,
    sync,
    truncate,
)
from tests.worlds.quorum import broker_config

AT_4 = OffsetAndEpoch(4, 1)
AT_8 = OffsetAndEpoch(8, 2)
AHEAD = OffsetAndEpoch(20, 5)


def a_log(fs: CrashableFs) -> MetaLog:
    """Offsets 0-3 of epoch 1, 4-9 of epoch 2, committed; three segments."""
    log = opened(fs)
    extend(log, *[1] * 4, *[2] * 6)
    commit(log)
    return log


# ------------------------------------------------------------------------------- fetched batches


def test_what_a_leader_sent_is_appended_as_it_is() -> None:
    log = a_log(a_disk())
    data = batch_at(10, 2, 3) + batch_at(13, 4)
    assert log.append_fetched(data, now_ms=NOW) is None
    assert (log.end_offset, log.last_epoch) == (14, 4)
    assert log.read(10, max_bytes=10_000) == data
    assert log.end_offset_for(3) == OffsetAndEpoch(13, 2)


def test_a_batch_that_is_cut_is_left_out_and_comes_again() -> None:
    log = a_log(a_disk())
    data = batch_at(10, 2) + batch_at(11, 2)
    assert log.append_fetched(data[:-1], now_ms=NOW) is None
    assert log.end_offset == 11
    assert log.append_fetched(b"", now_ms=NOW) is None


@pytest.mark.parametrize(
    "data",
    [
        batch_at(11, 2),
        batch_at(10, 2) + batch_at(12, 2),
        batch_at(9, 2),
        batch_at(10, 1),
        batch_at(10, 3) + batch_at(11, 2),
        batch_at(10, 2)[:-1] + b"?",
        batch_at(10, 2) + batch_at(11, 2)[:-1] + b"?",
        batch_at(10, 2)[:50],
        bytes(100),
    ],
    ids=[
        "gap",
        "gap later",
        "overlap",
        "epoch back",
        "epoch back later",
        "damage",
        "damage later",
        "no complete batch",
        "zeros",
    ],
)
def test_what_cannot_be_a_sequel_is_the_leaders_fault_and_nothing_is_written(data: bytes) -> None:
    log = a_log(a_disk())
    before = found(log)
    problem = log.append_fetched(data, now_ms=NOW)
    assert problem is not None
    assert problem.code is Code.CORRUPT_MESSAGE
    assert found(log) == before
    assert log.end_offset == 10


def test_a_log_that_was_cut_takes_another_history() -> None:
    log = a_log(a_disk())
    extend(log, 3, 3, 3)
    truncate(log, 11)
    assert (log.end_offset, log.last_epoch) == (11, 3)
    assert log.synced_offset <= 11
    extend(log, 4)
    assert [row[:2] for row in found(log)][-2:] == [(10, 3), (11, 4)]


def test_synced_is_only_what_a_sync_was_reported_of() -> None:
    log = opened(a_disk())
    extend(log, 1, 1)
    files = log.unsynced()
    extend(log, 1)
    for file in files:
        file.sync()
    assert log.synced_offset == 0
    log.synced(2)
    assert log.synced_offset == 2


# ------------------------------------------------------------------------------- parts


def test_a_part_is_nobodys_snapshot_until_it_is_complete_and_named() -> None:
    fs = a_disk()  # rel-Q10
    log = a_log(fs)
    part = part_of(log, AT_8)
    assert [n for n in fs.list_dir(DIR) if n.endswith(".part")] == [
        "00000000000000000008-0000000002-1.checkpoint.part"
    ]
    assert ids(log) == []
    assert log.open_snapshot(AT_8) is None
    name = log.give_name(part)
    assert ids(log) == [], "its name is not durable yet"
    name.sync()
    log.register(part)
    assert log.snapshot_sizes() == [(AT_8, len(snapshot_bytes(AT_8)), 8)]
    assert snapshot_name(AT_8) in fs.list_dir(DIR)
    check(log, fs)


def test_two_parts_of_one_id_do_not_meet() -> None:
    fs = a_disk()
    log = a_log(fs)
    first, second = log.start_part(AT_8), log.start_part(AT_8)
    assert first.append(b"x" * 10) is None
    assert second.size_bytes == 0
    first.discard()
    second.discard()
    assert not [n for n in fs.list_dir(DIR) if n.endswith(".part")]


def test_every_damaged_byte_of_a_snapshot_is_found_while_it_comes() -> None:
    complete = snapshot_bytes(AT_8)
    outside_of_crcs = {
        header.position + n for header in headers(complete) for n in (*range(8), *range(12, 16))
    }
    for position in range(len(complete)):
        if position in outside_of_crcs:  # base offset and leader epoch, which nobody needs there
            continue
        damaged = bytearray(complete)
        damaged[position] ^= 1
        check_ = SnapshotCheck()
        problems = [check_.feed(bytes(damaged[n : n + 50])) for n in range(0, len(damaged), 50)]
        assert any(problems) or check_.problem() is not None, position


@pytest.mark.parametrize("size", [1, 7, 61, 100, 10_000])
def test_a_snapshot_may_come_cut_anywhere(size: int) -> None:
    complete, check_ = snapshot_bytes(AT_8), SnapshotCheck()
    for start in range(0, len(complete), size):
        assert check_.problem() is not None
        assert check_.feed(complete[start : start + size]) is None
    assert check_.problem() is None
    assert check_.last_contained_ms == 8
    assert check_.feed(b"\x00") is not None, "nothing follows the footer"


def test_a_batch_that_claims_to_be_endless_is_not_waited_for() -> None:
    check_ = SnapshotCheck()
    length = SNAPSHOT_BATCH_BYTES_MAX + 1
    assert check_.feed(bytes(8) + length.to_bytes(4, "big") + bytes(20)) is not None
    assert SnapshotCheck().feed(bytes(8) + (length - 1).to_bytes(4, "big") + bytes(20)) is None


# ------------------------------------------------------------------------------- taking one over


def test_an_installed_snapshot_takes_the_place_of_the_log() -> None:
    fs = a_disk()  # Q37, rel-Q11
    log = a_log(fs)
    freeze(log, AT_4)
    install(log, AHEAD)
    assert (log.start_offset, log.end_offset, log.synced_offset) == (20, 20, 20)
    assert log.last_epoch == 5
    assert log.high_watermark == 20
    assert (log.newest_snapshot_id, log.earliest_snapshot_id) == (AHEAD, AHEAD)
    check(log, fs)
    extend(log, 5, 6)
    assert [row[:2] for row in found(log)] == [(20, 5), (21, 6)]
    sync(log)
    again = opened(fs)
    assert (again.start_offset, again.end_offset) == (20, 22)
    assert again.end_offset_for(5) == OffsetAndEpoch(21, 5)


def test_a_download_has_its_name_durably_before_anything_of_the_log_goes() -> None:
    """Also where a file system does not keep the order of name changes: X13."""
    fs = a_disk(CuttingFs)
    log = a_log(fs)
    begun = fs.count
    install(log, AHEAD)
    done = fs.done[begun:]
    part = f"{snapshot_name(AHEAD).removesuffix('.checkpoint')}-1.checkpoint.part"
    named = done.index(("rename", part))
    assert done.index(("sync", part)) < named
    first_gone = next(n for n, (what, name) in enumerate(done) if what == "remove")
    assert named < done.index(("sync_dir", "__cluster_metadata-0"), named) < first_gone


def test_who_reads_a_snapshot_reads_on_while_it_is_replaced(tmp_path: object) -> None:
    """Q41, on a disk of the simulator and on a real one."""
    config = broker_config(internal_metadata_log_segment_bytes="400", log_dirs=str(tmp_path))
    for fs, log in (
        (disk := a_disk(), opened(disk)),
        (RealFs(), open_meta_log(RealFs(), config, now_ms=NOW)),
    ):
        extend(log, *[1] * 4, *[2] * 6)
        commit(log)
        freeze(log, AT_4)
        freeze(log, AT_8)
        reader = log.open_snapshot(AT_4)
        assert reader is not None
        first = reader.read(0, 50)
        world = retire(log, 8)
        assert log.open_snapshot(AT_4) is None
        world.pass_time(DELETE_DELAY_MS)
        assert first + reader.read(50, reader.size_bytes) == snapshot_bytes(AT_4)
        reader.close()
        assert not [n for n in fs.list_dir(log.log.path) if n.endswith(".deleted")]
        log.close()


def test_a_node_that_takes_snapshots_for_years_has_no_more_files_open(tmp_path: Path) -> None:
    config = broker_config(log_dirs=str(tmp_path))
    log = open_meta_log(RealFs(), config, now_ms=NOW)
    extend(log, *[1] * 4)
    commit(log)
    before = open_files(tmp_path)
    assert before
    part = part_of(log, AT_4)
    log.give_name(part).sync()
    log.register(part)
    assert open_files(tmp_path) == before
    log.close()


def test_a_snapshot_is_read_only_from_its_name_on_whoever_made_it(tmp_path: Path) -> None:
    """Q9, as Kafka freezes them: nobody can write into one, and it still goes when it has to."""
    fs = RealFs()
    config = broker_config(internal_metadata_log_segment_bytes="400", log_dirs=str(tmp_path))
    log = open_meta_log(fs, config, now_ms=NOW)
    extend(log, *[1] * 4, *[2] * 6)
    commit(log)
    freeze(log, AT_4)
    install(log, AHEAD)
    frozen = list(Path(log.log.path).glob("*.checkpoint*"))  # the older one is condemned by now
    assert [stat.S_IMODE(path.stat().st_mode) for path in frozen] == [0o444, 0o444]
    part = log.start_part(OffsetAndEpoch(24, 5))
    assert Path(part.files()[0].path).stat().st_mode & stat.S_IWUSR
    part.discard()
    reader = log.open_snapshot(AHEAD)
    assert reader is not None
    with pytest.raises(OSError, match="Bad file"):  # it is not open for writing
        os.write(reader._file.fileno(), b"x")
    reader.close()
    log.close()
    again = open_meta_log(fs, config, now_ms=NOW)
    assert ids(again) == [AHEAD]
    assert len(list(Path(again.log.path).glob("*.checkpoint*"))) == 1  # and the other one went
    again.close()


def test_a_simulated_snapshot_is_read_only_too_after_a_power_cut_as_well() -> None:
    fs = a_disk()
    log = a_log(fs)
    freeze(log, AT_4)
    after = fs.crash(SeededRng(1), keep="none")
    for disk in (fs.kill(), after):
        path = f"{DIR}/{snapshot_name(AT_4)}"
        assert disk.open_to_read(path).read(0, 10) == snapshot_bytes(AT_4)[:10]
        with pytest.raises(StorageError, match="EACCES"):
            disk.open(path)


# ------------------------------------------------------------------------------- cleaning up


def test_the_log_start_goes_to_the_end_of_a_snapshot_and_takes_all_before_it_along() -> None:
    fs = a_disk()  # Q40-Q42, rel-Q15
    log = a_log(fs)
    freeze(log, AT_4)
    freeze(log, AT_8)
    size_bytes = log.size_bytes
    world = retire(log, 8)
    assert log.start_offset == 8
    assert ids(log) == [AT_8]
    assert log.size_bytes < size_bytes, "segments wholly below go too"
    [reported] = world.notes
    assert snapshot_name(AT_4) in reported
    assert {timer.at_ms for timer in world.timers.values()} == {NOW + DELETE_DELAY_MS}
    assert len([n for n in fs.list_dir(DIR) if n.endswith(".checkpoint.deleted")]) == 1
    check(log, fs)
    again = retire(log, 8)
    assert (again.timers, again.notes) == ({}, [])


def test_a_log_starts_where_a_snapshot_ends_and_nowhere_else() -> None:
    log = a_log(a_disk())  # X15
    freeze(log, AT_8)
    for offset in (4, 7, 9, 10):
        with pytest.raises(AssertionError, match="a snapshot ends"):
            retire(log, offset)


@pytest.mark.parametrize("keep", ["all", "some", "none"])
def test_the_log_start_does_not_go_back_over_a_restart(keep: str) -> None:
    """Also where it lies in the middle of a segment, or where the log ends: rel-Q14."""
    for end in range(5, 11):
        fs = a_disk()
        log = a_log(fs)
        freeze(log, OffsetAndEpoch(end, 2))
        retire(log, end)
        for _ in range(3):
            fs = fs.crash(SeededRng(end), keep=keep)
            again = opened(fs)
            assert again.start_offset == end
            assert [row[0] for row in found(again)] == list(range(end, 10))
            check(again, fs)


def test_a_log_that_begins_in_the_middle_of_nowhere_starts_at_the_next_snapshot() -> None:
    """Q42: its segments begin before the snapshot, and nothing tells where it started; as Kafka leaves it."""
    fs = a_disk()
    log = a_log(fs)
    freeze(log, AT_8)
    retire(log, 8)
    assert log.log.first_base_offset == 6
    fs.remove(f"{DIR}/leader-epoch-checkpoint")
    again = opened(fs)
    assert again.start_offset == 8
    check(again, fs)


def test_both_widths_of_the_epoch_are_one_snapshot() -> None:
    fs = a_disk()  # Q6: the KIP's example pads to 20
    log = a_log(fs)
    freeze(log, AT_8)
    log.close()
    fs.rename(f"{DIR}/{snapshot_name(AT_8)}", f"{DIR}/{8:020d}-{2:020d}.checkpoint")
    again = opened(fs)
    assert ids(again) == [AT_8]
    reader = again.open_snapshot(AT_8)
    assert reader is not None
    assert reader.read(0, 10_000) == snapshot_bytes(AT_8)
    freeze(again, OffsetAndEpoch(10, 2))
    retire(again, 10)
    check(again, fs)


# ------------------------------------------------------------------------------- repairs at the start


def put(fs: CrashableFs, name: str, data: bytes) -> None:
    file = fs.open(f"{DIR}/{name}", create=True)
    file.append(data)
    file.sync()
    fs.sync_dir(DIR)


def test_what_was_not_finished_and_what_was_condemned_goes_at_the_start() -> None:
    fs = a_disk()  # Q43
    log = a_log(fs)
    freeze(log, AT_8)
    retire(log, 8)
    log.close()
    put(fs, "00000000000000000009-0000000002-77.checkpoint.part", b"half")
    put(fs, snapshot_name(AT_4), snapshot_bytes(AT_4))
    put(fs, snapshot_name(OffsetAndEpoch(5, 2)) + ".deleted", b"gone")
    again = opened(fs)
    assert [n for n in fs.list_dir(DIR) if ".checkpoint" in n] == [snapshot_name(AT_8)]
    check(again, fs)


def test_a_beginning_that_no_snapshot_holds_is_refused_before_anything_is_touched() -> None:
    """Q43, X13: removing first would take away what an operator could still use."""
    fs = a_disk()
    log = a_log(fs)
    install(log, AHEAD)
    extend(log, 5)
    sync(log)
    log.close()
    fs.rename(f"{DIR}/{snapshot_name(AHEAD)}", f"{DIR}/{snapshot_name(AHEAD)}.deleted")
    put(fs, snapshot_name(AT_8), snapshot_bytes(AT_8))
    put(fs, "00000000000000000030-0000000009-1.checkpoint.part", b"half")
    put(fs, "00000000000000000000.index", b"")  # of a segment that is gone
    before = fs.list_dir(DIR)
    with pytest.raises(StorageError, match=r"no snapshot holds.*start_offset=20.*empty it"):
        opened(fs)
    assert fs.list_dir(DIR) == before
    fs.rename(f"{DIR}/{snapshot_name(AHEAD)}.deleted", f"{DIR}/{snapshot_name(AHEAD)}")
    assert opened(fs).start_offset == 20


def test_a_snapshot_of_a_newer_epoch_wins_over_a_longer_log_that_diverged() -> None:
    """Q44 by epoch first: a stop between rename and truncation, of a log with a tail nobody committed."""
    fs = a_disk()
    log = opened(fs)
    extend(log, *[1] * 30)
    sync(log)
    put(fs, snapshot_name(AHEAD), snapshot_bytes(AHEAD))
    again = opened(fs)
    assert (again.start_offset, again.end_offset, again.last_epoch) == (20, 20, 5)
    check(again, fs)


def test_a_snapshot_that_contradicts_the_log_is_refused() -> None:
    fs = a_disk()
    log = opened(fs)
    extend(log, *[7] * 10)
    sync(log)
    put(fs, snapshot_name(AHEAD), snapshot_bytes(AHEAD))
    with pytest.raises(StorageError, match="not of one history"):
        opened(fs)


def test_dynamic_voters_in_the_bootstrap_snapshot_are_refused_before_anything_is_written() -> None:
    from firnline.records.build import NewRecord, build_batch
    from firnline.records.control import (
        ControlType,
        KRaftVersionRecord,
        SnapshotFooterRecord,
        SnapshotHeaderRecord,
        encode_key,
        encode_value,
    )

    fs = a_disk()
    opened(fs).close()
    content = b""
    for kind, value in (
        (ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord()),
        (ControlType.KRAFT_VERSION, KRaftVersionRecord(kraft_version=1)),
        (ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord()),
    ):
        row = NewRecord(encode_key(kind), encode_value(value), NOW)
        content += build_batch([row], is_control=True)
    put(fs, snapshot_name(OffsetAndEpoch(0, 0)), content)
    with pytest.raises(ConfigError, match="dynamic voters"):
        opened(fs)


def test_the_bootstrap_snapshot_is_no_snapshot() -> None:
    fs = a_disk()  # X10, Q12
    log = a_log(fs)
    log.close()
    put(fs, snapshot_name(OffsetAndEpoch(0, 0)), snapshot_bytes(OffsetAndEpoch(0, 0)))
    again = opened(fs)
    assert again.open_snapshot(OffsetAndEpoch(0, 0)) is None
    assert ids(again) == []
    assert again.newest_snapshot_id is None


# ------------------------------------------------------------------------------- power cuts, X13


def story_of_a_freeze(log: MetaLog) -> None:
    freeze(log, AT_8)


def story_of_an_install(log: MetaLog) -> None:
    install(log, AHEAD)


def story_of_a_retirement(log: MetaLog) -> None:
    freeze(log, AT_8)
    retire(log, 8)


def story_of_a_repair(log: MetaLog) -> None:
    """A first stop after the rename of a download, a second one while that is repaired."""
    log.give_name(part_of(log, AHEAD)).sync()
    fs: CuttingFs = log._fs  # type: ignore[assignment]
    opened(fs)


STORIES = [story_of_a_freeze, story_of_an_install, story_of_a_retirement, story_of_a_repair]


@pytest.mark.parametrize("keep", ["none", "some", "all"])
@pytest.mark.parametrize("story", STORIES)
def test_a_power_cut_at_any_operation_is_repaired(
    story: Callable[[MetaLog], None], keep: str
) -> None:
    """Goal: rel-Q8, rel-Q10, rel-Q11, rel-Q15 after a stop anywhere. Method: cut before each operation."""
    cut_at = 0
    while True:
        fs = a_disk(CuttingFs)
        log = a_log(fs)
        freeze(log, AT_4)
        before = found(log)
        fs.cut_at = fs.count + cut_at
        is_done = False
        try:
            story(log)
            is_done = True
        except PowerCut:
            pass
        for seed in range(6 if keep == "some" else 1):
            after = fs.crash(SeededRng(seed), keep=keep)
            again = opened(after)
            check(again, after)
            stored = ids(again)
            if again.end_offset == 20:  # rel-Q15: gone is only what ends before the log starts
                assert stored == [AHEAD]
                continue
            assert again.end_offset == 10, "committed records stay"
            assert found(again) == [row for row in before if row[0] >= again.start_offset]
            assert AT_4 in stored or again.start_offset == 8
            if is_done:
                assert AT_8 in stored
        if is_done:
            assert cut_at > 5, "the story has operations to be cut at"
            return
        cut_at += 1


@pytest.mark.parametrize("operation", ["append", "sync", "rename", "sync_dir", "truncate", "open"])
@pytest.mark.parametrize("story", STORIES)
def test_a_failing_operation_is_an_error_and_the_next_start_is_complete(
    story: Callable[[MetaLog], None], operation: str
) -> None:
    for skip in range(8):
        fs = a_disk()
        log = a_log(fs)
        freeze(log, AT_4)
        fs.fail(operation, "__cluster_metadata", "EIO", skip=skip)
        try:
            story(log)
        except StorageError:
            after = fs.crash(SeededRng(skip))
            again = opened(after)
            check(again, after)
            assert again.end_offset in (10, 20)


def test_a_download_of_the_id_that_is_here_does_not_lose_it() -> None:
    """An own snapshot that is given up while a leader's of the same id counts."""
    fs = a_disk()
    log = a_log(fs)
    own = part_of(log, OffsetAndEpoch(10, 2))
    log.give_name(own).sync()
    install(log, OffsetAndEpoch(10, 2))
    log.withdraw(own)
    log.register(own)
    check(log, fs)
    assert ids(log) == [OffsetAndEpoch(10, 2)]


def test_an_own_snapshot_that_the_log_outran_is_removed() -> None:
    fs = a_disk()
    log = a_log(fs)
    own = part_of(log, OffsetAndEpoch(10, 2))
    log.give_name(own).sync()
    install(log, AHEAD)
    log.register(own)
    check(log, fs)
    assert ids(log) == [AHEAD]


def test_problems_of_a_part_are_the_senders_fault() -> None:
    log = a_log(a_disk())
    part = log.start_part(AT_8)
    problem = part.append(batch_at(0, 1))
    assert isinstance(problem, KafkaError)
    assert problem.code is Code.CORRUPT_MESSAGE
    assert part.size_bytes == 0, "what cannot be of a snapshot is not written"


@pytest.mark.parametrize(
    ("damaged", "end"), [(2, 8), (4, None), (6, 6)], ids=["far below", "below", "behind"]
)
def test_damage_in_what_was_synced_before_a_snapshot_is_no_torn_tail(
    damaged: int, end: int | None
) -> None:
    """Goal: a voter that crashed does not forget what it answered for because a byte of it went bad.
    Method: a snapshot of our own notes the recovery point, 5 here. Damage below it refuses the start or is
    left where it is, for the reader to find; damage behind it is cut off, as ever (rel-P5, rel-P8)."""
    fs = a_disk()
    log = opened(fs, in_use(fs))
    for _ in range(5):
        extend(log, 1)
        commit(log)
    freeze(log, OffsetAndEpoch(3, 1))
    extend(log, *[1] * 3)
    sync(log)
    fs = fs.crash(SeededRng(1), keep="all")
    batch = batch_at(damaged, 1)
    for name in fs.list_dir(DIR):
        file = fs.open_to_read(f"{DIR}/{name}")
        data = file.read(0, file.size())
        if name.endswith(".log") and batch in data:
            place = data.index(batch) + len(batch) - 1
            file.truncate(place)
            file.append(b"!" + data[place + 1 :])
    if end is None:
        with pytest.raises(StorageError, match="recovery point"):
            opened(fs, in_use(fs))
    else:
        assert opened(fs, in_use(fs)).end_offset == end
