"""Filters: whatever a plan leaves out, no row is missing that the filters take."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from operator import eq, ge, gt, le, lt
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.base.units import INT64_MAX
from firnline.records.build import NewRecord, build_batch
from firnline.spark.options.parse import ByTimestamp, Options
from firnline.spark.planning.filters import (
    EVERYTHING,
    Filters,
    overlap,
    spans_of,
    touches,
    within,
    without,
)
from firnline.spark.planning.plan import Task
from firnline.spark.read import read_task
from firnline.spark.schema import DataLoss, ReadSettings
from firnline.stores.memory import MemoryStore
from firnline.stores.port import ObjectStore
from firnline.tiered.catalog import format as catalog_format
from firnline.tiered.objects import layout
from firnline.tiered.objects.layout import LOG, OFFSET_INDEX, TIME_INDEX
from tests.spark.written_tier import T0, WrittenPartition, batch, batches, plan_scan

Row = tuple[str, int, int, int]  # topic, partition, offset, timestamp in ms
COLUMNS = ("topic", "partition", "offset", "timestamp")
HOW = ReadSettings(COLUMNS)


def rows_of(store: ObjectStore, tasks: list[Task]) -> list[Row]:
    return [
        (r["topic"], r["partition"], r["offset"], round(r["timestamp"].timestamp() * 1000))
        for task in tasks
        for found in read_task(store, task, HOW)
        for r in found.to_pylist()
    ]


def read(store: MemoryStore, filters: Filters, **options: Any) -> list[Row]:
    return rows_of(store, plan_scan(store, Options("", ("t",), **options), filters))


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": eq, "in": eq, "<": lt, "<=": le, ">": gt, ">=": ge,
}  # fmt: skip


@dataclass
class Query:
    """Filters as the planner gets them, and as Python would apply them."""

    filters: Filters = field(default_factory=Filters)
    tests: list[tuple[int, str, list[Any]]] = field(default_factory=list)

    def add(self, column: str, operator: str, values: list[Any]) -> None:
        narrow: Callable[[str, list[Any]], Filters] = {
            "offset": self.filters.and_offset, "partition": self.filters.and_partition,
            "timestamp": self.filters.and_time, "topic": self.filters.and_topic,
        }[column]  # fmt: skip
        self.filters = narrow(operator, values)
        self.tests.append((COLUMNS.index(column), operator, values))

    def takes(self, row: Row) -> bool:
        for number, operator, values in self.tests:
            mine: Any = row[number] * 1000 if COLUMNS[number] == "timestamp" else row[number]
            if not any(COMPARE[operator](mine, value) for value in values):
                return False
        return True


def random_query(rnd: Random, top: int) -> Query:
    query = Query()
    for _ in range(rnd.randint(1, 3)):
        column = rnd.choice(("offset", "offset", "timestamp", "timestamp", "partition", "topic"))
        operator = rnd.choice(tuple(COMPARE))
        count = rnd.randint(0, 4) if operator == "in" else 1
        values: list[Any] = [
            {
                "offset": rnd.randint(-2, top + 2),
                # Also between two milliseconds.
                "timestamp": (T0 + rnd.randint(-5, 45)) * 1000 + rnd.choice((0, 0, -1, 1, 999)),
                "partition": rnd.randint(-1, 3),
                "topic": rnd.choice(("t", "u", "s", "")),
            }[column]
            for _ in range(count)
        ]
        query.add(column, operator, values)
    return query


def random_times(rnd: Random, count: int) -> list[int]:
    """In order, or not, with gaps, or without any time at all."""
    kind = rnd.randrange(4)
    if kind == 0:
        return [T0 + rnd.randint(0, 40) for _ in range(count)]
    if kind == 1:
        return [rnd.choice((-1, T0 + rnd.randint(0, 40))) for _ in range(count)]
    start = rnd.randint(0, 20)
    return [T0 + start + (i * 20 // count) for i in range(count)]


def write_history(store: MemoryStore, number: int, rnd: Random) -> int:
    """A partition whose leaders change, and lose records, and copy what overlaps; returns its end."""
    partition = WrittenPartition(store, "t", number)
    times: dict[tuple[int, int], int] = {}
    history: list[tuple[int, int]] = []
    end = 0
    for epoch in range(rnd.randint(1, 3)):
        kept = rnd.randint(0, end) if epoch else 0
        history = [(e, o) for e, o in history if o < kept] + [(epoch, kept)]
        end = kept + rnd.randint(1, 40)
        made = random_times(rnd, end - kept)
        times |= {(epoch, kept + i): at for i, at in enumerate(made)}
        at = rnd.randint(0, kept)
        while at < end:
            until = min(end, at + rnd.randint(1, 20))
            parts = [
                bytes(
                    build_batch(
                        [NewRecord(b"%d" % o, b"v" * (o % 7), times[owner, o])],
                        base_offset=o, leader_epoch=owner,
                    )
                )
                for o in range(at, until)
                for owner in [next(e for e, first in reversed(history) if first <= o)]
            ]  # fmt: skip
            partition.segment(
                parts,
                tuple(history),
                index_interval_bytes=rnd.choice((0, 200)),
                split_bytes=rnd.choice((0, 1, 150, 400)),
                suffixes=rnd.choice(((LOG,), (LOG, OFFSET_INDEX), (LOG, OFFSET_INDEX, TIME_INDEX))),
            )
            at = until
    log_start = rnd.choice((0, rnd.randint(0, end - 1)))
    partition.publish(
        tuple((e, max(o, log_start)) for e, o in history),
        log_start=log_start,
        log_end=end,
        rows_per_part=rnd.choice((0, 1, 2, 3)),
        refs_per_part=rnd.choice((0, 2)),
        tail=rnd.randint(0, 2),
    )
    return end


@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_filtered_read_has_the_rows_of_a_complete_one_that_pass(seed: int) -> None:
    """Goal: nothing that a filter takes is left out. Method: tiers of several leaders with timestamps in any
    order, with and without splits, indexes and parts; against a read of everything and a filter in Python."""
    rnd = Random(seed)
    store = MemoryStore()
    store.is_distant = rnd.random() < 0.1
    top = max(write_history(store, number, rnd) for number in range(rnd.randint(1, 2)))
    loose: dict[str, Any] = {"fail_on_data_loss": False}
    everything = read(store, Filters(), **loose)
    query = random_query(rnd, top)
    found = read(
        store,
        query.filters,
        split_bytes=rnd.choice((1, 300, 1 << 20)),
        min_partitions=rnd.choice((None, None, 1, 9)),
        max_records_per_partition=rnd.choice((None, None, 1, 13)),
        max_tasks=rnd.choice((1, 20_000)),
        **loose,
    )
    assert [row for row in found if query.takes(row)] == [r for r in everything if query.takes(r)]
    assert set(found) <= set(everything)
    assert len(set(found)) == len(found)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_time_option_means_the_first_record_then_and_all_after_it(seed: int) -> None:
    """Goal: as the official source, also where times go backwards. Method: as above, against a model."""
    rnd = Random(seed)
    store = MemoryStore()
    write_history(store, 0, rnd)
    everything = read(store, Filters(), fail_on_data_loss=False)
    start, end = sorted(rnd.choice((0, T0 + rnd.randint(-1, 42))) for _ in range(2))

    def first(time_ms: int) -> int:
        return next((o for _, _, o, at in everything if at >= time_ms), INT64_MAX)

    found = read(
        store, Filters(), starting=ByTimestamp(start), ending=ByTimestamp(end),
        latest_if_no_such_time=True, fail_on_data_loss=False, split_bytes=rnd.choice((1, 300, 1 << 20)),
    )  # fmt: skip
    assert found == [row for row in everything if first(start) <= row[2] < first(end)]


# ------------------------------------------------------------------------------------ what is left out


class Counting(MemoryStore):
    """A store that notes each request, and answers some with an error."""

    is_distant = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.fails: Mapping[str, Exception] = {}

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        self.asked.append(key)
        if key in self.fails:
            raise self.fails[key]
        return super().get(key, position, size_bytes)

    def list_prefix(self, prefix: str) -> list[Any]:
        self.asked.append(prefix)
        return super().list_prefix(prefix)

    def count(self, plan: Callable[[], object]) -> int:
        self.asked.clear()
        plan()
        return len(self.asked)


def long_partition(store: MemoryStore, *, split_bytes: int = 500) -> WrittenPartition:
    """1,000 offsets in 100 segments of ten batches; 30 parts under two of level 1, ten rows in the head."""
    partition = WrittenPartition(store, "t")
    for base in range(0, 1000, 10):
        rows = [batch(o, 1) for o in range(base, base + 10)]
        partition.segment(rows, split_bytes=split_bytes)
    partition.publish(rows_per_part=3, refs_per_part=15, tail=10)
    return partition


def plan(store: ObjectStore, filters: Filters = Filters(), **options: Any) -> list[Task]:  # noqa: B008
    return plan_scan(store, Options("", ("t",), **options), filters)


# Names, heads of the topic, the head.
FIXED = 3


@pytest.mark.parametrize(
    ("filters", "options", "requests"),
    [
        (Filters().and_offset("<", [0]), {}, FIXED),
        (Filters().and_offset(">=", [990]), {}, FIXED),
        ({}, {"starting": {"t": {0: 990}}}, FIXED),
        (Filters().and_offset("=", [505]), {}, FIXED + 2),
        (Filters().and_offset("in", [5, 505]), {}, FIXED + 4),
        (Filters().and_time(">=", [(T0 + 950_000) * 1000]), {}, FIXED),
        (Filters().and_time("<", [(T0 + 15_000) * 1000]), {}, FIXED + 2),
        # The parts of the time, then the first batch of the segment and the chunk.
        ({}, {"starting": ByTimestamp(T0 + 955_000)}, FIXED + 2),
        ({}, {"starting": ByTimestamp(T0 + 505_000)}, FIXED + 2 + 2 + 15 - 2),
        (Filters(), {}, FIXED + 2 + 30),
    ],
)
def test_a_plan_asks_only_for_what_it_needs(
    filters: Filters, options: dict[str, Any], requests: int
) -> None:
    store = Counting()
    long_partition(store)
    given = filters or Filters()
    assert store.count(lambda: plan(store, given, **options)) <= requests
    assert not [key for key in store.asked if key.endswith((OFFSET_INDEX, TIME_INDEX))]


def test_what_contradicts_itself_or_takes_no_partition_makes_no_task() -> None:
    store = Counting()
    long_partition(store)
    for filters in (
        Filters().and_offset("<", [0]),
        Filters().and_offset(">", [9]).and_offset("<", [5]),
        Filters().and_offset("in", []),
        Filters().and_partition("in", [7, -1]),
        Filters().and_partition("=", [1]).and_partition("=", [0]),
        Filters().and_topic("=", ["u"]),
        Filters().and_topic("<", ["t"]),
        Filters().and_time("=", [T0 * 1000 + 1]),
        Filters().and_time(">", [INT64_MAX]),
        Filters().and_offset(">=", [1000]),
    ):
        assert store.count(partial(plan, store, filters)) <= FIXED
        assert plan(store, filters) == []
    assert len(plan(store, Filters().and_topic("starts", ["t"]).and_offset("=", [3]))) == 1


def test_batches_without_the_times_are_left_out_of_a_segment_too() -> None:
    """One segment whose times rise; only what is after a split can be told to be late enough."""
    store = MemoryStore()
    partition = WrittenPartition(store, "t")
    partition.segment([batch(o, 1) for o in range(100)], split_bytes=500)
    partition.publish()
    whole = plan(store)[0].pieces[0].size_bytes
    (task,) = plan(store, Filters().and_time(">=", [(T0 + 90_000) * 1000]))
    assert task.pieces[0].size_bytes < whole // 5
    assert {o for _, _, o, _ in rows_of(store, [task])} >= set(range(90, 100))


def test_a_segment_whose_latest_time_is_unknown_is_read_for_every_time() -> None:
    """A broker says -1 where it has not looked, or where no record has a time."""
    partition = WrittenPartition(MemoryStore(), "t")
    partition.segment([batch(o, 1) for o in range(20)], split_bytes=300)
    partition.segments[0] = partition.segments[0]._replace(max_timestamp_ms=-1)
    partition.publish()
    for operator, time_ms in ((">=", T0 + 15_000), ("=", T0 + 19_000)):
        found = rows_of(
            partition.store, plan(partition.store, Filters().and_time(operator, [time_ms * 1000]))
        )
        assert {o for _, _, o, at in found if at == time_ms} == {(time_ms - T0) // 1000}


def test_what_lies_between_wanted_offsets_is_not_read() -> None:
    """Of segments without splits, so that only their place in the plan decides."""
    partition = WrittenPartition(MemoryStore(), "t")
    for base in range(0, 100, 10):
        partition.segment(batches(base, base + 10, per=1))
    partition.publish()
    tasks = plan(partition.store, Filters().and_offset("in", [5, 95, 97]))
    pieces = [piece for task in tasks for piece in task.pieces]
    assert [(one.start_offset, one.end_offset) for one in pieces] == [(5, 6), (95, 98)]


def test_a_partition_without_segments_is_planned_as_empty() -> None:
    partition = WrittenPartition(MemoryStore(), "t")
    partition.publish()
    for filters in (Filters(), Filters().and_offset("<", [5]), Filters().and_time(">", [0])):
        for options in ({}, {"read_committed": True}, {"ending": ByTimestamp(T0)}):
            assert plan(partition.store, filters, **options) == []


def test_rows_of_version_1_are_planned_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their references say neither where they begin nor when."""
    store = Counting()
    monkeypatch.setattr(catalog_format, "VERSION", 1)
    monkeypatch.setattr(layout, "parts_folder", layout.old_parts_folder)
    long_partition(store, split_bytes=0)
    monkeypatch.undo()
    everything = read(store, Filters())
    assert len(everything) == 1000
    for query in (
        Filters().and_offset("=", [505]),
        Filters().and_time(">=", [(T0 + 950_000) * 1000]),
        Filters().and_time("<", [(T0 + 50_000) * 1000]),
    ):
        found = read(store, query)
        assert set(found) >= {r for r in everything if within(query.offsets, r[2], r[2] + 1)
                              and within(query.times_ms, r[3], r[3] + 1)}  # fmt: skip
        assert (
            len(found) < 200 or query.times_ms[0][0] < 0
        )  # a row says only how late its records are
    assert read(store, Filters(), starting=ByTimestamp(T0 + 505_000))[0][2] == 505


def test_a_hole_beside_what_is_read_is_still_data_loss() -> None:
    store = MemoryStore()
    partition = WrittenPartition(store, "t")
    for base in (0, 10, 30, 40):
        partition.segment(batches(base, base + 10, per=1), split_bytes=300)
    partition.publish(rows_per_part=1)
    for filters in (
        Filters().and_offset(">=", [15]),
        Filters().and_offset("=", [25]),
    ):
        with pytest.raises(DataLoss, match=r"from_offset=2\d to_offset="):
            plan(store, filters)
    for filters in (Filters().and_offset("<", [20]), Filters().and_offset(">=", [30])):
        assert len(rows_of(store, plan(store, filters))) == 20
    # A part without the wanted times stands for all its offsets.
    early = Filters().and_time("<", [(T0 + 8000) * 1000])
    with pytest.raises(DataLoss, match="from_offset=20 to_offset=30"):
        plan(store, early)
    other = WrittenPartition(MemoryStore(), "t")
    for base in (0, 10, 20, 30, 50, 60, 70):
        other.segment(batches(base, base + 10, per=1), split_bytes=300)
    other.publish(rows_per_part=3, tail=1)
    assert len(rows_of(other.store, plan(other.store, early))) == 8 + 2
    with pytest.raises(DataLoss, match="from_offset=40 to_offset=50"):
        plan(other.store)


# ------------------------------------------------------------------------------------ sets of numbers

numbers = st.integers(-6, 6)
spans = st.lists(
    st.tuples(st.sampled_from(tuple(COMPARE)), st.lists(numbers, max_size=3)), max_size=3
)


@settings(max_examples=500, deadline=None)
@given(some=spans, others=spans, low=numbers, length=st.integers(0, 5))
def test_sets_of_numbers_do_what_sets_do(
    some: list[tuple[str, list[int]]], others: list[tuple[str, list[int]]], low: int, length: int
) -> None:
    def build(tests: list[tuple[str, list[int]]]) -> tuple[Any, set[int]]:
        made, model = EVERYTHING, set(range(-9, 10))
        for operator, values in tests:
            made = overlap(made, spans_of(operator, values))
            model &= {n for n in model if any(COMPARE[operator](n, v) for v in values)}
        return made, model

    def numbers_of(made: Any) -> set[int]:
        return {n for n in range(-9, 10) if any(a <= n < b for a, b in made)}

    (a, in_a), (b, in_b) = build(some), build(others)
    assert numbers_of(a) == in_a
    assert numbers_of(overlap(a, b)) == in_a & in_b
    assert numbers_of(without(a, b)) == in_a - in_b
    inside = set(range(low, low + length))
    assert numbers_of(within(a, low, low + length)) == in_a & inside
    assert not inside or touches(a, low, low + length - 1) == bool(in_a & inside)
    assert touches(a, None, None) == bool(a)


def test_sparks_filters_become_ours() -> None:
    """Also what says nothing: other columns, other types, other operators, times without a zone."""
    pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")
    from pyspark.sql import datasource as ds

    from firnline.spark.pushdown import filters_of

    noon = datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    at = int(noon.timestamp()) * 1000
    assert filters_of(
        [
            ds.IsNotNull(("offset",)), ds.GreaterThanOrEqual(("offset",), 5),
            ds.LessThan(("offset",), 9), ds.In(("partition",), (3, None, 1)),
            ds.EqualTo(("topic",), "t"), ds.LessThanOrEqual(("timestamp",), noon),
            ds.GreaterThan(("timestamp",), noon - timedelta(microseconds=1)),
        ]
    ) == Filters(((5, 9),), ((at, at + 1),), ((1, 2), (3, 4)), (("=", ("t",)),))  # fmt: skip
    for silent in (
        ds.EqualTo(("key",), b"k"), ds.EqualTo(("offset", "x"), 3), ds.Not(ds.EqualTo(("offset",), 3)),
        ds.EqualTo(("offset",), True), ds.EqualTo(("offset",), 3.0), ds.In(("offset",), (1, "2")),
        ds.EqualTo(("timestamp",), datetime(2024, 1, 1)), ds.StringStartsWith(("offset",), "1"),  # noqa: DTZ001
        ds.StringContains(("topic",), "t"), ds.IsNull(("offset",)),
    ):  # fmt: skip
        assert filters_of([silent]) == Filters()
    assert filters_of([ds.EqualTo(("offset",), None)]).is_contradiction
    assert filters_of(
        [ds.EqualTo(("timestamp",), datetime.max.replace(tzinfo=UTC, microsecond=0))]
    ).times_ms
