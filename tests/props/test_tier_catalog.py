"""Leaders write catalogs in every order; a reader with any listing sees a cut, never a mixture.

A leader takes over what an earlier one has written, while that one still writes, deletes, and has puts
and deletes under way that take effect later. Each call of the store is one step.
"""

from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.stores.memory import MemoryStore
from firnline.stores.port import ObjectMissing, RemoteStorageError
from firnline.tiered.catalog import writer as writer_module
from firnline.tiered.catalog.format import decode_head
from firnline.tiered.catalog.guard import compare
from firnline.tiered.catalog.writer import CatalogState, CatalogWriter
from firnline.tiered.objects.catalog_changes import (
    PredecessorGone,
    begin_catalog,
    read_part_once,
    write_version,
)
from firnline.tiered.objects.catalog_reader import list_heads, read_catalog
from firnline.tiered.objects.layout import HeadName, head_key
from firnline.tiered.spi import Everything, RemoteSegment, SegmentState

TOPIC = bytes(15) + b"\x07"


def segment(number: int) -> RemoteSegment:
    return RemoteSegment(
        topic_id=TOPIC,
        topic="t",
        partition=0,
        segment_id=number.to_bytes(16, "big"),
        base_offset=number * 10,
        end_offset=number * 10 + 9,
        size_bytes=1,
        max_timestamp_ms=1,
        epochs=((0, number * 10),),
        broker_id=1,
        event_timestamp_ms=1,
        state=SegmentState.COPY_FINISHED,
    )


class _Killed(BaseException):
    """The process is gone."""


class Slow:
    """A store for one leader: each call waits until the test lets it through, fails it, or delays it."""

    calls_at_once = 1
    is_distant = has_uploads = False

    def __init__(self, store: MemoryStore, late: list[Callable[[], object]]) -> None:
        self._store, self._late = store, late
        self.asks: SimpleQueue[str] = SimpleQueue()
        self.fates: SimpleQueue[str] = SimpleQueue()

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name)

    def _call(self, name: str, *args: Any, **more: Any) -> Any:
        self.asks.put(name)
        fate = self.fates.get()
        if fate == "kill":
            raise _Killed
        call = partial(getattr(self._store, name), *args, **more)
        if fate == "late" and name != "get" and name != "list_prefix":
            self._late.append(call)
        if fate in ("fail", "late"):
            raise RemoteStorageError("no answer")
        return call()


class Leader:
    """One leadership: knows its segments; its store calls are made one by one, so others come between."""

    def __init__(
        self,
        epoch: int,
        store: MemoryStore,
        cuts: dict[HeadName, tuple[int, ...]],
        late: list[Callable[[], object]],
    ) -> None:
        self.epoch, self.cuts = epoch, cuts
        self.slow = Slow(store, late)
        self.writer: CatalogWriter | None = None
        self.numbers: dict[int, None] = {}
        self.dropped: dict[int, None] = {}
        self.log_start = 0
        self.is_killed = False
        self._steps: Generator[None, str, None] | None = None

    def step(self, fate: str, now_ms: int) -> None:
        """Begin a version, or let one call of the store have its fate."""
        if self.is_killed:
            return
        if self._steps is None:
            if fate == "go":
                self._steps = self._stepping(partial(self._write, now_ms))
                if next(self._steps, "done") == "done":
                    self._steps = None
            return
        try:
            self._steps.send(fate)
        except StopIteration:
            self._steps = None

    @property
    def is_writing(self) -> bool:
        return self._steps is not None

    def finish(self) -> None:
        self.is_killed = False
        while self._steps is not None:
            self.step("kill", 0)
            self.is_killed = False

    def _stepping(self, work: Callable[[], None]) -> Generator[None, str, None]:
        asks = self.slow.asks

        failures: list[BaseException] = []

        def run() -> None:
            try:
                with suppress(RemoteStorageError, PredecessorGone, _Killed):
                    work()
            except BaseException as failure:  # noqa: BLE001 - it is raised below
                failures.append(failure)
            asks.put("")

        thread = Thread(target=run)
        thread.start()
        while asks.get():
            fate = yield
            self.is_killed |= fate == "kill"
            self.slow.fates.put(fate)
        thread.join()
        if failures:
            raise failures[0]

    def _write(self, now_ms: int) -> None:
        """As `CatalogKeeper` does it."""
        store: Any = self.slow
        if self.writer is None:
            before = begin_catalog(store, topic="t", topic_id=TOPIC, partition=0, now_ms=now_ms)
            finished = {s.segment_id: s for s in map(segment, self.numbers)}
            everything = Everything(
                tuple(finished.values()), [n.to_bytes(16, "big") for n in self.dropped]
            )
            compared = compare(
                before,
                (),
                everything,
                log_start_offset=self.log_start,
                gone=(),
                read=partial(read_part_once, store, {}),
            )
            if compared.missing:
                return  # the metadata that this leader knows is behind: it looks again
            assert compared.taken is not None
            self.writer = CatalogWriter(
                topic_id=TOPIC,
                partition=0,
                leader_epoch=self.epoch,
                broker_id=self.epoch,
                listed=before.listed,
            )
            self.writer.take(compared.taken)
        finished = {s.segment_id: s for s in map(segment, self.numbers)}
        state = CatalogState(
            topic="t",
            log_start_offset=self.log_start,
            log_end_offset=10**6,
            epochs=((0, 0),),
            segments=finished,
            metadata_partition=0,
            metadata_offset=0,
        )
        by = self.writer
        prepare = by.prepare

        def noting(*args: Any) -> Any:
            update = prepare(*args)
            live = [n for n in finished if segment_end(n) >= state.log_start_offset]
            self.cuts[update.name] = tuple(sorted(int.from_bytes(n, "big") for n in live))
            return update

        by.prepare = noting  # type: ignore[method-assign]
        try:
            update, problem, deleted = write_version(store, by, state, now_ms)
        finally:
            by.prepare = prepare  # type: ignore[method-assign]
        if problem is None:
            by.committed(update, deleted)
        else:
            by.failed(update)
            if isinstance(problem, PredecessorGone):
                by.distrust_parts()


def segment_end(segment_id: bytes) -> int:
    return int.from_bytes(segment_id, "big") * 10 + 9


WHATS = ["add", "add", "bulk", "drop", "drop many", "start", "land", "list", "race", "race"]
# "all" ends a version, "some" stops anywhere within one.
FATES = ["all"] * 6 + ["some"] * 3 + ["fail", "late", "late", "kill"]
MOVES = st.lists(
    st.tuples(
        st.integers(0, 2),  # which leader
        st.one_of(st.sampled_from(WHATS), st.sampled_from(FATES)),
        st.integers(0, 12),
    ),
    min_size=10,
    max_size=80,
)


def small() -> Any:
    """Trees of a few rows have all levels, and are written again after a few deletions."""
    return mock.patch.multiple(
        writer_module, TAIL_ROWS=3, FAN_OUT=2, BULK_ROWS=6, REMOVED_MAX=4, HEADS_KEPT=3
    )


@settings(max_examples=50, deadline=None)
@given(moves=MOVES, late=st.booleans())
def test_any_order_of_writers_gives_a_cut(moves: list[tuple[int, str, int]], late: bool) -> None:
    """Whatever is read is exactly one cut that some leader wrote, and the highest one listed.

    A part is missing only to a reader with a late listing, or while nobody vouches for a leader's first head.
    """
    store = MemoryStore(is_late=late)
    cuts: dict[HeadName, tuple[int, ...]] = {}
    under_way: list[Callable[[], object]] = []
    leaders = [Leader(epoch, store, cuts, under_way) for epoch in (5, 6, 7)]
    try:
        with small():
            _play(store, leaders, under_way, moves, Checks(store, cuts))
    finally:
        for leader in leaders:
            leader.finish()


def _play(
    store: MemoryStore,
    leaders: list[Leader],
    under_way: list[Callable[[], object]],
    moves: list[tuple[int, str, int]],
    check: Callable[[], None],
) -> None:
    next_number = 0
    for now_ms, (who, what, number) in enumerate(moves):
        leader = leaders[who]
        if what in ("add", "bulk"):
            count = number if what == "bulk" else 1
            for each in leaders:
                each.numbers |= dict.fromkeys(range(next_number, next_number + count))
            next_number += count
        elif what in ("drop", "drop many") and leader.numbers:
            first = number % len(leader.numbers)
            gone = list(leader.numbers)[first : first + (9 if "many" in what else 1)]
            for each in leaders:
                for one in gone:
                    each.numbers.pop(one, None)
                each.dropped |= dict.fromkeys(gone)
        elif what == "start":
            leader.log_start = max(leader.log_start, (next_number - number) * 10)
        elif what == "land" and under_way:
            under_way.pop(number % len(under_way))()
        elif what == "list":
            store.show()
        elif what == "race":
            older, newer = leaders[min(who, 1)], leaders[min(who, 1) + 1]
            next_number = _race(leaders, older, newer, number, next_number, now_ms, check)
        elif what in ("all", "some"):
            for _ in range(100 if what == "all" else number):
                leader.step("go", now_ms)
                check()
                if what == "all" and not leader.is_writing:
                    break
        elif what in FATES:
            leader.step(what, now_ms)
        check()


def _race(
    leaders: list[Leader],
    older: Leader,
    newer: Leader,
    calls: int,
    next_number: int,
    now_ms: int,
    check: Callable[[], None],
) -> int:
    """A leader takes over; after so many of its calls the older one writes and deletes; then it goes on.

    Returns the number of the next segment.
    """

    def grow(count: int) -> None:
        nonlocal next_number
        for each in leaders:
            each.numbers |= dict.fromkeys(range(next_number, next_number + count))
        next_number += count

    def write(leader: Leader, most: int = 100) -> None:
        for _ in range(most):
            leader.step("go", now_ms)
            check()
            if not leader.is_writing:
                return

    grow(9)
    write(older)
    write(newer, calls)
    for _ in range(6):
        for one in list(older.numbers)[-6:-1]:
            for each in leaders:
                each.numbers.pop(one, None)
                each.dropped[one] = None
        grow(7)
        write(older)
    for _ in range(3):
        write(newer)
        grow(1)
    return next_number


class Checks:
    """Reads the catalog where the store or its listing is another one than at the last check."""

    def __init__(self, store: MemoryStore, cuts: dict[HeadName, tuple[int, ...]]) -> None:
        self._store, self._cuts = store, cuts
        self._last: tuple[dict[str, bytes], dict[str, int]] = {}, {}

    def __call__(self) -> None:
        now = self._store.objects, self._store.listed
        if now != self._last:
            self._last = now[0].copy(), now[1].copy()
            _check(self._store, self._cuts)


def _check(store: MemoryStore, cuts: dict[HeadName, tuple[int, ...]]) -> None:
    try:
        catalog = read_catalog(store, TOPIC, 0)
    except ObjectMissing:
        assert store.is_late or _follows(store), "a part of the newest head is gone"
        return
    heads = [key for key in store.listed if "/heads/" in key]
    if catalog is None:
        assert not heads
        return
    read = tuple(int.from_bytes(s.segment_id, "big") for s in catalog.segments)
    assert read == cuts[catalog.order]
    assert f"/{catalog.leader_epoch:010d}-{catalog.sequence:019d}." in max(heads)


def _follows(store: MemoryStore) -> bool:
    """Whether the newest head takes over parts of one that is gone, as its leader finds out."""
    newest = list_heads(store.objects)[0]
    key = head_key(TOPIC, 0, newest)
    head = decode_head(store.objects[key], key)
    return head.follows is not None and head_key(TOPIC, 0, head.follows) not in store.objects
