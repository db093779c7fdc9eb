"""Partitions are opened in slices: who waits for them, and for how long."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from firnline.base.effects import Effects, SetTimer, Submit
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import PartitionKey
from firnline.base.waits import off_loop
from firnline.log.file_syncs import DirSync
from firnline.replica.opening import SLICE, Begun, Job, Opening, Urgency, sync_in_pool
from firnline.sim.disk import CrashableFs
from tests.worlds.effects import only
from tests.worlds.slices import sliced

ID = bytes(16)


def slow(key: object, now_ms: int) -> Begun:
    """A log whose recovery never ends."""
    while True:
        yield None


def finishes(seen: list[object]) -> Opening:
    """Opens one log that waits for the disk once, and says in `seen` what came of it."""

    def begin(key: object, now_ms: int) -> Begun:
        try:
            yield off_loop("write", lambda: seen.append("written"), path="/")
        except StorageError as problem:
            seen.append(problem)
        seen.append("open")
        return []

    return Opening(begin, lambda job, problem, now_ms: [])


def test_a_log_that_waits_for_the_disk_keeps_nobody_waiting_and_goes_on_when_that_is_done() -> None:
    seen: list[object] = []
    opening = finishes(seen)
    opening.add((bytes(16), 0))
    (submit,) = sliced(opening.go(0))
    assert isinstance(submit, Submit)
    assert (seen, opening.go(0)) == ([], []), "it waits"
    submit.work()
    refused = KafkaError(Code.THROTTLING_QUOTA_EXCEEDED, "too much waits")
    timer = only(submit.then(refused, 0), SetTimer)
    assert timer.at_ms > 0
    submit = only(timer.then(timer.at_ms), Submit)
    assert sliced(submit.then(None, 0)) == []
    assert seen == ["written", "open"]


def test_a_log_learns_that_the_disk_failed_what_it_waited_for() -> None:
    seen: list[object] = []
    opening = finishes(seen)
    opening.add((bytes(16), 0))
    submit = only(opening.go(0), Submit)
    problem = StorageError("the device failed")
    sliced(submit.then(problem, 0))
    assert seen == [problem, "open"]


def test_logs_that_need_nothing_of_the_disk_are_opened_a_few_at_a_time_too() -> None:
    """Those that are served already, or have gone meanwhile."""
    seen: list[object] = []

    def begin(key: object, now_ms: int) -> Begun:
        yield from ()
        seen.append(key)
        return []

    opening = Opening(begin, lambda job, problem, now_ms: [])
    keys = [(bytes(16), number) for number in range(30)]
    for key in keys:
        opening.add(key)
    notified: list[int] = []
    effects = opening.go(0)
    opening.when_done(lambda now_ms: notified.append(len(seen)) or [], 0)  # type: ignore[func-returns-value]
    sizes = [len(seen)]
    while effects:
        [timer] = effects
        assert isinstance(timer, SetTimer)
        effects = timer.then(0)
        sizes.append(len(seen) - sum(sizes))
    assert (seen, notified) == (keys, [30])
    assert max(sizes) == 4


def in_order(*added: tuple[int, Urgency], asked: dict[int, int], late: int = -1) -> list[int]:
    """Numbers in the order they are opened; `asked` says after which one a client asks for which."""
    seen: list[int] = []

    def begin(key: Any, now_ms: int) -> Begun:
        yield from ()
        seen.append(key[1])
        if key[1] in asked:
            opening.prefer((ID, asked[key[1]]))
        return []

    opening = Opening(begin, lambda job, problem, now_ms: [])
    for number, urgency in added:
        opening.add((ID, number), urgency)
    effects = opening.go(0)
    while effects:
        [timer] = effects
        assert isinstance(timer, SetTimer)
        effects = timer.then(0)
    return seen


def test_what_is_likely_to_be_asked_for_is_opened_before_what_is_idle() -> None:
    idle = [(number, Urgency.IDLE) for number in range(20)]
    seen = in_order(*idle, (20, Urgency.LIKELY), asked={})
    assert seen == [20, *range(20)]


def test_a_log_that_a_client_asks_for_is_opened_next_and_not_after_thousands() -> None:
    likely = [(number, Urgency.LIKELY) for number in range(50)]
    idle = [(number, Urgency.IDLE) for number in range(50, 100)]
    seen = in_order(*likely, *idle, asked={0: 99, 1: 40})
    assert seen[:4] == [0, 99, 1, 40]
    assert sorted(seen) == list(range(100))


def test_whoever_waits_for_all_is_not_notified_because_as_many_others_are_open() -> None:
    """Strays are what is not open when all is: a log that was overtaken is none."""
    seen: list[int] = []

    def begin(key: Any, now_ms: int) -> Begun:
        yield from ()
        seen.append(key[1])
        return []

    opening = Opening(begin, lambda job, problem, now_ms: [])
    for number in range(SLICE + 4):
        opening.add((ID, number), Urgency.IDLE)
    notified: list[list[int]] = []
    [timer] = opening.go(0)
    opening.when_done(lambda now_ms: notified.append(list(seen)) or [], 0)  # type: ignore[func-returns-value]
    for number in range(100, 120):
        opening.add((ID, number), Urgency.ASKED_FOR)
    effects = [timer]
    while effects:
        [timer] = effects
        assert isinstance(timer, SetTimer)
        effects = timer.then(0)
    [then] = notified
    assert set(range(SLICE + 4)) <= set(then)


def test_a_partition_that_is_deleted_while_it_waits_is_given_up_and_one_that_is_opened_is_not() -> (
    None
):
    opening = Opening(slow, lambda job, problem, now_ms: [])
    for number in range(20):
        opening.add((ID, number))
    opening.go(0)
    assert not opening.gives_up((ID, 0)), "it is under way"
    assert opening.gives_up((ID, 1))
    assert opening.gives_up((ID, 19))
    assert not opening.gives_up((ID, 19))


def test_a_stop_forgets_a_log_that_waits_for_the_disk() -> None:
    seen: list[object] = []
    opening = finishes(seen)
    opening.add((bytes(16), 0))
    submit = only(opening.go(0), Submit)
    opening.stop()
    assert submit.then(None, 0) == []
    assert seen == []


def test_everybody_who_waits_is_notified_when_his_own_time_is_over() -> None:
    """A registration and a shutdown may wait for the same logs."""
    opening = Opening(slow, lambda job, problem, now_ms: [])
    opening.add((bytes(16), 0))
    opening.go(0)
    notified: list[str] = []
    timers: dict[object, SetTimer] = {}
    for who, at_most_ms in (("soon", 10), ("late", 20)):
        found = opening.when_done(
            lambda now_ms, who=who: notified.append(f"{who} at {now_ms}") or [],  # type: ignore[misc, func-returns-value]
            0,
            at_most_ms=at_most_ms,
        )
        timers.update({each.key: each for each in found if isinstance(each, SetTimer)})
    for timer in timers.values():
        timer.then(timer.at_ms)
        timer.then(timer.at_ms)
    assert notified == ["soon at 10", "late at 20"]


def test_an_error_of_ours_in_the_pool_is_reported_as_it_was() -> None:
    """Whoever reads of it is to see what broke, and not what its answer could not be read as."""
    [submit] = sync_in_pool("sync", [("a", [DirSync(CrashableFs(), "/")])], lambda done, now_ms: [])
    assert isinstance(submit, Submit)
    with pytest.raises(ZeroDivisionError):
        submit.then(ZeroDivisionError(), 0)


# ------------------------------------------------------------------------ while one takes long

LONG = 200


class Logs:
    """An `Opening` whose logs take as many slices as is said; it notes what is done, a turn at a time."""

    def __init__(
        self,
        slices: dict[int, int],
        disk: dict[int, object] | None = None,
        unsynced: Sequence[int] = (),
    ) -> None:
        self.slices, self.disk, self.unsynced = slices, disk or {}, unsynced
        self.begun: list[int] = []
        self.steps: list[int] = []
        self.served: list[int] = []
        self.closed: list[int] = []
        self.written: list[int] = []
        self.under_way: list[int] = []
        self.most_under_way = 0
        self.effects: Effects = []
        self.submits: list[Submit] = []
        self.opening = Opening(self.begin, self.finish, self.place)

    def place(self, key: PartitionKey) -> object:
        return key[1]

    def begin(self, key: PartitionKey, now_ms: int) -> Begun:
        number = key[1]
        assert number not in self.under_way, "two in one place"
        self.begun.append(number)
        self.under_way.append(number)
        self.most_under_way = max(self.most_under_way, len(self.under_way))
        try:
            if number in self.disk:
                yield off_loop(f"write {number}", partial(self.written.append, number), path="/")
            for _ in range(self.slices.get(number, 0)):
                self.steps.append(number)
                yield None
        except GeneratorExit:
            self.closed.append(number)
            raise
        files = [DirSync(CrashableFs(), "/")] if number in self.unsynced else []
        return Job(key, None, files)  # type: ignore[arg-type]

    def finish(self, job: Job, problem: object, now_ms: int) -> Effects:
        self.under_way.remove(job.key[1])
        self.served.append(job.key[1])
        return []

    def go(self) -> "Logs":
        self.effects += self.opening.go(0)
        return self

    def turns(self) -> Iterator[int]:
        """The turns of the loop there are until nothing is left but what waits for the disk."""
        count = 0
        while True:
            self.submits += [e for e in self.effects if isinstance(e, Submit)]
            timers = [e for e in self.effects if isinstance(e, SetTimer)]
            self.effects = [*timers[1:]]
            if not timers:
                return
            self.effects += timers[0].then(0)
            count += 1
            yield count

    def to_the_end(self) -> None:
        for _ in self.turns():
            pass


def test_a_log_that_a_client_asks_for_does_not_wait_for_the_recovery_of_another_one() -> None:
    logs = Logs({0: LONG})
    for number in range(50):
        logs.opening.add((ID, number), Urgency.IDLE)
    logs.go()
    for turn in logs.turns():
        if turn == 20:
            logs.opening.prefer((ID, 49))
        if 49 in logs.served:
            assert turn < 30
            break
    assert logs.served == [49]
    logs.to_the_end()
    assert sorted(logs.served) == list(range(50))
    assert logs.served[:2] == [49, 0], "what was begun ends before what nobody asked for begins"


def test_a_log_that_is_open_does_not_wait_for_the_long_recovery_of_another_one() -> None:
    logs = Logs({2: LONG})
    for number in range(3):
        logs.opening.add((ID, number))
    for turn in logs.go().turns():
        if logs.served:
            assert turn < 20
            break
    assert logs.served == [0, 1]


def test_a_long_recovery_goes_on_whatever_clients_ask_for() -> None:
    logs = Logs({0: LONG})
    logs.opening.add((ID, 0))
    added = 1
    for turn in logs.go().turns():
        while added < 20 * turn and turn < 3 * LONG:
            logs.opening.add((ID, added), Urgency.ASKED_FOR)
            added += 1
        if 0 in logs.served:
            break
    assert turn < 2 * LONG, "others have some turns, and it has some"
    assert len(logs.served) > LONG


def test_few_logs_are_under_way_at_a_time_however_many_take_long() -> None:
    logs = Logs(dict.fromkeys(range(100), 30))
    for number in range(100):
        logs.opening.add((ID, number), Urgency.ASKED_FOR)
    logs.go().to_the_end()
    assert logs.served == list(dict.fromkeys(logs.served))
    assert sorted(logs.served) == list(range(100))
    assert SLICE < logs.most_under_way <= 2 * SLICE


def test_the_one_of_two_long_recoveries_that_a_client_asks_for_goes_on_first() -> None:
    logs = Logs({0: LONG, 1: LONG})
    for number in (0, 1, 2):
        logs.opening.add((ID, number), Urgency.ASKED_FOR)
    for turn in logs.go().turns():
        if turn == 60:
            assert logs.begun == [0, 1, 2]
            logs.opening.prefer((ID, 1))
    assert logs.served == [2, 1, 0]


def test_a_disk_that_hangs_holds_up_no_log_of_another_one() -> None:
    """Unless as many logs wait for it as may be under way."""
    logs = Logs({}, disk={0: True, 1: True})
    for number in range(20):
        logs.opening.add((ID, number))
    notified: list[int] = []
    logs.go()
    logs.opening.when_done(lambda now_ms: notified.append(now_ms) or [], 0)  # type: ignore[func-returns-value]
    logs.to_the_end()
    assert logs.served == list(range(2, 20))
    assert notified == [], "two are not open"
    for submit in logs.submits:
        logs.effects += submit.then(submit.work(), 0)
    logs.to_the_end()
    assert (logs.written, logs.served[18:], notified) == ([0, 1], [0, 1], [0])


def test_new_logs_of_a_disk_that_hangs_hold_up_nobody_but_who_waits_for_all() -> None:
    """Unless so many are synced that no more may be."""
    logs = Logs({}, unsynced=range(2))
    for number in range(20):
        logs.opening.add((ID, number))
    notified: list[int] = []
    logs.go()
    logs.opening.when_done(lambda now_ms: notified.append(now_ms) or [], 0)  # type: ignore[func-returns-value]
    logs.to_the_end()
    assert (logs.served, notified) == (list(range(2, 20)), [])
    assert [job.key[1] for job in logs.opening.stop()] == [0, 1]


def test_no_more_new_logs_wait_for_a_disk_that_hangs_than_are_opened_in_a_slice() -> None:
    logs = Logs({}, unsynced=range(100))
    for number in range(100):
        logs.opening.add((ID, number))
    logs.go().to_the_end()
    assert len(logs.begun) == len(logs.submits) == SLICE
    while logs.submits:
        submit = logs.submits.pop()
        logs.effects += submit.then(submit.work(), 0)
        logs.to_the_end()
        assert len(logs.submits) < 2 * SLICE
    assert sorted(logs.served) == list(range(100))


def test_no_more_logs_wait_for_a_disk_that_hangs_than_may_be_under_way() -> None:
    logs = Logs({}, disk=dict.fromkeys(range(100)))
    for number in range(100):
        logs.opening.add((ID, number))
    logs.go().to_the_end()
    assert len(logs.begun) == len(logs.submits) <= 2 * SLICE
    assert logs.opening.go(0) == [], "nothing turns in vain meanwhile"
    while logs.submits:
        submit = logs.submits.pop()
        logs.effects += submit.then(submit.work(), 0)
        logs.to_the_end()
    assert sorted(logs.served) == list(range(100))


@pytest.mark.parametrize("hanging", [range(8, 9), range(1, 9)])
def test_a_disk_that_hangs_holds_nobody_up_once_another_one_of_those_that_take_long_is_open(
    hanging: Sequence[int],
) -> None:
    """Goal: nobody waits for the last one, which hangs. Method: it is begun when all places are taken."""
    logs = Logs(
        {number: 30 for number in range(8) if number not in hanging}, disk=dict.fromkeys(hanging)
    )
    for number in range(20):
        logs.opening.add((ID, number), Urgency.ASKED_FOR)
    logs.go().to_the_end()
    assert logs.begun[:9] == list(range(9))
    assert sorted(logs.served) == [number for number in range(20) if number not in hanging]


def test_a_log_that_is_suspended_is_not_begun_once_more_nor_is_its_successor_in_that_place() -> (
    None
):
    """It is added again with each change of its metadata; and its topic may be deleted, and made again."""
    logs = Logs({0: LONG})
    logs.opening.add((ID, 0))
    successor = (b"\x01" * 16, 0)
    for turn in logs.go().turns():
        if turn == 20:
            for key in ((ID, 0), successor, (ID, 1)):
                logs.opening.add(key, Urgency.ASKED_FOR)
        if turn == 30:
            assert (logs.begun, logs.served) == ([0, 1], [1])
            assert not logs.opening.gives_up((ID, 0)), "it is under way"
            assert (ID, 0) in logs.opening, "and it was added again"
            assert logs.opening.gives_up(successor)
            logs.opening.add(successor, Urgency.ASKED_FOR)
    assert logs.begun == [0, 1, 0, 0]
    assert logs.served == [1, 0, 0, 0]


def test_whoever_waits_for_all_waits_for_a_log_that_is_suspended() -> None:
    logs = Logs({0: LONG})
    logs.opening.add((ID, 0))
    logs.opening.add((ID, 1))
    logs.go()
    notified: list[list[int]] = []
    logs.opening.when_done(lambda now_ms: notified.append(list(logs.served)) or [], 0)  # type: ignore[func-returns-value]
    for turn in logs.turns():
        if turn == 20:
            logs.opening.prefer((ID, 1))
        if turn == 30:
            assert logs.served == [1]
            logs.opening.when_done(lambda now_ms: notified.append(list(logs.served)) or [], 0)  # type: ignore[func-returns-value]
            assert notified == []
    assert notified == [[1, 0], [1, 0]]


def test_nobody_is_notified_of_a_log_that_is_open_and_not_served_yet() -> None:
    """Another one of its slice goes on."""
    logs = Logs({1: 3})
    notified: list[list[int]] = []
    logs.opening.add((ID, 0))
    logs.opening.when_done(lambda now_ms: notified.append(list(logs.served)) or [], 0)  # type: ignore[func-returns-value]
    logs.opening.add((ID, 1))
    logs.go().to_the_end()
    assert notified == [[0, 1]]


def test_a_stop_ends_what_is_suspended_and_what_is_under_way() -> None:
    logs = Logs({0: LONG, 1: LONG}, disk={2: True})
    for number in range(3):
        logs.opening.add((ID, number), Urgency.ASKED_FOR)
    for turn in logs.go().turns():
        if turn == 40:
            break
    assert logs.begun == [0, 1, 2]
    logs.opening.stop()
    assert sorted(logs.closed) == [0, 1, 2]
    for effect in (*logs.effects, *logs.submits):
        if isinstance(effect, SetTimer):
            assert effect.then(0) == []
        else:
            assert only([effect], Submit).then(None, 0) == []
    assert logs.served == []
