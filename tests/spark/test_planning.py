"""How a plan is divided, what a task carries, and what happens when something goes wrong meanwhile."""

import gc
import json
import pickle
import threading
import time
import tracemalloc
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from bench.spark_plan import OFFSETS_PER_SEGMENT, TOPIC_ID, tier
from bench.spark_plan import rows as rows_of_bench
from firnline.base.units import GIB, MIB
from firnline.formats.transaction_index import AbortedTxn
from firnline.spark.options.parse import ByTimestamp, Options, parse_options
from firnline.spark.planning.calls import Calls
from firnline.spark.planning.catalogs import Place
from firnline.spark.planning.cut import Bounds
from firnline.spark.planning.filters import Filters
from firnline.spark.planning.plan import SEGMENTS, Task, lineage_ranges, segment_of
from firnline.spark.planning.scan import _Scan
from firnline.spark.planning.transactions import AbortedByOffset
from firnline.spark.read import read_task
from firnline.spark.schema import CorruptSegment, ReadSettings
from firnline.stores.memory import MemoryStore
from firnline.stores.port import ObjectMissing, ObjectStore, RemoteStorageError
from firnline.tiered.catalog.format import (
    SPLIT_BYTES,
    CatalogTopic,
    Split,
    decode_part_as,
    encode_part,
    reference,
)
from firnline.tiered.objects.layout import (
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
)
from tests.spark.test_filters import Counting, long_partition
from tests.spark.written_tier import T0, WrittenPartition, batch, batches, plan_scan


def plan(store: ObjectStore, **options: Any) -> list[Task]:
    return plan_scan(store, Options("", ("t",), **{"split_bytes": 64 * MIB, **options}))


def offsets(store: ObjectStore, tasks: list[Task]) -> list[int]:
    how = ReadSettings(("offset",))
    return [o for t in tasks for b in read_task(store, t, how) for o in b["offset"].to_pylist()]


# ------------------------------------------------------------------------------------ tasks


def test_sizes_grow_where_there_would_be_too_many_tasks() -> None:
    store = tier(1, 300, 64 * MIB)
    for most in (1, 7, 50, 299):
        assert most // 2 <= len(plan(store, max_tasks=most)) <= most + 1
    assert len(plan(store, max_tasks=20_000)) == 300
    assert parse_options({"tier.uri": "/m", "subscribe": "t", "maxTasks": "9"}).max_tasks == 9


def test_one_partition_keeps_all_cores_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few segments are cut at their splits, many small ones are not packed into too few tasks."""
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    assert len(plan(tier(1, 2, 256 * MIB))) >= 32
    assert len(plan(tier(1, 64, 16 * MIB))) >= 32
    # But nothing is divided that is read in the time that a task takes to start.
    assert len(plan(tier(1, 2, 4 * MIB))) == 1


def test_splits_cut_a_segment_into_ranges_that_follow_one_another() -> None:
    store = tier(1, 1, GIB)
    tasks = plan(store, split_bytes=100 * MIB)
    assert len(tasks) >= 10
    pieces = [piece for task in tasks for piece in task.pieces]
    assert (pieces[0].begin_position, pieces[-1].end_position) == (0, GIB)
    assert (pieces[0].start_offset, pieces[-1].end_offset) == (0, OFFSETS_PER_SEGMENT)
    for before, after in pairwise(pieces):
        assert before.end_position == after.begin_position
        assert before.end_offset == before.next_offset == after.start_offset == after.first_offset


@pytest.mark.parametrize(
    ("options", "offsets_of_tasks"),
    [
        ({"min_partitions": 3}, [6666, 6667, 6667]),
        ({"min_partitions": 1}, [20_000]),
        ({"max_records_per_partition": 7000}, [6666, 6667, 6667]),
        ({"max_records_per_partition": 7000, "min_partitions": 5}, [3333] * 2 + [3333, 3334] * 2),
    ],
)
def test_offsets_are_divided_where_the_user_asks_for_it_and_bytes_only_by_split_bytes(
    options: dict[str, int], offsets_of_tasks: list[int]
) -> None:
    """`maxTasks` and the cores count for nothing then."""
    store = tier(1, 2, 64 * MIB)
    tasks = plan(store, split_bytes=GIB, max_tasks=1, **options)
    spans = [(t.pieces[0].start_offset, t.pieces[-1].end_offset) for t in tasks]
    assert [end - start for start, end in spans] == offsets_of_tasks
    for before, after in pairwise([piece for task in tasks for piece in task.pieces]):
        assert before.end_offset == after.start_offset
    # A part reads only the bytes between the nearest splits.
    for task in tasks[: len(tasks) if len(tasks) > 1 else 0]:
        share = sum(p.end_offset - p.start_offset for p in task.pieces) * 128 * MIB // 20_000
        assert sum(piece.size_bytes for piece in task.pieces) <= share + 2 * SPLIT_BYTES + 1000
    assert len(plan(store, split_bytes=10 * MIB, max_tasks=1, **options)) >= 9


def test_an_index_is_read_once_for_all_parts_of_its_segment() -> None:
    store = Counting()
    partition = WrittenPartition(store, "t")
    partition.segment(batches(0, 300))
    partition.segment(batches(300, 600))
    partition.publish()
    store.asked.clear()
    tasks = plan(store, max_records_per_partition=7)
    assert len(tasks) == 86
    assert len([key for key in store.asked if key.endswith(OFFSET_INDEX)]) == 2
    assert offsets(store, tasks) == list(range(600))


def test_large_segments_need_neither_their_indexes_nor_much_memory() -> None:
    store = tier(1, 200, GIB)
    store.requests = 0
    tracemalloc.start()
    tasks = plan(store)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(tasks) >= 3200
    # Names, heads, the head, and a part of either level.
    assert store.requests == 5
    assert peak < 30 * MIB
    assert max(len(pickle.dumps(task)) for task in tasks) < 1000


def test_many_segments_take_few_requests_and_little_memory() -> None:
    """A tenth of the target: 300 MB, and a request for each thousand segments."""
    store = tier(1, 10_000, 64 * MIB)
    store.requests = 0
    began = time.monotonic()
    tracemalloc.start()
    tasks = plan(store)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(tasks) == 10_000
    assert store.requests <= 3 + 1 + 10
    assert peak < 30 * MIB
    assert time.monotonic() - began < 50


def test_a_row_costs_little_more_than_its_json() -> None:
    """A plan of 100,000 segments is these rows. Twice as much as JSON alone; it was 4.2 times with a tuple
    for each split and each sum, and with all lines of a part decoded first.
    """
    rows = list(rows_of_bench(0, 1024, 64 * MIB))
    data = encode_part(TOPIC_ID, 0, rows, 0)
    ref = reference("k", 0, rows, data)
    lines = data.splitlines()
    plain, ours = [], []
    for _ in range(7):
        began = time.thread_time()
        assert len([json.loads(line) for line in lines]) == 1026
        plain.append(time.thread_time() - began)
        began = time.thread_time()
        found, _ = decode_part_as(SEGMENTS, data, ref)
        ours.append(time.thread_time() - began)
    assert found == [segment_of(row) for row in rows]
    assert min(ours) < 3.2 * min(plain)


def test_many_partitions_take_a_request_each() -> None:
    store = tier(300, 5, 64 * MIB)
    store.requests = 0
    assert len(plan(store, min_partitions=1)) == 1500
    assert store.requests == 2 + 300


def most_at_once(store: MemoryStore) -> int:
    """Return how many objects a plan gets at the same time, at most."""
    get, lock, now, most = store.get, threading.Lock(), [0], [0]

    def waiting(*given: Any) -> bytes:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.05)
        with lock:
            now[0] -= 1
        return get(*given)

    store.get = waiting
    assert plan(store)
    return most[0]


def test_heads_of_partitions_and_parts_of_one_are_got_side_by_side() -> None:
    """Fears 10,000 requests of 20 ms, one after the other."""
    assert most_at_once(tier(100, 1, MIB)) >= 8
    store = Counting()
    long_partition(store)
    assert most_at_once(store) >= 8


def test_aborted_transactions_are_those_of_the_offsets() -> None:
    """Against a model that looks at all of them."""
    rnd = Random(1)
    for _ in range(300):
        aborted = []
        for last in sorted(rnd.sample(range(60), rnd.randint(0, 12))):
            aborted.append(AbortedTxn(rnd.randint(0, 5), rnd.randint(0, last), last))
        start = rnd.randint(0, 60)
        end = start + rnd.randint(1, 20)
        assert AbortedByOffset(aborted).within(start, end) == tuple(
            t for t in aborted if t.first_offset < end and t.last_offset >= start
        )


def committed_partition(count: int) -> WrittenPartition:
    """Segments of ten offsets: an aborted transaction of five and its marker, then four others."""
    partition = WrittenPartition(Counting(), "t")
    kinds: dict[str, Any] = {"producer_id": 7, "is_transactional": True}
    for base in range(0, count * 10, 10):
        parts = [
            batch(base, 5, **kinds), batch(base + 5, 1, is_control=True, **kinds), batch(base + 6, 4)
        ]  # fmt: skip
        partition.segment(parts, aborted=[(7, base, base + 5)])
    partition.publish(rows_per_part=2, tail=2)
    return partition


def test_a_task_has_only_the_aborted_transactions_of_its_offsets() -> None:
    store = committed_partition(40).store
    tasks = plan(store, read_committed=True, split_bytes=1)
    assert len(tasks) >= 80
    for task in tasks:
        start, end = task.pieces[0].start_offset, task.pieces[-1].end_offset
        assert [t.first_offset for t in task.aborted] == [
            base for base in range(0, 400, 10) if base < end and base + 5 >= start
        ]
    assert offsets(store, tasks) == [o for o in range(400) if o % 10 > 5]


def test_later_transaction_indexes_are_read_only_while_a_transaction_is_open() -> None:
    partition = committed_partition(40)
    store = partition.store
    assert isinstance(store, Counting)
    places: dict[str, Any] = {"starting": {"t": {0: 100}}, "ending": {"t": {0: 110}}}
    tasks = plan(store, read_committed=True, **places)
    assert len([key for key in store.asked if key.endswith(TXN_INDEX)]) == 1
    assert offsets(store, tasks) == [106, 107, 108, 109]
    # A snapshot that cannot be read says nothing: then all later indexes are.
    store.asked.clear()
    store.delete(partition.segments[10].key(PRODUCER_SNAPSHOT))
    assert offsets(store, plan(store, read_committed=True, **places)) == [106, 107, 108, 109]
    assert len([key for key in store.asked if key.endswith(TXN_INDEX)]) == 30


# ------------------------------------------------------------------------------------ wrong splits


def split_partition() -> WrittenPartition:
    partition = WrittenPartition(MemoryStore(), "t")
    partition.segment(batches(0, 300), split_bytes=700)
    return partition


def test_a_wrong_split_is_an_error_and_never_other_rows() -> None:
    """Each split in turn gets an offset or a position that is not its batch's."""
    sound = split_partition().segments[0].splits
    assert len(sound) > 5
    for number in range(len(sound)):
        low = Split(0, 0, -1) if number == 0 else sound[number - 1]
        high = sound[number + 1] if number + 1 < len(sound) else Split(300, 1 << 30, 1 << 60)
        offset, position, newest = sound[number]
        for wrong in (
            Split(offset - 10, position, newest), Split(offset + 10, position, newest),
            Split(offset - 1, position, newest), Split(offset + 1, position, newest),
            Split(offset, position - 1, newest), Split(offset, position + 7, newest),
            Split(offset, (low.position + position) // 2, newest),
        ):  # fmt: skip
            if not (
                low.offset < wrong.offset < high.offset
                and low.position < wrong.position < high.position
            ):
                continue
            partition = split_partition()
            row = partition.segments[0]
            splits = (*sound[:number], wrong, *sound[number + 1 :])
            partition.segments[0] = row._replace(splits=splits)
            partition.publish()
            check_wrong_split(partition.store, wrong, offset)


def check_wrong_split(store: ObjectStore, wrong: Split, offset: int) -> None:
    """Each range about the split gives its own rows, or an error."""
    complete = False
    for start in range(max(offset - 15, 0), offset + 16, 5):
        for end in (start + 1, start + 8, 300):
            if not start < end <= 300:
                continue
            places: dict[str, Any] = {"starting": {"t": {0: start}}, "ending": {"t": {0: end}}}
            for size in (1, 1 << 20):
                try:
                    found = offsets(store, plan(store, split_bytes=size, **places))
                except CorruptSegment as problem:
                    complete = complete or "split" in problem.why or "byte range" in problem.why
                else:
                    assert found == list(range(start, end)), (wrong, start, end)
    assert complete
    with pytest.raises(CorruptSegment):
        offsets(store, plan(store, split_bytes=1, min_partitions=1))
    starting = ByTimestamp(T0 + (offset + 2) * 1000)
    try:
        found = offsets(store, plan(store, starting=starting))
    except CorruptSegment:
        return
    assert found == list(range(offset + 2, 300))


def test_a_split_inside_a_batch_is_an_error_for_the_bytes_before_it_too() -> None:
    partition = split_partition()
    row = partition.segments[0]
    offset = row.splits[2].offset - 1
    wrong = row.splits[2]._replace(offset=offset)
    partition.segments[0] = row._replace(splits=(*row.splits[:2], wrong, *row.splits[3:]))
    partition.publish()
    tasks = plan(partition.store, split_bytes=1, ending={"t": {0: offset}})
    with pytest.raises(
        CorruptSegment, match=f"a split names the wrong batch.*split_offset={offset}"
    ):
        offsets(partition.store, tasks)


def test_splits_are_used_only_where_nothing_may_be_missing_between_two_batches() -> None:
    partition = WrittenPartition(MemoryStore(), "t")
    partition.segment([batch(o, 1) for o in range(0, 100, 3)], split_bytes=300)
    partition.publish()
    assert partition.segments[0].splits
    (task,) = plan(partition.store, split_bytes=1, starting={"t": {0: 50}})
    assert [piece.begin_position for piece in task.pieces] == [0]
    assert offsets(partition.store, [task]) == list(range(51, 100, 3))


def test_no_index_is_read_where_there_are_splits_and_one_is_where_there_are_none() -> None:
    for split_bytes, indexes in ((700, 0), (0, 3)):
        store = Counting()
        partition = WrittenPartition(store, "t")
        partition.segment(batches(0, 300), split_bytes=split_bytes)
        partition.publish()
        tasks = plan(store, split_bytes=1, starting={"t": {0: 55}})
        tasks = plan(store, starting=ByTimestamp(T0 + 55_000))
        assert len([k for k in store.asked if k.endswith((OFFSET_INDEX, TIME_INDEX))]) >= indexes
        assert bool(indexes) or not [
            k for k in store.asked if k.endswith((OFFSET_INDEX, TIME_INDEX))
        ]
        assert offsets(store, tasks) == list(range(55, 300))


# ------------------------------------------------------------------------------------ meanwhile


class Replaced(Counting):
    """A store whose catalog is replaced when the first part is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.replace: Any = None

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        if key.startswith("parts/") and self.replace is not None:
            replace, self.replace = self.replace, None
            replace()
        return super().get(key, position, size_bytes)


def test_a_version_that_is_replaced_while_it_is_read_is_read_again() -> None:
    store = Replaced()
    partition = long_partition(store)

    def replace() -> None:
        for key in [k for k in store.objects if "/heads/" in k or k.startswith("parts/")]:
            store.delete(key)
        partition.segment([batch(1000, 10)])
        partition.publish(sequence=2, rows_per_part=50)

    store.replace = replace
    assert offsets(store, plan(store)) == list(range(1010))


def test_a_part_that_stays_away_is_an_error() -> None:
    store = Counting()
    long_partition(store)
    gone = next(key for key in store.objects if key.startswith("parts/"))
    store.delete(gone)
    with pytest.raises(ObjectMissing, match=gone):
        plan(store)
    assert len(store.asked) < 250


def test_the_failure_of_the_first_partition_is_the_one_that_is_told() -> None:
    """And what has not begun is left out. Method: two of many heads fail, the second at once."""
    store = tier(3000, 1, MIB)
    keys = sorted((k for k in store.objects if "/heads/" in k), key=lambda k: int(k.split("/")[2]))
    get = store.get

    def fail(key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        if key == keys[300]:
            time.sleep(0.03)
        if key in (keys[300], keys[310]):
            store.requests += 1
            raise RemoteStorageError("refused", key=key)
        time.sleep(0.01)
        return get(key, position, size_bytes)

    store.get = fail
    store.requests = 0
    with pytest.raises(RemoteStorageError, match=keys[300]):
        plan(store)
    assert store.requests < 2000  # on a busy machine the failing thread may be late


def test_the_lineage_of_a_partition_is_computed_once_for_each_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fears what was three times: for its end, for what the log has beyond it, and for its ranges."""
    computed = []

    def ranges(*given: Any, **bounds: Any) -> Any:
        computed.append(bounds)
        return lineage_ranges(*given, **bounds)

    monkeypatch.setattr("firnline.spark.planning.catalogs.lineage_ranges", ranges)
    assert len(plan(tier(7, 5, 64 * MIB))) == 35
    assert len(computed) == 7


def test_the_rows_of_a_head_are_decoded_into_what_a_plan_needs_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fears an object for each number of a row: of many small partitions, all rows are in heads."""
    store = tier(7, 5, 64 * MIB)
    monkeypatch.setattr("firnline.tiered.catalog.format.CatalogSegment", None)
    assert len(plan(store)) == 35


def test_the_bounds_of_many_partitions_are_not_copied_for_each() -> None:
    """Ten times the partitions take ten times as long, and not a hundred: it was a sixth of a plan."""
    took = []
    for partitions in (1000, 10_000):
        scan = _Scan(None, Options("", ("t",)), Filters(), Calls(None), needs_states=False)
        topic, times = CatalogTopic(TOPIC_ID, "t", 0, is_deleted=False), []
        for number in range(partitions):
            scan.note(Place(topic, number, None), Bounds(0, 1, 0, 0))
        for _ in range(5):
            began = time.thread_time()
            assert len(scan.cut().topics["t"].partitions) == partitions
            times.append(time.thread_time() - began)
        took.append(min(times))
    assert took[1] < 40 * took[0]


def test_a_plan_is_not_traversed_for_garbage_when_it_is_made() -> None:
    """Fears a tenth of its time. Method: how many young objects there are when a collection begins."""
    store, young = tier(300, 5, 64 * MIB), [0]

    def count(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            young.append(len(gc.get_objects(generation=0)))

    gc.unfreeze()  # a plan lets be what somebody else has frozen: here what pytest has collected
    gc.collect()
    gc.callbacks.append(count)
    try:
        assert len(plan(store, min_partitions=1)) == 1500
    finally:
        gc.callbacks.remove(count)
        gc.freeze()
    assert max(young) < 3000


def test_a_plan_leaves_frozen_what_somebody_else_has_frozen() -> None:
    """A driver that froze its own objects would have them traversed again."""
    store = tier(300, 5, 64 * MIB)
    gc.freeze()
    frozen = gc.get_freeze_count()
    assert len(plan(store, min_partitions=1)) == 1500
    assert gc.get_freeze_count() > frozen // 2


def test_a_small_plan_does_not_count_what_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """That walks over all of it: half a second for each plan of a process that has frozen much."""
    counted: list[None] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(None))
    assert len(plan(tier(3, 5, 64 * MIB), min_partitions=1)) == 15
    assert counted == []


def test_filters_by_partition_leave_out_the_requests_of_others() -> None:
    store = tier(300, 5, MIB)
    store.requests = 0
    tasks = plan_scan(store, Options("", ("t",)), Filters().and_partition("in", [3, 299, 300]))
    assert {task.partition for task in tasks} == {3, 299}
    assert store.requests == 2 + 2
