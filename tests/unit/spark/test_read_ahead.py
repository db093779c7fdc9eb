"""Reading ahead in a distant store: the same bytes and errors, in order, and nothing left behind."""

import threading
import time
from collections.abc import Iterator

import pytest

from firnline.base.units import KIB
from firnline.spark.access import read_ahead
from firnline.spark.access.read_ahead import Range, ReadAhead, reading_ahead
from firnline.spark.options.parse import parse_options
from firnline.spark.planning.plan import Task
from firnline.spark.read import read_tasks
from firnline.spark.schema import ReadSettings
from firnline.stores.memory import MemoryStore
from firnline.stores.port import ObjectMissing, RemoteStorageError
from tests.spark.written_tier import WrittenPartition, batches, plan_scan

BODY = bytes(range(256)) * 40


class Distant(MemoryStore):
    """A store that notes its requests, and may hold them up or fail them."""

    is_distant = True
    calls_at_once = 6

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int, int | None]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.fails_at: int | None = None
        self.takes_s = 0.0
        self.held_keys = ("a", "b")

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        self.asked.append((key, position, size_bytes))
        if key in self.held_keys:
            self.may_answer.wait(10)
        time.sleep(self.takes_s)
        if position == self.fails_at:
            raise RemoteStorageError("as the test wants it")
        return super().get(key, position, size_bytes)


@pytest.fixture
def store() -> Distant:
    made = Distant()
    for key in ("a", "b"):
        made.put(key, (BODY,), size_bytes=len(BODY))
    return made


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    yield
    assert [t for t in threading.enumerate() if t.name == "firnline-read-ahead"] == []


def let_all_ask() -> None:
    """Wait for the threads: the last ones may not have begun when the first bytes are there."""
    for thread in threading.enumerate():
        if thread.name == "firnline-read-ahead":
            thread.join(10)


WHOLE = [Range("a", 0, len(BODY)), Range("b", 100, 5000)]


def test_the_bytes_are_those_of_the_store_wherever_windows_lie(store: Distant) -> None:
    with reading_ahead(store, WHOLE, 1000) as source:
        for position, size in ((0, 1000), (900, 1000), (1900, 4321), (6000, 1), (6000, 3000)):
            assert source.get("a", position, size) == BODY[position : position + size]
        assert source.get("b", 100, 4900) == BODY[100:5000]
    assert sum(size or 0 for key, _, size in store.asked if key == "a") <= len(BODY), "asked twice"


def test_the_next_blocks_are_on_their_way_while_one_is_decoded(store: Distant) -> None:
    with reading_ahead(store, WHOLE, 1000) as source:
        source.get("a", 0, 1000)
        source.get("a", 900, 1000)
        let_all_ask()
        assert ("a", 7000, 1000) in store.asked


def test_blocks_beyond_a_range_are_those_of_the_next_one(store: Distant) -> None:
    with reading_ahead(store, [Range("a", 0, 500), Range("b", 100, 600)], 1000) as source:
        source.get("a", 0, 500)
        let_all_ask()
        assert ("b", 100, 500) in store.asked
        assert source.get("b", 100, 500) == BODY[100:600]
    assert len(store.asked) == 2


def test_what_is_ahead_is_bounded(store: Distant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", 3000)
    with reading_ahead(store, WHOLE, 1000) as source:
        source.get("a", 0, 1000)
        let_all_ask()
        assert len(store.asked) == 1 + 3
        store.asked.clear()
        source.get("a", 1000, 1000)
        let_all_ask()
        assert len(store.asked) == 1


def test_one_block_is_ahead_however_large_windows_are(
    store: Distant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", 100)
    with reading_ahead(store, WHOLE, 1000) as source:
        source.get("a", 0, 1000)
        let_all_ask()
        assert len(store.asked) == 2


def test_a_failure_is_raised_where_its_bytes_are_needed(store: Distant) -> None:
    store.fails_at = 2000
    with reading_ahead(store, WHOLE, 1000) as source:
        assert source.get("a", 0, 1000) == BODY[:1000]
        assert source.get("a", 1000, 1000) == BODY[1000:2000]
        with pytest.raises(RemoteStorageError, match="as the test wants it"):
            source.get("a", 2000, 1000)


def test_a_short_object_is_shown_as_short(store: Distant) -> None:
    with reading_ahead(store, [Range("a", 0, len(BODY) + 5000)], 1000) as source:
        assert source.get("a", 10_000, 1000) == BODY[10_000:]


def test_nothing_follows_a_part_that_is_short(
    store: Distant, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = store.get

    def short(key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        return whole(key, position, 10 if position == 1500 else size_bytes)

    monkeypatch.setattr(store, "get", short)
    with reading_ahead(store, WHOLE, 1000) as source:
        assert source.get("a", 500, 2500) == BODY[500:1510]


def test_bytes_before_what_was_dropped_come_from_the_store(store: Distant) -> None:
    with reading_ahead(store, WHOLE, 1000) as source:
        source.get("a", 5000, 1000)
        assert source.get("a", 0, 1000) == BODY[:1000]
        assert source.get("b", 100, 10) == BODY[100:110]
        with pytest.raises(ObjectMissing):
            source.get("c", 0, 10)


def test_a_range_that_is_left_early_costs_only_what_was_ahead(store: Distant) -> None:
    with reading_ahead(store, [Range("a", 0, len(BODY)), Range("b", 0, 10)], 100) as source:
        source.get("a", 0, 100)
        store.takes_s = 0.05  # what is dropped is still on its way
        source.get("a", 100, 100)
        assert source.get("b", 0, 10) == BODY[:10]
    assert len([key for key, _, _ in store.asked if key == "a"]) <= 2 + store.calls_at_once


def test_what_was_dropped_counts_until_it_has_come(store: Distant) -> None:
    ranges = [Range("a", 0, len(BODY)), Range("b", 0, len(BODY))]
    with reading_ahead(store, ranges, 100) as source:
        source.get("a", 0, 100)
        source.get("a", 0, 700)
        let_all_ask()
        store.held_keys = ("a",)
        store.may_answer.clear()
        source.get("a", 600, 200)  # asks for one more of these, which hangs
        source.get("b", 0, 100)
        store.may_answer.set()
        let_all_ask()
        asked = len([key for key, _, _ in store.asked if key == "b"])
        assert asked == 1 + store.calls_at_once - 1


def test_a_near_store_is_read_without_threads(store: Distant) -> None:
    store.is_distant = False
    with reading_ahead(store, WHOLE, 1000) as source:
        assert source is store


def test_an_abandoned_read_waits_for_its_requests_but_not_for_a_store_that_hangs(
    store: Distant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "CLOSE_S", 0.2)
    ahead = ReadAhead(store, WHOLE, 1000)
    ahead.get("a", 0, 1000)
    store.may_answer.clear()
    ahead.get("a", 1000, 100)
    began = time.monotonic()
    ahead.close()
    assert time.monotonic() - began < 8
    store.may_answer.set()
    for thread in threading.enumerate():
        if thread.name == "firnline-read-ahead":
            thread.join(10)


def tier(store: Distant) -> None:
    """Two segments with an offset index, in batches of some 400 bytes."""
    written = WrittenPartition(store, "t", 0)
    written.segment(batches(0, 500))
    written.segment(batches(500, 900))
    written.publish()


def plan(store: Distant, **options: str) -> list[Task]:
    return plan_scan(store, parse_options({"tier.uri": "/m", "subscribe": "t", **options}))


HOW = ReadSettings(("offset",), window_bytes=KIB)


def test_tasks_are_read_ahead_and_rows_are_the_same() -> None:
    store = Distant()
    tier(store)
    tasks = plan(store, splitBytes="2k")
    assert len(tasks) > 4
    store.is_distant = False
    expected = [b["offset"].to_pylist() for b in read_tasks(store, tasks, HOW)]
    near = len(store.asked)
    store.is_distant, store.asked = True, []
    assert [b["offset"].to_pylist() for b in read_tasks(store, tasks, HOW)] == expected
    assert [o for some in expected for o in some] == list(range(900))
    assert len(store.asked) <= near


def test_an_iterator_that_is_abandoned_leaves_no_thread() -> None:
    store = Distant()
    tier(store)
    store.takes_s = 0.02
    rows = read_tasks(store, plan(store), HOW)
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert [t for t in threading.enumerate() if t.name == "firnline-read-ahead"] == []
