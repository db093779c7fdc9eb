"""What a stream does about records that it cannot read, or not yet. The reader is called as Spark does."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="NOT RUN: PySpark 4.2 is missing")

from firnline.base.ids import uuid_text
from firnline.spark.brokers.cluster import Found
from firnline.spark.options.parse import parse_options
from firnline.spark.planning.scan import plan_read
from firnline.spark.schema import DataLoss
from firnline.spark.streaming.admission import PartitionEnds, begin_after, doubtful
from firnline.spark.streaming.ends import LiveEnds
from firnline.spark.streaming.offsets import Key, StreamOffsets
from firnline.spark.streaming.reader import FirnlineStreamReader
from firnline.stores.port import ObjectInfo, RemoteStorageError, StoreRefused
from tests.spark.asked_stream import Growing, Json, rows_of, step
from tests.spark.written_tier import batch, batches, compacted

ID = uuid_text(bytes([1]) * 16)
OLD, FORKED = ((0, 0),), ((0, 0), (1, 80))
LEAVE_OUT = {"failOnDataLoss": "false"}


@pytest.fixture
def tier(tmp_path: Path) -> Growing:
    """Topic t: 100 offsets in its only partition."""
    made = Growing(tmp_path / "tier")
    made.grow(100)
    return made


def read_to(offset: int, epoch: int | None = 0) -> Json:
    """Return the offsets of a stream that has read so far, from brokers or of a tier that had more."""
    epochs = {} if epoch is None else {"#epochs": {"t": {"0": epoch}}}
    return {"t": {"0": offset}, "#ids": {"t": ID}, **epochs}


def offsets_of(rows: list[tuple[int, int]]) -> list[int]:
    return [offset for _, offset in rows]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    return found


# ------------------------------------------------------------------------------------ another checkpoint


@pytest.mark.parametrize(
    "chosen",
    [{"subscribe": "u, v"}, {"assign": '{"u": [0]}'}, {"subscribePattern": "^u"}],
)
def test_the_checkpoint_of_another_query_is_told_and_no_loss_is_advised_first(
    tier: Growing, chosen: dict[str, str]
) -> None:
    """Fears who copies a job, and is told that partitions are gone and that they may be left out."""
    tier.grow(5, topic="u", number=2)
    tier.grow(5, topic="v", number=3)
    with pytest.raises(
        DataLoss, match=r"the query does not read.*topic=t.*a checkpoint of its own"
    ):
        step(tier.reader(**chosen), read_to(100))
    gone = {"t": {"0": 100, "1": 7}, "#ids": {"t": ID}}
    with pytest.raises(DataLoss, match=r"a partition of the stream is gone \[topic=t partition=1"):
        step(tier.reader(), gone)


# ------------------------------------------------------------------------------------ ahead of the tier


def test_a_stream_that_has_read_brokers_waits_for_the_tier(
    tier: Growing, caplog: pytest.LogCaptureFixture
) -> None:
    """Fears data loss that is none: the tier is behind, and no later leader began below what was read."""
    before, reader = read_to(140, epoch=2), tier.reader()
    for _ in range(3):
        assert step(reader, before) == before
    [line] = lines(caplog)
    assert "waits for the tier topic=t partition=0 read=140" in line
    assert "firnline tier flush t" in line
    tier.grow(7, 1)  # another partition goes on meanwhile
    meanwhile = step(reader, before)
    assert rows_of(tier.reader(), before, meanwhile) == [(1, offset) for offset in range(7)]
    assert (meanwhile["t"]["0"], meanwhile["#epochs"]["t"]["0"]) == (140, 2)
    tier.grow(60)
    after = step(tier.reader(), meanwhile)
    assert offsets_of(rows_of(tier.reader(), meanwhile, after)) == list(range(140, 160))


def test_a_stream_that_waits_for_the_tier_notices_that_another_leader_began_below(
    tier: Growing,
) -> None:
    before, reader, epochs = read_to(140), tier.reader(), ((0, 0), (1, 100))
    assert step(reader, before) == before
    tier.partitions["t", 0].segment(batches(100, 120, epoch=1, tag="new"), epochs)
    tier.publish(epochs=epochs)
    with pytest.raises(DataLoss, match=r"unclean election.*read=140 replaced_from=100"):
        step(reader, before)


def test_a_limit_in_bytes_leaves_a_partition_alone_that_is_ahead(tier: Growing) -> None:
    tier.grow(7, 1)
    before = read_to(140)
    after = step(tier.reader(maxBytesPerTrigger="1"), before)
    assert after["t"] == {"0": 140, "1": 1}


def test_a_checkpoint_without_epochs_cannot_tell_and_takes_that_for_loss(tier: Growing) -> None:
    with pytest.raises(DataLoss, match=r"ends below.*read=140.*remedy=failOnDataLoss=false goes"):
        step(tier.reader(), read_to(140, epoch=None))


# ------------------------------------------------------------------------------------ another history


@pytest.mark.parametrize("read", [90, 100, 140])
def test_records_that_an_unclean_election_replaced_are_data_loss_however_long_the_log_is(
    tmp_path: Path, read: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Fears a stream that goes on with the new history, and skips what it has at offsets already read."""
    tier = Growing(tmp_path / "tier")
    written = tier.partition_of("t")
    written.segment(batches(0, 80))
    written.segment(batches(80, 100, epoch=1, tag="new"), FORKED)
    tier.publish(epochs=FORKED)
    before = read_to(read)
    why = rf"unclean election has replaced.*read={read} replaced_from=80.*remedy=failOnDataLoss"
    for on_gap in ({}, {"onGap": "explain"}, {"onGap": "skip"}):
        with pytest.raises(DataLoss, match=why):
            step(tier.reader(**on_gap), before)
    reader = tier.reader(**LEAVE_OUT)
    caplog.clear()
    after = step(reader, before)
    [line] = lines(caplog)
    assert "replaced_from=80" in line
    assert offsets_of(rows_of(tier.reader(**LEAVE_OUT), before, after)) == list(range(80, 100))
    assert step(tier.reader(), after) == after


def test_a_stream_that_may_lose_records_explains_nothing_until_it_has_lost_some(
    tier: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fears requests to brokers in each micro-batch, and old segments that are read complete in each."""
    planned: list[str | None] = []

    def plan(store: Any, options: Any, **more: Any) -> Any:
        planned.append(options.on_gap)
        return plan_read(store, options, **more)

    monkeypatch.setattr("firnline.spark.streaming.reader.plan_read", plan)
    end = step(tier.reader(), read_to(40))
    assert len(rows_of(tier.reader(**LEAVE_OUT), read_to(40), end)) == 60
    assert planned == [None]


def test_a_loss_is_said_once_while_the_log_grows_and_the_stream_waits(
    tier: Growing, caplog: pytest.LogCaptureFixture
) -> None:
    """Fears a line for each of a hundred polls a second, because the log has another end each time."""
    epochs = ((0, 0), (1, 80))
    tier.partitions["t", 0].segments.clear()
    tier.partitions["t", 0].segment(batches(0, 80))
    tier.partitions["t", 0].segment(batches(80, 100, epoch=1, tag="new"), epochs)
    tier.publish(epochs=epochs)
    reader = tier.reader(**LEAVE_OUT, minOffsetsPerTrigger="100000")
    before = read_to(90)
    caplog.clear()
    for end in (100, 110, 120):
        step(reader, before)
        tier.partitions["t", 0].segment(batches(end, end + 10, epoch=1, tag="new"), epochs)
        tier.publish(epochs=epochs)
    assert len([line for line in lines(caplog) if "replaced_from=80" in line]) == 1


def test_a_new_leader_that_replaced_nothing_is_no_loss(tier: Growing) -> None:
    epochs = ((0, 0), (3, 100))
    tier.partitions["t", 0].segment(batches(100, 120, epoch=3), epochs)
    tier.publish(epochs=epochs)
    before = read_to(100)
    after = step(tier.reader(), before)
    assert after["#epochs"] == {"t": {"0": 3}}
    assert offsets_of(rows_of(tier.reader(), before, after)) == list(range(100, 120))


def test_a_micro_batch_that_is_repeated_does_not_give_what_replaced_its_records(
    tier: Growing, caplog: pytest.LogCaptureFixture
) -> None:
    """Fears a kill between plan and commit, an unclean election, and two histories in one micro-batch."""
    start = tier.reader().initialOffset()
    end = step(tier.reader(), start)
    tier.partitions["t", 0].segments.clear()
    tier.partitions["t", 0].segment(batches(0, 80))
    tier.partitions["t", 0].segment(batches(80, 130, epoch=1, tag="new"), FORKED)
    tier.publish(epochs=FORKED)
    with pytest.raises(DataLoss, match=r"an unclean election has replaced.*remedy="):
        tier.reader().partitions(start, end)
    caplog.clear()
    assert offsets_of(rows_of(tier.reader(**LEAVE_OUT), start, end)) == list(range(80))
    assert "cause=truncated from_offset=80 to_offset=100" in lines(caplog)[0]
    after = step(tier.reader(**LEAVE_OUT), end)
    assert offsets_of(rows_of(tier.reader(), end, after)) == list(range(80, 130))


# ------------------------------------------------------------------------------------ onGap


def test_what_expired_is_explained_or_skipped_and_fails_only_if_that_is_asked_for(
    tier: Growing, caplog: pytest.LogCaptureFixture
) -> None:
    before = read_to(100)
    tier.grow(100, log_start=150)

    def rows(**options: str) -> list[int]:
        after = step(tier.reader(**options), before)
        return offsets_of(rows_of(tier.reader(**options), before, after))

    for options in ({}, {"onGap": "fail"}):
        with pytest.raises(DataLoss, match=r"below the log start.*remedy="):
            rows(**options)
    caplog.clear()
    assert rows(onGap="explain") == list(range(150, 200))
    [line] = lines(caplog)
    assert "cause=expired_or_deleted from_offset=100 to_offset=150 offsets=50" in line
    assert rows(onGap="skip") == list(range(150, 200))
    assert lines(caplog) == []


def test_a_new_partition_whose_first_records_expired_is_no_loss_for_who_asks_for_gaps(
    tier: Growing, caplog: pytest.LogCaptureFixture
) -> None:
    before = read_to(100)
    tier.grow(10, 1, log_start=4)
    caplog.clear()
    after = step(tier.reader(onGap="explain"), before)
    assert rows_of(tier.reader(), before, after) == [(1, offset) for offset in range(4, 10)]
    assert "cause=expired_or_deleted onGap=explain" in lines(caplog)[0]
    step(tier.reader(onGap="skip"), before)
    assert lines(caplog) == []
    with pytest.raises(DataLoss, match=r"onGap=fail remedy=onGap=explain goes on"):
        step(tier.reader(onGap="fail"), before)


@pytest.mark.parametrize("on_gap", ["explain", "skip"])
def test_a_loss_fails_a_stream_whatever_it_does_about_gaps(tier: Growing, on_gap: str) -> None:
    again = Growing(tier.path)
    again.grow(120, number=2)
    with pytest.raises(
        DataLoss, match=rf"another one has its name.*cause=topic_deleted onGap={on_gap}"
    ):
        step(tier.reader(onGap=on_gap), read_to(100))
    lenient = {"onGap": on_gap, **LEAVE_OUT}
    assert step(tier.reader(**lenient), read_to(100))["t"] == {"0": 120}


def test_compaction_stops_a_stream_only_if_that_is_asked_for(tmp_path: Path) -> None:
    tier = Growing(tmp_path / "tier")
    written = tier.partition_of("t")
    written.segment([batch(0, 5), compacted(5, [6], 8), batch(8, 4)])
    tier.publish()
    start = tier.reader().initialOffset()
    end = step(tier.reader(), start)
    for on_gap in ({}, {"onGap": "explain"}, {"onGap": "skip"}):
        rows = rows_of(tier.reader(**on_gap), start, end)
        assert offsets_of(rows) == [*range(5), 6, *range(8, 12)]
    with pytest.raises(DataLoss, match=r"from_offset=5 to_offset=6 cause=compacted.*onGap=fail"):
        rows_of(tier.reader(onGap="fail"), start, end)


def test_a_stream_that_waits_for_more_says_a_loss_once(
    tier: Growing, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fears a full disk: while a stream waits, Spark asks up to 100 times a second."""
    options = {"minOffsetsPerTrigger": "50", **LEAVE_OUT}
    reader = tier.reader(**options)
    before = step(reader, read_to(90))
    before = {**json.loads(json.dumps(before)), "t": {"0": 100, "1": 9}}
    caplog.clear()
    for _ in range(5):
        assert step(reader, before) == before
    [line] = lines(caplog)
    assert "a partition of the stream is gone topic=t partition=1 read=9" in line


# ------------------------------------------------------------------------------------ a store that is away


def failing(reader: FirnlineStreamReader, times: int, problem: Exception) -> list[str]:
    """Let the store of a reader fail so many times; return what it was asked until then."""
    store, asked = reader._opened(), list[str]()
    assert store is not None
    listed = store.list_prefix

    def list_prefix(prefix: str) -> list[ObjectInfo]:
        asked.append(prefix)
        if len(asked) <= times:
            raise problem
        return listed(prefix)

    store.list_prefix = list_prefix  # type: ignore[method-assign]
    return asked


def test_a_stream_outlives_a_store_that_is_away_but_not_one_that_refuses(
    tier: Growing, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firnline.spark.streaming.reader._ASK_AGAIN_S", 0.0)
    before, away = read_to(40), RemoteStorageError("the store does not answer")
    reader = tier.reader()
    failing(reader, 3, away)
    end = step(reader, before)
    assert offsets_of(rows_of(tier.reader(), before, end)) == list(range(40, 100))
    [line] = lines(caplog)
    assert "the stream asks again for_s=120" in line
    refusing = tier.reader()
    asked = failing(refusing, 1, StoreRefused("the key is wrong"))
    with pytest.raises(StoreRefused):
        step(refusing, before)
    assert len(asked) == 1
    # A new query fails at once: what it is told may be wrong. Nobody waits for ever.
    new = tier.reader()
    failing(new, 1, away)
    with pytest.raises(RemoteStorageError):
        step(new, new.initialOffset())
    new = tier.reader()
    asked = failing(new, 2, away)
    new.prepareForTriggerAvailableNow()
    with pytest.raises(RemoteStorageError):
        step(new, new.initialOffset())
    assert len(asked) == 2
    old = tier.reader()
    failing(old, 2, away)
    old.prepareForTriggerAvailableNow()
    end = step(old, before)
    tier.grow(50)
    assert step(old, end) == end, "it ends where the log did"
    monkeypatch.setattr(
        "firnline.spark.streaming.reader.time.monotonic", iter(range(0, 900, 50)).__next__
    )
    late = tier.reader()
    asked = failing(late, 99, away)
    with pytest.raises(RemoteStorageError):
        step(late, before)
    assert len(asked) == 3


# ------------------------------------------------------------------------------------ what brokers say


def test_brokers_are_asked_once_for_each_new_leader_where_the_records_before_it_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fears two requests for each question of an idle stream, as long as no new record comes."""
    asked: list[dict[Key, int]] = []

    class Answers:
        def __init__(self, settings: object) -> None: ...

        def __enter__(self) -> "Answers":
            return self

        def __exit__(self, *_: object) -> None: ...

        def epoch_ends(self, epochs: dict[Key, int]) -> dict[Key, Found]:
            asked.append(dict(epochs))
            return {("t", 0): Found(80, 0), ("t", 1): Found(-1, -1)}

    monkeypatch.setattr("firnline.spark.streaming.ends.Brokers", Answers)
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}
    ends = LiveEnds(None, parse_options(given, is_stream=True))
    there = [PartitionEnds("t", bytes(16), p, 0, 120, 120, leader_epoch=1) for p in (0, 1)]
    before = StreamOffsets({("t", p): 100 for p in (0, 1)}, {}, {}, {("t", p): 0 for p in (0, 1)})
    epochs = doubtful(before, there)
    for _ in range(3):
        found = ends.forks(epochs, there)
    assert asked == [before.epochs]
    assert found == {("t", 0): 80}  # of the other one the leader knows nothing
    (loss,) = begin_after(before, there, found).losses
    assert "replaced_from=80" in str(loss.problem)
    ends.forks(epochs, [one._replace(leader_epoch=2) for one in there])
    assert len(asked) == 2
    assert doubtful(before, [one._replace(leader_epoch=0) for one in there]) == {}
