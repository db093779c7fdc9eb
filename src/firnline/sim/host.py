"""A simulated machine and the process on it: the work of `runtime/`, on virtual time. SIM.

The disk belongs to the machine and outlives its processes; so does the wall clock. A process is one start of
the production code: its effects are carried out, it may be killed, lose power or be paused, and it never
comes back.
"""

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Protocol

from firnline.api.context import RequestContext
from firnline.base.effects import (
    CancelSubmit,
    CancelTimer,
    CloseConnection,
    Compact,
    Effect,
    Effects,
    Flush,
    Reply,
    Send,
    SetTimer,
    Submit,
)
from firnline.base.errors import StorageError, WorkTimedOut
from firnline.base.log_lines.line import Log
from firnline.log.compaction.rounds import CleanedGroup, Compaction, Round, compact
from firnline.metadata.meta_log import MetaLog
from firnline.metadata.quorum import MetadataQuorum
from firnline.raft.node import RaftNode
from firnline.runtime.clock import FOLLOW_S, SteadyClock
from firnline.runtime.threads.flushes import problem_of
from firnline.sim.disk import CrashableFs, Keep
from firnline.sim.options import Options
from firnline.sim.world import Chance, Event, MachineClock, World

# A loop that continues at once still first handles what has arrived.
_TURN_US = 20


class ProcessEnded(BaseException):
    """A device ends the process in the middle of a piece of work."""


class ReceivedRequest(Protocol):
    """A request as the machine that handles it sees it; `Call` in `sim/net.py` is one."""

    @property
    def port(self) -> int:
        """The port that it was sent to."""
        ...

    @property
    def version(self) -> int:
        """The version of its API."""
        ...

    def answer(self, response: Any) -> Reply[Any]: ...

    def context(self) -> RequestContext:
        """What a handler of the API gets."""
        ...


class Machine(Protocol):
    """The production code as the simulator drives it; `sim/quorum_node.py` is one."""

    quorum: MetadataQuorum
    raft: RaftNode
    log: MetaLog

    @property
    def controller(self) -> Any:
        """The controller while it is active; None on a node without one."""
        ...

    @property
    def broker(self) -> Any:
        """The broker; None on a node without one."""
        ...

    def start(self, now_ms: int) -> Effects: ...

    def takes(self, port: int) -> bool:
        """Whether requests to that port are read already. Before that they wait in the kernel."""
        ...

    def on_request(self, request: Any, call: ReceivedRequest, now_ms: int) -> Effects: ...

    def perform(self, effect: Effect, now_ms: int) -> Effects: ...

    def shutdown(self, then: Callable[[], None], now_ms: int) -> Effects:
        """Shut down in order; `then()` is called when the files are closed."""
        ...


class Environment(Protocol):
    """The environment of a process: the network, and the checkers. `sim/run.py` is one."""

    def send(self, process: "Process", effect: Send[Any]) -> None: ...

    def reply(self, process: "Process", effect: Reply[Any]) -> None: ...

    def close_connection(self, process: "Process", effect: CloseConnection[Any]) -> None: ...

    def make(self, host: "Host", process: "Process", now_ms: int) -> Machine: ...

    def stepped(self, process: "Process") -> None:
        """The process took a step: check it."""
        ...

    def failed(self, process: "Process", problem: BaseException) -> None:
        """The production code raised: judge whether it may have."""
        ...

    def ended_in_work(self, process: "Process") -> None:
        """A device ended the process (`ProcessEnded`)."""
        ...

    def took(self, process: "Process", what: str, taken_us: int) -> None:
        """A step took long: check whether it may."""
        ...

    def stopped(self, process: "Process", *, is_power: bool) -> None:
        """The process is gone, with its connections."""
        ...


class _Work:
    """Work for a thread, from its Submit to its result."""

    __slots__ = ("effect", "has_begun", "is_cancelled")

    def __init__(self, effect: Submit[Any]) -> None:
        self.effect = effect
        self.has_begun = False
        self.is_cancelled = False


def _timed_out(effect: Submit[Any]) -> WorkTimedOut:
    return WorkTimedOut("work did not end in time", work=effect.name)


class Process:
    """One start of a node. Everything it waits for dies with it."""

    __slots__ = (
        "backlog",
        "clock",
        "follow",
        "host",
        "is_alive",
        "is_busy",
        "is_paused",
        "is_ready",
        "machine",
        "number",
        "step_ms",
        "_in_flight",
        "_keyed",
        "_timers",
        "_waiting",
    )

    def __init__(self, host: "Host", number: int) -> None:
        self.host = host
        self.number = number
        self.is_alive = True
        self.is_paused = False
        self.is_busy = False  # a step takes time, and whatever arrives waits
        self.is_ready = False  # its machine is made
        self.clock = SteadyClock(host.clock.monotonic, host.clock.wall)
        self.step_ms = self.clock.now_ms()  # when the last step began
        self.machine: Machine
        self.backlog: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.follow: Event | None = None
        self._timers: dict[Hashable, Event] = {}
        self._waiting: list[Flush] = []
        self._in_flight: list[Flush] = []
        self._keyed: dict[tuple[str, Hashable], _Work] = {}  # by pool and key

    @property
    def node_id(self) -> int:
        return self.host.node_id

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def when_awake(self, action: Callable[..., None], *arguments: Any) -> None:
        """Do it now, or when the pause ends; never when the process is gone."""
        if not self.is_alive:
            return
        if self.is_held:
            self.backlog.append((action, arguments))
        else:
            action(*arguments)

    @property
    def is_held(self) -> bool:
        """Whether arriving messages wait."""
        return self.is_paused or self.is_busy

    def go_on(self) -> None:
        """Handle what has arrived, in order, until something holds the process up."""
        while self.backlog and self.is_alive and not self.is_held:
            action, arguments = self.backlog.popleft()
            action(*arguments)

    def step(self, what: str, then: Callable[..., Effects], *results: Any) -> None:
        """Let the production code take one step, carry out its effects, and check it."""
        if not self.is_alive:
            return
        if self.is_held:
            self.backlog.append((self.step, (what, then, *results)))
            return
        host = self.host
        host.world.note(host.node_id, what)
        now_ms = self.step_ms = self.clock.now_ms()
        read_bytes = host.fs.read_bytes
        try:
            self.execute(then(*results, now_ms))
        except Exception as problem:  # noqa: BLE001 - whatever the node raises is what is judged
            host.environment.failed(self, problem)
            return
        host.environment.stepped(self)
        if self.is_alive:
            self._take_time(what, host.fs.read_bytes - read_bytes)

    def _take_time(self, what: str, read_bytes: int) -> None:
        """A step takes as long as its reads say; what it sends leaves when it begins."""
        host = self.host
        taken_us = host.options.step_us(read_bytes)
        if not taken_us:
            return
        self.is_busy = True
        host.world.after(taken_us, self._is_done)
        host.environment.took(self, what, taken_us)

    def _is_done(self) -> None:
        self.is_busy = False
        self.go_on()

    def execute(self, effects: Effects) -> None:
        """Carry out effects in order."""
        for effect in effects:
            act = _ACTIONS.get(type(effect))
            if act is not None:
                act(self, effect)
            else:
                self.execute(self.machine.perform(effect, self.step_ms))

    # ---- effects

    def _send(self, effect: Send[Any]) -> None:
        self.host.environment.send(self, effect)

    def _reply(self, effect: Reply[Any]) -> None:
        fs = self.host.fs
        read_bytes = fs.read_bytes
        self.host.environment.reply(self, effect)
        fs.read_bytes = read_bytes  # the kernel reads what a response points to

    def _log(self, effect: Log) -> None:
        self.host.world.note(
            self.host.node_id, f"logs: {effect.line.message} {dict(effect.known_fields())}"
        )

    def _close_connection(self, effect: CloseConnection[Any]) -> None:
        if effect.problem is not None:
            raise effect.problem
        self.host.environment.close_connection(self, effect)

    def _set_timer(self, effect: SetTimer) -> None:
        old = self._timers.get(effect.key)
        if old is not None:
            old.cancel()
        delay_ms = max(0, effect.at_ms - self.step_ms)
        delay_us = max(_TURN_US, self.host.clock.virtual_us(delay_ms))
        self._timers[effect.key] = self.host.world.after(delay_us, self._timer_due, effect)

    def _timer_due(self, effect: SetTimer) -> None:
        if self.is_held:
            self.backlog.append((self._timer_due, (effect,)))
            return
        event = self._timers.get(effect.key)
        if event is None or not event.arguments or event.arguments[0] is not effect:
            return  # replaced or cancelled while the process was paused
        del self._timers[effect.key]
        self.step(_timer_name(effect.key), effect.then)

    def _cancel_timer(self, effect: CancelTimer) -> None:
        timer = self._timers.pop(effect.key, None)
        if timer is not None:
            timer.cancel()

    def _submit(self, effect: Submit[Any]) -> None:
        """As the pools do (`runtime/threads/pool.py`), but without a limit of threads and of queues."""
        work = _Work(effect)
        if (
            effect.key is not None
            and self._keyed.setdefault((effect.pool, effect.key), work) is not work
        ):
            return
        delay_us = self.host.chance.spread(200, 20_000)
        self.host.world.after(delay_us, self._begin_work, work, delay_us)

    def _begin_work(self, work: "_Work", waited_us: int) -> None:
        """A thread works while the loop does: half of the delay before it, half after it."""
        effect, host = work.effect, self.host
        if not self.is_alive or work.is_cancelled:
            return
        work.has_begun = True
        if 0 < effect.queue_timeout_ms * 1000 < waited_us:
            self.step(f"late: {effect.name}", self._deliver, work, _timed_out(effect))
            return
        host.device_us = 0
        try:
            result = effect.work()
        except ProcessEnded:
            host.environment.ended_in_work(self)
            return
        except Exception as problem:  # noqa: BLE001 - the continuation decides what it means
            result = problem
        delay_us = host.chance.spread(20, 20_000) + host.slow_work_us + host.device_us
        limit_us = host.clock.virtual_us(effect.run_timeout_ms)
        self._report_slow_work(work, min(delay_us, limit_us))
        if effect.run_timeout_ms and limit_us < delay_us:
            what = f"late: {effect.name}"
            host.world.after(limit_us, self.step, what, self._deliver, work, _timed_out(effect))
            if effect.ended is not None:
                host.world.after(delay_us, self.step, f"ended: {effect.name}", effect.ended)
            return
        host.world.after(delay_us, self.step, f"done: {effect.name}", self._deliver, work, result)

    def _report_slow_work(self, work: "_Work", ends_us: int) -> None:
        """Call `slow` for each `slow_ms` that the work runs."""
        effect, host = work.effect, self.host
        if effect.slow is None or not effect.slow_ms:
            return
        each_us = host.clock.virtual_us(effect.slow_ms)
        for after_us in range(each_us, ends_us, each_us):
            host.world.after(after_us, self.step, f"slow: {effect.name}", effect.slow)

    def _deliver(self, work: "_Work", result: Any, now_ms: int) -> Effects:
        effect = work.effect
        if work.is_cancelled:
            return []
        if effect.key is not None:
            del self._keyed[effect.pool, effect.key]
        return effect.then(result, now_ms)

    def _cancel_submit(self, effect: CancelSubmit) -> None:
        name = (effect.pool, effect.key)
        work = self._keyed.get(name)
        if work is not None and not (work.has_begun and effect.only_waiting):
            work.is_cancelled = True
            del self._keyed[name]

    def _compact(self, effect: Compaction) -> None:
        """A separate process, which continues while this one is paused, and ends with it."""
        running = compact(self.host.fs, effect.job)
        self._later_group(effect, running)

    def _later_group(self, effect: Compaction, running: Round) -> None:
        delay_us = self.host.chance.spread(1_000, 1_000_000)
        self.host.world.after(delay_us, self._group, effect, running)

    def _group(self, effect: Compaction, running: Round) -> None:
        if not self.is_alive:
            return
        try:
            group = next(running)
        except StopIteration as stop:
            self.step("compacted", effect.then, stop.value)
        except StorageError as problem:
            self.step("not compacted", effect.then, problem)
        else:
            self.step("compacted a group", partial(self._put, effect, running), group)

    def _put(self, effect: Compaction, running: Round, group: CleanedGroup, now_ms: int) -> Effects:
        effects = effect.on_group(group, now_ms)
        if effects is not None:
            self._later_group(effect, running)
            return effects
        running.close()
        return effect.then(StorageError("the log changed while it was compacted"), now_ms)

    def _flush(self, effect: Flush) -> None:
        self._waiting.append(effect)
        if not self._in_flight:
            self._start_flush()

    def _start_flush(self) -> None:
        """Run one group of syncs at a time; later requests wait for the next, as in production."""
        host = self.host
        self._in_flight, self._waiting = self._waiting, []
        delay_us = host.flush_us()
        host.sync_ends_us = host.world.now_us + delay_us
        # The device may have had the bytes long before, or only just.
        if host.chance.below(2):
            host.world.after(delay_us, self._flushed, self._sync_in_flight())
        else:
            host.world.after(delay_us, self._sync_and_report)

    def _sync_in_flight(self) -> dict[str, StorageError]:
        files = {file.path: file for flush in self._in_flight for file in flush.files}
        problems: dict[str, StorageError] = {}
        for file in files.values():
            try:
                file.sync()
            except StorageError as found:
                problems[file.path] = found
        return problems

    def _sync_and_report(self) -> None:
        if self.is_alive:
            self._flushed(self._sync_in_flight())

    def _flushed(self, problems: dict[str, StorageError]) -> None:
        if not self.is_alive:
            return
        if self.is_held:
            self.backlog.append((self._flushed, (problems,)))
            return
        finished, self._in_flight = self._in_flight, []
        if self._waiting:
            self._start_flush()
        for flush in finished:
            problem = problem_of(flush, problems)
            self.step(
                "synced" if problem is None else f"sync failed: {problem}", flush.then, problem
            )


_ACTIONS: dict[type, Callable[[Process, Any], None]] = {
    Send: Process._send,
    Reply: Process._reply,
    Flush: Process._flush,
    SetTimer: Process._set_timer,
    CancelTimer: Process._cancel_timer,
    Submit: Process._submit,
    CancelSubmit: Process._cancel_submit,
    Compact: Process._compact,
    Log: Process._log,
    CloseConnection: Process._close_connection,
}


class Host:
    """One machine: a disk, clocks, and at most one process."""

    def __init__(
        self, node_id: int, world: World, options: Options, environment: Environment
    ) -> None:
        self.node_id = node_id
        self.world = world
        self.options = options
        self.environment = environment
        self.chance = world.chance("host", node_id)
        self.rng = world.chance("node", node_id)
        self.clock = MachineClock(
            world,
            rate_ppm=self.chance.between(-options.drift_ppm_max, options.drift_ppm_max),
            offset_s=self.chance.between(-options.wall_offset_s_max, options.wall_offset_s_max),
        )
        self.fs = self._new_disk()
        self.disk_number = 0  # how often the disk was replaced
        self.process: Process | None = None
        self.is_powered = True
        self.slow_flush_us = 0
        self.slow_work_us = 0  # how much longer work on a thread takes
        self.device_us = 0  # what devices besides the disk add to the time of one piece of work
        self.sync_ends_us = 0  # of the newest sync that began
        self.starts = 0
        self.wanted_down = 0  # faults that keep it down
        self.has_bad_disk = False  # a failure was injected and may show

    def _new_disk(self) -> CrashableFs:
        return CrashableFs(clock_ms=self.clock.wall_ms)

    def flush_us(self) -> int:
        """How long the next sync takes."""
        low, high = self.options.flush_us
        return self.chance.spread(low, high) + self.slow_flush_us

    def start(self) -> None:
        """Boot if needed and start the node, unless it runs or a fault keeps it down."""
        if self.process is not None or self.wanted_down:
            return
        self.is_powered = True
        self.starts += 1
        if self.options.cold_percent:
            chance = self.world.chance("cold", self.node_id, self.starts)
            self.fs.is_cold = partial(chance.happens, self.options.cold_percent)
        process = self.process = Process(self, self.starts)
        now_ms = process.now_ms()
        self.world.note(self.node_id, "starts")
        try:
            process.machine = self.environment.make(self, process, now_ms)
            process.is_ready = True
            process.execute(process.machine.start(now_ms))
        except Exception as problem:  # noqa: BLE001 - whatever the node raises is what is judged
            self.environment.failed(process, problem)
            return
        self._follow(process)
        self.environment.stepped(process)

    def kill(self) -> None:
        """SIGKILL: the page cache survives, still not synced."""
        if self._end(is_power=False):
            self.fs = self.fs.kill()
            self.has_bad_disk = False  # the injected failure is gone with the file handles

    def cut_power(self, chance: Chance, *, keep: Keep = "some") -> None:
        """Lose the process and everything that was not synced; the network does not notice."""
        self._end(is_power=True)
        self.is_powered = False
        self.has_bad_disk = False
        self.fs = self.fs.crash(chance, keep=keep)

    def stop(self, done: Callable[[], None]) -> None:
        """SIGTERM: the node resigns and closes; call `done` when it is gone, if nothing else ends it
        first.
        """
        process = self.process
        if process is None:
            return

        def stopped() -> None:
            # The process ends after the step that says so.
            self.world.after(1, self._exit, process, done)

        process.step("is asked to stop", process.machine.shutdown, stopped)

    def _exit(self, process: Process, done: Callable[[], None]) -> None:
        if process.is_alive:
            self.world.note(self.node_id, "stops")
            self.kill()
            done()

    def replace_disk(self) -> None:
        """Replace the disk by an empty one."""
        assert self.process is None, "a disk is replaced while the machine is off"
        self.fs = self._new_disk()
        self.disk_number += 1

    def pause(self) -> None:
        """SIGSTOP: time continues, the process does not."""
        if self.process is not None:
            self.process.is_paused = True

    def resume(self) -> None:
        """SIGCONT: handle what has arrived meanwhile, in order."""
        process = self.process
        if process is None or not process.is_paused:
            return
        process.is_paused = False
        process.go_on()

    def _end(self, *, is_power: bool) -> bool:
        process, self.process = self.process, None
        if process is None:
            return False
        process.is_alive = False
        process.backlog.clear()
        if process.follow is not None:
            process.follow.cancel()
        self.environment.stopped(process, is_power=is_power)
        return True

    def _follow(self, process: Process) -> None:
        """The housekeeping of the loop: the steady clock follows the wall clock."""
        if process.is_alive:
            process.clock.follow()
            delay_us = self.clock.virtual_us(FOLLOW_S * 1000)
            process.follow = self.world.after(delay_us, self._follow, process)


def _timer_name(key: Hashable) -> str:
    words = key if isinstance(key, tuple) else (key,)
    return "timer: " + "/".join(
        str(word) if isinstance(word, str | int) else type(word).__name__ for word in words
    )
