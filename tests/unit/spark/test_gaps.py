"""Which offsets a read of a tier does not give, and why: with the records, each offset exactly once."""

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import LZ4
from firnline.spark.gaps.options import parse_gaps_options
from firnline.spark.gaps.read import missing_of
from firnline.spark.options.parse import parse_options
from firnline.spark.planning.scan import plan_read
from firnline.spark.schema import DataLoss
from firnline.stores.memory import MemoryStore
from tests.spark.reading_gaps import GIVEN, causes, check_covered, gaps, records, settings_of
from tests.spark.written_tier import WrittenPartition, batch, batches, compacted

COMMITTED = {"kafka.isolation.level": "read_committed"}


def at(name: str, offset: int) -> dict[str, str]:
    return {f"{name}Offsets": json.dumps({"t": {"0": offset}})}


def marker(base: int, producer: int, *, epoch: int = 0) -> bytes:
    kinds = {"is_control": True, "is_transactional": True, "producer_id": producer}
    rows = [NewRecord(b"\0\0\0\0", b"\0\0\0\0\0\0", 1)]
    return bytes(
        build_batch(rows, base_offset=base, leader_epoch=epoch, **kinds)  # type: ignore[arg-type]
    )


class Log:
    """A partition's log of random batches, and what each offset is for a reader of committed records.

    known  by offset: "record", "aborted", "open", or the cause of a gap
    """

    def __init__(self, rnd: Random) -> None:
        self.rnd = rnd
        self.end = 0
        self.epoch = 0
        self.known: dict[int, str] = {}
        # (base, end, bytes, aborted transactions whose marker it is)
        self.batches: list[tuple[int, int, bytes, list[tuple[int, int, int]]]] = []
        self.begun: dict[int, int] = {}
        self.mine: dict[int, list[int]] = {}

    def grow(self, *, is_compacted: bool) -> None:
        """Append one batch, or a hole where batches were."""
        rnd, base = self.rnd, self.end
        count = rnd.randint(1, 6)
        producer = rnd.randint(0, 2)
        kind = rnd.choice(("plain", "transaction", "transaction", "marker", "part", "hole"))
        if kind in ("part", "hole") and not is_compacted:
            kind = "plain"
        if kind == "marker" and producer in self.begun:
            is_abort, first = rnd.random() < 0.6, self.begun.pop(producer)
            aborted = [(producer, first, base)] if is_abort else []
            state = "aborted" if is_abort else "record"
            self.known |= dict.fromkeys(self.mine.pop(producer, []), state)
            self._add(marker(base, producer, epoch=self.epoch), ["control_marker"], aborted)
        elif kind == "transaction":
            self.begun.setdefault(producer, base)
            kept = self._kept(base, count) if is_compacted else list(range(base, base + count))
            self.mine.setdefault(producer, []).extend(kept)
            data = compacted(
                base, kept, base + count, epoch=self.epoch, attributes=TRANSACTIONAL_MASK,
                producer=(producer, 0, 0),
            )  # fmt: skip
            self._add(data, ["open" if o in kept else "hole" for o in range(base, base + count)])
        elif kind == "part":
            kept = self._kept(base, count)
            data = compacted(base, kept, base + count, epoch=self.epoch, codec=rnd.choice((0, LZ4)))
            self._add(data, ["record" if o in kept else "hole" for o in range(base, base + count)])
        elif kind == "hole":
            self.known |= dict.fromkeys(range(base, base + count), "hole")
            self.end += count
        else:
            self._add(batch(base, count, epoch=self.epoch), ["record"] * count)

    def _kept(self, base: int, count: int) -> list[int]:
        return [o for o in range(base, base + count) if self.rnd.random() < 0.5]

    def _add(
        self, data: bytes, kinds: list[str], aborted: list[tuple[int, int, int]] | None = None
    ) -> None:
        base = self.end
        self.known |= dict(enumerate(kinds, base))
        self.end += len(kinds)
        self.batches.append((base, self.end, data, aborted or []))

    def open_at(self) -> list[int]:
        return [self.begun.get(producer, -1) for producer in range(3)]


class World:
    """A tier with one such log; some of its segments may be lost, and its log may begin later."""

    def __init__(self, seed: int) -> None:
        rnd = self.rnd = Random(seed)
        self.store = MemoryStore()
        partition = WrittenPartition(self.store, "t")
        log = Log(rnd)
        epochs, names = [(0, 0)], list[str]()
        self.lost, self.end = False, 0
        for _ in range(rnd.randint(1, 5)):
            base = log.end
            is_compacted, is_old = rnd.random() < 0.5, rnd.random() < 0.2
            done = len(log.batches)
            for _ in range(rnd.randint(1, 8)):
                log.grow(is_compacted=is_compacted)
            if len(log.batches) == done:  # a segment has a batch
                log.grow(is_compacted=False)
            its = log.batches[done:]
            hole = "compacted_or_lost" if is_old else "compacted"
            is_copied_twice = rnd.random() < 0.3
            hole += (
                "|compacted" if is_copied_twice else ""
            )  # the other copy may be the one that is read
            names += [hole] * (log.end - base)
            parts, aborted = [b[2] for b in its], [a for b in its for a in b[3]]
            kept = partition.segment(
                parts, tuple(epochs), aborted=aborted, open_at=log.open_at(), is_old=is_old,
                split_bytes=rnd.choice((0, 1, 300)), offsets=(base, log.end - 1),
            )  # fmt: skip
            if is_copied_twice:
                self._stray(partition, log, its)
            elif rnd.random() < 0.1:
                partition.segments.remove(kept)
                log.known |= dict.fromkeys(range(base, log.end), "lost")
                self.lost = True
            self.end = self.end if kept not in partition.segments else log.end
            if rnd.random() < 0.3:
                log.epoch += 1
                epochs.append((log.epoch, log.end))
        self.known = {o: names[o] if each == "hole" else each for o, each in log.known.items()}
        self.log_start = rnd.choice((0, rnd.randint(0, log.end)))
        self.log_end = log.end + rnd.choice((0, 10))
        partition.publish(
            tuple(epochs), log_start=self.log_start, log_end=self.log_end,
            rows_per_part=rnd.choice((0, 1, 2)), tail=min(1, len(partition.segments)),
        )  # fmt: skip

    def _stray(
        self,
        partition: WrittenPartition,
        log: Log,
        its: list[tuple[int, int, bytes, list[tuple[int, int, int]]]],
    ) -> None:
        """Copy what a deposed leader had: these batches and more of its own, of an epoch that never was."""
        more = batches(log.end, log.end + 15, per=4, epoch=log.epoch + 50)
        history = ((log.epoch, 0), (log.epoch + 50, log.end))
        aborted = [a for b in its for a in b[3]]
        partition.segment(
            [*(b[2] for b in its), *more], history, aborted=aborted, open_at=log.open_at(),
            offsets=(its[0][0], log.end + 14),
        )  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_records_and_gaps_have_each_requested_offset_once(seed: int) -> None:
    """Goal: nothing is missing without a row, and nothing has two, however the read is divided.
    Method: random logs with transactions, compaction, leader changes, strays and lost segments."""
    world = World(seed)
    rnd = world.rnd
    is_committed = rnd.random() < 0.5
    options: dict[str, str] = {"splitBytes": rnd.choice(("1", "300", "1m"))}
    options |= {"windowBytes": rnd.choice(("61", "200", "4m"))}
    options |= rnd.choice(({}, {"minPartitions": "5"}, {"maxRecordsPerPartition": "3"}))
    options |= COMMITTED if is_committed else {}
    whole = parse_options({**GIVEN, **options, "failOnDataLoss": "false"})
    known_end = plan_read(world.store, whole).cut.topics["t"].partitions[0].end_offset
    start, end = world.log_start, max(known_end, world.log_start)
    if rnd.random() < 0.7:
        start = rnd.randint(0, world.end + 5)
        options |= at("starting", start)
    if rnd.random() < 0.7 or start > end:
        end = rnd.randint(start, max(start, world.end) + 20)
        options |= at("ending", end)
    given_ = records(world.store, **options, failOnDataLoss="false")
    found = gaps(world.store, **options)
    check_covered(start, end, given_, found)
    quiet = {"onGap": "skip", "failOnDataLoss": "false", "decoder": rnd.choice(("auto", "python"))}
    assert records(world.store, **options, **quiet) == given_
    if world.lost:  # the index of a lost segment may have said which transactions were aborted
        return
    for row in found:
        for offset in range(row["start_offset"], row["end_offset"]):
            expected = expected_cause(world, offset, known_end, is_committed=is_committed)
            assert row["cause"] in expected, (offset, row)


def expected_cause(world: World, offset: int, known_end: int, *, is_committed: bool) -> set[str]:
    if offset < world.log_start:
        return {"expired_or_deleted"}
    if offset >= world.end:
        return {"not_in_tier"}
    if offset >= known_end:
        return {"undecided"}
    kind = world.known[offset]
    if kind == "aborted":
        assert is_committed, "a reader of all records gets those that were aborted"
    assert kind not in ("record", "open"), "a record that is there is no gap"
    return set(kind.split("|"))


def two_segments(**published: int) -> MemoryStore:
    partition = WrittenPartition(MemoryStore(), "t")
    partition.segment(batches(0, 100))
    partition.segment(batches(100, 200))
    partition.publish(((0, 0),), **published)
    assert isinstance(partition.store, MemoryStore)
    return partition.store


def test_what_is_below_the_log_start_and_above_the_tier_is_a_row() -> None:
    store = two_segments(log_start=40, log_end=230)
    requested = at("starting", 10) | at("ending", 250)
    low, high = gaps(store, **requested)
    assert low["detail"] == (
        "the log start is 40; retention.ms, retention.bytes and DeleteRecords move it"
    )
    assert high["detail"] == (
        "the tier ends at 200; its catalog was written when the log ended at 230"
    )
    assert (low["is_loss"], high["is_loss"]) == (False, False)
    assert causes(store, **requested) == [
        (10, 40, "expired_or_deleted"), (200, 250, "not_in_tier"),
    ]  # fmt: skip
    assert gaps(store) == []
    assert causes(store, **at("starting", 10), **at("ending", 30)) == [
        (10, 30, "expired_or_deleted")
    ]


def test_the_tier_alone_says_that_the_topic_of_a_cut_was_deleted() -> None:
    """Fears `onGap=explain` that takes a topic that is gone for one that is not copied yet."""
    store = MemoryStore()
    former = WrittenPartition(store, "t", number=1)
    former.segment(batches(0, 20))
    former.publish()
    cut = plan_read(store, parse_options(GIVEN)).cut.text()
    given = {"tier.uri": "/m", "subscribe": "t", "asOf": cut}
    store = MemoryStore()  # the last object of the topic was removed
    assert causes(store, **given) == [(0, 20, "not_in_tier")]  # nobody knows
    WrittenPartition(store, "t", number=2).publish()
    assert causes(store, **given) == [(0, 20, "topic_deleted")]
    for on_gap in ("explain", "skip"):
        with pytest.raises(DataLoss, match="cause=topic_deleted"):
            records(store, **given, onGap=on_gap)


def test_a_marker_and_the_records_that_it_aborts_name_their_producer() -> None:
    partition = WrittenPartition(MemoryStore(), "t")
    kinds: dict[str, Any] = {"is_transactional": True, "producer_id": 7}
    parts = [batch(0, 5, **kinds), batch(5, 5, **kinds), marker(10, 7), batch(11, 2)]
    segment = partition.segment(parts, aborted=[(7, 0, 10)])
    partition.publish()
    aborted, control = gaps(partition.store, **COMMITTED)
    its = {"producer_id": 7, "leader_epoch": 0, "is_loss": False, "topic": "t", "partition": 0}
    assert its.items() <= aborted.items()
    assert its.items() <= control.items()
    assert aborted["segment_id"] == control["segment_id"]
    assert aborted["segment_id"] in segment.stem
    expected = [(0, 10, "aborted"), (10, 11, "control_marker")]
    assert causes(partition.store, **COMMITTED) == expected
    assert causes(partition.store) == expected[1:]


def test_an_empty_control_batch_is_a_marker_and_an_empty_batch_is_compacted() -> None:
    """Compaction leaves empty batches, so that producers are known."""
    partition = WrittenPartition(MemoryStore(), "t")
    control = TRANSACTIONAL_MASK | CONTROL_MASK
    partition.segment(
        [batch(0, 2), compacted(2, [], 3, attributes=control, producer=(7, 0, -1)),
         compacted(3, [], 9), compacted(9, [10, 12], 14), batch(20, 1)],
    )  # fmt: skip
    partition.publish()
    assert causes(partition.store) == [
        (2, 3, "control_marker"), (3, 10, "compacted"), (11, 12, "compacted"),
        (13, 20, "compacted"),
    ]  # fmt: skip
    assert records(partition.store) == [0, 1, 10, 12, 20]


def test_neighbours_of_one_cause_are_one_row() -> None:
    partition = WrittenPartition(MemoryStore(), "t")
    parts = [batch(0, 1), *(compacted(o, [], o + 5) for o in range(1, 501, 5)), batch(501, 1)]
    partition.segment(parts)
    partition.publish()
    assert causes(partition.store, windowBytes="61") == [(1, 501, "compacted")]


def test_what_an_old_catalog_row_does_not_say_is_not_guessed() -> None:
    partition = WrittenPartition(MemoryStore(), "t")
    partition.segment([batch(0, 5), batch(9, 2)], is_old=True)
    partition.publish()
    (row,) = gaps(partition.store)
    assert (row["cause"], row["is_loss"]) == ("compacted_or_lost", None)
    assert "does not say" in row["detail"]


def test_offsets_in_no_segment_are_lost() -> None:
    partition = WrittenPartition(MemoryStore(), "t")
    partition.segment(batches(0, 100))
    partition.segment(batches(150, 200))
    partition.publish()
    (row,) = gaps(partition.store)
    assert (row["start_offset"], row["end_offset"]) == (100, 150)
    assert (row["cause"], row["is_loss"]) == ("lost", True)


def test_a_partition_without_catalog_is_explained_where_offsets_name_it() -> None:
    store = two_segments()
    named = {
        "startingOffsets": '{"t": {"0": -2, "7": 3}}',
        "endingOffsets": '{"t": {"0": -1, "7": 9}}',
    }
    (row,) = gaps(store, **named)
    assert (row["partition"], row["start_offset"], row["end_offset"]) == (7, 3, 9)
    assert row["cause"] == "not_in_tier"
    assert row["detail"] == "nothing of this partition is in the tier"


def cut_of(store: MemoryStore, start: int, end: int, epoch: int) -> Mapping[str, str]:
    row = {"start": start, "end": end, "epoch": epoch}
    topics = {"t": {"id": "AQEBAQEBAQEBAQEBAQEBAQ", "partitions": {"0": row}}}
    return {"asOf": json.dumps({"version": 1, "isolation": "read_uncommitted", "topics": topics})}


def test_what_an_unclean_election_replaced_of_a_cut_is_truncated() -> None:
    partition = WrittenPartition(MemoryStore(), "t")
    history = ((0, 0), (2, 60))
    partition.segment([*batches(0, 60), *batches(60, 90, epoch=2)], history)
    partition.publish(history, log_start=10)
    store = partition.store
    assert isinstance(store, MemoryStore)
    cut = cut_of(store, 5, 80, 0)
    assert causes(store, **cut) == [(5, 10, "expired_or_deleted"), (60, 80, "truncated")]
    assert [row["is_loss"] for row in gaps(store, **cut)] == [False, True]
    rest = records(store, **cut, onGap="explain", failOnDataLoss="false")
    assert rest == list(range(10, 60))
    assert causes(store, **cut_of(store, 5, 80, 2)) == [(5, 10, "expired_or_deleted")]


@pytest.mark.parametrize("split_bytes", [0, 1000])
def test_a_segment_that_is_removed_while_it_is_read_is_explained(split_bytes: int) -> None:
    """The plan is made; then the log start moves past the segment, or only the segment goes."""
    for log_start, cause in ((100, "expired_or_deleted"), (0, "lost")):
        partition = WrittenPartition(MemoryStore(), "t")
        first = partition.segment(batches(0, 100), split_bytes=split_bytes)
        partition.segment(batches(100, 200))
        partition.publish()
        options = parse_gaps_options({**GIVEN, "splitBytes": "1000"})
        plan = plan_read(partition.store, options)
        partition.segments.remove(first)
        partition.publish(log_start=log_start, sequence=2)
        for suffix in first.suffixes:
            partition.store.delete(first.key(suffix))
        found = [
            each
            for task in plan.tasks
            for each in missing_of(partition.store, task, settings_of(options), None)
        ]
        assert {each.cause for each in found} == {cause}
        assert sorted(o for m in found for o in range(m.start_offset, m.end_offset)) == list(
            range(100)
        )
