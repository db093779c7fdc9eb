"""Scans without Spark: which rows come for which options, and what is said when some cannot."""

import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.base.errors import ConfigError, StorageError
from firnline.base.units import INT64_MAX
from firnline.records.batch import CRC_START, HEADER_BYTES, headers, set_offset_and_epoch
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import LZ4, ZSTD
from firnline.spark.options.parse import parse_options
from firnline.spark.planning.filters import Filters
from firnline.spark.planning.plan import Task
from firnline.spark.planning.scan import plan_read
from firnline.spark.read import read_task
from firnline.spark.schema import CorruptSegment, DataLoss, ReadSettings
from firnline.stores.directory import DirectoryStore
from firnline.stores.memory import MemoryStore
from firnline.stores.port import ObjectStore
from firnline.tiered.catalog.format import CatalogCorrupt
from firnline.tiered.objects.layout import (
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
)
from tests.spark.written_tier import T0, WrittenPartition, batch, batches, plan_scan


def read(store: ObjectStore, **options: str) -> list[tuple[str, int, int]]:
    """Return (topic, partition, offset) of every row, as Spark would get them."""
    given = {"tier.uri": "/memory", "subscribe": "t"} if "assign" not in options else {}
    if "subscribePattern" in options:
        given = {}
    parsed = parse_options({"tier.uri": "/memory", **given, **options})
    how = ReadSettings(
        ("topic", "partition", "offset"),
        parsed.chunk_bytes, parsed.window_bytes, parsed.verify_crc, parsed.fail_on_data_loss,
        parsed.decoder,
    )  # fmt: skip
    return [
        (row["topic"], row["partition"], row["offset"])
        for task in plan_scan(store, parsed)
        for found in read_task(store, task, how)
        for row in found.to_pylist()
    ]


def offsets(store: ObjectStore, options: Mapping[str, str] | None = None) -> list[int]:
    return [offset for _, _, offset in read(store, **(options or {}))]


@pytest.fixture
def tier() -> MemoryStore:
    """Topic `t`: partition 0 with 300 offsets in three segments, partition 1 with ten; topic `u`."""
    store = MemoryStore()
    zero = WrittenPartition(store, "t", 0)
    for base in (0, 100, 200):
        zero.segment(batches(base, base + 100))
    zero.publish()
    one = WrittenPartition(store, "t", 1)
    one.segment([batch(0, 5, codec=LZ4), batch(5, 5, codec=ZSTD)])
    one.publish()
    other = WrittenPartition(store, "u", 0, number=2)
    other.segment([batch(0, 3)])
    other.publish()
    return store


ALL_T = [("t", 0, o) for o in range(300)] + [("t", 1, o) for o in range(10)]


@pytest.mark.parametrize("more", [
    {}, {"splitBytes": "300"}, {"windowBytes": "61"}, {"chunkBytes": "1"}, {"minPartitions": "50"},
    {"decoder": "python"}, {"verifyCrc": "false"}, {"kafka.isolation.level": "read_committed"},
])  # fmt: skip
def test_everything_is_read_once_however_it_is_cut(tier: MemoryStore, more: dict[str, str]) -> None:
    assert read(tier, **more) == ALL_T


def tasks(store: ObjectStore, **options: str) -> list[Task]:
    return plan_scan(store, parse_options({"tier.uri": "/m", "subscribe": "t", **options}))


@pytest.mark.parametrize(
    ("options", "offsets_of_tasks"),
    [
        ({"minPartitions": "2"}, [300, 10]),
        ({"minPartitions": "3"}, [150, 150, 10]),
        ({"maxRecordsPerPartition": "140"}, [100, 100, 100, 10]),
        ({"maxRecordsPerPartition": "140", "minPartitions": "4"}, [100, 100, 100, 10]),
        ({"maxRecordsPerPartition": "140", "minPartitions": "7"}, [50] * 6 + [10]),
    ],
)
def test_tasks_are_divided_by_offsets_however_few_bytes_there_are(
    tier: MemoryStore, options: dict[str, str], offsets_of_tasks: list[int]
) -> None:
    """Fears a job whose tasks each call a slow service, and that gets one task for a small topic."""
    found = tasks(tier, **options)
    spans = [(t.pieces[0].start_offset, t.pieces[-1].end_offset) for t in found]
    assert [end - start for start, end in spans] == offsets_of_tasks
    assert read(tier, **options) == ALL_T


def test_topics_are_chosen_by_name_pattern_or_partition(tier: MemoryStore) -> None:
    assert {t for t, _, _ in read(tier, subscribe="t, u")} == {"t", "u"}
    assert {t for t, _, _ in read(tier, subscribePattern="[a-u]")} == {"t", "u"}
    assert read(tier, subscribePattern="x.*") == []
    assert read(tier, subscribePattern="^$|u") == [("u", 0, o) for o in range(3)]
    assert read(tier, assign='{"t": [1]}') == ALL_T[300:]


def test_a_missing_topic_is_named_beside_those_that_are_there(tier: MemoryStore) -> None:
    with pytest.raises(
        ConfigError,
        match=r"topic=flights.*there=t, u.*remote.storage.enable=true.*tier flush flights",
    ):
        read(tier, subscribe="flights")


@pytest.mark.parametrize("name", ["..", "../t", "a/b", "/", "a b"])
def test_a_name_that_no_topic_can_have_is_no_topic_and_no_key_of_the_store(
    name: str, tmp_path: Path
) -> None:
    """A directory refuses a key such as names/../t, and that error does not say what is wrong."""
    store = DirectoryStore(str(tmp_path / "tier"))
    partition = WrittenPartition(store, "t")
    partition.segment(batches(0, 3))
    partition.publish()
    with pytest.raises(ConfigError, match=f"no such topic in the tier.*topic={re.escape(name)}"):
        read(store, subscribe=name)
    WrittenPartition(store, "flights-eu", number=2).publish()
    with pytest.raises(ConfigError, match="did you mean flights-eu"):
        read(store, subscribe="flight-eu")


def test_a_pattern_matches_anywhere_in_a_name() -> None:
    """Fears a job that reads topics of Kafka by a part of their names, and here none."""
    store = MemoryStore()
    for number, topic in enumerate(("flights-eu", "flights-us", "trains"), 1):
        written = WrittenPartition(store, topic, number=number)
        written.segment([batch(0, 1)])
        written.publish()
    assert [t for t, _, _ in read(store, subscribePattern="ights-")] == ["flights-eu", "flights-us"]


def test_a_partition_that_is_not_in_the_tier_counts_as_empty_if_it_is_named(
    tier: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Fears a job that names all partitions of a topic, one of which nobody has written to yet."""
    assert read(tier, assign='{"t": [1, 7]}') == ALL_T[300:]
    assert "nothing of this partition is in the tier topic=t partition=7" in caplog.text
    for value in (-2, 0):
        given = f'{{"t": {{"0": 290, "1": 9, "7": {value}}}}}'
        assert read(tier, startingOffsets=given) == [*ALL_T[290:300], ALL_T[309]]
    beyond = {"startingOffsets": '{"t": {"0": 299, "1": 9, "7": 23}}'}
    with pytest.raises(DataLoss, match=r"not in the tier, or not yet.*partition=7 offset=23"):
        read(tier, **beyond)
    assert read(tier, **beyond, failOnDataLoss="false") == [ALL_T[299], ALL_T[309]]
    with pytest.raises(DataLoss, match=r"not in the tier, or not yet.*partition=7 offset=5"):
        read(tier, endingOffsets='{"t": {"0": 1, "1": 1, "7": 5}}')
    by_time = f'{{"t": {{"0": {T0}, "1": {T0}, "7": {T0}}}}}'
    with pytest.raises(ConfigError, match=r"no record is at or after.*partition=7"):
        read(tier, startingOffsetsByTimestamp=by_time)
    with pytest.raises(ConfigError, match=r"no other.*unknown=\[\('t', 7\)\]"):
        read(tier, assign='{"t": [0, 1]}', startingOffsets='{"t": {"0": 0, "1": 0, "7": 0}}')


def test_filters_do_not_read_what_is_not_in_the_tier_nor_complain_of_it(
    tier: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    beyond = {"tier.uri": "/m", "subscribe": "t,u"}
    beyond["startingOffsets"] = '{"t": {"0": 299, "1": 9, "7": 23}, "u": {"0": 0, "9": 5}}'
    only = Filters().and_topic("=", ["t"]).and_partition("in", [0, 8])
    (task,) = plan_scan(tier, parse_options(beyond), only)
    assert (task.partition, task.pieces[0].start_offset) == (0, 299)
    assert "nothing of this partition" not in caplog.text
    with pytest.raises(DataLoss, match="partition=7 offset=23"):
        plan_scan(tier, parse_options(beyond), Filters().and_partition("in", [0, 7]))
    missing = beyond | {"startingOffsets": '{"t": {"0": 299}, "u": {"0": 0}}'}
    with pytest.raises(ConfigError, match=r"must name every.*missing=\[\('t', 1\)\]"):
        plan_scan(tier, parse_options(missing), only)


def test_both_ends_must_name_the_same_partitions(tier: MemoryStore) -> None:
    with pytest.raises(ConfigError, match=r"the same partitions.*only_one_names=\[\('t', 7\)\]"):
        read(
            tier, startingOffsets='{"t": {"0": 0, "1": 0, "7": 0}}',
            endingOffsets='{"t": {"0": -1, "1": -1}}',
        )  # fmt: skip


def test_what_has_no_effect_is_said_when_the_read_is_planned(
    tier: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    tasks(
        tier,
        **{"kafka.bootstrap.servers": "b:9092", "readFrom": "tier", "maxOffsetsPerTrigger": "9"},
    )
    assert "kafka.bootstrap.servers is not used: readFrom=tier" in caplog.text
    assert "maxOffsetsPerTrigger has no effect in a batch read" in caplog.text


def test_an_empty_place_is_not_taken_for_an_empty_topic() -> None:
    for options in ({"subscribe": "t"}, {"subscribePattern": ".*"}):
        with pytest.raises(ConfigError, match="there is no tier here"):
            read(MemoryStore(), **options)


def test_a_topic_without_segments_reads_as_empty_and_the_log_says_why(
    tier: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    read(tier)
    assert "no segment is in" not in caplog.text
    partition = WrittenPartition(MemoryStore(), "t")
    partition.publish()
    assert read(partition.store) == []
    assert (
        "no segment is in the tier yet, so no record is read partitions=t-0"
        ' advice="`firnline tier flush t` copies what brokers have' in caplog.text
    )


def test_a_topic_created_anew_hides_the_old_one_of_that_name(tier: MemoryStore) -> None:
    newer = WrittenPartition(tier, "u", 0, number=3)
    newer.segment([batch(0, 7)])
    newer.publish()
    from firnline.tiered.objects.names import mark_deleted

    mark_deleted(tier, topic="u", topic_id=bytes([2]) * 16, now_ms=T0 + 1)
    assert len(read(tier, subscribe="u")) == 7
    mark_deleted(tier, topic="u", topic_id=bytes([3]) * 16, now_ms=T0 + 2)
    with pytest.raises(ConfigError, match=r"the topic was deleted.*there=t\]"):
        read(tier, subscribe="u")


def test_offsets_are_honoured_and_must_name_every_partition(tier: MemoryStore) -> None:
    assert (
        read(
            tier,
            startingOffsets='{"t": {"0": 150, "1": -2}}',
            endingOffsets='{"t": {"0": 205, "1": -1}}',
        )
        == [("t", 0, o) for o in range(150, 205)] + ALL_T[300:]
    )
    with pytest.raises(ConfigError, match=r"every partition.*missing=\[\('t', 1\)\]"):
        read(tier, startingOffsets='{"t": {"0": 150}}')
    with pytest.raises(ConfigError, match=r"no other.*unknown=\[\('x', 0\)\]"):
        read(tier, endingOffsets='{"t": {"0": 1, "1": 1}, "x": {"0": 1}}')
    with pytest.raises(ConfigError, match="ending offset is below"):
        read(
            tier, assign='{"t": [0]}', startingOffsets='{"t": {"0": 9}}',
            endingOffsets='{"t": {"0": 8}}',
        )  # fmt: skip


def test_offsets_that_are_gone_or_not_there_yet_are_data_loss_unless_set_otherwise() -> None:
    partition = WrittenPartition(MemoryStore(), "t")
    partition.segment(batches(0, 100))
    partition.segment(batches(100, 200))
    partition.publish(((0, 40),), log_start=40)
    for name, offset, why in (
        ("startingOffsets", 39, "below the log start"),
        ("endingOffsets", 201, "not in the tier, or not yet"),
    ):
        options = {name: f'{{"t": {{"0": {offset}}}}}'}
        with pytest.raises(DataLoss, match=f"{why}.*offset={offset}.*failOnDataLoss=false"):
            offsets(partition.store, options)
        # There, failOnDataLoss=false is refused: it is no advice.
        with pytest.raises(DataLoss, match=f"{why}.*onGap=fail") as caught:
            offsets(partition.store, options | {"onGap": "fail"})
        assert "failOnDataLoss" not in str(caught.value)
        loose = options | {"failOnDataLoss": "false"}
        assert offsets(partition.store, loose) == list(range(40, 200))


def test_a_hole_in_the_tier_is_data_loss_with_its_offsets() -> None:
    partition = WrittenPartition(MemoryStore(), "t")
    partition.segment(batches(0, 100))
    partition.segment(batches(150, 200))
    partition.publish()
    with pytest.raises(DataLoss, match=r"no segment.*from_offset=100 to_offset=150"):
        offsets(partition.store)
    assert offsets(partition.store, {"endingOffsets": '{"t": {"0": 100}}'}) == list(range(100))
    loose = offsets(partition.store, {"failOnDataLoss": "false"})
    assert loose == [*range(100), *range(150, 200)]


@pytest.mark.parametrize("suffixes", [(LOG, OFFSET_INDEX, TIME_INDEX), (LOG,)])
def test_times_mean_the_first_record_at_or_after_them(suffixes: tuple[str, ...]) -> None:
    """Record o has the time T0 + 1000 o; with and without indexes in the tier."""
    partition = WrittenPartition(MemoryStore(), "t")
    partition.segment(batches(0, 100), suffixes=suffixes)
    partition.segment(batches(100, 200), suffixes=suffixes)
    partition.publish()
    store = partition.store
    for time_ms, first in ((0, 0), (T0 + 41_000, 41), (T0 + 40_001, 41), (T0 + 199_000, 199)):
        assert offsets(store, {"startingTimestamp": str(time_ms)}) == list(range(first, 200))
        assert offsets(store, {"endingTimestamp": str(time_ms)}) == list(range(first))
    late = str(T0 + 199_001)
    assert offsets(store, {"endingTimestamp": late}) == list(range(200))
    with pytest.raises(ConfigError, match="no record is at or after"):
        offsets(store, {"startingTimestamp": late})
    latest = {"startingTimestamp": late, "startingOffsetsByTimestampStrategy": "latest"}
    assert offsets(store, latest) == []
    by = {"startingOffsetsByTimestamp": f'{{"t": {{"0": {T0 + 150_000}}}}}'}
    assert offsets(store, by) == list(range(150, 200))


def test_times_out_of_order_find_the_first_in_offset_order() -> None:
    partition = WrittenPartition(MemoryStore(), "t")
    times = [5, 9, 3, 9, 1, 12, 2]
    rows = [NewRecord(None, b"v", T0 + t) for t in times]
    partition.segment(
        [bytes(build_batch([row], base_offset=o, leader_epoch=0)) for o, row in enumerate(rows)]
    )
    partition.publish()
    for wanted, first in ((6, 1), (9, 1), (10, 5), (4, 0), (0, 0)):
        given = {"startingTimestamp": str(T0 + wanted)}
        assert offsets(partition.store, given) == list(range(first, 7))


def transaction(base: int, producer_id: int) -> bytes:
    return batch(base, 5, producer_id=producer_id, is_transactional=True)


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    row = NewRecord(b"\0\0\0\1" if commit else b"\0\0\0\0", b"\0" * 6, T0)
    return bytes(
        build_batch(
            [row], base_offset=offset, leader_epoch=0, producer_id=producer_id,
            is_transactional=True, is_control=True,
        )
    )  # fmt: skip


def test_read_committed_leaves_out_what_was_aborted_or_is_still_open() -> None:
    """Goal: nothing of an aborted transaction, even when its marker lies in a later segment, and
    nothing after the start of one whose outcome the tier does not know yet."""
    partition = WrittenPartition(MemoryStore(), "t")
    partition.segment(
        [transaction(0, 1), transaction(5, 2), marker(10, 2, commit=True)], open_at=[0]
    )
    partition.segment(
        [marker(11, 1, commit=False), transaction(12, 1), marker(17, 1, commit=True),
         batch(18, 2), transaction(20, 3), batch(25, 2)],
        aborted=[(1, 0, 11)], open_at=[20],
    )  # fmt: skip
    partition.publish()
    committed = {"kafka.isolation.level": "read_committed"}
    expected = [*range(5, 10), *range(12, 17), 18, 19]
    assert offsets(partition.store, committed) == expected
    small = committed | {"splitBytes": "100", "endingOffsets": '{"t": {"0": 8}}'}
    assert offsets(partition.store, small) == [5, 6, 7]
    everything = [*range(10), *range(12, 17), *range(18, 27)]
    assert offsets(partition.store) == everything
    with pytest.raises(DataLoss, match="not in the tier, or not yet"):
        offsets(partition.store, committed | {"endingOffsets": '{"t": {"0": 21}}'})


def states(
    store: ObjectStore,
    filters: Filters = Filters(),  # noqa: B008
    /,
    **options: str,
) -> list[tuple[int, str | None]]:
    """Return offset and transaction state of every row."""
    parsed = parse_options({"tier.uri": "/m", "subscribe": "t", **options})
    columns = ("offset", "transaction")
    how = ReadSettings(columns, keeps_aborted=not parsed.read_committed, decoder=parsed.decoder)
    return [
        (row["offset"], row["transaction"])
        for task in plan_scan(store, parsed, filters, columns=columns)
        for found in read_task(store, task, how)
        for row in found.to_pylist()
    ]


def test_the_state_of_each_transaction_is_told_where_the_tier_knows_it() -> None:
    """Fears "committed" for a record whose abort lies in a later segment, or is not in the tier yet."""
    partition = WrittenPartition(MemoryStore(), "t")
    first = [transaction(0, 1), transaction(5, 2), marker(10, 2, commit=True)]
    partition.segment(first, open_at=[0])
    partition.segment(
        [marker(11, 1, commit=False), transaction(12, 1), marker(17, 1, commit=True),
         batch(18, 2), transaction(20, 0), batch(25, 2)],
        aborted=[(1, 0, 11)], open_at=[20],
    )  # fmt: skip
    partition.publish()
    expected = {
        "aborted": range(5), "committed": [*range(5, 10), *range(12, 17)], "open": range(20, 25),
        None: [18, 19, 25, 26],
    }  # fmt: skip
    found = states(partition.store)
    for state, offsets_ in expected.items():
        assert [offset for offset, each in found if each == state] == list(offsets_), state
    below = {"endingOffsets": '{"t": {"0": 8}}'}
    assert [each for _, each in states(partition.store, **below)] == ["aborted"] * 5 + [
        "committed"
    ] * 3
    committed = states(partition.store, **{"kafka.isolation.level": "read_committed"})
    assert {each for _, each in committed} == {"committed", None}
    partition.publish(log_end=22, sequence=2)  # the last segment is not read to its end
    assert dict(states(partition.store)) == dict.fromkeys(range(5), "aborted") | dict.fromkeys(
        range(5, 10), "committed"
    ) | dict.fromkeys([*range(12, 17), 20, 21], "open") | {18: None, 19: None}


def write_transactions(partition: WrittenPartition, rnd: Random) -> dict[int, str | None]:
    """Write segments with transactions of three producers; return the state of each record."""
    begun: dict[int, int] = {}
    mine: dict[int, list[int]] = {0: [], 1: [], 2: []}
    known: dict[int, str | None] = {}
    at = 0
    for _ in range(rnd.randint(1, 6)):
        parts, aborted = [], []
        for _ in range(rnd.randint(1, 8)):
            producer = rnd.randint(0, 2)
            if producer in begun and rnd.random() < 0.5:
                first, commit = begun.pop(producer), rnd.random() < 0.5
                parts.append(marker(at, producer, commit=commit))
                aborted += [] if commit else [(producer, first, at)]
                known |= dict.fromkeys(mine[producer], "committed" if commit else "aborted")
                mine[producer] = []
                at += 1
            elif rnd.random() < 0.2:
                parts.append(batch(at, 2))
                known |= dict.fromkeys(range(at, at + 2))
                at += 2
            else:
                parts.append(transaction(at, producer))
                begun.setdefault(producer, at)
                mine[producer] += range(at, at + 5)
                at += 5
        open_at = [begun.get(producer, -1) for producer in range(3)]
        partition.segment(
            parts, aborted=aborted, open_at=open_at, split_bytes=rnd.choice((0, 1, 300))
        )
    partition.publish(rows_per_part=rnd.choice((0, 1, 2)), tail=rnd.randint(0, 2))
    return known | dict.fromkeys(chain.from_iterable(mine.values()), "open")


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_each_task_tells_the_state_that_the_complete_log_has(seed: int) -> None:
    """Goal: a task has all transactions of its offsets, however the read is divided, filtered or cut.
    Method: random transactions of three producers over several segments; against the log itself."""
    rnd = Random(seed)
    partition = WrittenPartition(MemoryStore(), "t")
    expected = write_transactions(partition, rnd)
    low, high = sorted(rnd.randint(0, max(expected, default=0)) for _ in range(2))
    filters = rnd.choice((Filters(), Filters().and_offset(">=", [low]).and_offset("<", [high])))
    options: dict[str, str] = {"splitBytes": rnd.choice(("1", "300", "1m"))}
    options |= rnd.choice(({}, {"minPartitions": "5"}, {"maxRecordsPerPartition": "3"}))
    options |= rnd.choice(({}, {"startingOffsets": f'{{"t": {{"0": {low}}}}}'}))
    options |= rnd.choice(({}, {"decoder": "python"}))
    found = states(partition.store, filters, **options)
    assert [o for o, _ in found] == sorted({o for o, _ in found})
    assert {o for o in expected if low <= o < high} <= {o for o, _ in found}
    assert all(expected[o] == state for o, state in found)
    options |= {"kafka.isolation.level": "read_committed", "failOnDataLoss": "false"}
    stable = min((o for o, state in expected.items() if state == "open"), default=INT64_MAX)
    assert states(partition.store, filters, **options) == [
        (o, state) for o, state in found if state != "aborted" and o < stable
    ]


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_cut_has_the_same_rows_when_its_open_transactions_have_ended(seed: int) -> None:
    """Fears rows that come or go when more is known of transactions; of all records, only the state differs.
    Method: a cut while the tier had the first of some segments, which is read again when it has them all."""
    rnd = Random(seed)
    partition = WrittenPartition(MemoryStore(), "t")
    write_transactions(partition, rnd)
    complete = partition.segments
    isolation = rnd.choice(("read_committed", "read_uncommitted"))
    options = {"kafka.isolation.level": isolation}
    partition.segments = complete[: rnd.randint(1, len(complete))]
    partition.publish(sequence=2)
    how = parse_options({"tier.uri": "/m", "subscribe": "t", **options})
    cut = plan_read(partition.store, how, columns=("offset",)).cut.text()
    before = states(partition.store, **options)
    partition.segments = complete
    partition.publish(sequence=3, rows_per_part=rnd.choice((0, 1, 2)))
    after = states(partition.store, asOf=cut, **options)
    assert [offset for offset, _ in after] == [offset for offset, _ in before]
    changed = {was for (_, was), (_, now) in zip(before, after, strict=True) if was != now}
    assert changed <= ({"open"} if isolation == "read_uncommitted" else set())


def test_an_abort_that_only_a_deposed_leader_knows_takes_nothing_away() -> None:
    """The old leader's segment aborts at 15; the next one took over at 10 and committed at 11."""
    partition = WrittenPartition(MemoryStore(), "t")
    partition.segment(
        [transaction(0, 1), batch(5, 5), batch(10, 5), marker(15, 1, commit=False)],
        aborted=[(1, 0, 15)],
    )
    history = ((0, 0), (1, 10))
    kinds: dict[str, Any] = {"epoch": 1, "is_transactional": True, "producer_id": 1}
    partition.segment(
        [batch(5, 5), batch(10, 1, **kinds), batch(11, 4, epoch=1), batch(15, 2, epoch=1)], history
    )
    partition.publish(history)
    assert offsets(partition.store, {"kafka.isolation.level": "read_committed"}) == list(range(17))


def test_a_segment_removed_while_it_is_read_is_data_loss_or_skipped() -> None:
    """The plan is made, then retention takes the first segment: the catalog is looked at once more."""
    for loose in (False, True):
        partition = WrittenPartition(MemoryStore(), "t")
        first = partition.segment(batches(0, 100))
        partition.segment(batches(100, 200))
        partition.publish()
        store = partition.store
        tasks = plan_scan(store, parse_options({"tier.uri": "/m", "subscribe": "t"}))
        partition.segments.remove(first)
        partition.publish(((0, 100),), log_start=100, sequence=2)
        store.delete(first.key(LOG))
        how = ReadSettings(("offset",), fail_on_data_loss=not loose)
        if loose:
            found = [b["offset"].to_pylist() for t in tasks for b in read_task(store, t, how)]
            assert list(chain(*found)) == list(range(100, 200))
        else:
            with pytest.raises(DataLoss, match=r"removed.*from_offset=0 to_offset=100"):
                list(read_task(store, tasks[0], how))


class Flaky(MemoryStore):
    """A store that says once, in the middle of a segment, that the object is not there."""

    failures_left = 1

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        if key.endswith(LOG) and position > 0 and self.failures_left:
            self.failures_left -= 1
            raise type(self).missing(key)
        return super().get(key, position, size_bytes)

    @staticmethod
    def missing(key: str) -> StorageError:
        from firnline.stores.port import ObjectMissing

        return ObjectMissing("no such object", key=key)


def test_a_segment_that_is_still_in_the_catalog_is_tried_again_without_repeating_rows() -> None:
    partition = WrittenPartition(Flaky(), "t")
    partition.segment(batches(0, 500))
    partition.publish()
    assert offsets(partition.store, {"windowBytes": "2k"}) == list(range(500))
    store = partition.store
    assert isinstance(store, Flaky)
    store.failures_left = 2
    with pytest.raises(StorageError, match="an object that the catalog names is not in the tier"):
        offsets(store, {"windowBytes": "2k"})


def test_a_cut_off_segment_is_an_error_not_fewer_rows(tier: MemoryStore) -> None:
    key = next(k for k in tier.objects if k.endswith(LOG))
    tier.objects[key] = tier.objects[key][:-10]
    with pytest.raises(CorruptSegment, match=r"shorter than its catalog says.*topic=t partition=0"):
        read(tier)


@pytest.mark.parametrize("is_old", [False, True])
def test_a_damaged_index_costs_time_and_no_rows(is_old: bool) -> None:
    """Bits all over both indexes of a segment, one after the other."""
    store = MemoryStore()
    partition = WrittenPartition(store, "t")
    partition.segment(batches(0, 100), is_old=is_old)
    partition.publish()
    options = [
        {"startingOffsets": '{"t": {"0": 55}}', "endingOffsets": '{"t": {"0": 75}}'},
        {"splitBytes": "900"},
        {"startingTimestamp": str(T0 + 55_000)},
    ]
    sound = [offsets(store, one) for one in options]
    assert [len(rows) for rows in sound] == [20, 100, 45]
    for suffix, step in ((OFFSET_INDEX, 5), (TIME_INDEX, 7)):
        key = next(k for k in store.objects if k.endswith(suffix))
        complete = store.objects[key]
        for bit in range(0, len(complete) * 8, step):
            store.objects[key] = flipped(complete, bit)
            assert [offsets(store, one) for one in options] == sound, (suffix, bit)
        store.objects[key] = complete


def flipped(data: bytes, bit: int) -> bytes:
    out = bytearray(data)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


@pytest.mark.parametrize("decoder", ["auto", "python"])
@pytest.mark.parametrize("is_old", [False, True])
def test_a_flipped_header_is_an_error_that_names_the_place(is_old: bool, decoder: str) -> None:
    """Of the first batch, one inside, one at a split, and the last."""
    store = MemoryStore()
    partition = WrittenPartition(store, "t")
    partition.segment([batch(o, 3) for o in range(0, 30, 3)], is_old=is_old)
    partition.publish()
    key = next(k for k in store.objects if k.endswith(LOG))
    complete = store.objects[key]
    heads = [head.position for head in headers(complete)]
    for at in (heads[0], heads[4], heads[5], heads[-1]):
        # What no CRC covers, and some of what one does.
        covered = range((at + CRC_START) * 8, (at + HEADER_BYTES) * 8, 29)
        for bit in (*range(at * 8, (at + CRC_START) * 8), *covered):
            store.objects[key] = flipped(complete, bit)
            for more in ({}, {"splitBytes": "600", "windowBytes": "200"}):
                with pytest.raises(CorruptSegment, match=r"segment=data/.*") as caught:
                    offsets(store, {"decoder": decoder, **more})
                facts = caught.value.facts
                assert (facts["topic"], facts["partition"]) == ("t", 0)
                assert "offset" in facts, caught.value


def test_a_segment_of_another_partition_of_the_same_shape_is_refused() -> None:
    """Same size, same offsets, same epochs, right CRCs: only its first batch gives it away."""
    store = MemoryStore()
    for number, tag in enumerate("ab"):
        partition = WrittenPartition(store, "t", number)
        partition.segment(batches(0, 100, tag=tag))
        partition.publish()
    one, other = (k for k in store.objects if k.endswith(LOG))
    assert len(store.objects[one]) == len(store.objects[other])
    store.objects[one] = store.objects[other]
    for more in ({}, {"splitBytes": "900"}, {"startingTimestamp": str(T0 + 55_000)}):
        with pytest.raises(CorruptSegment, match="belongs to another segment"):
            offsets(store, more)


def test_gaps_that_compaction_left_are_read_and_damage_beside_them_is_not() -> None:
    store = MemoryStore()
    partition = WrittenPartition(store, "t")
    rows = [batch(o, 1) for o in (3, 9, 10, 30, 60, 90)]
    row = partition.segment(rows)
    partition.publish(log_start=3)
    assert row.fingerprint is not None
    assert row.fingerprint.may_have_gaps
    assert offsets(store, {"splitBytes": "100"}) == [3, 9, 10, 30, 60, 90]
    assert offsets(store, {"startingTimestamp": str(T0 + 40_000)}) == [60, 90]
    key = next(k for k in store.objects if k.endswith(LOG))
    complete = bytearray(store.objects[key])
    head = list(headers(complete))[3]
    set_offset_and_epoch(complete, head.position, 31, 0)  # between its neighbours, as it should be
    store.objects[key] = bytes(complete)
    for more in ({}, {"splitBytes": "100"}, {"startingTimestamp": str(T0 + 40_000)}):
        with pytest.raises(CorruptSegment, match="not those that were copied"):
            offsets(store, more)


def test_a_catalog_under_another_name_is_refused() -> None:
    store = MemoryStore()
    for number in range(2):
        partition = WrittenPartition(store, "t", number)
        partition.segment(batches(0, 100))
        partition.publish()
    one, other = (k for k in store.objects if "/heads/" in k)
    store.objects[one] = store.objects[other]
    with pytest.raises(CatalogCorrupt, match="another one than its name"):
        offsets(store)


@pytest.mark.parametrize("suffix", [TXN_INDEX, PRODUCER_SNAPSHOT])
def test_what_says_which_transactions_were_aborted_is_sound_or_an_error(suffix: str) -> None:
    store = MemoryStore()
    partition = WrittenPartition(store, "t")
    kinds: dict[str, Any] = {"producer_id": 7, "is_transactional": True}
    parts = [batch(0, 5, **kinds), batch(5, 1, is_control=True, **kinds), batch(6, 4)]
    partition.segment(parts, aborted=[(7, 0, 5)], open_at=[9])
    partition.publish()
    committed = {"kafka.isolation.level": "read_committed"}
    assert offsets(store, committed) == [6, 7, 8]
    key = next(k for k in store.objects if k.endswith(suffix))
    complete = store.objects[key]
    for bit in range(0, len(complete) * 8, 3):
        store.objects[key] = flipped(complete, bit)
        with pytest.raises(CorruptSegment, match=f"object=data/.*{suffix}"):
            offsets(store, committed)


def test_a_missing_index_costs_only_the_split(tier: MemoryStore) -> None:
    for key in [k for k in tier.objects if k.endswith(OFFSET_INDEX)]:
        tier.delete(key)
    assert read(tier, splitBytes="100") == ALL_T
