"""A store that hangs, as its circuits see it: what is logged and shown, and when a circuit opens."""

from typing import Any

import pytest

from firnline.base.effects import Submit
from firnline.base.errors import Code, KafkaError, WorkTimedOut
from firnline.base.units import MIB, MINUTE_MS, SECOND_MS
from firnline.stores.memory import MemoryStore
from firnline.stores.port import ObjectMissing, RemoteStorageError
from firnline.tiered.circuits import FAILURES_TO_OPEN, PROBE_TIMEOUT_MS, SLOW_MS, StoreCircuits
from firnline.tiered.objects.probe import Operation
from firnline.tiered.objects.unanswered import FORGOTTEN_MS
from firnline.tiered.settings import store_timeout_ms
from tests.unit.tiered.test_store_circuits import submitted
from tests.worlds.effects import World

PROBE = "probe the store of the tier"


class Hanging(World):
    """Circuits of a store; calls hang by their names, and probes while `probe_hangs`."""

    def __init__(self, store: Any = None, *, is_plugin: bool = False) -> None:
        super().__init__(0)
        self.store = MemoryStore() if store is None else store
        self.circuits = StoreCircuits(
            None if is_plugin else self.store, None, lambda failures, max_ms: 30_000
        )
        self.probe_hangs = False
        self.probes: list[int] = []
        self.held = self._hangs

    def _hangs(self, effect: Any) -> bool:
        if isinstance(effect, Submit) and effect.name == PROBE:
            self.probes.append(self.now_ms)
            assert effect.pool == "probe", "its threads are not those that hang"
            return self.probe_hangs
        return isinstance(effect, Submit)

    def begin(self, name: str = "read at 7", operation: Operation = "read", **more: Any) -> Submit:
        more.setdefault("run_timeout_ms", store_timeout_ms())
        before = list(self.on_hold)
        self.run(submitted(self.circuits, operation, self.now_ms, name=name, **more))
        (made,) = (each for each in self.on_hold if each not in before)
        assert isinstance(made, Submit)
        return made

    def end(self, call: Submit, result: Any = None) -> None:
        self.on_hold.remove(call)
        self.complete_with(call, result)

    @property
    def open(self) -> list[Operation]:
        return [each.operation for each in self.circuits.problems()]

    @property
    def unanswered(self) -> tuple[str, int] | None:
        found = self.circuits.unanswered(self.now_ms)
        return None if found is None else (found.name, found.since_ms)


def test_a_call_without_an_answer_is_a_problem_after_ten_seconds_and_a_line_in_the_log() -> None:
    world = Hanging()
    world.pass_time(500)
    call = world.begin()
    world.pass_time(SLOW_MS - 1)
    assert (world.unanswered, world.warnings) == (None, [])
    world.pass_time(1)
    assert world.unanswered == ("read at 7", 500)
    assert world.warnings == ['the store of the tier does not answer call="read at 7" running_s=10']
    world.pass_time(13 * SECOND_MS)
    assert len(world.warnings) == 1, "it is slow for the second time"
    world.end(call)
    assert world.notes == ['the store of the tier has answered call="read at 7" after_s=23']
    assert world.unanswered is None
    assert world.open == [], "probes were answered"


@pytest.mark.parametrize("operation", ["read", "write", "copy", "delete"])
def test_a_store_that_hangs_opens_the_circuit_of_reads_within_twenty_seconds(
    operation: Operation,
) -> None:
    world = Hanging()
    world.probe_hangs = True
    world.begin(operation=operation)
    world.pass_time(SLOW_MS + PROBE_TIMEOUT_MS)
    assert world.now_ms <= 20 * SECOND_MS
    assert world.open == ["read"]
    (unanswered, fails) = world.warnings
    assert "does not answer" in unanswered
    assert "the store of the tier fails operation=read" in fails
    world.pass_time(10 * MINUTE_MS)
    assert len(world.warnings) == 2, "nothing is logged for each probe, nor for the call that ends"
    assert world.open == ["read"]


def test_each_probe_of_a_store_that_hangs_is_given_up_soon() -> None:
    world = Hanging()
    world.probe_hangs = True
    world.begin()
    world.pass_time(SLOW_MS + 3 * (PROBE_TIMEOUT_MS + 30_000))
    assert world.probes == [SLOW_MS + n * (PROBE_TIMEOUT_MS + 30_000) for n in range(4)]


def test_the_end_of_an_outage_is_one_line() -> None:
    world = Hanging()
    world.probe_hangs = True
    call = world.begin()
    world.pass_time(SLOW_MS + PROBE_TIMEOUT_MS)
    world.pass_time(20_000)
    world.end(call, RemoteStorageError("the client has waited for 30 s"))
    assert world.unanswered == ("read at 7", 0), "that was no answer"
    world.probe_hangs = False
    world.pass_time(MINUTE_MS)
    assert world.open == []
    assert (len(world.notes), world.unanswered) == (1, None)
    assert "answers again operation=read" in world.notes[0]
    assert len(world.warnings) == 2


def test_a_call_that_is_answered_while_a_circuit_is_open_is_no_second_end_of_the_outage() -> None:
    world = Hanging()
    world.probe_hangs = True
    call = world.begin()
    world.pass_time(SLOW_MS + PROBE_TIMEOUT_MS)
    world.end(call)
    assert (world.notes, world.unanswered) == ([], None)
    world.probe_hangs = False
    world.pass_time(MINUTE_MS)
    assert len(world.notes) == 1


@pytest.mark.parametrize("answers", [True, False])
def test_a_probe_that_is_answered_late_is_a_reason_to_probe_at_once(answers: bool) -> None:
    """A process that goes on answers what it has not read yet. The client gives up: no reason."""
    world = Hanging()
    world.probe_hangs = True
    call = world.begin()
    world.pass_time(SLOW_MS)
    (probe,) = (each for each in world.on_hold if each.name == PROBE)  # type: ignore[union-attr]
    world.pass_time(PROBE_TIMEOUT_MS + 10_000)
    assert world.open == ["read"]
    world.end(call, RemoteStorageError("the client has waited for 30 s"))
    world.probe_hangs = False
    if answers:
        assert isinstance(probe, Submit)
        probe.work()
    assert probe.ended is not None  # type: ignore[union-attr]
    world.run(probe.ended(world.now_ms))  # type: ignore[union-attr]
    assert world.open == ([] if answers else ["read"])
    assert len(world.probes) == (2 if answers else 1)
    world.pass_time(MINUTE_MS)
    assert (world.open, len(world.probes)) == ([], 2), "there is no other timer"
    world.run(probe.ended(world.now_ms))  # type: ignore[union-attr]
    assert len(world.probes) == 2, "nothing waits"


def test_a_call_that_is_overdue_in_an_outage_that_is_logged_is_no_other_line() -> None:
    world = Hanging()
    world.probe_hangs = True
    world.begin("copy t-0 at 0", "copy", run_timeout_ms=store_timeout_ms(MIB))
    world.pass_time(2 * SLOW_MS)
    (line,) = world.warnings
    assert "fails operation=read" in line
    assert world.unanswered == ("copy t-0 at 0", 0)


def test_a_large_copy_may_take_its_time_while_the_store_answers_probes() -> None:
    """At a megabyte a second: 120 s, and the ten seconds of any call."""
    world = Hanging()
    copy = world.begin("copy t-0 at 0", "copy", run_timeout_ms=store_timeout_ms(120 * MIB))
    world.pass_time(119 * SECOND_MS)
    assert (world.unanswered, world.warnings, world.open) == (None, [], [])
    assert len(world.probes) == 2 * 11, "of reads and of writes, each ten seconds"
    world.pass_time(30 * SECOND_MS)
    assert world.unanswered == ("copy t-0 at 0", 0)
    world.end(copy)
    assert world.open == []


def test_a_hang_in_the_middle_of_a_large_copy_is_noticed_all_the_same() -> None:
    world = Hanging()
    world.begin("copy t-0 at 0", "copy", run_timeout_ms=store_timeout_ms(1000 * MIB))
    world.pass_time(55 * SECOND_MS)
    world.probe_hangs = True
    world.pass_time(20 * SECOND_MS)
    assert world.open == ["read"]


class PutsHang(MemoryStore):
    """Takes no writes: a probe of them fails."""

    def put(self, key: str, chunks: Any, *, size_bytes: int) -> None:
        raise WorkTimedOut("it hangs")


@pytest.mark.parametrize(
    ("operation", "opened"),
    [("read", []), ("write", ["write"]), ("copy", ["write"]), ("delete", ["write"])],
)
def test_what_a_call_needs_is_probed_one_after_the_other(
    operation: Operation, opened: list[Operation]
) -> None:
    world = Hanging(PutsHang())
    world.begin(operation=operation)
    world.pass_time(SLOW_MS)
    assert world.open == opened


def test_retries_of_a_call_that_is_never_answered_are_one_problem_and_one_line() -> None:
    """One object hangs, and all others are read."""
    world = Hanging()
    for _ in range(5):
        call = world.begin()
        world.pass_time(30 * SECOND_MS)
        world.end(call, RemoteStorageError("the client has waited for 30 s"))
        world.end(world.begin("another"))
        world.pass_time(10 * SECOND_MS)
        assert world.unanswered == ("read at 7", 0)
    assert len([line for line in world.warnings if "does not answer" in line]) == 1
    call = world.begin()
    world.end(call, ObjectMissing("gone"))
    assert world.unanswered is None, "that is an answer"
    assert len([line for line in world.notes if "has answered" in line]) == 1


def test_a_call_that_nobody_repeats_is_forgotten() -> None:
    world = Hanging()
    call = world.begin()
    world.pass_time(30 * SECOND_MS)
    world.end(call, WorkTimedOut("30 s"))
    world.pass_time(FORGOTTEN_MS - 1)
    assert world.unanswered is not None
    world.pass_time(1)
    assert world.unanswered is None
    world.begin("another")
    world.pass_time(SLOW_MS)
    assert len(world.warnings) == 2


def test_of_several_calls_the_longest_is_shown_and_the_last_one_that_ends_is_logged() -> None:
    world = Hanging()
    first = world.begin("first")
    world.pass_time(1_000)
    second, third = world.begin("second"), world.begin("second")
    world.pass_time(SLOW_MS)
    assert world.unanswered == ("first", 0)
    world.end(first)
    assert world.unanswered == ("second", 1_000)
    world.end(second)
    assert world.unanswered is not None
    assert world.notes == []
    world.end(third)
    assert (len(world.warnings), len(world.notes), world.unanswered) == (1, 1, None)


def test_a_hang_is_noticed_in_a_store_that_is_too_full_for_copies() -> None:
    """Their circuit is open, and no probe closes it."""
    world = Hanging()
    world.run(world.circuits.open("copy", RemoteStorageError("the store is full"), 0))
    world.probe_hangs = True
    world.begin()
    world.pass_time(SLOW_MS + PROBE_TIMEOUT_MS)
    assert world.open == ["read", "copy"]


def test_a_slow_read_does_not_keep_writes_from_being_probed() -> None:
    world = Hanging(PutsHang())
    world.probe_hangs = True
    world.begin("a copy", "copy")
    world.begin("a read")
    world.pass_time(SLOW_MS)
    (probe,) = (each for each in world.on_hold if each.name == PROBE)  # type: ignore[union-attr]
    world.probe_hangs = False
    assert isinstance(probe, Submit)
    world.end(probe, (1, None))
    assert world.open == ["write"]


def test_a_probe_says_nothing_of_operations_that_fail() -> None:
    """An object cannot be read, three times in a row, while another call is slow."""
    world = Hanging()
    world.begin("slow")
    for number in range(FAILURES_TO_OPEN):
        world.pass_time(6_000)
        assert world.open == []
        world.probe_hangs = number + 1 == FAILURES_TO_OPEN
        world.end(world.begin("fails"), RemoteStorageError("500"))
    assert len(world.probes) == 2, "of the slow call, and of the circuit that is open now"
    assert world.open == ["read"]


def test_slow_calls_share_their_probes() -> None:
    world = Hanging()
    world.probe_hangs = True
    for number in range(50):
        world.begin(str(number))
    world.pass_time(SLOW_MS)
    assert len(world.probes) == 1
    world.pass_time(PROBE_TIMEOUT_MS)
    assert world.open == ["read"]


def test_a_probe_that_is_refused_a_thread_opens_nothing() -> None:
    """Probes of an outage that is over may still keep their threads."""
    world = Hanging()
    world.probe_hangs = True
    world.begin()
    world.pass_time(SLOW_MS)
    (probe,) = (each for each in world.on_hold if each.name == PROBE)  # type: ignore[union-attr]
    world.on_hold.remove(probe)
    world.complete_with(probe, KafkaError(Code.THROTTLING_QUOTA_EXCEEDED, "too much work hangs"))
    assert world.open == []
    world.pass_time(SLOW_MS)
    assert len(world.probes) == 2, "the next time it is asked again"


def test_a_plugin_that_cannot_be_probed_is_only_reported() -> None:
    world = Hanging(is_plugin=True)
    world.begin()
    world.pass_time(SLOW_MS)
    assert (world.probes, len(world.warnings)) == ([], 1)


def test_a_call_that_ends_in_the_moment_in_which_it_is_slow_is_no_problem() -> None:
    world = Hanging()
    call = world.begin()
    world.end(call)
    assert call.slow is not None
    assert call.slow(SLOW_MS) == []
    assert world.unanswered is None
