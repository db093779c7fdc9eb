"""Leader epochs: the file is Kafka's, and the answers are those of KIP-101 and KIP-279."""

import pytest

from firnline.log.epochs import LeaderEpochs
from firnline.sim.disk import CrashableFs
from tests.log_world import SeededRng

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


def test_an_assignment_is_on_disk_when_it_returns(fs: CrashableFs, epochs: LeaderEpochs) -> None:
    """T46."""
    after = fs.crash(SeededRng(), keep="none")
    assert after.open(PATH).read(0, 99) == b"0\n3\n2 5\n4 11\n7 20\n"
    assert LeaderEpochs(after, PATH).entries() == ((2, 5), (4, 11), (7, 20))


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
    before = fs.syncs
    epochs.truncate_from_start(start)
    assert epochs.entries() == left
    assert fs.syncs == before, "retention waits for no disk"
    epochs.close()
    assert LeaderEpochs(fs, PATH).entries() == left


@pytest.mark.parametrize(
    ("end", "left"),
    [(21, ((2, 5), (4, 11), (7, 20))), (20, ((2, 5), (4, 11))), (12, ((2, 5), (4, 11))), (5, ())],
)
def test_truncation_from_the_end_drops_what_begins_there(
    fs: CrashableFs, epochs: LeaderEpochs, end: int, left: tuple[tuple[int, int], ...]
) -> None:
    epochs.truncate_from_end(end)
    assert epochs.entries() == left == LeaderEpochs(fs, PATH).entries()


def test_a_whole_lineage_is_taken_over(fs: CrashableFs, epochs: LeaderEpochs) -> None:
    epochs.replace(((1, 0), (9, 40)))
    assert LeaderEpochs(fs, PATH).entries() == ((1, 0), (9, 40))
    epochs.clear()
    assert LeaderEpochs(fs, PATH).entries() == ()
