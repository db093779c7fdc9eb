"""The one interpreter of effects in tests: a world that a test holds in its hands.

Theory of operation
-------------------
Production code decides and returns effects (`base/effects.py`); whoever called it hands them to `World.run`,
as the runtime and the simulator's host do. There are three sorts.

*What is only told* is kept for the test to look at: `warnings`, `notes`, `replies`, `closed`, `sends`.

*Timers* stand in `timers`, by key, until the test lets time pass: `pass_time` fires all that come due, in
their order, `fire` one of them. `carry_out` is `run` and then those that are due now.

*Work* is done: Flush, Submit, Compact, Append, EnsureTopic. As in production, no continuation is called
within the step that asked for it: first `run` goes over the whole list, then the work that is ready is done,
the oldest first; what follows from it stands at the end. `run` returns when nothing is ready any more.

A test takes work out of that order by holding it back:

    the world has       the work waits in    until the test calls
    holds_flushes       flushes              flush()
    holds_work          work                 work_once()
    holds_rounds        rounds               compact_once()
    holds_appends       appends              append_once()
    held(effect)        on_hold              release()

The first four take all effects of a kind, `held` takes those that it says True for. The lists are the
test's: it may look into them, take something out and `complete` it, say what came of it (`complete_with`),
or forget it. Work for a pool that is held back runs, from the moment in which it came: time that passes
ends it with WorkTimedOut, where it has a limit, and calls its `slow`. With `held_work_runs` False it only
waits for a thread. As in production, a Submit is ignored while there is work of its key, and CancelSubmit
cancels it. With an `order` the work that is ready is done in an order that is drawn, to find what relies on
another one.

A world of one part of the source is a subclass: it makes the part, and overrides `on_...` for an effect that
means something special there, or `result_of` for work that is to fail. An effect that is not one of
`base/effects.py` goes to `on_other`.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from firnline.base.effects import (
    Append,
    CancelSubmit,
    CancelTimer,
    CloseConnection,
    Compact,
    Effect,
    Effects,
    EnsureTopic,
    Flush,
    Reply,
    Send,
    SetTimer,
    Submit,
)
from firnline.base.errors import KafkaError, StorageError, WorkTimedOut
from firnline.base.log_lines.line import INFO, LEVEL_NAMES, WARNING, Log, LogLine
from firnline.base.log_lines.text import fields_text
from firnline.base.ports import File, Fs, Rng
from firnline.log.compaction.rounds import compact
from firnline.runtime.threads.flushes import problem_of
from tests.worlds.clock import FakeClock
from tests.worlds.timers import WorldTimers

E = TypeVar("E")
TIMERS_MAX = 100_000  # that fire while time passes once; more are a loop


class World:
    """Carries out effects. Attributes that hold work back may be set at any time; see above.

    clock  its time, or the moment it begins at, in ms; worlds that share a clock share their time
    fs     the disk that rounds of compaction work on; without one nobody may ask for a round
    order  draws which of the work that is ready is done next; without one it is the oldest
    """

    holds_flushes = False
    holds_work = False
    held_work_runs = True
    holds_rounds = False
    holds_appends = False

    def __init__(
        self, clock: FakeClock | int = 0, *, fs: Fs | None = None, order: Rng | None = None
    ) -> None:
        self.clock = FakeClock(clock) if isinstance(clock, int) else clock
        self.fs: Any = fs
        self.order = order
        self.timers = WorldTimers()
        self.warnings: list[str] = []  # as `message key=value`, at warning or above
        self.notes: list[str] = []  # the same, at info or debug
        self.logged: list[str] = []  # as `logger level message key=value`
        self.replies: list[Reply] = []
        self.closed: list[CloseConnection] = []
        self.sends: list[Send] = []
        self.ensured: list[str] = []  # names of internal topics that were asked for
        self.ensure_problem: KafkaError | None = None  # what whoever asks for one is told
        self.flushes: list[Flush] = []
        self.work: list[Submit] = []
        self.rounds: list[Compact] = []
        self.appends: list[Append] = []
        self.held: Callable[[Effect], bool] = lambda effect: False
        self.on_hold: list[Effect] = []
        self._ready: deque[Effect] = deque()
        self._keyed: dict[tuple[str, Hashable], Submit] = {}  # work with a key, by pool and key
        self._limits: list[
            tuple[int, Submit]
        ] = []  # when work that is held back has taken too long
        self._slow: list[tuple[int, Submit]] = []  # when its `slow` is called next
        self._is_running = False

    @property
    def now_ms(self) -> int:
        """The time that continuations are told."""
        return self.clock.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self.clock.now_ms = now_ms

    # ------------------------------------------------------------------------------------- effects

    def run(self, effects: Effects) -> None:
        """Carry out `effects` in order, and what follows from them, except what is held and timers."""
        for effect in effects:
            getattr(self, _ACTIONS.get(type(effect), "on_other"))(effect)
        if self._is_running:
            return  # within a continuation: whoever called it goes on with what is ready
        self._is_running = True
        try:
            while self._ready:
                self.complete(self._take())
        finally:
            self._is_running = False

    def carry_out(self, effects: Effects) -> None:
        """Run `effects`, and fire the timers that are due now, until none is."""
        self.run(effects)
        self.pass_time(0)

    def complete(self, effect: Effect) -> None:
        """Do a piece of work, tell whoever waits for it, and go on."""
        if isinstance(effect, Compact):
            self._compact(effect)
        else:
            self.complete_with(effect, self.result_of(effect))

    def complete_with(self, effect: Effect, result: Any) -> None:
        """Tell whoever waits for `effect` that this came of it, and go on."""
        if isinstance(effect, Submit):
            if effect.key is not None and self._keyed.pop((effect.pool, effect.key), None) is None:
                return  # it was cancelled while it ran
            self._limits = [each for each in self._limits if each[1] is not effect]
            self._slow = [each for each in self._slow if each[1] is not effect]
        assert isinstance(effect, Flush | Submit | Compact | Append | EnsureTopic | Send)
        self.run(self.call(effect.then, result))

    def call(self, then: Callable[..., Any], *results: Any) -> Any:
        """One step of the loop: call a continuation, return what it asks for. Override it to look at each."""
        return then(*results, self.now_ms)

    def result_of(self, effect: Effect) -> Any:
        """Do what a Flush, Submit, Append or EnsureTopic asks for; return what its continuation is told."""
        if isinstance(effect, Flush):
            return synced(effect)
        if isinstance(effect, Submit):
            return worked(effect)
        if isinstance(effect, EnsureTopic):
            self.ensured.append(effect.name)
            return self.ensure_problem
        assert isinstance(effect, Append)
        return self.appended(effect)

    def appended(self, effect: Append) -> Any:
        """Append a batch; return Appended or KafkaError. A world with a log overrides it."""
        raise AssertionError(f"there is no log here to append to: {effect}")

    def _take(self) -> Effect:
        place = self.order.below(len(self._ready)) if self.order is not None else 0
        effect = self._ready[place]
        del self._ready[place]
        return effect

    # ------------------------------------------------- what each effect does; a subclass overrides

    def on_log(self, effect: Log) -> None:
        self.logged.append(line_text(effect))
        text = said(effect)
        if effect.level >= WARNING:
            self.warnings.append(text)
        else:
            self.notes.append(text)

    def on_reply(self, effect: Reply) -> None:
        self.replies.append(effect)

    def on_close(self, effect: CloseConnection) -> None:
        """Raise the problem that it is because of: nobody expects one."""
        if effect.problem is not None:
            raise effect.problem
        self.closed.append(effect)

    def on_send(self, effect: Send) -> None:
        self.sends.append(effect)

    def on_set_timer(self, effect: SetTimer) -> None:
        self.timers[effect.key] = effect

    def on_cancel_timer(self, effect: CancelTimer) -> None:
        self.timers.pop(effect.key, None)

    def on_flush(self, effect: Flush) -> None:
        self.wait_or_do(effect, self.flushes if self.holds_flushes else None)

    def on_submit(self, effect: Submit) -> None:
        if effect.key is not None:
            if (effect.pool, effect.key) in self._keyed:
                return
            self._keyed[effect.pool, effect.key] = effect
        self.wait_or_do(effect, self.work if self.holds_work else None)
        if effect.run_timeout_ms and self.held_work_runs and self._is_held(effect):
            self._limits.append((self.now_ms + effect.run_timeout_ms, effect))
            if effect.slow_ms:
                self._slow.append((self.now_ms + effect.slow_ms, effect))

    def _is_held(self, effect: Effect) -> bool:
        return any(each is effect for each in (*self.work, *self.on_hold))

    def on_cancel_submit(self, effect: CancelSubmit) -> None:
        submit = self._keyed.get((effect.pool, effect.key))
        if submit is None or (effect.only_waiting and self.runs(submit)):
            return
        del self._keyed[effect.pool, effect.key]
        if not self.runs(submit):
            self._take_out(submit)

    def runs(self, submit: Submit) -> bool:
        """Whether a thread does the work now, as long as it is held back."""
        return self.held_work_runs and self._is_held(submit)

    def _take_out(self, submit: Submit) -> None:
        waiting: list[Any]
        for waiting in (self.work, self.on_hold):
            waiting[:] = [each for each in waiting if each is not submit]
        self._ready = deque(each for each in self._ready if each is not submit)

    def on_compact(self, effect: Compact) -> None:
        self.wait_or_do(effect, self.rounds if self.holds_rounds else None)

    def on_append(self, effect: Append) -> None:
        self.wait_or_do(effect, self.appends if self.holds_appends else None)

    def on_ensure_topic(self, effect: EnsureTopic) -> None:
        self.wait_or_do(effect, None)

    def on_other(self, effect: Effect) -> None:
        """An effect that is none of `base/effects.py`."""
        raise AssertionError(f"nobody carries out {effect}")

    def wait_or_do(self, effect: Effect, waiting: list[Any] | None) -> None:
        """Put work where it waits: on hold, in the list `waiting`, or, without one, where it is ready."""
        if self.held(effect):
            self.on_hold.append(effect)
        elif waiting is not None:
            waiting.append(effect)
        else:
            self.on_ready(effect)

    def on_ready(self, effect: Effect) -> None:
        """Nothing holds this work up: `run` completes it in its turn."""
        self._ready.append(effect)

    # ------------------------------------------------------------------------------- work that waits

    def flush(self, problem: StorageError | None = None) -> None:
        """Sync what waits for it and go on; with a problem nothing is synced, and everybody is told that."""
        due, self.flushes = self.flushes, []
        for each in due:
            if problem is None:
                self.complete(each)
            else:
                self.complete_with(each, problem)

    def work_once(self) -> None:
        """Do the oldest work for a pool, and go on."""
        self.complete(self.work.pop(0))

    def compact_once(self) -> None:
        """Do the oldest round of compaction, as the process beside the loop would."""
        self.complete(self.rounds.pop(0))

    def append_once(self) -> None:
        """Append the oldest batch, and go on."""
        self.complete(self.appends.pop(0))

    def release(self) -> None:
        """Hold nothing by `held` any more; carry out what is on hold, in order."""
        on_hold, self.on_hold = self.on_hold, []
        self.held = lambda effect: False
        for effect in on_hold:
            if isinstance(effect, Submit):
                self._keyed.pop((effect.pool, effect.key), None)
        self.run(on_hold)

    def _compact(self, effect: Compact) -> None:
        running = compact(self.fs, effect.job)
        result: object = None
        try:
            while True:
                put = self.call(effect.on_group, next(running))
                if put is None:
                    result = StorageError("the log changed while it was compacted")
                    break
                self.run(put)
        except StopIteration as stop:
            result = stop.value
        except StorageError as problem:
            result = problem
        self.complete_with(effect, result)

    # ---------------------------------------------------------------------------------------- time

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass; timers fire in their order, also those that are set meanwhile."""
        end_ms = self.now_ms + duration_ms
        for _ in range(TIMERS_MAX):
            timer = self.next_timer()
            if self._report_slow_work(end_ms if timer is None else min(end_ms, timer.at_ms)):
                continue
            limit_ms, late = min(self._limits, key=lambda each: each[0], default=(end_ms + 1, None))
            if late is not None and limit_ms <= min(end_ms, timer.at_ms if timer else end_ms):
                self.time_out(late, limit_ms)
                continue
            if timer is None or timer.at_ms > end_ms:
                break
            self.fire(timer.key)
        else:
            raise AssertionError("timers without end")
        self.now_ms = end_ms

    def _report_slow_work(self, until_ms: int) -> bool:
        """Call `slow` of the work that is held back for which it is due first, before its limit."""
        due = [each for each in self._slow if each[0] <= until_ms and self._is_held(each[1])]
        limits = [at_ms for at_ms, _ in self._limits]
        first = min(due, key=lambda each: each[0], default=None)
        if first is None or any(at_ms <= first[0] for at_ms in limits):
            return False
        at_ms, submit = first
        assert submit.slow is not None
        self._slow = [each for each in self._slow if each is not first]
        self._slow.append((at_ms + submit.slow_ms, submit))
        self.now_ms = max(self.now_ms, at_ms)
        self.run(self.call(submit.slow))
        return True

    def time_out(self, submit: Submit, at_ms: int) -> None:
        """The time of work that is held back is over at `at_ms`."""
        self.now_ms = max(self.now_ms, at_ms)
        self._take_out(submit)
        self.complete_with(submit, WorkTimedOut("work did not end in time", work=submit.name))

    def next_timer(self) -> SetTimer | None:
        """The timer that fires next: of those due at the same time the one that was set first."""
        return self.timers.next()

    def due_timer(self) -> SetTimer | None:
        """The timer that fires next, if it is due now."""
        timer = self.next_timer()
        return timer if timer is not None and timer.at_ms <= self.now_ms else None

    def fire(self, key: Hashable) -> None:
        """Fire a timer; if it is not due yet the clock goes on until it is."""
        timer = self.timers.pop(key)
        self.now_ms = max(self.now_ms, timer.at_ms)
        self.run(self.call(timer.then))


def carried_out(effects: Effects, now_ms: int, *, for_ms: int = 0) -> World:
    """Return a world in which `effects` were carried out at `now_ms`, and which lived on for so long."""
    world = World(now_ms)
    world.run(effects)
    world.pass_time(for_ms)
    return world


def only(effects: Iterable[object], kind: type[E]) -> E:
    """Return the one effect that there is, which is of that class."""
    (effect,) = effects
    assert isinstance(effect, kind), effect
    return effect


def synced(flush: Flush) -> StorageError | None:
    """Sync the files of a Flush, all of them; return what its continuation is told."""
    return problem_of(flush, _sync_problems(flush.files))


def _sync_problems(files: Sequence[File]) -> dict[str, StorageError]:
    problems: dict[str, StorageError] = {}
    for file in files:
        try:
            file.sync()
        except StorageError as problem:
            problems[file.path] = problem
    return problems


def worked(submit: Submit) -> Any:
    """Do the work of a Submit as a thread does; return what its continuation is told."""
    try:
        return submit.work()
    except Exception as problem:  # noqa: BLE001 - the continuation decides what it means
        return problem


def kept(answers: list[Any]) -> Callable[[Any, int], Effects]:
    """Return a continuation that puts what it is told into `answers`."""

    def then(answer: Any, now_ms: int) -> Effects:
        answers.append(answer)
        return []

    return then


def line_text(effect: Log) -> str:
    """Return a line as an operator sees it, without the time."""
    level = LEVEL_NAMES[effect.level]
    return f"{effect.line.logger} {level} {said(effect)}"


def told(message: str, level: int = INFO) -> Log:
    """Return a line of a test."""
    return LogLine("firnline", level, message, (), "")()


def said(effect: Log) -> str:
    """Return `message key=value` of a line."""
    return f"{effect.line.message}{fields_text(effect.known_fields())}"


# By type, as the simulator's host: the method that carries it out.
_ACTIONS: dict[type, str] = {
    Append: "on_append",
    CancelSubmit: "on_cancel_submit",
    CancelTimer: "on_cancel_timer",
    CloseConnection: "on_close",
    Compact: "on_compact",
    EnsureTopic: "on_ensure_topic",
    Flush: "on_flush",
    Log: "on_log",
    Reply: "on_reply",
    Send: "on_send",
    SetTimer: "on_set_timer",
    Submit: "on_submit",
}
