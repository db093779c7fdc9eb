"""The compiled walks of compaction and their twins in Python do the same to the same bytes, hostile too."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.base.errors import StorageError
from firnline.base.native import native
from firnline.log.compaction import cleaner, rounds, walk
from firnline.log.compaction.offset_map import OffsetMap
from firnline.log.compaction.rounds import CompactionJob, SegmentToClean, compact
from firnline.records.build import NewRecord, build_batch
from firnline.sim.disk import CrashableFs
from tests.worlds.log import NOW, PATH

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(native is None, reason="there is no compiled code here"),
]

SECRET = bytes(range(16))
KEYS = st.one_of(
    st.none(), st.sampled_from([b"", b"a", b"b", b"k" * 127, b"k" * 128, b"k" * 129, b"k" * 300])
)
ROWS = st.lists(
    st.builds(
        NewRecord,
        KEYS,
        st.one_of(st.none(), st.binary(max_size=20)),
        st.integers(-1, 1 << 45),
        st.sampled_from([(), (("h", b"v"),), (("h", None), ("i", b""))]),
    ),
    min_size=1,
    max_size=8,
)
DAMAGE = st.one_of(
    st.none(),
    st.tuples(st.just("flip"), st.integers(0, 1 << 12), st.integers(1, 255)),
    st.tuples(st.just("cut"), st.integers(0, 1 << 12), st.just(0)),
    st.tuples(st.just("add"), st.integers(0, 1 << 12), st.integers(0, 255)),
)


def damaged(data: bytes, how: tuple[str, int, int] | None) -> bytes:
    if how is None or not data:
        return data
    kind, place, value = how
    place %= len(data)
    if kind == "flip":
        return data[:place] + bytes([data[place] ^ value]) + data[place + 1 :]
    return data[:place] if kind == "cut" else data[:place] + bytes([value]) + data[place:]


def table_of(keys: list[bytes | None], slots: int, latest: int) -> OffsetMap:
    made = OffsetMap(slots, SECRET)
    for offset, key in enumerate(keys):
        if key is not None and made.count < slots - 1:
            made.put(key, offset)
    made.latest_offset = latest
    return made


@settings(max_examples=400, deadline=None)
@given(rows=ROWS, how=DAMAGE, slots=st.integers(2, 9), start=st.integers(0, 12), data=st.data())
def test_both_put_the_same_keys(
    rows: list[NewRecord], how: Any, slots: int, start: int, data: st.DataObject
) -> None:
    body = damaged(bytes(build_batch(rows)[61:]), how)
    count = data.draw(st.sampled_from([len(rows), len(rows), 0, len(rows) + 1]))
    keys_max = data.draw(st.integers(1, slots - 1))
    found = []
    for one in (cleaner.map_body_python, cleaner._map_body_native):
        offsets = OffsetMap(slots, SECRET)
        done = one(body, count, 5, len(rows) - 1, offsets, start, keys_max)
        found.append((done, offsets.count, bytes(offsets.table)))
    assert found[0] == found[1]


@settings(max_examples=400, deadline=None)
@given(
    rows=ROWS,
    how=DAMAGE,
    known=st.lists(KEYS, max_size=12),
    latest=st.integers(-1, 14),
    drops=st.booleans(),
    shift=st.sampled_from([0, 1, -1, 1 << 40, -(1 << 62), (1 << 63) - 1, -(1 << 63)]),
)
def test_both_keep_the_same_records(
    rows: list[NewRecord],
    how: Any,
    known: list[bytes | None],
    latest: int,
    drops: bool,
    shift: int,
) -> None:
    body = damaged(bytes(build_batch(rows)[61:]), how)
    found = [
        one(body, len(rows), 5, len(rows) - 1, table_of(known, 16, latest), drops, shift)
        for one in (cleaner.filter_body_python, cleaner._filter_body_native)
    ]
    assert found[0] == found[1]


BATCHES = st.lists(
    st.tuples(
        ROWS,
        st.sampled_from([0, 0, 0, 1, 4]),  # codec
        st.sampled_from([-1, 7, 8]),  # producer
        st.booleans(),  # log append time
        st.integers(0, 3),  # a gap before it
    ),
    min_size=1,
    max_size=8,
)


def segment(batches: Any) -> tuple[bytes, int]:
    """Return the bytes of a segment, and where it ends."""
    data, offset = b"", 0
    for rows, codec, pid, is_append_time, gap in batches:
        offset += gap
        made = build_batch(
            rows,
            base_offset=offset,
            leader_epoch=1,
            codec=codec,
            producer_id=pid,
            producer_epoch=0,
            base_sequence=offset if pid >= 0 else -1,
            is_log_append_time=is_append_time,
        )
        data += bytes(made)
        offset += len(rows)
    return data, offset


def outcome(data: bytes, job: CompactionJob) -> Any:
    fs = CrashableFs()
    fs.make_dir(PATH)
    file = fs.open(f"{PATH}/{0:020d}.log", create=True)
    file.append(data)
    try:
        found = list(compact(fs, job))
    except StorageError as problem:
        return type(problem), problem.facts.get("position")
    return found, {name: bytes(inode.data) for name, inode in fs.files(PATH).items()}


@settings(max_examples=200, deadline=None)
@given(
    batches=BATCHES,
    how=DAMAGE,
    chunk=st.sampled_from([1 << 18, 61, 100, 150, 300]),
    first_dirty=st.integers(0, 6),
    last=st.integers(-1, 20),
    now_ms=st.sampled_from([NOW, 1 << 44]),
)
def test_a_segment_becomes_the_same_bytes_or_the_same_damage(
    batches: Any, how: Any, chunk: int, first_dirty: int, last: int, now_ms: int
) -> None:
    """Whatever part of it is read and written at once."""
    data, end = segment(batches)
    data = damaged(data, how)
    job = CompactionJob(
        path=PATH,
        segments=(SegmentToClean(0, end, len(data)),),
        later_bases=(),
        first_dirty_offset=min(first_dirty, end - 1),
        upto_offset=end,
        segment_bytes=1 << 20,
        segment_index_bytes=1 << 16,
        index_interval_bytes=100,
        delete_retention_ms=1000,
        now_ms=now_ms,
        last_batches=((7, last, 0), (9, -1, 3)),
        map_bytes=1 << 16,
        load_factor=0.9,
        bytes_per_second=1e300,
        secret=SECRET,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "CHUNK_BYTES", chunk)
        patch.setattr(rounds, "CHUNK_BYTES", chunk)
        found = outcome(data, job)
    assert found == in_python(lambda: outcome(data, job))
    if isinstance(found[0], list):  # and once more over what was left, with its delete horizons
        left = found[1][f"{0:020d}.log.cleaned"]
        again = job._replace(segments=(SegmentToClean(0, end, len(left)),), now_ms=now_ms + 1000)
        assert outcome(left, again) == in_python(lambda: outcome(left, again))


def mapped(data: bytes) -> tuple[int, int]:
    """Return how far native code goes over batches, and how many keys it puts."""
    assert native is not None
    table = bytearray(24 * 3000)
    found = native.map_batches(data, 0, 0, -1, 1 << 40, table, SECRET, 0, -1, 0, 2000)
    return found[0], found[3]


@pytest.mark.parametrize("size", [0, 1, 1400, 1510, 1530, 1536, 3000, 3080, 4700, 70_000])
def test_a_batch_of_any_length_passes_and_a_flipped_bit_anywhere_in_it_does_not(size: int) -> None:
    """CRCs of long runs are put together from three lanes of 512 bytes."""
    dice = random.Random(size)
    for more in range(0, 40, 3):
        data = bytearray(build_batch([NewRecord(b"k", dice.randbytes(size + more), NOW)]))
        assert mapped(bytes(data)) == (len(data), 1)
        for place in {dice.randrange(21, len(data)) for _ in range(20)}:
            bit = 1 << dice.randrange(8)
            data[place] ^= bit
            assert mapped(bytes(data)) == (0, 0)
            data[place] ^= bit


def test_a_batch_of_more_records_than_are_looked_up_together_loses_the_right_ones() -> None:
    rows = [NewRecord(b"%d" % (n % 70), b"v%d" % n, NOW) for n in range(300)]
    body = bytes(build_batch(rows)[61:])
    offsets = [OffsetMap(100, SECRET) for _ in range(2)]
    left = []
    for made, put, keep in zip(
        offsets,
        (cleaner.map_body_python, cleaner._map_body_native),
        (cleaner.filter_body_python, cleaner._filter_body_native),
        strict=True,
    ):
        assert put(body, 300, 0, 299, made, 0, 99) == 1
        made.latest_offset = 299
        left.append(keep(body, 300, 0, 299, made, False, 0))
    assert offsets[0].table == offsets[1].table
    assert left[0] == left[1]
    assert left[0] is not None
    assert left[0].left == 70


@pytest.mark.parametrize("room", [0, 60, 61, 200, 1 << 12])
def test_nothing_is_written_beyond_the_room_there_is(room: int) -> None:
    """Native code stops before a batch that may not fit, and says how far it went."""
    assert native is not None
    one = bytes(build_batch([NewRecord(b"k", b"x" * 50, NOW)]))
    two = bytes(build_batch([NewRecord(b"k", b"x" * 50, NOW)], base_offset=1))
    out = bytearray(b"\xee" * (room + 64))
    found = native.filter_batches(
        *(one + two, 0, 0, -1, 2, bytearray(48), SECRET, -1, NOW, 2, b""),
        *(memoryview(out)[:room], 0, 0, 0, 1 << 20, -1, 0),
    )
    fits = min(2, room // len(one))
    assert found[0] == found[3] == fits * len(one)
    assert out[: found[3]] == (one + two)[: found[3]]
    assert out[room:] == b"\xee" * 64
    for used in (-1, room + 1):  # no place in the room: none of it is used
        args = (one, 0, 0, -1, 2, bytearray(48), SECRET, -1, NOW, 2, b"")
        found = native.filter_batches(*args, memoryview(out)[:room], used, 0, 0, 1 << 20, -1, 0)
        assert found[:1] == (0,)
    with pytest.raises(BufferError):
        native.filter_batches(*args, b"constant", 0, 0, 0, 1 << 20, -1, 0)


def in_python(work: Callable[[], Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "native", None)
        for name in ("map_body", "filter_body"):
            twin = getattr(cleaner, f"{name}_python")
            patch.setattr(cleaner, name, twin)
            if hasattr(rounds, name):
                patch.setattr(rounds, name, twin)
        return work()
