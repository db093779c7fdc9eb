"""The three indexes: Kafka's bytes, right answers, and no belief in what cannot be."""

import random
import struct
from collections.abc import Callable

import pytest

from firnline.formats import transaction_index
from firnline.formats.transaction_index import AbortedTxn
from firnline.log.indexes import OffsetIndex, TimeIndex
from firnline.log.sparse_index import EntriesDamaged
from firnline.log.transaction_index import TransactionIndex
from firnline.sim.disk import CrashableFile, CrashableFs

BASE = 2**40


@pytest.fixture
def fs() -> CrashableFs:
    fs = CrashableFs()
    fs.make_dir("/i")
    return fs


def raw(fs: CrashableFs, path: str) -> bytes:
    return fs.open(path).read(0, 1 << 20)


def rewrite(fs: CrashableFs, path: str, data: bytes) -> None:
    file = fs.open(path, create=True)
    file.truncate(0)
    file.append(data)


# -- offsets ---------------------------------------------------------------------------------------


def test_the_offset_index_has_kafkas_bytes(fs: CrashableFs) -> None:
    index = OffsetIndex(fs, "/i/x", BASE)
    index.add(BASE + 20, 331)
    index.write()
    index.add(BASE + 2**31 - 1, 2**30)
    index.write()
    assert raw(fs, "/i/x") == struct.pack(">iiii", 20, 331, 2**31 - 1, 2**30)
    again = OffsetIndex(fs, "/i/x", BASE)
    assert again.load(2**31)
    assert again.entries() == [(BASE + 20, 331), (BASE + 2**31 - 1, 2**30)]


def test_a_lookup_is_never_behind_the_batch() -> None:
    rng = random.Random(3)
    index = OffsetIndex(CrashableFs(), "/x", BASE)
    entries, offset, position = [], BASE - 1, 0
    for _ in range(200):
        offset, position = offset + rng.randint(1, 50), position + rng.randint(1, 500)
        index.add(offset, position)
        entries.append((offset, position))
    for wanted in range(BASE, offset + 60, 7):
        below = [p for o, p in entries if o <= wanted]
        assert index.entry_for(wanted)[0] == (below[-1] if below else 0)
    for wanted in range(0, position + 500, 13):
        below = [p for _, p in entries if p <= wanted]
        assert index.entry_below(wanted)[0] == (below[-1] if below else 0)
    assert index.last_position() == position
    assert len(index) == 200


@pytest.mark.parametrize(
    ("entries", "is_good"),
    [
        ([(1, 10), (2, 20)], True),
        ([], True),
        ([(2, 10), (1, 20)], False),
        ([(1, 20), (2, 20)], False),
        ([(1, 10), (2, 2000)], False),
        ([(1, 10), (-1, 20)], False),
        ([(1, 10), (2, 20), (0, 0), (0, 0)], True),
        ([(0, 0), (1, 10), (0, 0)], True),
    ],
)
def test_an_offset_index_that_cannot_be_is_not_believed(
    fs: CrashableFs, entries: list[tuple[int, int]], is_good: bool
) -> None:
    rewrite(fs, "/i/x", b"".join(struct.pack(">ii", *entry) for entry in entries))
    index = OffsetIndex(fs, "/i/x", BASE)
    assert index.load(1000) == is_good
    while is_good and entries and entries[-1] == (0, 0):
        entries = entries[:-1]
    assert index.entries() == [(BASE + o, p) for o, p in entries if is_good]
    if is_good:
        assert len(raw(fs, "/i/x")) == len(entries) * 8


def test_an_index_that_nobody_reads_takes_no_memory(fs: CrashableFs) -> None:
    index = OffsetIndex(fs, "/i/x", BASE)
    index.add(BASE + 20, 331)
    index.write()
    index.forget()
    assert len(index) == 0
    index.write()
    assert index.load(2**31)
    assert index.entries() == [(BASE + 20, 331)]


def test_truncation_of_the_offset_index_says_what_the_file_is_to_be_cut_to(fs: CrashableFs) -> None:
    index = OffsetIndex(fs, "/i/x", BASE)
    for number in range(1, 10):
        index.add(BASE + number, number * 100)
    index.write()
    index.add(BASE + 10, 1000)
    assert index.truncate_to(BASE + 5) == 4 * 8
    assert index.entries()[-1] == (BASE + 4, 400)
    fs.open("/i/x").truncate(4 * 8)
    index.write()
    assert raw(fs, "/i/x") == b"".join(struct.pack(">ii", n, n * 100) for n in range(1, 5))


# -- times -----------------------------------------------------------------------------------------


def test_the_time_index_has_kafkas_bytes(fs: CrashableFs) -> None:
    index = TimeIndex(fs, "/i/x", BASE)
    index.maybe_add(1_795_256_000_000, BASE + 20)
    index.maybe_add(1_795_256_000_000, BASE + 30)
    index.maybe_add(5, BASE + 40)
    index.write()
    index.maybe_add(1_795_256_000_001, BASE + 2**31 - 1)
    index.write()
    assert raw(fs, "/i/x") == struct.pack(
        ">qiqi", 1_795_256_000_000, 20, 1_795_256_000_001, 2**31 - 1
    )
    again = TimeIndex(fs, "/i/x", BASE)
    assert again.load()
    assert again.entries() == index.entries()
    assert (again.last_time_ms, again.last_offset) == (1_795_256_000_001, BASE + 2**31 - 1)


def test_times_are_looked_up_from_below() -> None:
    index = TimeIndex(CrashableFs(), "/x", BASE)
    for time_ms, offset in ((100, 5), (200, 9), (300, 30)):
        index.maybe_add(time_ms, BASE + offset)
    found = [index.entry_before(t)[1] - BASE for t in (0, 99, 100, 199, 200, 299, 301)]
    assert found == [0, 0, 5, 5, 9, 9, 30]


@pytest.mark.parametrize(
    ("entries", "is_good"),
    [
        ([(10, 1), (20, 2)], True),
        ([(10, 1), (20, 1)], True),
        ([(20, 1), (10, 2)], False),
        ([(10, 1), (10, 2)], False),
        ([(10, 2), (20, 1)], False),
        ([(10, -1)], False),
        ([(10, 1), (0, 0), (0, 0)], True),
    ],
)
def test_a_time_index_that_cannot_be_is_not_believed(
    fs: CrashableFs, entries: list[tuple[int, int]], is_good: bool
) -> None:
    rewrite(fs, "/i/x", b"".join(struct.pack(">qi", *entry) for entry in entries))
    index = TimeIndex(fs, "/i/x", BASE)
    assert index.load() == is_good
    assert len(index) == (sum(entry != (0, 0) for entry in entries) if is_good else 0)
    rewrite(fs, "/i/x", b"odd")
    assert not index.load()
    fs.remove("/i/x")
    assert not index.load()


def test_truncation_of_the_time_index_says_what_the_file_is_to_be_cut_to(fs: CrashableFs) -> None:
    index = TimeIndex(fs, "/i/x", BASE)
    for number in range(1, 10):
        index.maybe_add(number, BASE + number)
    index.write()
    assert index.truncate_to(BASE + 5) == 4 * 12
    assert index.entries()[-1] == (4, BASE + 4)
    assert index.last_time_ms == 4


# -- transactions ----------------------------------------------------------------------------------


def test_the_transaction_index_has_kafkas_bytes(fs: CrashableFs) -> None:
    index = TransactionIndex(fs, "/i/x")
    assert not index.entries
    index.add(AbortedTxn(5, 0, 20, 21))
    index.add(AbortedTxn(6, 10, 104, 105))
    assert raw(fs, "/i/x") == struct.pack(">hqqqqhqqqq", 0, 5, 0, 20, 21, 0, 6, 10, 104, 105)
    assert TransactionIndex(fs, "/i/x").entries == index.entries
    assert index.is_sane(0)
    assert not index.is_sane(50)


def test_a_search_stops_where_later_aborts_cannot_matter(fs: CrashableFs) -> None:
    index = TransactionIndex(fs, "/i/x")
    for txn in ((1, 0, 10, 5), (2, 5, 20, 21), (3, 22, 30, 31)):
        index.add(AbortedTxn(*txn))
    found: list[AbortedTxn] = []
    assert not index.collect(0, 32, found)
    assert [t.producer_id for t in found] == [1, 2, 3]
    found.clear()
    assert index.collect(0, 21, found)
    assert [t.producer_id for t in found] == [1, 2]
    found.clear()
    assert index.collect(11, 6, found)
    assert [t.producer_id for t in found] == [2]


def test_a_torn_entry_is_written_over(fs: CrashableFs) -> None:
    TransactionIndex(fs, "/i/x").add(AbortedTxn(5, 0, 20, 21))
    fs.open("/i/x").append(b"torn")
    index = TransactionIndex(fs, "/i/x")
    assert not index.is_sane(0)
    index.add(AbortedTxn(6, 21, 30, 31))
    assert [t.producer_id for t in TransactionIndex(fs, "/i/x").entries] == [5, 6]
    assert index.is_sane(0)


@pytest.mark.parametrize("bad", [AbortedTxn(5, 0, 20, 21), AbortedTxn(5, 150, 120, 121)])
def test_what_follows_an_entry_of_the_transaction_index_that_cannot_be_is_not_believed(
    fs: CrashableFs, bad: AbortedTxn
) -> None:
    good = AbortedTxn(6, 10, 104, 105)
    rewrite(fs, "/i/x", transaction_index.encode([good, bad, AbortedTxn(7, 105, 200, 201)]))
    index = TransactionIndex(fs, "/i/x")
    assert index.entries == [good]
    assert not index.is_sane(0)


def test_truncation_of_the_transaction_index(fs: CrashableFs) -> None:
    index = TransactionIndex(fs, "/i/x")
    for last in (10, 20, 30):
        index.add(AbortedTxn(last, 0, last, last + 1))
    assert index.truncate_to(21) == 2 * 34
    assert [t.last_offset for t in index.entries] == [10, 20]
    assert index.truncate_to(0) == 0
    assert not index.entries


# -- of full segments ------------------------------------------------------------------------------

MANY = 9 * 1024 + 500
AnyIndex = OffsetIndex | TimeIndex


def many_offsets(fs: CrashableFs, count: int = MANY) -> OffsetIndex:
    index = OffsetIndex(fs, "/i/x", BASE)
    for number in range(count):
        index.add(BASE + 10 * number + 9, 1000 * number + 500)
    return index


def many_times(fs: CrashableFs, count: int = MANY) -> TimeIndex:
    index = TimeIndex(fs, "/i/x", BASE)
    for number in range(count):
        index.maybe_add(10 * number + 9, BASE + number // 3)
    return index


def loaded(kind: type[AnyIndex], fs: CrashableFs) -> AnyIndex | None:
    """The index as it is read again; None where it is not believed."""
    again = kind(fs, "/i/x", BASE)
    is_good = again.load(2**31) if isinstance(again, OffsetIndex) else again.load()
    return again if is_good else None


def answers(index: AnyIndex, wanted: int) -> list[tuple[int, int]]:
    if isinstance(index, TimeIndex):
        return [index.entry_before(wanted)]
    return [index.entry_for(BASE + wanted), index.entry_below(wanted * 100)]


@pytest.mark.parametrize("made", [many_offsets, many_times])
def test_an_index_that_is_read_again_says_what_the_one_in_memory_says(
    made: Callable[[CrashableFs], AnyIndex], fs: CrashableFs
) -> None:
    complete, rng = made(fs), random.Random(1)
    complete.write()
    again = loaded(type(complete), fs)
    assert again is not None
    edges = [1024 * 10 * block + about for block in range(11) for about in range(-25, 35)]
    for wanted in [*edges, *[rng.randrange(MANY * 11) for _ in range(500)]]:
        assert answers(again, wanted) == answers(complete, wanted)
    assert len(again) == len(complete) == MANY
    assert again.entries() == complete.entries()
    assert again.encoded() == raw(fs, "/i/x")


@pytest.mark.parametrize("made", [many_offsets, many_times])
def test_nobody_reads_all_of_a_large_index_for_one_place_in_it(
    made: Callable[[CrashableFs], AnyIndex], fs: CrashableFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That took 25 ms of the loop for the usual full segment, and 130 for the largest index."""
    made(fs).write()
    read: list[int] = []
    real = CrashableFile.read

    def noted(file: CrashableFile, position: int, size: int) -> bytes:
        read.append(size)
        return real(file, position, size)

    monkeypatch.setattr(CrashableFile, "read", noted)
    again, sizes = None, []
    for wanted in (-1, 7, 40_000, 40_001, MANY * 10, 50_000):
        read.clear()
        again = again or loaded(made(fs).__class__, fs)
        assert again is not None
        answers(again, wanted)
        sizes.append(sum(read))
    assert max(sizes) < 4000 * 12
    assert sizes[3:] == [0, 0, sizes[5]], "and nothing is read twice"


@pytest.mark.parametrize("made", [many_offsets, many_times])
def test_an_index_that_was_read_again_is_cut_and_grows_as_any(
    made: Callable[[CrashableFs], AnyIndex], fs: CrashableFs
) -> None:
    for keep in (MANY, MANY - 3, 8 * 1024 + 1, 8 * 1024, 5 * 1024 + 1, 5 * 1024, 1023, 1, 0):
        complete = made(fs)
        complete.write()
        again = loaded(type(complete), fs)
        assert again is not None
        first = complete.entries()[keep] if keep < MANY else (0, 0)
        offset = first[0] if isinstance(complete, OffsetIndex) else first[1]
        offset = offset if keep < MANY else BASE + MANY * 10
        assert again.truncate_to(offset) == complete.truncate_to(offset)
        file = fs.open("/i/x")
        file.truncate(len(complete) * complete.entry_bytes)
        for index in (complete, again):
            for number in range(2000):
                if isinstance(index, OffsetIndex):
                    index.add(BASE + MANY * 11 + number, MANY * 1001 + number)
                else:
                    index.maybe_add(MANY * 11 + number, BASE + MANY + number)
        for wanted in (0, 5 * 10240, MANY * 10, MANY * 11 + 5):
            assert answers(again, wanted) == answers(complete, wanted)
        again.write()
        assert raw(fs, "/i/x") == complete.encoded() == again.encoded()


@pytest.mark.parametrize("made", [many_offsets, many_times])
def test_a_wrong_entry_leads_nobody_astray(
    made: Callable[[CrashableFs], AnyIndex], fs: CrashableFs
) -> None:
    """Whoever looks is told that the index is damaged, or to begin at most a block before the place."""
    complete, rng = made(fs), random.Random(5)
    complete.write()
    sound, width = raw(fs, "/i/x"), complete.entry_bytes
    rows = [row[::-1] for row in complete.entries()] if width == 8 else complete.entries()
    places = {row: number for number, row in enumerate(rows)}
    reported = 0
    blocks = [1024 * block + about for block in range(1, 8) for about in (-1, 0, 1)]
    for bad in [*blocks, *[rng.randrange(MANY) for _ in range(60)]]:
        data = bytearray(sound)
        at = bad * width + rng.randrange(width)
        data[at] ^= 1 << rng.randrange(8)
        rewrite(fs, "/i/x", bytes(data))
        again = loaded(type(complete), fs)
        for wanted in [
            10 * bad + 10 * about for about in (-3000, -1100, -2, -1, 0, 1, 2, 1100, 3000)
        ]:
            try:
                found = [] if again is None else answers(again, max(0, wanted))
            except EntriesDamaged:
                reported += 1
                continue
            for one, right in zip(found, answers(complete, max(0, wanted)), strict=False):
                slot = places.get(one, -1 if one in ((0, -1), (-1, BASE)) else None)
                # One that is nowhere in the segment is found out by what it names: see `Segment`.
                assert slot is None or places.get(right, -1) - 1025 <= slot <= places.get(right, -1)
    assert reported


def test_no_entry_is_kept_of_those_that_cannot_be_where_an_index_is_cut(fs: CrashableFs) -> None:
    many_offsets(fs).write()
    data = bytearray(raw(fs, "/i/x"))
    data[5000 * 8] ^= 64
    rewrite(fs, "/i/x", bytes(data))
    index = OffsetIndex(fs, "/i/x", BASE)
    assert index.load(2**31)
    with pytest.raises(EntriesDamaged):
        index.truncate_to(BASE + 51_000)
    assert len(index) == MANY, "nothing of it was dropped"


@pytest.mark.parametrize("block", [1, 5, 8])
@pytest.mark.parametrize("made", [many_offsets, many_times])
def test_no_entry_is_kept_that_is_too_low_for_its_place_where_an_index_is_cut(
    made: Callable[[CrashableFs], AnyIndex], block: int, fs: CrashableFs
) -> None:
    """The log would have a greatest timestamp that none of its batches has; block 8 is in memory."""
    complete = made(fs)
    complete.write()
    slot, is_times = 1024 * block, isinstance(complete, TimeIndex)
    data = bytearray(raw(fs, "/i/x"))
    at = slot * complete.entry_bytes + (8 if is_times else 0)
    data[at : at + 4] = struct.pack(">i", 2)
    rewrite(fs, "/i/x", bytes(data))
    index = loaded(type(complete), fs)
    assert index is not None
    entry = complete.entries()[slot - 20]
    with pytest.raises(EntriesDamaged):
        index.truncate_to(entry[1] if is_times else entry[0])
    assert len(index) == MANY, "nothing of it was dropped"


def test_what_somebody_does_to_the_file_of_an_index_in_use_is_found_out(fs: CrashableFs) -> None:
    many_offsets(fs).write()
    sound = raw(fs, "/i/x")
    index = OffsetIndex(fs, "/i/x", BASE)
    for data in (None, sound[: 3 * 1024 * 8]):
        rewrite(fs, "/i/x", sound)
        assert index.load(2**31)
        index.add(BASE + MANY * 10, MANY * 1000)
        fs.remove("/i/x") if data is None else rewrite(fs, "/i/x", data)
        with pytest.raises(EntriesDamaged):
            index.entry_for(BASE + 60_000)
        with pytest.raises(EntriesDamaged):
            index.truncate_to(BASE + 60_000)
        index.write()
        assert not index.load(2**31), "it is built again, and no torn one is believed"


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 2047, 2048, 5000])
def test_zeros_behind_an_index_of_any_length_are_cut_off(fs: CrashableFs, count: int) -> None:
    many_offsets(fs, count).write()
    sound = raw(fs, "/i/x")
    rewrite(fs, "/i/x", sound + bytes(8 * 7000))
    index = OffsetIndex(fs, "/i/x", BASE)
    assert index.load(2**31)
    assert len(index) == count
    assert raw(fs, "/i/x") == sound
