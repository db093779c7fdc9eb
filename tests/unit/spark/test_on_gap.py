"""What a batch read does about gaps: `onGap` beside `failOnDataLoss`."""

import json
import logging
from itertools import product
from typing import Any

import pytest

from firnline.base.errors import ConfigError
from firnline.spark.gaps.causes import CAUSES, GAP_ACTIONS, NO_RECORDS, LeftOut, Missing, is_refused
from firnline.spark.gaps.explain import LINES_MAX, report
from firnline.spark.gaps.options import parse_gaps_options
from firnline.spark.options.parse import parse_options
from firnline.spark.schema import DataLoss
from firnline.stores.memory import MemoryStore
from tests.spark.reading_gaps import GIVEN, records
from tests.spark.written_tier import WrittenPartition, batch, batches, compacted
from tests.unit.spark.test_gaps import COMMITTED, at, marker

LEAVE_OUT = {"failOnDataLoss": "false"}


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    caplog.clear()
    return found


@pytest.fixture
def expired() -> MemoryStore:
    """Offsets [0, 100), of which those below 40 are below the log start."""
    store = MemoryStore()
    partition = WrittenPartition(store, "t")
    partition.segment(batches(0, 100))
    partition.publish(log_start=40)
    return store


@pytest.fixture
def holed() -> MemoryStore:
    """Offsets [0, 200) without [100, 150), which are in no segment."""
    store = MemoryStore()
    partition = WrittenPartition(store, "t")
    partition.segment(batches(0, 100))
    partition.segment(batches(150, 200))
    partition.publish()
    return store


def test_which_causes_fail_a_read() -> None:
    """The table of decision 0046; without onGap it is what failOnDataLoss alone has always done."""
    lost = {"truncated", "topic_deleted", "lost"}
    unsure = {"compacted_or_lost"}
    never = {"control_marker", "aborted"}
    is_always_there = {"compacted", *unsure, *never}
    for on_gap, fails in product((None, *GAP_ACTIONS), (True, False)):
        refused = {c for c in CAUSES if is_refused(on_gap, fail_on_data_loss=fails, cause=c)}
        if on_gap == "fail":
            assert refused == set(CAUSES) - never
        elif not fails:
            assert refused == set()
        elif on_gap is None:
            assert refused == set(CAUSES) - is_always_there
        else:
            assert refused == lost | unsure
    assert never == set(NO_RECORDS)


def test_what_expired_fails_by_default_and_is_explained_if_you_ask_for_that(
    expired: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    start, rest = at("starting", 10), list(range(40, 100))
    with pytest.raises(DataLoss, match=r"below the log start \[.*end=100 remedy=.*\]$"):
        records(expired, **start)
    assert records(expired, **start, **LEAVE_OUT) == rest
    [line] = lines(caplog)
    assert "an offset is below the log start" in line
    assert records(expired, **start, onGap="explain") == rest
    assert lines(caplog) == [
        "offsets are left out topic=t partition=0 cause=expired_or_deleted from_offset=10 to_offset=40"
        ' offsets=30 detail="the log start is 40; retention.ms, retention.bytes and DeleteRecords move it"'
    ]
    assert records(expired, **start, onGap="skip") == rest
    assert lines(caplog) == []
    with pytest.raises(DataLoss, match=r"cause=expired_or_deleted onGap=fail"):
        records(expired, **start, onGap="fail")


def test_what_is_not_in_the_tier_yet_is_no_loss(expired: MemoryStore) -> None:
    beyond = at("ending", 120)
    with pytest.raises(DataLoss, match="not in the tier, or not yet"):
        records(expired, **beyond)
    assert records(expired, **beyond, onGap="explain") == list(range(40, 100))
    with pytest.raises(DataLoss, match="cause=not_in_tier onGap=fail"):
        records(expired, **beyond, onGap="fail")


@pytest.mark.parametrize("on_gap", ["explain", "skip"])
def test_a_loss_fails_whatever_is_done_about_other_gaps_and_is_never_silent(
    holed: MemoryStore, caplog: pytest.LogCaptureFixture, on_gap: str
) -> None:
    with pytest.raises(DataLoss, match=r"no segment.*from_offset=100 to_offset=150"):
        records(holed, onGap=on_gap)
    found = records(holed, onGap=on_gap, **LEAVE_OUT)
    assert found == [*range(100), *range(150, 200)]
    [line] = lines(caplog)
    assert "cause=lost from_offset=100 to_offset=150 offsets=50" in line


def test_markers_and_aborted_records_are_no_gap_of_a_reader_that_fails_for_each() -> None:
    partition = WrittenPartition(MemoryStore(), "t")
    kinds: dict[str, Any] = {"is_transactional": True, "producer_id": 7}
    partition.segment([batch(0, 5, **kinds), marker(5, 7), batch(6, 4)], aborted=[(7, 0, 5)])
    partition.publish()
    assert records(partition.store, onGap="fail", **COMMITTED) == list(range(6, 10))
    assert records(partition.store, onGap="fail") == [*range(5), *range(6, 10)]


@pytest.mark.parametrize("more", [{}, {"decoder": "python"}, {"minPartitions": "4"}])
def test_compaction_fails_only_a_reader_that_wants_every_record(more: dict[str, str]) -> None:
    partition = WrittenPartition(MemoryStore(), "t")
    partition.segment([batch(0, 5), compacted(5, [6], 8), batch(12, 4)], offsets=(0, 19))
    partition.publish()
    expected = [0, 1, 2, 3, 4, 6, 12, 13, 14, 15]
    for on_gap in ({}, {"onGap": "explain"}, {"onGap": "skip"}):
        assert records(partition.store, **on_gap, **more) == expected
    with pytest.raises(DataLoss, match=r"from_offset=5 to_offset=6 cause=compacted.*onGap=fail"):
        records(partition.store, onGap="fail", **more)
    with pytest.raises(DataLoss, match=r"from_offset=8 to_offset=1[12] cause=compacted"):
        records(partition.store, onGap="fail", **at("starting", 8), **more)
    with pytest.raises(DataLoss, match=r"from_offset=16 to_offset=(18|20) cause=compacted"):
        records(partition.store, onGap="fail", **at("starting", 12), **more)
    with pytest.raises(DataLoss, match=r"from_offset=9 to_offset=1[01] cause=compacted"):
        records(partition.store, onGap="fail", **at("starting", 9), **at("ending", 11), **more)
    inside = at("starting", 12) | at("ending", 16)
    assert records(partition.store, onGap="fail", **inside, **more) == [12, 13, 14, 15]


def test_a_hole_that_no_catalog_explains_is_not_taken_for_compaction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of an old segment nobody knows whether offsets may be missing. One line, however many there are."""
    partition = WrittenPartition(MemoryStore(), "t")
    partition.segment([batch(at_, 1) for at_ in range(0, 200, 2)], is_old=True)
    partition.publish()
    expected = list(range(0, 200, 2))
    cut_small = {"splitBytes": "100", "windowBytes": "500"}
    assert records(partition.store, **cut_small) == expected
    caplog.clear()
    for on_gap in GAP_ACTIONS:
        with pytest.raises(DataLoss, match=r"from_offset=1 to_offset=2 cause=compacted_or_lost"):
            records(partition.store, onGap=on_gap, **cut_small)
    for on_gap in ("explain", "skip"):
        assert records(partition.store, onGap=on_gap, **cut_small, **LEAVE_OUT) == expected
        [line] = lines(caplog)
        assert "cause=compacted_or_lost from_offset=1 offsets=99" in line


def test_a_read_of_many_partitions_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = parse_options({**GIVEN, "onGap": "explain"})
    gone = (Missing(0, 5, "expired_or_deleted", "why"), Missing(9, 10, "expired_or_deleted", "why"))
    report(options, [LeftOut("t", bytes(16), p, gone) for p in range(LINES_MAX + 20)])
    found = lines(caplog)
    assert len(found) == LINES_MAX + 1
    assert "from_offset=0 to_offset=10 offsets=6 detail=why" in found[0]
    assert found[-1].startswith("more gaps count=20")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"onGap": "maybe"}, "onGap must be one of explain, fail, skip"),
        ({"onGap": "fail", "failOnDataLoss": "false"}, "onGap=fail fails for each gap"),
        ({"onGaps": "fail"}, "did you mean onGap"),
    ],
)
def test_impossible_choices_are_refused_by_name(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_options({**GIVEN, **given})


def test_a_stream_takes_the_option_too() -> None:
    for on_gap in GAP_ACTIONS:
        assert parse_options({**GIVEN, "onGap": on_gap}, is_stream=True).on_gap == on_gap
    with pytest.raises(ConfigError, match="onGap=fail fails for each gap"):
        parse_options({**GIVEN, "onGap": "fail", **LEAVE_OUT}, is_stream=True)


@pytest.mark.parametrize(
    "given",
    [
        {"onGap": "explain"}, {"failOnDataLoss": "false"}, {"includeHeaders": "true"},
        {"PUSHDOWN": "true"}, {"decoder": "python"}, {"maxOffsetsPerTrigger": "1"},
        {"log.dirs": "/x"}, {"asOfOffset": "1"},
    ],
)  # fmt: skip
def test_the_table_refuses_what_it_does_not_use(given: dict[str, str]) -> None:
    (name,) = given
    with pytest.raises(ConfigError, match=name if name.islower() else "(?i)" + name):
        parse_gaps_options({**GIVEN, **given})


def test_the_table_takes_what_says_which_offsets_are_read() -> None:
    cut = {"version": 1, "isolation": "read_committed", "topics": {}}
    for given in (
        {"assign": '{"t": [0]}'}, {"subscribePattern": "t", "startingTimestamp": "1"},
        {"asOf": json.dumps(cut)},
        {"subscribe": "t", "kafka.bootstrap.servers": "b:1", "readFrom": "broker"},
    ):  # fmt: skip
        options = parse_gaps_options({"table": "gaps", "tier.uri": "/m", **given})
        assert options.reports_gaps
        assert options.on_gap is None
