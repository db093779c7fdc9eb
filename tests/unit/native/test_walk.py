"""A walk over a segment: the compiled one and its twin say the same, and see what is wrong."""

import struct
from array import array
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.records import walk
from firnline.records.batch import (
    HEADER_BYTES,
    headers,
    set_log_append_time,
    set_offset_and_epoch,
)
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import LZ4, NONE
from firnline.records.walk import BatchWalk, Problem, Slot, walk_batches_python
from tests.unit.native.compiled import native, needs_native

Walk = Callable[[Any, "array[int]", bytes, bytes, "array[int]"], None]


def batch(base: int, count: int, *, epoch: int = 0, time_ms: int = 0, **more: Any) -> bytes:
    rows = [NewRecord(b"%d" % o, b"v" * (o % 7), time_ms + o) for o in range(base, base + count)]
    return bytes(build_batch(rows, base_offset=base, leader_epoch=epoch, **more))


def indexes(data: bytes, base: int) -> tuple[bytes, bytes]:
    """Both indexes with an entry for each batch but the first."""
    offsets, times, newest = b"", b"", -1
    for head in headers(data):
        if head.position:
            offsets += struct.pack(">ii", head.last_offset - base, head.position)
        if head.max_timestamp > newest:
            newest = head.max_timestamp
            times += struct.pack(">qi", newest, head.last_offset - base)
    return offsets, times


DATA = b"".join(
    [batch(100, 3, epoch=2), batch(103, 1, epoch=2, is_control=True), batch(104, 5, epoch=4)]
)
EPOCHS = ((2, 100), (4, 104))
PLACES = [head.position for head in headers(DATA)]


@pytest.fixture(params=["python", pytest.param("compiled", marks=needs_native)])
def walked(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., BatchWalk]:
    chosen = walk_batches_python if request.param == "python" else native.walk_batches
    monkeypatch.setattr(walk, "_walk", chosen)

    def run(data: bytes = DATA, end: int = 108, **more: bytes) -> BatchWalk:
        found = BatchWalk(100, end, EPOCHS, **more)
        found.feed(data)
        return found

    return run


def test_a_sound_segment_has_no_problem_and_no_gaps(walked: Callable[..., BatchWalk]) -> None:
    offsets, times = indexes(DATA, 100)
    found = walked(offsets=offsets, times=times)
    assert (found.problem, found.has_gaps, found.position) == (Problem.NONE, False, len(DATA))
    assert (found.offset_index_fits, found.time_index_fits) == (True, True)
    assert found.state[Slot.ABORTS] == 0, "a control record, and no marker"
    assert walked(end=109).has_gaps, "the last offset is missing"


@pytest.mark.parametrize(("kind", "aborts"), [(0, 1), (1, 0), (2, 0)])
def test_an_abort_is_distinguished_from_other_control_records(
    walked: Callable[..., BatchWalk], kind: int, aborts: int
) -> None:
    row = NewRecord(struct.pack(">hh", 0, kind), bytes(6), 5)
    data = build_batch([row], base_offset=100, leader_epoch=2, is_control=True)
    assert walked(bytes(data)).state[Slot.ABORTS] == aborts


def changed(at: int, data: bytes) -> bytes:
    return DATA[:at] + data + DATA[at + len(data) :]


def moved(number: int, offset: int, epoch: int) -> bytes:
    out = bytearray(DATA)
    set_offset_and_epoch(out, PLACES[number], offset, epoch)
    return bytes(out)


@pytest.mark.parametrize(("data", "problem"), [
    (changed(PLACES[1] + 16, b"\1"), Problem.NOT_A_BATCH),
    (changed(PLACES[1] + 8, bytes(4)), Problem.NOT_A_BATCH),
    (changed(PLACES[1] + 30, b"\x55"), Problem.WRONG_CRC),
    (moved(1, 102, 2), Problem.OVERLAP),
    (moved(2, 105, 4), Problem.BEYOND_END),
    (moved(2, 104, 3), Problem.OTHER_EPOCH),
    (moved(1, 2**62, 2), Problem.BEYOND_END),
    (moved(1, -(2**63), 2), Problem.OVERLAP),
])  # fmt: skip
def test_damage_stops_the_walk_and_is_named(
    walked: Callable[..., BatchWalk], data: bytes, problem: Problem
) -> None:
    assert walked(data).problem == problem


def test_a_gap_is_seen_and_is_no_problem(walked: Callable[..., BatchWalk]) -> None:
    found = walked(DATA[: PLACES[1]] + DATA[PLACES[2] :])
    assert (found.problem, found.has_gaps) == (Problem.NONE, True)


def test_an_index_that_names_another_batch_does_not_fit(walked: Callable[..., BatchWalk]) -> None:
    offsets, times = indexes(DATA, 100)
    for number in range(len(offsets) * 8):
        wrong = bytearray(offsets)
        wrong[number // 8] ^= 1 << number % 8
        assert not walked(offsets=bytes(wrong)).offset_index_fits
    for number in range(len(times) * 8):
        if number // 8 % 12 == 11:
            continue  # another offset of the same batch is no lie
        wrong = bytearray(times)
        wrong[number // 8] ^= 1 << number % 8
        assert not walked(times=bytes(wrong)).time_index_fits
    assert not walked(offsets=offsets[:-1]).offset_index_fits


@needs_native
@settings(max_examples=300, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 1), st.booleans()),
        max_size=5,
    ),
    flips=st.lists(st.integers(0, 4000), max_size=2),
    cut=st.integers(0, 300),
    index=st.binary(max_size=24),
)
def test_both_walks_say_the_same(
    steps: list[tuple[int, int, int, bool]], flips: list[int], cut: int, index: bytes
) -> None:
    data, offset = bytearray(), 100
    for gap, count, epoch, is_control in steps:
        data += batch(offset + gap, count, epoch=epoch, is_control=is_control, time_ms=-offset)
        offset += gap + count
    offsets, times = indexes(bytes(data), 100)
    offsets, times = offsets + index[: len(index) // 8 * 8], times + index[: len(index) // 12 * 12]
    for flip in flips:
        if flip < len(data) * 8:
            data[flip // 8] ^= 1 << flip % 8
    epochs = array("q", [0, 100, 1, 104])
    states = []
    for run in (walk_batches_python, native.walk_batches):
        one = BatchWalk(100, offset, ())
        run(
            bytes(data[:cut] if cut < 200 else data),
            epochs,
            offsets,
            times,
            one.state,
        )
        states.append(list(one.state))
    assert states[0] == states[1]


@needs_native
def test_both_walks_check_a_control_batch_alike_whatever_is_in_it() -> None:
    """Method: two thousand control batches with some bytes of their record changed, and the CRC right."""
    chance = Random(7)
    for _ in range(2000):
        row = NewRecord(chance.randbytes(chance.randint(0, 6)), chance.randbytes(3), 5)
        data = build_batch([row], base_offset=100, leader_epoch=2, is_control=True)
        for _ in range(chance.randint(0, 3)):
            data[chance.randrange(HEADER_BYTES, len(data))] = chance.randrange(256)
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
        states = []
        for run in (walk_batches_python, native.walk_batches):
            one = BatchWalk(100, 100, EPOCHS)
            run(bytes(data), array("q", [2, 100]), b"", b"", one.state)
            states.append(list(one.state))
        assert states[0] == states[1]
        assert states[0][Slot.POSITION] == len(data)


@pytest.mark.parametrize(
    ("times", "kind", "least"),
    [
        ((7,), {}, 7),
        ((9, 9, 3, 8), {}, 3),
        ((-5, 4), {}, -5),
        ((9, 3), {"codec": LZ4}, None),
        ((9, 3), {"codec": LZ4, "now_ms": 20}, 20),
        ((9, 3), {"now_ms": 20}, 20),
    ],
)
def test_the_least_timestamp_is_one_of_a_record_or_is_not_known(
    walked: Callable[..., BatchWalk], times: tuple[int, ...], kind: dict[str, Any], least: object
) -> None:
    """A planner skips a segment whose least timestamp is above what it looks for: it must be no guess."""
    rows = [NewRecord(None, b"v", time_ms) for time_ms in times]
    codec = kind.get("codec", NONE)
    data = build_batch(rows, base_offset=100, leader_epoch=2, codec=codec)
    if "now_ms" in kind:
        set_log_append_time(data, next(headers(data)), kind["now_ms"])
    one = walked(bytes(data) + batch(104, 2, epoch=4, time_ms=1000))
    assert one.problem == Problem.NONE
    assert one.min_timestamp_ms == least
    assert walked(b"").min_timestamp_ms is None


def test_a_batch_without_records_has_no_least_timestamp(walked: Callable[..., BatchWalk]) -> None:
    """Compaction leaves such a batch, and its header keeps the times of the records that went."""
    data = bytearray(batch(100, 1, epoch=2, time_ms=-900))
    del data[HEADER_BYTES:]
    struct.pack_into(">i", data, 8, HEADER_BYTES - 12)
    struct.pack_into(">i", data, 57, 0)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    one = walked(bytes(data) + batch(104, 2, epoch=4))
    assert one.problem == Problem.NONE
    assert one.min_timestamp_ms == 104


@needs_native
def test_both_walks_find_the_same_least_timestamp_whatever_is_in_a_batch() -> None:
    """Method: five thousand batches with some bytes changed behind the CRC, and the CRC right."""
    chance = Random(8)
    known = 0
    for _ in range(5000):
        rows = [
            NewRecord(None, chance.randbytes(chance.randint(0, 9)), chance.choice((0, 5, 2**62)))
            for _ in range(chance.randint(1, 4))
        ]
        data = build_batch(rows, base_offset=100, leader_epoch=2)
        for _ in range(chance.randint(0, 3)):
            data[chance.choice((*range(27, 43), *range(HEADER_BYTES, len(data))))] ^= (
                1 << chance.randrange(8)
            )
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
        states = []
        for run in (walk_batches_python, native.walk_batches):
            one = BatchWalk(100, 108, EPOCHS)
            run(bytes(data), array("q", [2, 100]), b"", b"", one.state)
            states.append(list(one.state))
        assert states[0] == states[1]
        assert states[0][Slot.POSITION] == len(data)
        known += not states[0][Slot.UNTIMED]
    assert 500 < known < 4900


@needs_native
def test_what_is_not_a_walk_is_refused() -> None:
    with pytest.raises(ValueError, match="64-bit"):
        native.walk_batches(b"", b"", b"", b"", bytearray(7))
    with pytest.raises(TypeError):
        native.walk_batches(b"")
