"""A flipped bit in what was synced: a start after a crash refuses the log, and changes none of its files."""

from collections.abc import Sequence

import pytest

from firnline.base.errors import StorageError
from firnline.log.log import Log
from firnline.records.batch import HEADER_BYTES, BatchHeader, headers
from firnline.sim.disk import CrashableFs
from tests.worlds.log import append, batch, opened, small
from tests.worlds.recovery import overwrite, read_file, segment_files

CONFIG = small(segment_bytes=900)


Lineage = Sequence[tuple[int, int]]


def written(lineage: Lineage) -> tuple[CrashableFs, Log]:
    """Return a disk with a log of so many batches of each leader epoch, and the log."""
    fs = CrashableFs()
    log = opened(fs, CONFIG)
    for epoch, count in lineage:
        for _ in range(count):
            append(log, batch("v"), epoch=epoch)
    log.sync_now()
    return fs, log


def refusal(lineage: Lineage, path: str, place: int, bit: int, recovery_point: int) -> str:
    """Flip one bit of a new disk and start after a crash: return why the log is refused, "" if not."""
    fs = written(lineage)[0].kill()
    data = bytearray(read_file(fs, path))
    data[place] ^= bit
    overwrite(fs, path, bytes(data))
    before = [read_file(fs, name) for name in segment_files(fs, ".log")]
    try:
        opened(fs, CONFIG, recovery_point=recovery_point)
    except StorageError as problem:
        assert before == [read_file(fs, name) for name in segment_files(fs, ".log")]
        return str(problem)
    return ""


def batches(fs: CrashableFs, path: str) -> list[BatchHeader]:
    return list(headers(read_file(fs, path)))


@pytest.mark.parametrize("bit", [0x80, 0x40, 0x02, 0x01])
def test_no_bit_of_the_newest_synced_segment_flips_unseen(bit: int) -> None:
    """Offset, epoch, CRC, records: of each batch below the recovery point."""
    lineage = [(1, 9), (2, 9), (4, 7)]
    fs, log = written(lineage)
    segment = log.closed_segments()[-1]
    path = segment.stem_path + ".log"
    for header in batches(fs, path):
        # One place in the records stands for all: the CRC covers them alike.
        for place in [*range(HEADER_BYTES), header.size_bytes - 1]:
            at = header.position + place
            told = refusal(lineage, path, at, bit, segment.end_offset + 1)
            assert "damaged below its recovery point" in told, (header.base_offset, place)


def test_a_base_offset_that_grew_below_the_recovery_point_takes_no_batch_behind_it_along() -> None:
    """A gap may be there since the topic was compacted. But the next batch begins inside this one."""
    fs, _ = written([(1, 6)])
    (path,) = segment_files(fs, ".log")
    third = batches(fs, path)[2]
    told = refusal([(1, 6)], path, third.position + 7, 1, third.base_offset + 2)
    assert f"offset={third.base_offset}" in told


@pytest.mark.parametrize("which", [0, 3, -1])
@pytest.mark.parametrize("bit", [0x01, 0x02, 0x04, 0x08])
def test_a_synced_batch_has_the_leader_epoch_of_the_checkpoint(which: int, bit: int) -> None:
    """With a greater epoch a voter would win elections, and nothing after the last batch contradicts it."""
    lineage = [(3, 2), (6, 4)]
    fs, log = written(lineage)
    (path,) = segment_files(fs, ".log")
    wrong = batches(fs, path)[which]
    told = refusal(lineage, path, wrong.position + 15, bit, log.log_end_offset)
    assert "below its recovery point" in told


def test_what_is_not_synced_may_be_of_an_epoch_that_the_checkpoint_has_not() -> None:
    fs, log = written([(3, 4)])
    append(log, batch("v"), epoch=5)
    again = opened(fs.kill(), CONFIG, recovery_point=4)
    assert again.log_end_offset == 5
    assert again.epochs.entries() == ((3, 0), (5, 4))


def test_batches_below_the_first_epoch_of_the_checkpoint_are_compared_with_nothing() -> None:
    """Records were deleted up to an offset inside this segment."""
    fs, log = written([(3, 4), (5, 4)])
    log.epochs.truncate_from_start(6)
    log.epochs.write()
    again = opened(fs.kill(), CONFIG, recovery_point=8, log_start_offset=6)
    assert again.epochs.entries() == ((5, 6),)
