"""Gaps in what a partition's leader gives, and in what brokers say of a cut."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.base.errors import ConfigError
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC
from firnline.records.batch import TRANSACTIONAL_MASK
from firnline.spark.brokers import fetch
from firnline.spark.brokers.cluster import Found, Key
from firnline.spark.brokers.fetch import Fetched
from firnline.spark.gaps.causes import LeftOut, Missing
from firnline.spark.gaps.expired import ExpiredTask, explain_expired
from firnline.spark.gaps.history import Limits
from firnline.spark.gaps.options import parse_gaps_options
from firnline.spark.gaps.read import missing_of
from firnline.spark.options.brokers import BrokerSettings
from firnline.spark.options.parse import Options, parse_options
from firnline.spark.planning import scan
from firnline.spark.planning.plan import TailTask
from firnline.spark.planning.scan import plan_read
from firnline.spark.schema import DataLoss, ReadSettings
from tests.spark.written_tier import batch, compacted
from tests.unit.spark.test_gaps import Log
from tests.unit.spark.test_tail import Leader

TOPIC_ID = bytes([1]) * 16
SETTINGS = BrokerSettings("b:1")
HOW = ReadSettings(("offset",))


class Sends:
    """A leader that sends some batches from the one with the asked offset on, a few in each answer.

    log_start_offset  offsets below are out of range, as are those at the end and above
    """

    def __init__(
        self,
        parts: list[tuple[int, int, bytes]],
        aborted: list[tuple[int, int, int]] | None = None,
        *,
        rnd: Random | None = None,
        log_start_offset: int = 0,
    ) -> None:
        self.parts, self.aborted = parts, aborted or []
        self.rnd, self.log_start_offset = rnd or Random(1), log_start_offset

    def __call__(self, *_: object) -> "Sends":
        return self

    def __enter__(self) -> "Sends":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def fetch(self, offset: int) -> Fetched:
        its = [part for part in self.parts if part[1] > offset]
        if offset < self.log_start_offset or not its:
            why = "the partition does not have these offsets"
            raise fetch._OutOfRange(why, self.log_start_offset)
        its = its[: self.rnd.randint(1, 4)]
        first, last = its[0][0], its[-1][1]
        aborted = [(p, begin) for p, begin, end in self.aborted if end >= first and begin < last]
        return Fetched(memoryview(b"".join(data for _, _, data in its)), tuple(aborted), -1)


def read(
    monkeypatch: pytest.MonkeyPatch, leader: Sends, task: TailTask, **how: Any
) -> tuple[list[int], list[Missing]]:
    """Return the records that a task gives, and the gaps that the table has of it."""
    monkeypatch.setattr(fetch, "_Leader", leader)
    settings_ = ReadSettings(("offset",), **{"fail_on_data_loss": False, **how})
    found = [
        offset
        for rows in fetch.read_tail(task, settings_, SETTINGS)
        for offset in rows.column("offset").to_pylist()
    ]
    return found, list(missing_of(None, task, settings_, SETTINGS))


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_records_and_gaps_of_a_leader_have_each_offset_once(seed: int) -> None:
    """Method: a random log with transactions and compaction, sent in random answers; a part of it is read."""
    rnd = Random(seed)
    log = Log(rnd)
    for _ in range(rnd.randint(1, 40)):
        log.grow(is_compacted=True)
    log.grow(is_compacted=False)
    aborted = [each for part in log.batches for each in part[3]]
    start = rnd.randint(0, log.end - 1)
    end = rnd.randint(start + 1, log.end)
    leader = Sends([part[:3] for part in log.batches], aborted, rnd=rnd)
    task = TailTask("t", TOPIC_ID, 0, start, end, -1, "compact,delete")
    keeps_aborted = rnd.random() < 0.5
    with pytest.MonkeyPatch.context() as patch:
        found, missing = read(patch, leader, task, keeps_aborted=keeps_aborted)
    covered = [*found, *(o for m in missing for o in range(m.start_offset, m.end_offset))]
    assert sorted(covered) == list(range(start, end))
    causes = {o: m.cause for m in missing for o in range(m.start_offset, m.end_offset)}
    for offset in range(start, end):
        kind = {"hole": "compacted"}.get(log.known[offset], log.known[offset])
        is_given = kind in ("record", "open") or (kind == "aborted" and keeps_aborted)
        assert causes.get(offset) == (None if is_given else kind), offset


HOLED = [(0, 5, batch(0, 5)), (5, 8, compacted(5, [6], 8)), (12, 16, batch(12, 4))]


@pytest.mark.parametrize(
    ("policy", "cause"),
    [("compact", "compacted"), ("compact,delete", "compacted"), ("delete", "compacted_or_lost"),
     ("", "compacted_or_lost")],
)  # fmt: skip
def test_the_topic_says_whether_compaction_explains_a_hole(
    monkeypatch: pytest.MonkeyPatch, policy: str, cause: str
) -> None:
    task = TailTask("t", TOPIC_ID, 0, 0, 16, -1, policy)
    found, missing = read(monkeypatch, Sends(HOLED), task)
    assert found == [0, 1, 2, 3, 4, 6, 12, 13, 14, 15]
    assert [m[:3] for m in missing] == [(5, 6, cause), (7, 8, cause), (8, 12, cause)]
    assert policy in missing[0].detail
    for on_gap in ("explain", "skip"):
        strict = {"fail_on_data_loss": True, "on_gap": on_gap}
        if cause == "compacted":
            assert read(monkeypatch, Sends(HOLED), task, **strict)[0] == found
        else:
            with pytest.raises(DataLoss, match="from_offset=5 to_offset=6 cause=compacted_or_lost"):
                read(monkeypatch, Sends(HOLED), task, **strict)
    with pytest.raises(DataLoss, match=f"cause={cause}.*onGap=fail"):
        read(monkeypatch, Sends(HOLED), task, fail_on_data_loss=True, on_gap="fail")
    assert read(monkeypatch, Sends(HOLED), task, fail_on_data_loss=True)[0] == found


@pytest.mark.parametrize(
    ("log_start", "end", "expected", "refuses"),
    [
        (7, 16, [(0, 7, "expired_or_deleted"), (7, 8, "compacted"), (8, 12, "compacted")], False),
        (99, 16, [(0, 16, "expired_or_deleted")], False),
        (0, 30, [(5, 6, "compacted"), (7, 8, "compacted"), (8, 12, "compacted"),
                 (16, 30, "truncated")], True),
        (-1, 30, [(5, 6, "compacted"), (7, 8, "compacted"), (8, 12, "compacted"),
                  (16, 30, "lost")], True),
    ],
)  # fmt: skip
def test_what_the_leader_has_no_more_is_explained(
    monkeypatch: pytest.MonkeyPatch,
    log_start: int,
    end: int,
    expected: list[tuple[int, int, str]],
    refuses: bool,
) -> None:
    task = TailTask("t", TOPIC_ID, 0, 0, end, -1, "compact")
    leader = Sends(HOLED, log_start_offset=log_start)
    found, missing = read(monkeypatch, leader, task)
    assert [m[:3] for m in missing] == expected
    explains = {"fail_on_data_loss": True, "on_gap": "explain"}
    if refuses:
        with pytest.raises(DataLoss):
            read(monkeypatch, leader, task, **explains)
    else:
        assert read(monkeypatch, leader, task, **explains)[0] == found
    with pytest.raises(DataLoss):
        read(monkeypatch, leader, task, fail_on_data_loss=True)


class Cluster(Leader):
    """Brokers with a topic `t`: log start, last stable offset and high watermark."""

    def __init__(self, log_start: int, stable: int, end: int, epochs: Any = ((0, 0),)) -> None:
        super().__init__(epochs, end)
        self.log_start, self.stable = log_start, stable

    def offsets(self, wishes: dict[Key, int], **how: object) -> dict[Key, Found]:
        end = self.stable if how["read_committed"] else self.end_offset
        epoch = self.history[-1][0]
        return {k: Found(self.log_start if v == -2 else end, epoch) for k, v in wishes.items()}

    def topic_settings(self, topics: set[str]) -> dict[str, dict[str, str]]:
        return {topic: {"cleanup.policy": "delete", "retention.ms": "1000"} for topic in topics}

    def topics(self, names: Any) -> dict[str, Any]:
        if names == [REMOTE_LOG_METADATA_TOPIC]:
            raise ConfigError("no such topic in the cluster")
        return super().topics(names)


def options_of(**given: str) -> Options:
    named = {"subscribe": "t", "kafka.bootstrap.servers": "b:1", **given}
    return parse_gaps_options(named)


def planned(options: Options) -> list[tuple[int, int, str]]:
    """Return what the plan leaves out of the only partition; the cluster has no history of a tier."""
    plan = plan_read(None, options)
    expired = [each for task in plan.expired for each in explain_expired(task, HOW, SETTINGS)]
    for each in expired:
        assert "the cluster has no tier metadata; now retention.ms=1000" in each.missing[0].detail
    return [m[:3] for each in (*expired, *plan.left_out) for m in each.missing]


def test_offsets_outside_of_a_partition_are_explained_by_what_its_leader_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scan, "Brokers", Cluster(40, 90, 100))
    requested = {"startingOffsets": '{"t": {"0": 10}}', "endingOffsets": '{"t": {"0": 120}}'}
    assert planned(options_of(**requested)) == [
        (10, 40, "expired_or_deleted"), (100, 120, "not_written"),
    ]  # fmt: skip
    committed = {"kafka.isolation.level": "read_committed"}
    assert planned(options_of(**requested, **committed)) == [
        (10, 40, "expired_or_deleted"), (90, 100, "undecided"), (100, 120, "not_written"),
    ]  # fmt: skip
    plan = plan_read(None, options_of(**requested))
    (task,) = plan.tasks
    assert isinstance(task, TailTask)
    assert (task.start_offset, task.end_offset, task.cleanup_policy) == (40, 100, "delete")


def cut(topic_id: str, start: int, end: int, epoch: int) -> str:
    row = {"start": start, "end": end, "epoch": epoch}
    topics = {"t": {"id": topic_id, "partitions": {"0": row}}}
    return json.dumps({"version": 1, "isolation": "read_uncommitted", "topics": topics})


def test_a_cut_of_another_history_is_truncated_and_one_of_another_topic_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scan, "Brokers", Cluster(40, 200, 200, ((0, 0), (2, 50), (3, 80))))
    servers = {"kafka.bootstrap.servers": "b:1"}
    replaced = servers | {"asOf": cut("AQEBAQEBAQEBAQEBAQEBAQ", 0, 100, 2)}
    assert planned(parse_gaps_options(replaced)) == [
        (0, 40, "expired_or_deleted"), (80, 100, "truncated"),
    ]  # fmt: skip
    with pytest.raises(DataLoss, match="unclean election"):
        plan_read(None, parse_options(replaced | {"failOnDataLoss": "false"}))
    with pytest.raises(DataLoss, match="unclean election"):
        plan_read(None, parse_options(replaced | {"onGap": "explain"}))
    lenient = parse_options(replaced | {"onGap": "explain", "failOnDataLoss": "false"})
    assert plan_read(None, lenient).cut.topics["t"].partitions[0].end_offset == 80

    former = servers | {"asOf": cut("AgICAgICAgICAgICAgICAg", 5, 100, 2)}
    assert planned(parse_gaps_options(former)) == [(5, 100, "topic_deleted")]
    with pytest.raises(DataLoss, match="another one has its name"):
        plan_read(None, parse_options(former | {"onGap": "skip"}))


def test_empty_batches_of_an_aborted_transaction_are_compacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What nobody has any more is not there for a reader of aborted records, either."""
    attributes = TRANSACTIONAL_MASK
    parts = [
        (0, 4, compacted(0, [1, 2], 4, attributes=attributes, producer=(7, 0, 0))),
        (4, 8, compacted(4, [], 8, attributes=attributes, producer=(7, 0, 0))),
    ]
    task = TailTask("t", TOPIC_ID, 0, 0, 8, -1, "compact")
    found, missing = read(monkeypatch, Sends(parts, [(7, 0, 99)]), task, keeps_aborted=False)
    assert found == []
    assert [m[:3] for m in missing] == [
        (0, 1, "compacted"), (1, 3, "aborted"), (3, 4, "compacted"), (4, 8, "compacted"),
    ]  # fmt: skip
    assert missing[1].producer_id == 7


def test_a_history_that_cannot_be_read_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fears a table that fails because a topic of which it needs only evidence is not for this user."""
    gone = Sends([], log_start_offset=50)
    monkeypatch.setattr(fetch, "_Leader", gone)
    below = LeftOut("t", TOPIC_ID, 0, (Missing(0, 9, "expired_or_deleted", "below"),))
    history = TailTask(REMOTE_LOG_METADATA_TOPIC, TOPIC_ID, 3, 0, 10, -1)
    (found,) = explain_expired(ExpiredTask(history, ((below, Limits()),)), HOW, SETTINGS)
    (row,) = found.missing
    assert row[:3] == (0, 9, "expired_or_deleted")
    assert row.detail.startswith("below; the tier's metadata cannot be read: ")
