"""Which offsets a micro-batch takes: scripts, whose numbers follow from `KafkaMicroBatchStream`."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.base.errors import ConfigError
from firnline.spark.options.triggers import Triggers, parse_triggers
from firnline.spark.streaming.admission import (
    PartitionEnds,
    begin_after,
    is_too_little,
    limited,
)
from firnline.spark.streaming.offsets import Key, StreamOffsets

ID, OTHER_ID = bytes(16), bytes([1]) * 16


def keyed(*offsets: int) -> dict[Key, int]:
    return {("t", partition): offset for partition, offset in enumerate(offsets)}


def no_bytes(key: Key, begin: int, end: int, size_bytes: int) -> int:
    raise AssertionError("nobody asked for a limit in bytes")


def there(partition: int, start: int, end: int, topic_id: bytes = ID, **more: int) -> PartitionEnds:
    return PartitionEnds("t", topic_id, partition, start, end, more.get("log_end", end))


@pytest.mark.parametrize(
    ("most", "begins", "ends", "expected"),
    [
        (None, (0, 0), (900, 100), (900, 100)),
        (100, (0, 0), (900, 100), (90, 10)),
        (100, (0, 0), (100_000, 1), (99, 1)),  # a small one does not starve
        (1, (0, 0, 0), (9, 9, 9), (1, 1, 1)),  # one each, more than the limit: as there
        (100, (5, 7), (5, 8), (5, 8)),  # a partition without a lag stays where it is
        (100, (10, 10), (40, 40), (40, 40)),  # never beyond the end
        (10, (0, 0, 0), (1, 1, 98), (1, 1, 9)),
        (10, (2**62, 0), (2**62 + 1000, 0), (2**62 + 10, 0)),
    ],
)
def test_a_limit_is_divided_in_proportion_to_the_lags(
    most: int | None, begins: tuple[int, ...], ends: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    found = limited(Triggers(max_offsets=most), keyed(*begins), keyed(*ends), no_bytes)
    assert found == keyed(*expected)


@given(
    most=st.integers(1, 1000),
    lags=st.lists(st.integers(0, 10_000), min_size=1, max_size=8),
)
def test_each_micro_batch_advances_every_lag_and_takes_no_more_than_the_limit(
    most: int, lags: list[int]
) -> None:
    begins, ends = keyed(*[7] * len(lags)), keyed(*[7 + lag for lag in lags])
    found = limited(Triggers(max_offsets=most), begins, ends, no_bytes)
    taken = [found[key] - begins[key] for key in begins]
    assert all((took > 0) == (lag > 0) for took, lag in zip(taken, lags, strict=True))
    assert all(took <= lag for took, lag in zip(taken, lags, strict=True))
    assert sum(taken) <= most + sum(1 for lag in lags if lag)


def test_a_limit_in_bytes_is_divided_too_and_always_takes_an_offset() -> None:
    asked = []

    def end_after(key: Key, begin: int, end: int, size_bytes: int) -> int:
        asked.append((key[1], begin, end, size_bytes))
        return begin + size_bytes // 100

    triggers = Triggers(max_bytes=1000)
    found = limited(triggers, keyed(0, 50), keyed(900, 150), end_after)
    assert asked == [(0, 0, 900, 900), (1, 50, 150, 100)]
    assert found == keyed(9, 51)
    assert limited(Triggers(max_bytes=1), keyed(0), keyed(9), end_after) == keyed(1)
    limited(Triggers(max_bytes=1000, max_offsets=4), keyed(0), keyed(900), end_after)
    assert asked[-1] == (0, 0, 4, 1000)


@pytest.mark.parametrize(
    ("lag", "waited_ms", "waits"),
    [
        (99, 0, True), (100, 0, False), (99, 4999, True), (99, 5000, False), (0, 1, True),
        (5, None, False),  # the first micro-batch since the query started waits for nothing
    ],
)  # fmt: skip
def test_few_offsets_wait_but_not_longer_than_the_delay(
    lag: int, waited_ms: int | None, waits: bool
) -> None:
    triggers = Triggers(min_offsets=100, max_delay_ms=5000)
    assert is_too_little(triggers, keyed(3), keyed(3 + lag), waited_ms=waited_ms) == waits
    assert not is_too_little(Triggers(), keyed(3), keyed(3 + lag), waited_ms=waited_ms)


def test_a_stream_goes_on_where_the_micro_batch_before_ended() -> None:
    before = StreamOffsets(keyed(10, 20), {"t": ID})
    found = begin_after(before, [there(0, 0, 15), there(1, 0, 20), there(2, 0, 5)])
    assert found.offsets == keyed(10, 20, 0)
    assert found.fresh == {("t", 2)}
    assert found.losses == []


@pytest.mark.parametrize(
    ("now", "why", "offsets"),
    [
        ([there(0, 0, 15)], r"a partition of the stream is gone.*partition=1 read=20", keyed(10)),
        (
            [there(0, 0, 15), there(1, 0, 20), there(2, 3, 9)],
            r"a new partition does not begin at offset 0.*partition=2.*log_start=3",
            keyed(10, 20, 3),
        ),
        (
            [there(0, 0, 15), there(1, 0, 18)],
            r"the log ends below what the stream has read.*read=20.*end=18",
            keyed(10, 18),
        ),
        (
            [there(0, 4, 15, OTHER_ID), there(1, 0, 20, OTHER_ID)],
            r"the topic of the stream was deleted; another one has its name.*topic=t",
            keyed(4, 0),
        ),
        ([there(0, 4, 15, OTHER_ID)], r"another one has its name", keyed(4)),
    ],
)
def test_what_cannot_be_read_any_more_is_a_loss_and_the_rest_has_a_place(
    now: list[PartitionEnds], why: str, offsets: dict[Key, int]
) -> None:
    found = begin_after(StreamOffsets(keyed(10, 20), {"t": ID}), now)
    [loss] = found.losses
    assert re.search(why, str(loss.problem))
    assert found.offsets == offsets


def test_records_of_an_open_transaction_are_no_loss() -> None:
    """Fears a stream of committed records that fails while a transaction is open."""
    before = StreamOffsets(keyed(10), {"t": ID})
    found = begin_after(before, [there(0, 0, 8, log_end=12)])
    assert (found.losses, found.offsets) == ([], keyed(10))


def test_offsets_without_ids_are_of_the_topic_that_is_there() -> None:
    found = begin_after(StreamOffsets(keyed(10)), [there(0, 0, 15, OTHER_ID)])
    assert (found.losses, found.offsets, found.fresh) == ([], keyed(10), frozenset())


def test_limits_are_read() -> None:
    found = parse_triggers(
        {"MAXOFFSETSPERTRIGGER": " 9 ", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "2m",
         "maxBytesPerTrigger": "64m"}
    )  # fmt: skip
    assert found == Triggers(9, 64 << 20, 5, 120_000)
    assert parse_triggers({}) == Triggers(None, None, None, 900_000)
    assert parse_triggers({"maxTriggerDelay": "1500"}).max_delay_ms == 1500


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is higher than"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be a whole number from 1"),
        ({"maxOffsetsPerTrigger": "x"}, "maxOffsetsPerTrigger must be a whole number"),
        ({"minOffsetsPerTrigger": "-4"}, "minOffsetsPerTrigger must be"),
        ({"maxBytesPerTrigger": "0m"}, "maxBytesPerTrigger must be a positive number"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a duration such as 15m"),
        ({"maxTriggerDelay": "5 weeks"}, "maxTriggerDelay must be a duration"),
    ],
)
def test_a_limit_that_says_nothing_is_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_triggers(options)
