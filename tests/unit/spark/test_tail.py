"""What a read checks of the brokers' answers, and how a cut is written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.base.errors import ConfigError
from firnline.base.units import INT64_MAX
from firnline.config.topic import Lease
from firnline.formats.transaction_index import AbortedTxn
from firnline.records.build import NewRecord, build_batch
from firnline.spark.brokers import fetch
from firnline.spark.brokers.cluster import Found, Key, LiveTopic
from firnline.spark.brokers.fetch import Fetched, aborted_ranges, check_answer
from firnline.spark.frames import Frames, find_frames
from firnline.spark.options.brokers import BrokerSettings
from firnline.spark.options.parse import parse_options
from firnline.spark.planning import scan
from firnline.spark.planning.bounds import Ends, within_ends
from firnline.spark.planning.cut import Bounds, Cut, TopicCut, parse_cut
from firnline.spark.planning.filters import Filters
from firnline.spark.planning.live import differing
from firnline.spark.planning.plan import TailTask, Task
from firnline.spark.planning.scan import plan_read
from firnline.spark.schema import CorruptSegment, DataLoss, ReadSettings
from firnline.stores.memory import MemoryStore
from tests.spark.written_tier import WrittenPartition, batches

TASK = TailTask("t", bytes([1]) * 16, 0, 0, 100, leader_epoch=5)
BOUNDS = st.integers(0, INT64_MAX).flatmap(
    lambda end: st.builds(
        lambda start, epoch: Bounds(start, end, start, epoch),
        st.integers(0, end),
        st.integers(-1, 2**31 - 1),
    )
)
CUTS = st.builds(
    Cut,
    st.dictionaries(
        st.text(min_size=1),
        st.builds(
            TopicCut,
            st.binary(min_size=16, max_size=16),
            st.dictionaries(st.integers(0, 2**31 - 1), BOUNDS),
        ),
    ),
    st.booleans(),
    st.none()
    | st.builds(
        Lease, st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True), st.integers(0, 10**18 - 1)
    ),
)


def frames(*parts: tuple[int, int, int]) -> Frames:
    """Batches of (base offset, records, leader epoch)."""
    rows = [NewRecord(b"k", b"v", 1)]
    data = b"".join(
        bytes(build_batch(rows * count, base_offset=base, leader_epoch=epoch))
        for base, count, epoch in parts
    )
    return find_frames(data)


@given(CUTS)
def test_a_cut_is_read_as_it_was_written(cut: Cut) -> None:
    assert parse_cut(cut.text()) == cut
    assert "\n" not in cut.text()


GOOD = {
    "version": 1, "isolation": "read_committed",
    "topics": {"t": {"id": "A" * 22, "partitions": {"0": {"start": 1, "end": 2, "epoch": 3}}}},
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "null", "{}", json.dumps(GOOD | {"isolation": "x"}),
        json.dumps(GOOD | {"topics": []}), json.dumps(GOOD).replace('"start": 1', '"start": 3'),
        json.dumps(GOOD).replace('"start": 1', '"start": -1'),
        json.dumps(GOOD).replace('"end": 2', '"end": true'),
        json.dumps(GOOD).replace('"0":', '"x":'), json.dumps(GOOD).replace("AAAA", "A"),
        json.dumps(GOOD | {"lease": "x"}), json.dumps(GOOD | {"lease": 5}),
    ],
)  # fmt: skip
def test_what_is_no_cut_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r'asOf is neither like \{"version": 1'):
        parse_cut(text)


def test_a_cut_of_a_later_version_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"another version of Firnline.*given=2"):
        parse_cut(json.dumps(GOOD | {"version": 2}))


def test_a_cut_has_its_isolation_and_its_offsets_alone() -> None:
    given = {"tier.uri": "/t", "asOf": json.dumps(GOOD)}
    assert parse_options(given).read_committed
    assert parse_options(given).topics == ("t",)
    with pytest.raises(ConfigError, match="another one than that of the cut"):
        parse_options(given | {"kafka.isolation.level": "read_uncommitted"})
    with pytest.raises(ConfigError, match="leave out startingOffsets"):
        parse_options(given | {"startingOffsets": "earliest"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "tier"),
        ({"kafka.bootstrap.servers": "b:1"}, "auto"),
        ({"kafka.bootstrap.servers": "b:1", "tier.uri": None}, "broker"),
        ({"kafka.bootstrap.servers": "b:1", "readFrom": "BROKER"}, "broker"),
        ({"kafka.bootstrap.servers": "b:1", "readFrom": "tier"}, "tier"),
    ],
)
def test_brokers_are_asked_only_where_they_are_named(
    given: dict[str, str | None], expected: str
) -> None:
    named = {"tier.uri": "/t", "subscribe": "t"} | given
    options = parse_options({name: value for name, value in named.items() if value is not None})
    assert options.read_from == expected
    assert (options.brokers is None) == (expected == "tier")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"readFrom": "broker"}, "give kafka.bootstrap.servers"),
        ({"readFrom": "both"}, "readFrom must be one of auto, tier, broker"),
        ({"kafka.bootstrap.servers": "b:1", "kafka.security.protocol": "SSL"}, "must be PLAINTEXT"),
        ({"kafka.bootstrap.servers": "b:1", "kafka.request.timeout.ms": "0"}, "from 1 to"),
    ],
)
def test_brokers_that_cannot_be_asked_are_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_options({"tier.uri": "/t", "subscribe": "t"} | given)


def test_a_transaction_is_aborted_up_to_its_own_marker() -> None:
    rows = [NewRecord(b"k", b"v", 1)]

    def part(base: int, producer: int, *, is_control: bool = False) -> bytes:
        return bytes(
            build_batch(
                rows, base_offset=base, producer_id=producer, producer_epoch=0, base_sequence=0,
                is_transactional=True, is_control=is_control,
            )
        )  # fmt: skip

    data = [part(0, 7), part(1, 8), part(2, 7, is_control=True), part(3, 7), part(4, 8)]
    found = aborted_ranges([(7, 0), (8, 1)], find_frames(b"".join(data)))
    assert found == (AbortedTxn(7, 0, 2, 2), AbortedTxn(8, 1, INT64_MAX, INT64_MAX))


@pytest.mark.parametrize(
    ("parts", "at"),
    [
        ([(0, 10, 5)], 10),  # ends before what was asked for
        ([(0, 10, 5), (5, 10, 5)], 0),  # offsets twice
        ([(20, 5, 5), (0, 5, 5)], 0),  # in another order
    ],
)
def test_batches_that_are_not_where_they_belong_are_no_rows(
    parts: list[tuple[int, int, int]], at: int
) -> None:
    with pytest.raises(CorruptSegment, match="not where it belongs"):
        check_answer(frames(*parts), TASK, at)


def test_records_of_a_later_leader_below_the_end_are_another_history() -> None:
    check_answer(frames((0, 50, 4), (50, 50, 5), (100, 10, 6)), TASK, 0)
    check_answer(frames((0, 50, 9)), TASK._replace(leader_epoch=-1), 0)
    with pytest.raises(DataLoss, match=r"unclean election.*from_offset=50"):
        check_answer(frames((0, 50, 4), (50, 50, 6)), TASK, 0)


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        ((5, 30), (10, 30)), ((0, 8), (8, 8)), ((15, 90), (15, 40)), ((60, 90), (60, 60)),
        ((12, 12), (12, 12)), ((0, 0), (0, 0)),
    ],
)  # fmt: skip
def test_what_is_gone_of_a_cut_is_data_loss_or_left_out(
    cut: tuple[int, int], expected: tuple[int, int]
) -> None:
    ends = Ends("t", 0, 10, 40, "the partition")
    strict = parse_options({"tier.uri": "/t", "subscribe": "t"})
    bounds = Bounds(*cut, cut[0], 0)
    found = within_ends(strict._replace(fail_on_data_loss=False), bounds, ends)
    assert (found.start_offset, found.end_offset) == expected
    if expected == cut:
        assert within_ends(strict, bounds, ends)[:2] == cut
        return
    with pytest.raises(DataLoss):
        within_ends(strict, bounds, ends)


class Leader:
    """Brokers with one topic `t` of one partition, and its history as (epoch, start offset) pairs."""

    def __init__(self, history: tuple[tuple[int, int], ...], end_offset: int) -> None:
        self.history, self.end_offset = history, end_offset

    def __call__(self, _settings: object) -> "Leader":
        return self

    def __enter__(self) -> "Leader":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def topics(self, _names: object) -> dict[str, Any]:
        return {"t": LiveTopic("t", bytes([1]) * 16, (0,))}

    def offsets(self, wishes: dict[Key, int], **_: object) -> dict[Key, Found]:
        epoch = self.history[-1][0]
        return {k: Found(0 if v == -2 else self.end_offset, epoch) for k, v in wishes.items()}

    def epoch_ends(self, epochs: dict[Key, int]) -> dict[Key, Found]:
        found = {}
        for key, wanted in epochs.items():
            known = [epoch for epoch, _ in self.history if epoch <= wanted]
            later = [start for epoch, start in self.history if epoch > wanted]
            found[key] = (
                Found(later[0] if later else self.end_offset, known[-1]) if known else Found(-1, -1)
            )
        return found


@pytest.mark.parametrize(
    ("tier", "leader", "expected"),
    [
        (((0, 0), (2, 50)), ((0, 0), (2, 50), (3, 120)), None),  # the same history
        (((0, 0), (2, 50)), ((0, 0), (2, 50), (3, 80)), 80),  # cut short by a later leader
        (((0, 0), (2, 50)), ((0, 0), (3, 70)), 50),  # the leader never had epoch 2
        (((0, 0), (2, 50)), ((0, 0), (3, 30)), 30),
        (((2, 0),), ((3, 0),), 0),  # nothing in common
    ],
)
def test_where_the_tier_has_another_history_than_the_leader(
    tier: tuple[tuple[int, int], ...], leader: tuple[tuple[int, int], ...], expected: int | None
) -> None:
    found = differing(Leader(leader, 200), {("t", 0): (tier, 100)})  # type: ignore[arg-type]
    assert found.get(("t", 0)) == expected


def test_records_that_an_unclean_election_discarded_do_not_come_from_the_tier(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fears a table of two histories: the tier still has what a deposed leader copied last."""
    store = MemoryStore()
    written = WrittenPartition(store, "t")
    history = ((0, 0), (2, 50))
    written.segment(batches(0, 50, epoch=0), history)
    written.segment(batches(50, 100, epoch=2), history)
    written.publish(history)
    monkeypatch.setattr(scan, "Brokers", Leader(((0, 0), (3, 30)), 200))
    options = parse_options({"tier.uri": "/t", "subscribe": "t", "kafka.bootstrap.servers": "b:1"})
    plan = plan_read(store, options, Filters())
    served = [
        (piece.start_offset, piece.end_offset)
        for task in plan.tasks
        if isinstance(task, Task)
        for piece in task.pieces
    ]
    asked = [(t.start_offset, t.end_offset) for t in plan.tasks if isinstance(t, TailTask)]
    assert (served, asked) == ([(0, 30)], [(30, 200)])
    assert "another history than the leader" in caplog.text
    assert plan.cut.topics["t"].partitions[0] == Bounds(0, 200, 0, 3)


@pytest.mark.parametrize(
    ("options", "asked", "start"),
    [({}, [(100, 200)], 20), ({"startingOffsets": '{"t": {"0": 5}}'}, [(5, 20), (100, 200)], 5)],
)
def test_retention_that_goes_on_while_a_read_is_planned_is_no_data_loss_from_the_earliest(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    asked: list[tuple[int, int]],
    start: int,
) -> None:
    """The leader says 0, then the catalog 20. An offset that the user names is asked for."""
    store = MemoryStore()
    written = WrittenPartition(store, "t")
    written.segment(batches(0, 100, epoch=2), ((2, 0),))
    written.publish(((2, 0),), log_start=20)
    monkeypatch.setattr(scan, "Brokers", Leader(((2, 0),), 200))
    given = {"tier.uri": "/t", "subscribe": "t", "kafka.bootstrap.servers": "b:1", **options}
    plan = plan_read(store, parse_options(given))
    found = [(t.start_offset, t.end_offset) for t in plan.tasks if isinstance(t, TailTask)]
    assert sorted(found) == asked
    assert plan.cut.topics["t"].partitions[0].start_offset == start


def test_a_cut_whose_records_were_replaced_is_data_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Cut({"t": TopicCut(bytes([1]) * 16, {0: Bounds(0, 100, 0, 2)})}, read_committed=False)
    options = parse_options({"kafka.bootstrap.servers": "b:1", "asOf": cut.text()})
    monkeypatch.setattr(scan, "Brokers", Leader(((0, 0), (2, 50), (3, 100)), 200))
    assert plan_read(None, options).cut == cut
    monkeypatch.setattr(scan, "Brokers", Leader(((0, 0), (2, 50), (3, 80)), 200))
    with pytest.raises(DataLoss, match=r"unclean election.*from_offset=80"):
        plan_read(None, options)


class Answers:
    """A leader that answers each fetch with the next of some bytes."""

    def __init__(self, *parts: Fetched) -> None:
        self.parts = list(parts)

    def __call__(self, *_: object) -> "Answers":
        return self

    def __enter__(self) -> "Answers":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def fetch(self, _offset: int) -> Fetched:
        return self.parts.pop(0)


def rows_from(
    monkeypatch: pytest.MonkeyPatch,
    *parts: Fetched,
    keeps_aborted: bool = True,
    decoder: str = "auto",
) -> list[dict[str, Any]]:
    monkeypatch.setattr(fetch, "_Leader", Answers(*parts))
    columns = ("offset", "value", "readFrom", "segmentId", "transaction")
    how = ReadSettings(columns, keeps_aborted=keeps_aborted, decoder=decoder)
    found = fetch.read_tail(TASK, how, BrokerSettings("b:1"))
    return [row for batch in found for row in batch.to_pylist()]


def answer(data: bytes, *aborted: tuple[int, int], stable: int = -1) -> Fetched:
    return Fetched(memoryview(data), aborted, stable)


def test_a_flipped_byte_of_an_answer_is_an_error_and_no_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = bytearray(b"".join(batches(0, 100, epoch=5)))
    data[-1] ^= 1
    with pytest.raises(CorruptSegment, match=r"wrong CRC.*t-0 from its leader.*offset=90"):
        rows_from(monkeypatch, answer(bytes(data)))


def test_half_a_batch_is_an_error_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    [data] = batches(0, 10, epoch=5)
    with pytest.raises(CorruptSegment, match=r"no complete batch.*offset=0"):
        rows_from(monkeypatch, answer(data[:-1]))


@pytest.mark.parametrize("decoder", ["numpy", "python"])
def test_an_answer_that_begins_and_ends_elsewhere_gives_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, decoder: str
) -> None:
    """A leader sends whole batches: the first may begin below the offset, the last may end above it."""
    first, second = b"".join(batches(0, 60, epoch=5)), b"".join(batches(50, 130, epoch=5))
    rows = rows_from(monkeypatch, answer(first), answer(second), decoder=decoder)
    assert [row["offset"] for row in rows] == list(range(100))
    assert {(row["readFrom"], row["segmentId"], row["transaction"]) for row in rows} == {
        ("broker", None, None)
    }


def transactional(base: int, producer: int, *, is_control: bool = False) -> bytes:
    return bytes(
        build_batch(
            [NewRecord(b"k", b"v", 1)], base_offset=base, producer_id=producer, producer_epoch=0,
            base_sequence=0, is_transactional=True, is_control=is_control, leader_epoch=5,
        )
    )  # fmt: skip


@pytest.mark.parametrize("decoder", ["numpy", "python"])
def test_aborted_records_are_left_out_or_told(
    monkeypatch: pytest.MonkeyPatch, decoder: str
) -> None:
    data = transactional(0, 7) + transactional(1, 8) + transactional(2, 7, is_control=True)
    data += transactional(3, 7) + transactional(4, 8, is_control=True)
    rest = answer(b"".join(batches(5, 100, epoch=5)))
    committed = rows_from(
        monkeypatch, answer(data, (7, 0)), rest, keeps_aborted=False, decoder=decoder
    )
    assert [row["offset"] for row in committed][:3] == [1, 3, 5]
    told = rows_from(monkeypatch, answer(data, (7, 0), stable=3), rest, decoder=decoder)
    assert [(row["offset"], row["transaction"]) for row in told[:3]] == [
        (0, "aborted"), (1, "committed"), (3, "open"),
    ]  # fmt: skip
