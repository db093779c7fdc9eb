"""The interpreter of effects that the tests share: its order, what it holds back, and its time."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.base.effects import (
    Append,
    CancelSubmit,
    CancelTimer,
    CloseConnection,
    Effects,
    EnsureTopic,
    Flush,
    SetTimer,
    Submit,
)
from firnline.base.errors import StorageError, WorkTimedOut
from firnline.base.ids import TopicPartition
from firnline.base.log_lines.line import WARNING
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.clock import FakeClock
from tests.worlds.effects import World, kept, told
from tests.worlds.timers import _GONE_MAX, WorldTimers


class Story:
    """Continuations that say when they are called and with what."""

    def __init__(self) -> None:
        self.reported: list[Any] = []

    def submit(
        self, name: str, *after: Any, work: Callable[[], Any] = lambda: None, **more: Any
    ) -> Submit:
        def then(result: Any, now_ms: int) -> Effects:
            self.reported.append((name, result))
            return list(after)

        return Submit(name=name, pool="read", work=work, then=then, **more)

    def timer(self, key: str, at_ms: int, *after: Any) -> SetTimer:
        def then(now_ms: int) -> Effects:
            self.reported.append((key, now_ms))
            return list(after)

        return SetTimer(key=key, at_ms=at_ms, then=then)


def test_no_continuation_is_called_before_its_list_is_carried_out() -> None:
    """As in the runtime: what a step asks for is under way, all of it, when the first answer comes."""
    story, world = Story(), World()
    story.reported = world.warnings  # one list, so that it shows the order of both
    second = story.submit("second", story.submit("follows"))
    world.run([story.submit("first", second), story.submit("beside"), told("told", WARNING)])
    assert world.warnings == [
        "told",
        ("first", None),
        ("beside", None),
        ("second", None),
        ("follows", None),
    ]


def test_what_work_raises_is_its_result() -> None:
    story, problem = Story(), ValueError("no")

    def fail() -> None:
        raise problem

    World().run([story.submit("fails", work=fail)])
    assert story.reported == [("fails", problem)]


def test_work_is_held_back_by_kind_or_one_by_one() -> None:
    story, world = Story(), World()
    world.holds_work = True
    world.run([story.submit("a"), story.submit("b"), told("n")])
    assert (story.reported, world.notes) == ([], ["n"])
    world.work_once()
    assert story.reported == [("a", None)]
    world.complete_with(world.work.pop(), "an error")
    assert story.reported == [("a", None), ("b", "an error")]
    world.holds_work = False
    world.held = lambda effect: isinstance(effect, Submit) and effect.name == "c"
    world.run([story.submit("c"), story.submit("d")])
    assert story.reported[2:] == [("d", None)]
    world.release()
    assert story.reported[3:] == [("c", None)]
    assert not world.on_hold


def test_time_ends_work_that_is_held_back_if_it_has_a_limit() -> None:
    story, world = Story(), World()
    world.holds_work = True
    world.run(
        [story.submit("limited", run_timeout_ms=10), story.submit("not"), story.timer("t", 11)]
    )
    world.pass_time(9)
    assert story.reported == []
    world.pass_time(5)
    assert [(name, type(result)) for name, result in story.reported] == [
        ("limited", WorkTimedOut),
        ("t", int),
    ]
    assert [each.name for each in world.work] == ["not"]
    world.held_work_runs = False
    world.run([story.submit("waits", run_timeout_ms=10)])
    world.pass_time(50)
    assert [each.name for each in world.work] == ["not", "waits"]


def test_work_that_is_held_back_is_slow_again_and_again_until_it_ends() -> None:
    story, world = Story(), World()
    world.holds_work = True
    slow: list[int] = []

    def is_slow(now_ms: int) -> Effects:
        slow.append(now_ms)
        return []

    world.run(
        [story.submit("a", run_timeout_ms=35, slow_ms=10, slow=is_slow), story.timer("t", 21)]
    )
    world.pass_time(25)
    assert (slow, story.reported) == ([10, 20], [("t", 21)])
    world.pass_time(100)
    assert slow == [10, 20, 30]
    world.run([story.submit("b", run_timeout_ms=35, slow_ms=10, slow=is_slow)])
    world.work_once()
    world.pass_time(100)
    assert slow == [10, 20, 30]


def test_work_of_a_key_is_there_once_and_can_be_cancelled() -> None:
    story, world = Story(), World()
    cancel, only_waiting = (
        CancelSubmit(pool="read", key="k", only_waiting=each) for each in (False, True)
    )
    world.run([story.submit("one", key="k"), story.submit("two", key="k"), only_waiting])
    assert story.reported == []
    world.holds_work = True
    world.run([story.submit("runs", key="k"), only_waiting, story.submit("joins", key="k")])
    world.work_once()
    assert (story.reported, world.work) == ([("runs", None)], [])
    world.run([story.submit("dropped", key="k"), cancel])
    world.work_once()
    assert story.reported == [("runs", None)]
    world.held_work_runs = False
    world.run([story.submit("waits", key="k"), only_waiting])
    assert world.work == []
    world.holds_work = False
    world.run([only_waiting, story.submit("anew", key="k")])
    assert story.reported == [("runs", None), ("anew", None)]


def test_an_order_that_is_drawn_is_some_order_of_what_is_ready() -> None:
    seen = set()
    for seed in range(20):
        story, world = Story(), World(order=SeededRng(seed))
        world.run([story.submit(name) for name in "abc"])
        seen.add("".join(name for name, _ in story.reported))
    assert len(seen) > 3
    assert {"".join(sorted(each)) for each in seen} == {"abc"}


def test_a_flush_syncs_its_files_and_says_which_failed() -> None:
    fs, answers, world = CrashableFs(), [], World()
    fs.make_dir("/d")
    files = [fs.open(f"/d/{name}", create=True) for name in "ab"]
    for file in files:
        file.append(b"x")
    fs.sync_dir("/d")
    fs.sync_dir("/")
    world.run([Flush(files=files, then=kept(answers))])
    assert answers == [None]
    assert fs.crash(SeededRng(), keep="none").open("/d/b").size() == 1
    fs.fail("sync", "/d/b", "EIO")
    world.holds_flushes = True
    world.run([Flush(files=files, then=kept(answers))])
    assert len(answers) == 1
    world.flush()
    assert isinstance(answers[1], StorageError)
    refused = StorageError("given up")
    world.run([Flush(files=files, then=kept(answers))])
    world.flush(refused)
    assert answers[2] is refused


def test_timers_fire_in_their_order_and_the_newest_of_a_key_counts() -> None:
    story, world = Story(), World(1_000)
    again = story.timer("again", 1_010)
    world.run([story.timer("late", 1_020), story.timer("a", 1_010, again), story.timer("b", 1_010)])
    world.run([story.timer("a", 1_010, again), story.timer("gone", 1_000), CancelTimer(key="gone")])
    world.pass_time(15)
    assert story.reported == [("b", 1_010), ("a", 1_010), ("again", 1_010)]
    assert world.now_ms == 1_015
    world.fire("late")
    assert (world.now_ms, world.timers) == (1_020, {})
    world.carry_out([story.timer("due", 0), story.timer("next", 1_021)])
    assert [key for key, _ in story.reported[3:]] == ["late", "due"]


def test_worlds_of_one_clock_share_their_time() -> None:
    clock = FakeClock(5)
    one, other = World(clock), World(clock)
    one.pass_time(10)
    assert (other.now_ms, clock.wall_ms(), clock.monotonic_ms()) == (15, 15, 15)


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "cancel", "fire", "update"]), *[st.integers(0, 9)] * 2)
    )
)
def test_the_next_timer_is_the_first_that_was_set_of_those_due_first(
    acts: list[tuple[str, int, int]],
) -> None:
    timers, plain = WorldTimers(), {}
    timer = Story().timer
    for act, key, at_ms in acts * 20:
        due = timers.next()
        assert due is min(plain.values(), key=lambda timer: timer.at_ms, default=None)
        if act == "set":
            plain.pop(key, None)
            plain[key] = timers[key] = timer(str(key), at_ms)
        elif act == "update":
            taken, others = plain.pop(key, None), {key: timer(str(key), at_ms)}
            assert timers.get(key) is taken
            plain |= others
            timers |= others
        elif act == "cancel":
            assert timers.pop(key, None) is plain.pop(key, None)
        elif due is not None:
            fired = int(str(due.key))
            assert timers.pop(fired) is plain.pop(fired)
    assert [*timers.items()] == [*plain.items()]


def test_timers_that_are_set_again_and_again_take_no_room() -> None:
    timers = WorldTimers()
    for number in range(10_000):
        timers[number % 3] = Story().timer("t", 20_000 - number)
    assert len(timers._heap) <= 3 + 3 + _GONE_MAX


def test_a_timer_that_sets_itself_for_now_does_not_hang_the_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.worlds.effects.TIMERS_MAX", 10)

    def again(now_ms: int) -> Effects:
        return [SetTimer(key="k", at_ms=now_ms, then=again)]

    with pytest.raises(AssertionError, match="without end"):
        World().carry_out(again(0))


def test_an_effect_that_nobody_carries_out_fails_the_test() -> None:
    answers: list[Any] = []
    world = World()
    world.run([EnsureTopic(name="__t", then=kept(answers))])
    assert (world.ensured, answers) == (["__t"], [None])
    with pytest.raises(AssertionError, match="nobody"):
        world.run(["an effect of somebody else"])  # type: ignore[list-item]
    append = Append(topic_partition=TopicPartition("t", 0), batch=bytearray(), then=kept(answers))
    with pytest.raises(AssertionError, match="no log here"):
        world.run([append])
    with pytest.raises(ZeroDivisionError):
        world.run([CloseConnection(context=None, problem=ZeroDivisionError())])


def test_chance_follows_from_its_seed() -> None:
    one, other = SeededRng(7), SeededRng(random.Random(7))
    assert [one.below(100) for _ in range(9)] == [other.below(100) for _ in range(9)]
    assert one.uuid() == other.uuid()
    assert len(one.uuid()) == 16
