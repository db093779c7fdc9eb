"""Leader epochs: the file is Kafka's, and the answers are those of KIP-101 and KIP-279."""

import pytest

from firnline.base.units import INT64_MAX
from firnline.log.epochs import LeaderEpochs
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng

PATH = "/e/leader-epoch-checkpoint"


@pytest.fixture
def fs() -> CrashableFs:
    fs = CrashableFs()
    fs.make_dir("/e")
    fs.sync_dir("/")
    return fs


@pytest.fixture
def epochs(fs: CrashableFs) -> LeaderEpochs:
    epochs = LeaderEpochs(fs, PATH)
    for epoch, start in ((2, 5), (4, 11), (7, 20)):
        assert epochs.assign(epoch, start)
    return epochs


def lineage_after_a_crash(fs: CrashableFs) -> tuple[tuple[int, int], ...]:
    return LeaderEpochs(fs.crash(SeededRng(), keep="none"), PATH).entries()


def test_an_assignment_waits_for_no_disk_and_is_kept_once_it_was_synced(fs: CrashableFs) -> None:
    """T46, rel-P5: until then recovery has to begin where the epoch did."""
    epochs = LeaderEpochs(fs, PATH)
    before = fs.syncs
    for epoch, start in ((2, 5), (4, 11), (7, 20)):
        assert epochs.assign(epoch, start)
    assert (fs.syncs, epochs.unkept_from) == (before, 5)
    file = epochs.write_temporary()
    assert file is not None
    assert epochs.write_temporary() is file, "the same lineage is written once"
    file.sync()
    assert epochs.place(file)
    assert epochs.write_temporary() is None
    assert epochs.unkept_from == 5, "the new name is not on disk"
    fs.sync_dir("/e")
    epochs.placed_is_kept()
    assert epochs.unkept_from == INT64_MAX
    after = fs.crash(SeededRng(), keep="none")
    assert after.open(PATH).read(0, 99) == b"0\n3\n2 5\n4 11\n7 20\n"
    assert LeaderEpochs(after, PATH).entries() == ((2, 5), (4, 11), (7, 20))


def test_a_lineage_that_changed_meanwhile_does_not_take_the_name(
    fs: CrashableFs, epochs: LeaderEpochs
) -> None:
    epochs.write()
    epochs.assign(9, 30)
    old = epochs.write_temporary()
    epochs.assign(11, 40)
    new = epochs.write_temporary()
    assert old is not None
    assert new is not None
    assert new is not old
    assert not epochs.place(old)
    assert epochs.unkept_from == 30
    epochs.write()
    epochs.truncate_from_end(35)
    assert not epochs.place(new), "the whole was written since"
    assert lineage_after_a_crash(fs) == ((2, 5), (4, 11), (7, 20), (9, 30), (11, 40))
    assert epochs.unkept_from == 40


def test_what_the_file_claims_beyond_the_log_is_no_news_until_the_log_is_there(
    fs: CrashableFs, epochs: LeaderEpochs
) -> None:
    """rel-P13: an epoch that was led without a batch stays in the file; it must not be believed later."""
    epochs.write()
    again = LeaderEpochs(fs, PATH)
    before = fs.syncs
    again.truncate_from_end(20)
    assert fs.syncs == before
    assert (again.entries(), again.unkept_from) == (((2, 5), (4, 11)), 20)
    assert again.assign(7, 20)
    assert again.unkept_from == INT64_MAX, "it is what the file says"


def test_an_epoch_is_assigned_once(epochs: LeaderEpochs) -> None:
    assert not epochs.assign(7, 25)
    assert epochs.entries()[-1] == (7, 20)
    assert epochs.assign(7, 15), "it began earlier than was thought"
    assert epochs.entries() == ((2, 5), (4, 11), (7, 15))


def test_contradicting_entries_are_dropped(epochs: LeaderEpochs) -> None:
    assert epochs.assign(5, 11)
    assert epochs.entries() == ((2, 5), (5, 11))


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),
        (1, (1, 5)),
        (2, (2, 11)),
        (3, (2, 11)),
        (4, (4, 20)),
        (6, (4, 20)),
        (7, (7, 33)),
        (8, (-1, -1)),
    ],
)
def test_where_an_epoch_ends(epochs: LeaderEpochs, epoch: int, answer: tuple[int, int]) -> None:
    assert epochs.end_offset_for(epoch, 33) == answer


def test_an_empty_lineage_knows_nothing(fs: CrashableFs) -> None:
    empty = LeaderEpochs(fs, PATH)
    assert (empty.latest_epoch, empty.epoch_at(3)) == (-1, None)
    assert empty.end_offset_for(0, 10) == (-1, -1)


def test_the_epoch_of_an_offset(epochs: LeaderEpochs) -> None:
    assert [epochs.epoch_at(o) for o in (4, 5, 10, 11, 19, 20, 99)] == [None, 2, 2, 4, 4, 7, 7]
    assert epochs.latest_epoch == 7


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (3, ((2, 5), (4, 11), (7, 20))),
        (5, ((2, 5), (4, 11), (7, 20))),
        (8, ((2, 8), (4, 11), (7, 20))),
        (11, ((4, 11), (7, 20))),
        (50, ((7, 50),)),
    ],
)
def test_truncation_from_the_start_moves_the_first_entry(
    fs: CrashableFs, epochs: LeaderEpochs, start: int, left: tuple[tuple[int, int], ...]
) -> None:
    epochs.write()
    before = fs.syncs
    epochs.truncate_from_start(start)
    assert epochs.entries() == left
    assert fs.syncs == before, "retention waits for no disk"
    assert epochs.unkept_from == INT64_MAX, "opening does it again"
    again = LeaderEpochs(fs, PATH)
    again.truncate_from_start(start)
    assert again.entries() == left


@pytest.mark.parametrize(
    ("end", "left"),
    [(21, ((2, 5), (4, 11), (7, 20))), (20, ((2, 5), (4, 11))), (12, ((2, 5), (4, 11))), (5, ())],
)
def test_truncation_from_the_end_drops_what_begins_there(
    fs: CrashableFs, epochs: LeaderEpochs, end: int, left: tuple[tuple[int, int], ...]
) -> None:
    epochs.write()
    before = fs.syncs
    epochs.truncate_from_end(end)
    assert epochs.entries() == left
    assert fs.syncs == before, "a change of leader waits for no disk"
    gone = [start for _, start in LeaderEpochs(fs, PATH).entries()[len(left) :]]
    assert epochs.unkept_from == min(gone, default=INT64_MAX), "recovery begins there"


def test_a_complete_lineage_is_taken_over(fs: CrashableFs, epochs: LeaderEpochs) -> None:
    write = epochs.take_over(((1, 0), (9, 40), (10, 50)), 50)
    assert epochs.entries() == ((1, 0), (9, 40))
    assert write is not None
    write()
    epochs.taken_over(epochs.entries())
    assert LeaderEpochs(fs, PATH).entries() == ((1, 0), (9, 40))
    assert epochs.unkept_from == INT64_MAX
