"""Plans: whatever the lineage, whatever the cuts, every offset is read once, from the right leader."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.base.errors import StorageError
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.spark.gaps.read import missing_of
from firnline.spark.options.brokers import BrokerSettings
from firnline.spark.options.parse import Options
from firnline.spark.planning.plan import (
    Gap,
    OffsetIndex,
    Piece,
    Range,
    Segment,
    Task,
    lineage_ranges,
    pack,
    parse_offset_index,
    pieces_of,
    segment_of,
)
from firnline.spark.read import read_task
from firnline.spark.schema import ReadSettings
from firnline.stores.memory import MemoryStore
from firnline.tiered.lineage import epoch_at, segment_epochs
from firnline.tiered.objects.catalog_reader import read_catalog
from tests.spark.written_tier import WrittenPartition, batches, plan_scan


def segment(number: int, base: int, end: int, epochs: Epochs, size_bytes: int = 100) -> Segment:
    return Segment(
        number.to_bytes(16, "big"), base, end, size_bytes, segment_epochs(epochs, base, end),
        f"s{number}", (),
    )  # fmt: skip


def lineage_of(
    epochs: Epochs, segments: list[Segment], *, log_start: int = 0, log_end: int
) -> list[Range | Gap]:
    return lineage_ranges(segments, epochs, start_offset=log_start, end_offset=log_end)


histories = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 6)), min_size=1, max_size=5).map(
    lambda steps: tuple(
        (sum(s[0] for s in steps[: i + 1]), sum(s[1] for s in steps[:i])) for i in range(len(steps))
    )
)


@settings(max_examples=500, deadline=None)
@given(
    lineage=histories,
    others=st.lists(histories, max_size=2),
    spans=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 25), st.integers(0, 9)), max_size=9),
    log_start=st.integers(0, 12),
    log_end=st.integers(0, 30),
)
def test_each_offset_is_planned_once_from_a_segment_of_the_lineage_or_is_a_gap(
    lineage: Epochs,
    others: list[Epochs],
    spans: list[tuple[int, int, int]],
    log_start: int,
    log_end: int,
) -> None:
    """Goal: no gap, no overlap, nobody else's records. Method: random histories, segments copied
    under any of them, against a model that asks offset by offset."""
    owners = [lineage, *others]
    segments = []
    for number, (who, base, length) in enumerate(spans):
        history = owners[who % len(owners)]
        if base >= history[0][1]:
            segments.append(segment(number, base, base + length, history))
    # what begins below the log start has lost its first epochs' starts
    epochs = tuple((e, max(o, log_start)) for e, o in lineage)
    found = lineage_of(epochs, segments, log_start=log_start, log_end=log_end)

    def can_serve(one: Segment, offset: int) -> bool:
        return (
            one.base_offset <= offset <= one.end_offset
            and epoch_at(epochs, offset) is not None
            and epoch_at(epochs, offset) == epoch_at(one.epochs, offset)
        )

    at = log_start
    for one in found:
        assert one.start_offset == at < one.end_offset
        at = one.end_offset
        for offset in range(one.start_offset, one.end_offset):
            if isinstance(one, Gap):
                assert not any(can_serve(s, offset) for s in segments)
            else:
                assert can_serve(one.segment, offset)
    assert not found or isinstance(found[-1], Range)
    for offset in range(at, log_end):
        assert not any(can_serve(s, offset) for s in segments)
    assert at <= max(log_end, log_start)


def test_what_a_deposed_leader_wrote_after_the_fork_is_never_read() -> None:
    """Leader of epoch 1 copied 0..19; the one of epoch 2 took over at 12 and copied 10..29."""
    old = segment(1, 0, 19, ((1, 0),))
    new = segment(2, 10, 29, ((1, 0), (2, 12)))
    assert lineage_of(((1, 0), (2, 12)), [old, new], log_end=30) == [
        Range(old, 0, 12),
        Range(new, 12, 30),
    ]


def entries(count: int, *, batch_bytes: int, per_batch: int, interval: int) -> OffsetIndex:
    found = [
        (i * per_batch + per_batch - 1, i * batch_bytes) for i in range(interval, count, interval)
    ]
    data = b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in found)
    size = count * batch_bytes
    index = parse_offset_index(data, segment(1, 0, count * per_batch - 1, ((0, 0),), size))
    assert index is not None
    return index


@settings(max_examples=300, deadline=None)
@given(
    count=st.integers(1, 60),
    interval=st.integers(1, 9),
    per_batch=st.integers(1, 7),
    split_bytes=st.integers(1, 4000),
    bounds=st.tuples(st.integers(0, 400), st.integers(1, 400)),
)
def test_byte_ranges_cover_the_wanted_batches_once_and_begin_at_batches(
    count: int, interval: int, per_batch: int, split_bytes: int, bounds: tuple[int, int]
) -> None:
    """Goal: cuts neither lose nor repeat a batch. Method: batches of 70 bytes, any index density."""
    one = segment(1, 0, count * per_batch - 1, ((0, 0),), size_bytes=count * 70)
    start = min(bounds[0], one.end_offset)
    end = min(start + bounds[1], one.end_offset + 1)
    index = entries(count, batch_bytes=70, per_batch=per_batch, interval=interval)
    pieces = pieces_of(Range(one, start, end), split_bytes=split_bytes, load_index=lambda _: index)
    assert pieces[0].begin_position <= start // per_batch * 70
    assert pieces[-1].end_position >= ((end - 1) // per_batch + 1) * 70
    assert all(p.begin_position % 70 == 0 and p.size_bytes > 0 for p in pieces)
    for before, after in pairwise(pieces):
        assert before.end_position == after.begin_position
    for p in pieces:
        held = range(p.begin_position // 70 * per_batch, p.end_position // 70 * per_batch)
        assert p.start_offset <= max(start, held[0])
        assert p.end_offset >= min(end, held[-1] + 1)
        assert start <= p.start_offset < p.end_offset <= end
        is_exact = p.start_offset == max(start, held[0]) and p.end_offset == min(end, held[-1] + 1)
        assert is_exact or p.has_loose_offsets
    packed = pack(pieces, split_bytes=split_bytes)
    assert [p for group in packed for p in group] == pieces


def test_a_part_that_an_index_bounds_is_not_asked_of_the_leader() -> None:
    """Fears rows twice: an index says where a batch ends, so the offsets of neighbours overlap."""
    one = segment(1, 0, 999, ((0, 0),), size_bytes=100 * 70)
    index = entries(100, batch_bytes=70, per_batch=10, interval=3)
    pieces = pieces_of(Range(one, 0, 1000), split_bytes=1400, load_index=lambda _: index)
    assert any(after.start_offset < before.end_offset for before, after in pairwise(pieces))
    assert all(piece.has_loose_offsets for piece in pieces)
    task = Task("t", bytes(16), 0, tuple(pieces[1:2]))
    how, brokers = ReadSettings(("offset",)), BrokerSettings("no:1")
    with pytest.raises(StorageError, match="run the query again"):
        list(read_task(MemoryStore(), task, how, brokers))
    with pytest.raises(StorageError, match="run the query again"):
        list(missing_of(MemoryStore(), task, how, brokers))


def test_the_bytes_before_the_start_and_after_the_end_are_not_read() -> None:
    one = segment(1, 0, 999, ((0, 0),), size_bytes=100 * 70)
    index = entries(100, batch_bytes=70, per_batch=10, interval=1)
    (piece,) = pieces_of(Range(one, 505, 520), split_bytes=1 << 20, load_index=lambda _: index)
    assert (piece.begin_position, piece.end_position) == (49 * 70, 52 * 70)


def test_an_index_is_not_loaded_where_it_saves_nothing() -> None:
    def load(_: Segment) -> OffsetIndex | None:
        raise AssertionError("loaded")

    one = segment(1, 0, 999, ((0, 0),), size_bytes=7000)
    assert len(pieces_of(Range(one, 0, 1000), split_bytes=7000, load_index=load)) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\5\0\0\0\1\0",  # not whole entries
        b"\0\0\0\5\0\0\0\x46" b"\0\0\0\5\0\0\0\x99",  # offsets do not ascend
        b"\0\0\0\5\0\0\0\x46" b"\0\0\0\7\0\0\0\x46",  # positions do not ascend
        b"\0\0\0\5\0\0\x46\0",  # beyond the segment
        b"\0\0\x46\5\0\0\0\x46",  # offset beyond the segment
        b"\xff\0\0\5\0\0\0\x46",  # below it
    ],
)  # fmt: skip
def test_a_damaged_index_is_done_without(data: bytes) -> None:
    assert parse_offset_index(data, segment(1, 0, 99, ((0, 0),), size_bytes=700)) is None


def test_the_zeros_of_a_preallocated_index_are_not_entries() -> None:
    data = b"\0\0\0\x0f\0\0\0\x46" + bytes(64)
    index = parse_offset_index(data, segment(1, 0, 99, ((0, 0),), size_bytes=700))
    assert index is not None
    assert (index.last_offsets.tolist(), index.positions.tolist()) == ([15], [70])


def test_small_neighbours_are_packed_and_big_ones_are_not() -> None:
    sizes = [10, 10, 10, 90, 120, 5, 5]
    one = segment(1, 0, 0, ((0, 0),))
    pieces = [Piece(one, 0, size, 0, 1) for size in sizes]
    packed = [[p.size_bytes for p in group] for group in pack(pieces, split_bytes=100)]
    assert packed == [[10, 10, 10, 90], [120, 5, 5]]


def read_all(store: MemoryStore, options: Options, **how: object) -> list[tuple[int, str]]:
    """Plan and read as Spark does, without Spark: (offset, value) of every row, task by task."""
    rows = []
    for task in plan_scan(store, options):
        assert isinstance(task, Task)
        wanted = ReadSettings(("offset", "value"), **how)  # type: ignore[arg-type]
        for found in read_task(store, task, wanted):
            rows += [(r["offset"], r["value"].decode().rstrip(".")) for r in found.to_pylist()]
    return rows


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_tier_of_many_leaders_reads_as_the_log_of_the_last_one(seed: int) -> None:
    """Goal: exactly the current lineage, once. Method: a log that changes leader, loses its end and
    is copied by each leader in overlapping segments; the reader must give the last leader's log."""
    rnd = Random(seed)
    store = MemoryStore()
    partition = WrittenPartition(store, "t")
    log: list[tuple[int, str]] = []  # (offset, tag of the epoch that wrote it)
    history: list[tuple[int, int]] = []
    for epoch in range(rnd.randint(1, 4)):
        kept = rnd.randint(0, len(log)) if epoch else 0
        del log[kept:]
        history = [(e, o) for e, o in history if o < kept] + [(epoch, kept)]
        log += [(o, f"e{epoch}") for o in range(kept, kept + rnd.randint(1, 60))]
        at = rnd.randint(0, kept)
        while at < len(log):
            end = min(len(log), at + rnd.randint(1, 25))
            parts = []
            for run_epoch, first in history:
                after = next((o for e, o in history if e > run_epoch), len(log))
                low, high = max(at, first), min(end, after)
                if low < high:
                    parts += batches(low, high, per=1, epoch=run_epoch, tag=f"e{run_epoch}")
            partition.segment(parts, tuple(history))
            at = end
    log_start = rnd.randint(0, len(log) - 1)
    partition.publish(
        tuple((e, max(o, log_start)) for e, o in history),
        log_start=log_start,
        log_end=len(log),
        rows_per_part=rnd.choice((0, 1, 2)),
        refs_per_part=rnd.choice((0, 2)),
        tail=rnd.randint(0, 1),
    )
    start = rnd.randint(log_start, len(log))
    end = rnd.randint(start, len(log))
    first_held = min(s.base_offset for s in partition.segments)
    options = Options(
        "", ("t",), starting={"t": {0: start}}, ending={"t": {0: end}},
        split_bytes=rnd.randint(1, 3000), fail_on_data_loss=first_held <= start,
    )  # fmt: skip
    cut_now = read_catalog(store, partition.topic_id, 0)
    assert cut_now is not None
    holes = {
        o
        for g in lineage_of(
            cut_now.epochs,
            [segment_of(row) for row in cut_now.segments],
            log_start=log_start,
            log_end=cut_now.log_end_offset,
        )
        if isinstance(g, Gap)
        for o in range(g.start_offset, g.end_offset)
    }  # fmt: skip
    options = options._replace(fail_on_data_loss=not holes)
    expected = [(o, f"{tag}:{o}") for o, tag in log[start:end] if o not in holes]
    assert read_all(store, options, window_bytes=rnd.choice((1, 100, 1 << 20))) == expected
