"""A snapshot that the disk altered: what stands in for it, and what a voter must not do then."""

import random

import pytest

from firnline.base.errors import StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.base.log_lines.line import Log
from firnline.config.broker import BrokerConfig
from firnline.metadata.meta_log import MetaLog, open_meta_log
from firnline.metadata.snapshot_damage import DAMAGED, FORGOTTEN, damage_warnings
from firnline.metadata.snapshot_file import parse_snapshot_name, snapshot_name
from firnline.records.batch import headers
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.effects import only, said
from tests.worlds.meta_log import (
    CONFIG,
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
    part_of,
    retire,
    snapshot_bytes,
    sync,
)
from tests.worlds.quorum import broker_config

AT_4, AT_8 = OffsetAndEpoch(4, 1), OffsetAndEpoch(8, 2)
END = OffsetAndEpoch(10, 2)


ONE_SEGMENT = broker_config()


def opened(
    fs: CrashableFs,
    *,
    has_peers: bool = True,
    in_directory: bool = False,
    config: BrokerConfig = CONFIG,
) -> MetaLog:
    directory = in_use(fs) if in_directory else None
    return open_meta_log(fs, config, now_ms=NOW, has_peers=has_peers, directory=directory)


def a_log(fs: CrashableFs, *snapshots: OffsetAndEpoch) -> MetaLog:
    """Offsets 0-3 of epoch 1, 4-9 of epoch 2, committed; three segments; and these snapshots."""
    log = opened(fs)
    extend(log, *[1] * 4, *[2] * 6)
    commit(log)
    for snapshot_id in snapshots:
        freeze(log, snapshot_id)
    return log


def flip(fs: CrashableFs, snapshot_id: OffsetAndEpoch, at: int = 200) -> None:
    """Alter one bit on the platter, behind everybody's back."""
    inode = fs.files(DIR)[snapshot_name(snapshot_id)]
    for data in (inode.data, inode.durable):
        data[at] ^= 0x40


def without_beginning(fs: CrashableFs) -> MetaLog:
    """A log that begins at offset 8, as its only snapshot says, which is damaged now."""
    log = a_log(fs, AT_8)
    retire(log, 8)
    for name in fs.list_dir(DIR):
        if name.endswith(".deleted"):
            fs.remove(f"{DIR}/{name}")
    log.close()
    flip(fs, AT_8)
    return log


# ------------------------------------------------------------------------------- what stands in for it


def test_an_older_snapshot_and_the_log_stand_in_for_a_damaged_one() -> None:
    """Also for the only voter there is, and what is left is what was before."""
    fs = a_disk()
    log = a_log(fs, AT_4, AT_8)
    before = found(log)
    log.close()
    flip(fs, AT_8)
    again = opened(fs, has_peers=False)
    assert ids(again) == [AT_4]
    assert found(again) == before
    assert again.forgotten is None, "the log has all that the snapshot held"
    assert snapshot_name(AT_8) + DAMAGED in fs.list_dir(DIR)
    check(again, fs)
    reported = said(only(damage_warnings(again.path, again.damaged), Log))
    assert f"{DIR}/{snapshot_name(AT_8)}" in reported
    assert "CRC" in reported


def test_a_log_from_its_first_record_on_stands_in_for_its_only_snapshot() -> None:
    fs = a_disk()
    a_log(fs, AT_8).close()
    flip(fs, AT_8)
    again = opened(fs, has_peers=False)
    assert (again.start_offset, again.end_offset, again.newest_snapshot_id) == (0, 10, None)
    assert again.forgotten is None
    assert opened(fs, has_peers=False).damaged == {}, "it is said once"


def test_a_snapshot_without_a_log_behind_it_outweighs_an_older_one_that_is_damaged() -> None:
    fs = a_disk()
    log = a_log(fs, AT_8)
    log.give_name(part_of(log, OffsetAndEpoch(20, 3))).sync()
    log.close()
    flip(fs, AT_8)
    again = opened(fs, has_peers=False)
    assert (again.start_offset, again.end_offset, again.forgotten) == (20, 20, None)


def test_a_log_that_is_used_from_its_beginning_again_knows_its_epochs_from_there() -> None:
    """They were forgotten when it began later: as leader it would take another history for its own."""
    fs = a_disk()
    log = opened(fs, config=ONE_SEGMENT)
    extend(log, *[1] * 4, *[2] * 3, *[5] * 3)
    commit(log)
    freeze(log, OffsetAndEpoch(8, 5))
    retire(log, 8)
    assert log.end_offset_for(2) == OffsetAndEpoch(8, 5)
    log.close()
    flip(fs, OffsetAndEpoch(8, 5))
    for _ in range(2):
        log = opened(fs, config=ONE_SEGMENT)
        assert (log.start_offset, log.end_offset, log.last_epoch) == (0, 10, 5)
        assert log.end_offset_for(1) == OffsetAndEpoch(4, 1)
        assert log.end_offset_for(4) == OffsetAndEpoch(7, 2)
        log.close()


def test_a_log_that_began_at_a_damaged_snapshot_begins_at_the_next_one() -> None:
    fs = a_disk()
    log = opened(fs, config=ONE_SEGMENT)
    extend(log, *[1] * 4, *[2] * 3, *[5] * 3)
    commit(log)
    freeze(log, OffsetAndEpoch(6, 2))
    freeze(log, OffsetAndEpoch(8, 5))
    retire(log, 6)
    log.close()
    flip(fs, OffsetAndEpoch(6, 2))
    for _ in range(2):
        log = opened(fs, config=ONE_SEGMENT)
        assert (log.start_offset, ids(log)) == (8, [OffsetAndEpoch(8, 5)])
        check(log, fs)
        log.close()


def test_a_log_whose_newest_snapshot_is_damaged_begins_where_an_older_one_ends() -> None:
    """rel-Q8, where a power cut took back that the older one was removed: its records are still there."""
    fs = a_disk()
    log = opened(fs, config=ONE_SEGMENT)
    install(log, OffsetAndEpoch(20, 1))
    extend(log, *[1] * 10)
    commit(log)
    older, newer = OffsetAndEpoch(24, 1), OffsetAndEpoch(28, 1)
    freeze(log, older)
    freeze(log, newer)
    retire(log, 28)
    log.close()
    fs.rename(f"{DIR}/{snapshot_name(older)}.deleted", f"{DIR}/{snapshot_name(older)}")
    flip(fs, newer)
    for _ in range(2):
        log = opened(fs, config=ONE_SEGMENT)
        assert (log.start_offset, log.end_offset, ids(log)) == (24, 30, [older])
        check(log, fs)
        log.close()


def test_a_damaged_older_snapshot_is_no_hindrance() -> None:
    """Not at the start, and not later, when its age is asked for."""
    fs = a_disk()
    a_log(fs, AT_4, AT_8).close()
    flip(fs, AT_4, at=70)
    again = opened(fs, has_peers=False)
    assert again.snapshot_sizes() == [(AT_8, len(snapshot_bytes(AT_8)), 8)]


def test_what_was_renamed_goes_when_the_log_has_outrun_it() -> None:
    fs = a_disk()
    a_log(fs, AT_4, AT_8).close()
    flip(fs, AT_4)
    again = opened(fs, has_peers=False)
    retire(again, 8)
    again.close()
    opened(fs, has_peers=False)
    assert not [name for name in fs.list_dir(DIR) if name.endswith(DAMAGED)]


# ------------------------------------------------------------------------------- nothing stands in for it


def test_the_only_voter_refuses_to_forget_and_touches_nothing() -> None:
    fs = a_disk()
    without_beginning(fs)
    before = {name: bytes(inode.data) for name, inode in fs.files(DIR).items()}
    with pytest.raises(StorageError, match="neither an older one nor the log") as refused:
        opened(fs, has_peers=False)
    assert snapshot_name(AT_8) in str(refused.value)
    assert "remedy" in str(refused.value)
    assert {name: bytes(inode.data) for name, inode in fs.files(DIR).items()} == before


def test_the_only_voter_refuses_a_damaged_snapshot_that_is_ahead_of_its_log() -> None:
    fs = a_disk()
    log = a_log(fs, AT_4)
    log.give_name(part_of(log, OffsetAndEpoch(20, 3))).sync()
    log.close()
    flip(fs, OffsetAndEpoch(20, 3))
    with pytest.raises(StorageError, match="neither an older one nor the log"):
        opened(fs, has_peers=False)


def test_a_voter_that_lost_the_beginning_of_its_log_knows_what_it_promised() -> None:
    """Over any number of restarts; its records stay until a leader has shown that nobody needs them."""
    fs = a_disk()
    without_beginning(fs)
    log = opened(fs)
    for _ in range(3):
        assert (log.start_offset, log.end_offset, log.last_epoch) == (0, 0, 0)
        assert (log.synced_offset, log.high_watermark, log.newest_snapshot_id) == (0, 0, None)
        assert log.end_offset_for(2) == OffsetAndEpoch(0, 0)
        assert log.read(0, max_bytes=1000) == b""
        assert log.forgotten == END, "the end of its log, which lies beyond the snapshot"
        assert log.log.log_end_offset == 10
        log.close()
        log = opened(fs)


@pytest.mark.parametrize("in_directory", [False, True])
def test_the_leaders_log_from_its_beginning_takes_the_place_of_the_lost_one(
    *, in_directory: bool
) -> None:
    fs = a_disk()
    without_beginning(fs)
    log = opened(fs, in_directory=in_directory)
    extend(log, *[1] * 4, *[2] * 5)
    sync(log)
    assert log.end_offset == 9
    assert log.forgotten == END, "one record short"
    fs = fs.crash(SeededRng(1), keep="none")
    log = opened(fs, in_directory=in_directory)
    assert log.end_offset == 9
    assert log.forgotten == END
    extend(log, 2)
    log.synced(9)
    assert log.forgotten == END, "it has it, and not on its disk"
    sync(log)
    assert log.forgotten is None
    assert found(opened(fs))[-1][:2] == (9, 2)


def test_the_leaders_snapshot_takes_the_place_of_the_lost_log() -> None:
    fs = a_disk()
    without_beginning(fs)
    log = opened(fs)
    install(log, OffsetAndEpoch(9, 2))
    assert (log.start_offset, log.end_offset, log.forgotten) == (9, 9, END)
    log = opened(fs)
    assert log.forgotten == END
    install(log, OffsetAndEpoch(12, 3))
    assert log.forgotten is None
    assert not [name for name in fs.list_dir(DIR) if name.endswith(FORGOTTEN)]
    assert opened(fs).forgotten is None


@pytest.mark.parametrize("has_peers", [False, True])
@pytest.mark.parametrize("snapshot_id", [AT_8, OffsetAndEpoch(9, 2)])
def test_a_snapshot_that_was_put_back_by_hand_is_all_that_was_missing(
    snapshot_id: OffsetAndEpoch, *, has_peers: bool
) -> None:
    """The remedy of the operators' page: of the same name, or of another place of the log."""
    fs = a_disk()
    without_beginning(fs)
    if has_peers:
        opened(fs).close()
    file = fs.open(f"{DIR}/copy", create=True)
    file.append(snapshot_bytes(snapshot_id))
    file.close()
    fs.rename(f"{DIR}/copy", f"{DIR}/{snapshot_name(snapshot_id)}")
    for _ in range(2):
        log = opened(fs, has_peers=has_peers)
        assert (log.forgotten, ids(log)) == (None, [snapshot_id])
        assert (log.start_offset, log.end_offset) == (snapshot_id.offset, 10)
        log.close()


def test_a_later_epoch_is_more_than_what_was_promised() -> None:
    """What was not committed of it was cut by a leader of that epoch."""
    fs = a_disk()
    without_beginning(fs)
    log = opened(fs)
    extend(log, *[1] * 4, 2, 3)
    sync(log)
    assert (log.end_offset, log.forgotten) == (6, None)


def test_a_damaged_snapshot_ahead_of_the_log_is_what_the_log_has_to_reach() -> None:
    """A stop came between its name and the new beginning of the log."""
    fs = a_disk()
    log = a_log(fs, AT_4)
    ahead = OffsetAndEpoch(20, 3)
    log.give_name(part_of(log, ahead)).sync()
    log.close()
    flip(fs, ahead)
    for _ in range(2):
        again = opened(fs)
        assert (again.end_offset, again.forgotten) == (10, ahead)
        check(again, fs)
    assert again.append_fetched(batch_at(10, 3, 10), now_ms=NOW) is None
    sync(again)
    assert again.forgotten is None


@pytest.mark.parametrize("how", ["records", "snapshot"])
def test_no_stop_at_any_moment_makes_a_voter_forget_that_it_forgot(how: str) -> None:
    """The power goes before each operation that changes the disk, and leaves of it what it likes."""
    for cut_at in range(1000):
        fs = a_disk(CuttingFs)
        without_beginning(fs)
        fs.done.clear()
        fs.cut_at = cut_at
        is_over = False
        try:
            log = opened(fs)
            if how == "records":
                extend(log, *[1] * 4, *[2] * 2)
                sync(log)
            else:
                install(log, OffsetAndEpoch(9, 2))
            is_over = True
        except PowerCut:
            pass
        for keep in ("none", "some", "all"):
            left = fs.crash(SeededRng(cut_at), keep=keep)
            again = opened(left)
            # Where the cut left the old log and its snapshot is in between, it has all it ever had.
            has_all = (again.end_offset, again.last_epoch) == END
            assert again.forgotten == END or has_all, (cut_at, keep)
        if is_over:
            assert cut_at > 5
            return
    raise AssertionError("it never ends")


# ------------------------------------------------------------------------------- by chance


@pytest.mark.parametrize("seed", range(60))
def test_flipped_bits_cost_no_record_and_no_promise(seed: int) -> None:
    """Whatever is altered of its snapshots: a log has what it had, or says up to where it is short of it."""
    chance = random.Random(seed)
    fs = a_disk()
    config = chance.choice([CONFIG, ONE_SEGMENT])
    log = opened(fs, config=config)
    epoch = 1
    epochs: list[int] = []  # of each record
    for _ in range(chance.randrange(1, 5)):
        for _ in range(chance.randrange(1, 12)):
            epoch += chance.random() < 0.2
            epochs.append(epoch)
            extend(log, epoch)
        commit(log)
        if chance.random() < 0.8:
            freeze(log, OffsetAndEpoch(log.end_offset, log.last_epoch))
            if chance.random() < 0.5:
                epochs.append(epoch)
                extend(log, epoch)
                commit(log)
        stored = ids(log)
        if stored and chance.random() < 0.5:
            retire(log, chance.choice(stored).offset)
    end = OffsetAndEpoch(log.end_offset, log.last_epoch)
    had = found(log)
    sound = set(ids(log))
    log.close()
    for snapshot_id in ids(log):
        if chance.random() < 0.6:
            complete = snapshot_bytes(snapshot_id)
            unread = {
                header.position + n
                for header in headers(complete)
                for n in (*range(8), *range(12, 16))
            }
            at = chance.choice([n for n in range(len(complete)) if n not in unread])
            flip(fs, snapshot_id, at)
            sound.discard(snapshot_id)
    for _ in range(2):
        again = opened(fs, config=config)
        assert set(ids(again)) <= sound
        if again.forgotten is None:
            assert (again.end_offset, again.last_epoch) == end
            # Records below the log start may be here too: an older begin than was asked for.
            now = {row[0]: row for row in found(again)}
            stands_in = max((one.offset for one in ids(again)), default=0)
            assert all(now[row[0]] == row for row in had if row[0] >= stands_in)
            assert again.start_offset == 0 or again.start_offset in {i.offset for i in ids(again)}
            for one in {*epochs[again.start_offset :]}:
                ends = OffsetAndEpoch(len(epochs) - epochs[::-1].index(one), one)
                assert again.end_offset_for(one) == ends
        else:
            assert again.forgotten == end
            assert again.end_offset == 0
            assert not sound
        again.close()
    names = fs.list_dir(DIR)
    assert not [n for n in names if (i := parse_snapshot_name(n)) and i.offset and i not in sound]
