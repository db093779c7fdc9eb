"""What expires, decided from what changed and in steps, is what a look at every segment says."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.base.background import run_to_completion
from firnline.base.ids import TopicIdPartition
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.tiered import expiry, retained
from firnline.tiered.expiry import Decision, decide
from firnline.tiered.lineage import Lineage, segment_epochs
from firnline.tiered.metadata import cache as cache_module
from firnline.tiered.metadata.cache import MetadataCache
from firnline.tiered.retained import Retained
from firnline.tiered.spi import Look, RemoteSegment, SegmentState, SegmentUpdate
from tests.tier_decisions import decide_at_once
from tests.worlds.tier import TOPIC_ID, topic_config

WHERE = TopicIdPartition(TOPIC_ID, 0)
NOW = 1_000_000
STARTED, FINISHED, DELETING, DELETED = SegmentState


class Log:
    """A leader's log, as far as expiration asks. Of a segment of 10 offsets 100 bytes."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.log_end_offset = self.high_watermark = 30
        self.history: Epochs = ((0, 0),)
        self.config = topic_config()
        self.epochs = SimpleNamespace(entries=lambda: self.history)
        self.local_start = 0

    @property
    def size_bytes(self) -> int:
        return 10 * (self.log_end_offset - self.local_start)

    @property
    def first_base_offset(self) -> int:
        return self.local_start

    def bytes_beginning_at(self, offset: int) -> int:
        bases = [*range(self.local_start, self.log_end_offset - 10, 10)]
        bases.append(bases[-1] + 10 if bases else self.local_start)  # of the active one
        above = [base for base in bases if base >= offset]
        return 10 * (self.log_end_offset - above[0]) if above else 0

    def closed_segments(self) -> list[Any]:
        return [
            SimpleNamespace(
                base_offset=base,
                end_offset=base + 9,
                size_bytes=100,
                largest_time_ms=lambda base=base: NOW - 1000 + base,
            )
            for base in range(self.local_start, self.log_end_offset - 10, 10)
        ]

    def begin_epoch(self) -> None:
        self.history = (*self.history, (self.history[-1][0] + 1, self.log_end_offset))

    def raise_start(self, offset: int) -> None:
        """As `Log.advance_log_start` does it: the epoch it lies in begins there."""
        self.log_start_offset = max(self.log_start_offset, min(offset, self.log_end_offset))
        start = self.log_start_offset
        self.local_start = max(self.local_start, start)
        before = [epoch for epoch, first in self.history if first <= start]
        after = [entry for entry in self.history if entry[1] > start]
        self.history = ((before[-1], start), *after) if before else self.history


class World:
    """One partition whose tier, log and configuration change; and what is decided on it."""

    def __init__(self) -> None:
        self.log, self.cache = Log(), MetadataCache()
        self.ids: list[bytes] = []
        self.copies: dict[bytes, None] = {}
        self.dangling: dict[bytes, None] = {}
        self.lost: Epochs = (
            (0, 0),
            (1, 7),
            (3, 25),
        )  # of a history that an unclean election threw away
        metadata: Any = self
        log: Any = self.log
        self.retained = Retained(metadata, WHERE, log)
        self.covered = -1
        self.full_checks = 0
        self.decided_offset = 0
        self.lacks_some = False

    # what `decide` asks

    def look(self, _where: TopicIdPartition, since: Any) -> Look:
        look = self.cache.look(since)
        self.full_checks += look.everything is not None
        return look

    def unfinished(self) -> list[RemoteSegment]:
        return self.cache.unfinished()

    def copying(self) -> list[RemoteSegment]:
        return [s for s in map(self.cache.get, self.copies) if s is not None]

    def covered_offset(self) -> int:
        return self.covered

    def highest_offset(self) -> int:
        """Above what is covered there may be more, after a segment that was deleted."""
        return max((s.end_offset for s in self.cache.finished()), default=self.covered)

    def deletes_below(self) -> int:
        return min(self.decided_offset, self.log.log_start_offset)

    def serves_all(self) -> Generator[None, None, bool]:
        yield
        return not self.lacks_some

    def is_dangling(self, segment: RemoteSegment) -> bool:
        return segment.segment_id in self.dangling and segment.segment_id not in self.copies

    def age_ms(self, segment: RemoteSegment) -> int:
        return NOW - segment.event_timestamp_ms

    # what happens

    def copy(self, base: int, length: int, history: Epochs, *, is_finished: bool, age: int) -> None:
        end = base + length
        epochs = segment_epochs(history, base, end)
        if not epochs:
            return
        segment_id = len(self.ids).to_bytes(16, "big")
        self.ids.append(segment_id)
        assert self.cache.add(
            RemoteSegment(
                topic_id=TOPIC_ID,
                topic="t",
                partition=0,
                segment_id=segment_id,
                base_offset=base,
                end_offset=end,
                size_bytes=10 * (length + 1),
                max_timestamp_ms=NOW - age,
                epochs=epochs,
                broker_id=1,
                event_timestamp_ms=1,
            )
        )
        if is_finished:
            self.change(segment_id, FINISHED)

    def change(self, segment_id: bytes, state: SegmentState) -> None:
        self.cache.update(SegmentUpdate(TOPIC_ID, "t", 0, segment_id, state, 1, 2, None))

    def append(self, count: int) -> None:
        self.log.log_end_offset += count
        self.log.high_watermark = self.log.log_end_offset

    def copy_next(self, age: int) -> None:
        """As the copier does: behind all that is there."""
        base = max((s.end_offset + 1 for s in self.cache.finished()), default=0)
        if base + 10 <= self.log.log_end_offset:
            self.copy(base, 9, self.log.history, is_finished=True, age=age)
            self.covered = max(self.covered, base + 9)

    def step(self, what: str, number: int) -> None:
        log = self.log
        if what == "append":
            self.append(number)
        elif what == "copy":
            self.copy_next(number)
        elif what in ("overlap", "lose", "start"):
            history = self.lost if what == "lose" else log.history
            finished = what != "start"
            self.copy(number, number % 17, history, is_finished=finished, age=number % 50)
            if what == "start" and number % 2:
                self.copies[self.ids[-1] if self.ids else b""] = None
        elif what == "epoch":
            log.begin_epoch()
        elif what == "delete records":
            log.raise_start(log.log_start_offset + number % 25)
            self.decided_offset = log.log_start_offset
        elif what == "find start":
            log.raise_start(log.log_start_offset + number % 25)
        elif what == "lack":
            self.lacks_some = number % 2 == 1
        elif what == "config":
            times = {
                "retention_ms": number % 7 * 10 or -1,
                "retention_bytes": number % 5 * 150 or -1,
            }
            log.config = topic_config(**times)
        elif what == "read again":
            self.cache, before = MetadataCache(), self.cache.segments()
            for segment in before:
                self.cache.add(segment._replace(state=STARTED))
                for state in (FINISHED, DELETING)[: int(segment.state)]:
                    self.change(segment.segment_id, state)
        elif self.ids:
            segment_id = self.ids[number % len(self.ids)]
            known = self.cache.get(segment_id)
            if what == "copy again":
                if known is not None:
                    length = known.end_offset - known.base_offset
                    self.copy(
                        known.base_offset, length, log.history, is_finished=True, age=number % 50
                    )
            elif what == "dangle":
                self.dangling[segment_id] = None
            elif what == "copying":
                self.copies[segment_id] = None
            elif what == "copied":
                self.copies.pop(segment_id, None)
                self.change(segment_id, FINISHED)
            else:
                self.change(segment_id, DELETING if what == "deleting" else DELETED)

    def at_once(self) -> Decision:
        return decide_at_once(
            self.log,  # type: ignore[arg-type]
            self.cache.segments(),
            covered_offset=self.covered,
            highest_offset=self.highest_offset(),
            now_ms=NOW,
            is_copying=lambda s: s.segment_id in self.copies,
            is_dangling=self.is_dangling,
            deletes_below=self.decided_offset,
            serves_all=not self.lacks_some,
        )

    def steps(self) -> Any:
        return decide(self.log, self.retained, self, now_ms=NOW)  # type: ignore[arg-type]


KINDS = [
    "append",
    "copy",
    "copy",
    "copy",
    "overlap",
    "copy again",
    "lose",
    "start",
    "epoch",
    "delete records",
    "find start",
    "lack",
    "config",
]
MOVE = st.tuples(
    st.sampled_from([*KINDS, "read again", "dangle", "copying", "copied", "deleting", "deleted"]),
    st.integers(1, 90),
    st.booleans(),
)


def _as_tuple(decision: Decision) -> tuple[object, ...]:
    return (tuple(decision.segments), *decision[1:])


@contextmanager
def short_steps() -> Iterator[None]:
    """Three segments are placed in a step, and two judged."""
    with (
        mock.patch.object(retained, "PLACED_IN_STEP", 3),
        mock.patch.object(expiry, "CHECKED_IN_STEP", 2),
    ):
        yield


def of_thirty(oldest_age: int, **limit: int) -> World:
    """Thirty segments of a longer log were copied; each is younger by one than the one before it."""
    world = World()
    world.append(400)
    for number in range(30):
        world.copy_next(oldest_age - number)
    world.log.config = topic_config(**limit)
    return world


@settings(max_examples=400, deadline=None)
@given(moves=st.lists(MOVE, max_size=70), kept=st.sampled_from([1, 5, 4096]))
def test_what_changed_gives_the_decision_that_all_segments_give(
    moves: list[tuple[str, int, bool]], kept: int
) -> None:
    """Whatever happened since the last look: other histories, copies of two leaders, deletions."""
    with short_steps(), mock.patch.object(cache_module, "CHANGES_KEPT", kept):
        world = World()
        for what, number, is_asked in [*moves, ("append", 1, True)]:
            world.step(what, number)
            if is_asked:
                decision = run_to_completion(world.steps())
                assert _as_tuple(decision) == world.at_once()


@settings(max_examples=400, deadline=None)
@given(
    before=st.lists(MOVE, max_size=10),
    during=st.lists(MOVE.filter(lambda move: move[0] != "lack"), max_size=25),
    limit=st.sampled_from([{"retention_ms": 30}, {"retention_bytes": 500}]),
)
def test_what_changes_between_two_steps_has_nothing_expire_that_would_stay(
    before: list[tuple[str, int, bool]],
    during: list[tuple[str, int, bool]],
    limit: dict[str, int],
) -> None:
    """What is decided in the last step is due then, by a look at all of them."""
    with short_steps():
        world = of_thirty(60, **limit)
        for what, number, _ in before:
            world.step(what, number)
        if not before:  # all is known, and the limits are what takes its time
            run_to_completion(world.retained.bring_up_to_date())
        waiting, steps = iter(during), world.steps()
        while (decision := _one_step(steps)) is None:
            for what, number, goes_on in waiting:
                world.step(what, number)
                if goes_on:
                    break
        due = world.at_once()
        marked = [s for s in decision.segments if s.state == FINISHED]
        assert set(marked) <= set(due.segments)
        assert decision.log_start_offset <= due.log_start_offset


@pytest.fixture
def many() -> Iterator[World]:
    """Thirty segments are known, and half of them are due; two are judged in a step."""
    with short_steps():
        world = of_thirty(45, retention_ms=30)
        run_to_completion(world.retained.bring_up_to_date())
        yield world


def _decide_with(world: World, happens: Callable[[], object], after: int = 4) -> Decision:
    """Decide, while something happens after so many steps."""
    steps = world.steps()
    for _ in range(after):
        assert _one_step(steps) is None
    happens()
    while (decision := _one_step(steps)) is None:
        pass
    return decision


def test_a_late_copy_among_those_that_were_checked_has_it_decided_anew(many: World) -> None:
    decision = _decide_with(
        many, lambda: many.copy(25, 12, many.log.history, is_finished=True, age=1)
    )
    assert _as_tuple(decision) == many.at_once()
    assert decision.log_start_offset == 30


def test_a_deletion_among_those_that_were_checked_has_it_decided_anew(many: World) -> None:
    first = many.ids[0]
    decision = _decide_with(many, lambda: [many.change(first, s) for s in (DELETING, DELETED)], 7)
    assert _as_tuple(decision) == many.at_once()


def test_bytes_that_turn_out_to_be_in_both_tiers_expire_nothing(many: World) -> None:
    """rel-T15: what the tier covers was not known when the decision began."""
    many.log.config = topic_config(retention_bytes=2500)
    covered, many.covered = many.covered, -1
    decision = _decide_with(many, lambda: setattr(many, "covered", covered))
    assert _as_tuple(decision) == many.at_once()


def test_what_changes_while_all_is_forgotten_is_not_missed(many: World) -> None:
    many.cache = MetadataCache()  # read anew, and nothing of it yet
    decision = _decide_with(
        many, lambda: many.copy(0, 9, many.log.history, is_finished=True, age=99), 2
    )
    assert len(decision.segments) == 1


def test_a_decision_that_was_given_up_half_way_leaves_nothing_half_known(many: World) -> None:
    """The role was over, say; or tiering was turned off and on."""
    many.log.begin_epoch()
    steps = many.steps()
    for _ in range(3):
        assert _one_step(steps) is None
    steps.close()
    decision = run_to_completion(many.steps())
    assert isinstance(decision, Decision)
    assert _as_tuple(decision) == many.at_once()
    for number in range(12):
        many.copy(400 + number, 0, many.log.history, is_finished=True, age=1)
    many.append(20)
    steps = many.steps()
    assert _one_step(steps) is None
    steps.close()
    many.log.config = topic_config(retention_bytes=0)
    decision = run_to_completion(many.steps())
    assert isinstance(decision, Decision)
    assert _as_tuple(decision) == many.at_once()


def test_where_nothing_changed_no_segment_is_looked_at(
    many: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each half a minute, of each partition: 165 ms of the loop, where there were 60,000."""
    many.log.config = topic_config(retention_bytes=10**6)
    monkeypatch.setattr(Lineage, "holds", None)
    many.full_checks = 0
    for start in (0, 5, 9):
        many.log.raise_start(start)  # within the epoch: who belongs to it stays the same
        decision = run_to_completion(many.steps())
        assert isinstance(decision, Decision)
        assert (list(decision.segments), decision.log_start_offset) == ([], start)
    assert many.full_checks == 0


def test_one_more_segment_is_compared_and_no_other(
    many: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    holds = Lineage.holds

    def counted(lineage: Lineage, segment: Any, log_end_offset: int) -> bool:
        compared.append(segment)
        return holds(lineage, segment, log_end_offset)

    monkeypatch.setattr(Lineage, "holds", counted)
    many.copy_next(1)
    run_to_completion(many.steps())
    assert len(compared) == 1


def test_no_step_checks_very_many(many: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are due at once, those of a lost history too, and others are left from before."""
    looked_at: list[int] = [0]
    holds, goes = Lineage.holds, expiry._Walk._goes

    def compared(*args: Any) -> bool:
        looked_at[-1] += 1
        return holds(*args)

    def checked(*args: Any) -> bool:
        looked_at[-1] += 1
        return goes(*args)

    monkeypatch.setattr(Lineage, "holds", compared)
    monkeypatch.setattr(expiry._Walk, "_goes", checked)
    for number in range(9):
        many.copy(number, 2, many.lost, is_finished=True, age=1)
    for segment_id in many.ids[3:12]:
        many.change(segment_id, DELETING)
    many.log.begin_epoch()
    many.log.config = topic_config(retention_ms=1)
    steps = many.steps()
    while (decision := _one_step(steps)) is None:
        looked_at.append(0)
    assert len(decision.segments) >= 30
    assert max(looked_at) <= 5
    assert sum(looked_at) >= 50


def test_a_decision_comes_to_its_end_while_segments_are_copied() -> None:
    """One more in each step, for ever: those that were there are judged all the same."""
    with (
        mock.patch.object(retained, "PLACED_IN_STEP", 3),
        mock.patch.object(expiry, "CHECKED_IN_STEP", 2),
    ):
        world = World()
        world.append(1000)
        for _ in range(40):
            world.copy_next(500)
        world.log.config = topic_config(retention_ms=100)
        steps = world.steps()
        for _ in range(100):
            decision = _one_step(steps)
            if decision is not None:
                break
            world.append(10)
            world.copy_next(500)
    assert decision is not None
    assert len(decision.segments) >= 40
    assert decision.log_start_offset >= 400


def _one_step(steps: Any) -> Decision | None:
    """Return what is decided, once it is."""
    try:
        next(steps)
    except StopIteration as end:
        found: Decision = end.value
        return found
    return None
