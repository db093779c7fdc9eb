"""Logs are opened in several directories: one whose disk hangs holds up those in it alone."""

import pytest

from firnline.base.effects import Effects, SetTimer, Submit
from firnline.base.ids import PartitionKey
from firnline.base.waits import At, off_loop
from firnline.log.file_syncs import DirSync
from firnline.replica.opening import SLICE, Begun, Job, Opening, Urgency
from firnline.sim.disk import CrashableFs
from tests.worlds.effects import World

ID = bytes(16)
DISKS = ["/a", "/b"]
# Of each directory, at most: those that are set aside, and those that are synced.
UNDER_WAY_MAX = 2 * SLICE + 1


class Logs(World):
    """Logs of even numbers are in /a, the others in /b. Some wait for the disk, some are synced at last."""

    def __init__(self, *, waits: bool, syncs: bool) -> None:
        super().__init__()
        self.waits, self.syncs = waits, syncs
        self.disks = list(DISKS)
        self.where = {}  # of those that are elsewhere
        self.held = lambda effect: isinstance(effect, Submit) and effect.path.startswith("/a")
        self.timers_set = 0
        self.begun: list[int] = []
        self.served: list[int] = []
        self.opening = Opening(self.begin, self.finish, lambda key: key[1], lambda: self.disks)

    def begin(self, key: PartitionKey, now_ms: int) -> Begun:
        number = key[1]
        path = self.where.get(number, DISKS[number % 2])
        yield At(path)
        self.begun.append(number)
        if self.waits:
            yield off_loop(f"make {number}", lambda: None, path=path)
        files = [DirSync(CrashableFs(), path)] if self.syncs else []
        return Job(key, None, files)  # type: ignore[arg-type]

    def finish(self, job: Job, problem: object, now_ms: int) -> Effects:
        self.served.append(job.key[1])
        return []

    def add(self, numbers: range, urgency: Urgency = Urgency.LIKELY) -> None:
        for number in numbers:
            self.opening.add((ID, number), urgency)
        self.carry_out(self.opening.go(0))

    def turns(self, effects: Effects) -> int:
        """Go on until nothing is left but what the disk holds; return how many turns that took."""
        before = self.timers_set
        self.carry_out(effects)
        return self.timers_set - before

    def on_set_timer(self, effect: SetTimer) -> None:
        self.timers_set += 1
        super().on_set_timer(effect)

    def answers(self) -> None:
        """The disk does what it was asked for."""
        self.release()
        self.pass_time(0)

    def under_way(self) -> int:
        return sum(number % 2 == 0 for number in self.begun)


@pytest.fixture(params=[(True, False), (False, True), (True, True)])
def logs(request: pytest.FixtureRequest) -> Logs:
    waits, syncs = request.param
    return Logs(waits=waits, syncs=syncs)


def test_a_directory_that_hangs_holds_up_no_log_of_another_one(logs: Logs) -> None:
    """Nine logs of it did, or eight that were synced: also those that a client asked for."""
    logs.add(range(200))
    assert sorted(logs.served) == list(range(1, 200, 2))
    assert SLICE <= logs.under_way() <= UNDER_WAY_MAX
    logs.add(range(200, 202), Urgency.ASKED_FOR)
    assert 201 in logs.served
    assert logs.turns(logs.opening.go(0)) == 0, "nothing turns in vain meanwhile"
    logs.answers()
    assert sorted(logs.served) == list(range(202))
    assert sorted(logs.begun) == list(range(202)), "what was held was not begun before its turn"


def test_what_a_client_asks_for_of_a_directory_that_hung_is_opened_first_when_it_has_come_on(
    logs: Logs,
) -> None:
    logs.add(range(200))
    begun = len(logs.begun)
    logs.opening.prefer((ID, 198))
    logs.answers()
    assert logs.begun[begun] == 198
    assert sorted(logs.served) == list(range(200))


def test_a_log_that_is_held_for_its_directory_is_given_up_when_its_topic_is_deleted(
    logs: Logs,
) -> None:
    logs.add(range(200))
    assert (ID, 198) in logs.opening
    assert logs.opening.gives_up((ID, 198))
    logs.answers()
    assert 198 not in logs.begun


def test_a_log_that_was_held_for_a_directory_is_opened_where_it_is_to_be_once_that_failed(
    logs: Logs,
) -> None:
    """A new one goes to another directory; those that lie there are told of as lost."""
    logs.add(range(200))
    logs.disks.remove("/a")
    logs.where = dict.fromkeys(range(200), "/b")
    logs.carry_out(logs.opening.go(0))
    assert len(logs.served) >= 200 - UNDER_WAY_MAX


def test_whoever_waits_for_all_waits_for_what_is_held(logs: Logs) -> None:
    logs.add(range(200))
    notified: list[int] = []
    logs.opening.when_done(lambda now_ms: notified.append(now_ms) or [], 0)  # type: ignore[func-returns-value]
    assert notified == []
    logs.answers()
    assert notified == [0]


def test_a_stop_forgets_what_is_held(logs: Logs) -> None:
    logs.add(range(200))
    logs.opening.stop()
    begun = len(logs.begun)
    logs.answers()
    assert (ID, 198) not in logs.opening
    assert len(logs.begun) == begun


def test_a_step_checks_a_few_logs_of_a_directory_that_hangs_and_not_all_of_them() -> None:
    """Ten thousand wait for it when it is found to be behind."""
    logs = Logs(waits=True, syncs=False)
    logs.disks.append("/c")
    logs.where = dict.fromkeys(range(10_000), "/a")
    looked: list[int] = []
    begin = logs.opening._begin
    logs.opening._begin = lambda key, now_ms: looked.append(key[1]) or begin(key, now_ms)  # type: ignore[func-returns-value]
    for number in range(1_000):
        logs.opening.add((ID, number))
    effects = logs.opening.go(0)
    most = 0
    while effects:
        effect = effects.pop(0)
        if isinstance(effect, SetTimer):
            before = len(looked)
            effects += effect.then(0)
            most = max(most, len(looked) - before)
        else:
            logs.on_hold.append(effect)
    assert len(looked) == 1_000, "each once"
    assert 0 < most <= 4
    logs.answers()
    assert len(logs.served) == 1_000
