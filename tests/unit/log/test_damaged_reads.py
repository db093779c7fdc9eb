"""What a local read makes of damaged bytes: an error or the same batches, never fewer."""

from collections.abc import Callable

import pytest

from firnline.base.errors import StorageError
from firnline.config.topic import TopicConfig
from firnline.formats import names
from firnline.log import sparse_index
from firnline.log.log import Log
from firnline.log.segment import Segment
from firnline.log.sparse_index import IndexDamaged
from firnline.records.batch import headers
from firnline.sim.disk import CrashableFs
from tests.worlds.log import NOW, PATH, append, batch, offset_at_time, opened

COUNT = 12
CONFIG = TopicConfig(index_interval_bytes=1)


@pytest.fixture(autouse=True, params=[sparse_index._BLOCK, 2])
def _block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with indexes that are in memory, and with some of which there is only the end."""
    monkeypatch.setattr(sparse_index, "_BLOCK", request.param)


def flipped(data: bytes, bit: int) -> bytes:
    out = bytearray(data)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


def written(config: TopicConfig = CONFIG) -> CrashableFs:
    """A closed segment of `COUNT` batches of three records, indexed at every batch, and another one."""
    fs = CrashableFs()
    log = opened(fs, config)
    for number in range(COUNT):
        append(log, batch("a", "b", "c", time_ms=NOW + 10 * number))
    log.roll(NOW)
    append(log, batch("tail", time_ms=NOW + 1000))
    log.sync_now()
    log.close()
    return fs


def reopened(fs: CrashableFs) -> Log:
    return opened(fs, CONFIG, was_clean=True)


def damage(fs: CrashableFs, suffix: str, change: Callable[[bytes], bytes]) -> None:
    file = fs.open(f"{PATH}/{names.stem(0)}{suffix}")
    data = change(file.read(0, file.size()))
    file.truncate(0)
    file.append(data)
    file.close()


def files(fs: CrashableFs) -> list[bytes]:
    opened_files = [fs.open(f"{PATH}/{names.stem(0)}{s}") for s in (names.INDEX, names.TIME_INDEX)]
    return [file.read(0, file.size()) for file in opened_files]


def offsets(data: bytes) -> list[int]:
    return [header.base_offset for header in headers(data)]


READS = [(offset, size) for offset in (0, 4, 17, 18, 20, 34, 35) for size in (1, 250, 1 << 20)]


def read(log: Log, offset: int, size: int) -> list[int]:
    return offsets(bytes(log.read(offset, max_bytes=size, upto_offset=log.log_end_offset).read()))


def sound() -> tuple[list[list[int]], list[tuple[int, int] | None]]:
    log = reopened(written())
    found = [read(log, *one) for one in READS]
    return found, [offset_at_time(log, NOW + 10 * number + 1) for number in range(COUNT)]


def test_a_flipped_index_passes_over_no_record() -> None:
    reads, _ = sound()
    assert reads[3] == [3], "the batch that holds the offset, though it begins before it"
    size = len(b"12345678") * (COUNT - 1)
    for bit in range(0, size * 8, 3):
        log = reopened(fs := written())
        damage(fs, names.INDEX, lambda data, bit=bit: flipped(data, bit))
        assert [read(log, *one) for one in READS] == reads, bit


def test_an_index_that_a_read_found_to_be_wrong_is_right_afterwards() -> None:
    good = files(fs := written())
    log = reopened(fs)
    damage(fs, names.INDEX, lambda data: flipped(data, 8 * len(data) // 2 - 33))
    assert files(fs) != good
    for one in READS:
        read(log, *one)
    assert files(fs) == good


def test_a_flipped_time_index_passes_over_no_record() -> None:
    _, times = sound()
    for bit in range(0, 12 * (COUNT - 2) * 8, 5):
        log = reopened(fs := written())
        damage(fs, names.TIME_INDEX, lambda data, bit=bit: flipped(data, bit))
        found = [offset_at_time(log, NOW + 10 * number + 1) for number in range(COUNT)]
        assert found == times, bit


def test_a_time_index_that_names_a_later_batch_hides_no_earlier_one() -> None:
    fs = CrashableFs()
    log = opened(fs, CONFIG)
    for number in range(COUNT):
        append(log, batch("a", time_ms=NOW + (number or 1000)))
    log.roll(NOW)
    log.close()
    offset_bit = 8 * 12 - 4  # of the only entry: from 0 to 8
    damage(fs, names.TIME_INDEX, lambda data: flipped(data, offset_bit - 1))
    assert offset_at_time(reopened(fs), NOW + 1000) == (0, NOW + 1000)


@pytest.mark.parametrize("config", [CONFIG, TopicConfig()], ids=["indexed", "not indexed"])
@pytest.mark.parametrize("is_read_before", [False, True])
@pytest.mark.parametrize("number", [0, 1, 6, COUNT - 2])
def test_a_flipped_base_offset_is_an_error_and_the_rest_is_served(
    number: int, is_read_before: bool, config: TopicConfig
) -> None:
    """Where the batch lies may be known from the index, from those before it, or from the read before."""
    reads, _ = sound()
    for bit in range(64):
        log = reopened(fs := written(config))
        if is_read_before:
            assert [read(log, *one) for one in READS] == reads

        def change(data: bytes, bit: int = bit) -> bytes:
            at = list(headers(data))[number].position
            return flipped(data, at * 8 + bit)

        damage(fs, names.LOG, change)
        for one, complete in zip(READS, reads, strict=True):
            try:
                found = read(log, *one)
            except StorageError:
                continue
            # A longer read hands the file's bytes on as they are: its first batch is the wanted one.
            assert found[0] == complete[0], (bit, one)


def test_an_index_that_is_damaged_whenever_it_was_built_is_not_built_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a disk that gives back other bytes than were written: the loop would do nothing else."""
    log, asked = reopened(written()), [0]

    def damaged(segment: Segment, offset: int) -> int:
        asked[0] += 1
        assert asked[0] <= 5
        raise IndexDamaged(segment)

    monkeypatch.setattr(Segment, "locate", damaged)
    with pytest.raises(IndexDamaged):
        log.read(4, max_bytes=1, upto_offset=log.log_end_offset)


@pytest.mark.parametrize("suffix", [names.INDEX, names.TIME_INDEX])
def test_the_segment_that_a_log_goes_on_with_keeps_its_times_where_an_index_is_built_again(
    suffix: str,
) -> None:
    """Cluster seed 42000606: what was early in it was not found by its time any more."""
    fs = CrashableFs()
    log = opened(fs)  # an index entry for some batches, not for each
    for number in range(COUNT):
        append(log, batch("a", time_ms=NOW + 100 - number))
    log.sync_now()
    log.close()
    fs.remove(f"{PATH}/{names.stem(0)}{suffix}")
    again = opened(fs, was_clean=True)
    append(again, batch("b", time_ms=NOW))
    assert offset_at_time(again, NOW + 100) == (0, NOW + 100)
    again.roll(NOW)
    append(again, batch("c", time_ms=NOW + 200))
    assert offset_at_time(again, NOW + 99) == (0, NOW + 100)
