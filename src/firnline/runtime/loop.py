"""The runtime: calls a node's logic with events and carries out the effects it returns. WORLD.

Everything runs on one thread, in one event loop. Events are requests of clients (`runtime/net`), results of
threads (`runtime/threads`), responses of other nodes (`runtime/links`) and timers. Each call of the logic
returns effects, which `execute` carries out in list order. An effect for another part of the same node
(Append, EnsureTopic) goes back to the node. Continuations run through `resume`: an exception in one means
that the state is broken, and stops the node.
"""

import queue
import time
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from firnline.api.context import RequestContext
from firnline.api.dispatch import Dispatcher
from firnline.base.background import Background
from firnline.base.counting.times import Times
from firnline.base.effects import (
    CancelSubmit,
    CancelTimer,
    CloseConnection,
    Compact,
    Effects,
    Flush,
    Reply,
    Send,
    SetTimer,
    Submit,
)
from firnline.base.errors import ConfigError, StorageError
from firnline.base.log_lines.line import Log
from firnline.base.log_lines.process import NODE_STOPS
from firnline.base.units import MIB
from firnline.protocol.schema import Part
from firnline.runtime.bounds.admission import Admission
from firnline.runtime.bounds.answers import ANSWERS_BYTES_MAX, Answers
from firnline.runtime.bounds.incoming import INCOMING_BYTES_MAX, Incoming
from firnline.runtime.clock import SteadyClock
from firnline.runtime.compactors import Compactors
from firnline.runtime.disk import close_off_the_loop
from firnline.runtime.failed_requests import FailedRequests
from firnline.runtime.links import Links
from firnline.runtime.listener import Server
from firnline.runtime.logs.lines import log_line, process_lines
from firnline.runtime.poll import PollLoop
from firnline.runtime.steps import SLOW_S
from firnline.runtime.threads.doorbell import Doorbell
from firnline.runtime.threads.flushes import FlushGroups
from firnline.runtime.threads.pools import CODEC_THREADS, END_S, Directories, PoolFacts, Pools
from firnline.runtime.timers import Timer

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode
    from firnline.runtime.net import Connection

_HOUSEKEEPING_S = 5.0
# Threads for each log directory that read old segments into the page cache for consumers.
_PAGE_READERS = 4
# Threads for probes of a store. There is one probe at a time, but one that hangs keeps its thread for longer.
_PROBERS = 8
T = TypeVar("T")
Results = TypeVarTuple("Results")
# Encodes a response in slices: yields the number of bytes of each slice, and returns the frame.
Encoding = Generator[int, None, list[Part]]


class Runtime:
    """Runs one node. `failure` is the bug or the failed disk that made the node stop by itself.

    threads    the number of threads of each pool, or of each log directory for pools that wait for disks
    queue_max  how much work may wait in a pool, where it is not `POOL_QUEUE_MAX`
    """

    def __init__(
        self,
        node: "AnyNode",
        loop: PollLoop,
        *,
        threads: dict[str, int],
        queue_max: Mapping[str, int] | None = None,
        directories: Sequence[str] = (),
        client_id: str = "firnline",
        answer_bytes_max: int = 100 * MIB,
        held_answers_bytes_max: int = ANSWERS_BYTES_MAX,
        incoming_bytes_max: int = INCOMING_BYTES_MAX,
    ) -> None:
        self.node = node
        self.loop = loop
        self.clock = SteadyClock()
        self.now_ms = self.clock.now_ms
        # For a listener that has none of its own (runtime/listener).
        self.dispatcher = Dispatcher(node, clock=time.perf_counter)
        self.servers: list[Server] = []
        self.failure: BaseException | None = None
        self._doorbell = Doorbell(loop, self.resume)
        disks = Directories(directories)
        self._flushes = FlushGroups(loop, self._doorbell, self._flushed, disks)
        threads = {**threads, "names": 1, "pages": _PAGE_READERS, "probe": _PROBERS, "votes": 1}
        threads.setdefault("codec", CODEC_THREADS)
        threads.setdefault("index", threads.get("read", 1))
        self._pools = Pools(threads, self._doorbell, disks, loop.call_later, queue_max)
        self._compactors = Compactors(self._doorbell.ring)
        self.links = Links(self, client_id=client_id, frame_bytes_max=answer_bytes_max)
        self._timers: dict[Hashable, Timer] = {}
        self.admission = Admission(loop.call_soon)
        self.answers = Answers(loop, self.resume, held_answers_bytes_max)
        self.incoming = Incoming(loop, incoming_bytes_max)
        self._encoding = Background("answers", is_round_robin=True)
        self.failed_requests = FailedRequests()
        self._table: dict[type, Callable[[Any], None]] = {
            Flush: self._flushes.add,
            Send: self.links.send,
            SetTimer: self._set_timer,
            Submit: self._submit,
            CancelSubmit: self._pools.cancel,
            Compact: self._compactors.add,
            CancelTimer: self._cancel_timer,
            CloseConnection: self._close_connection,
            Log: log_line,
        }
        close_off_the_loop()
        self._housekeeping = loop.call_later(_HOUSEKEEPING_S, self._keep_house)

    def start(self) -> None:
        """Start the node; the event loop does the rest."""
        self.execute(self.node.start(self.now_ms()))

    def execute(self, effects: Effects) -> None:
        """Carry out effects in order."""
        for effect in effects:
            kind = type(effect)
            if kind is Reply:  # the common case: a single Reply
                self._reply(effect)  # type: ignore[arg-type] # see `kind`
                continue
            act = self._table.get(kind)
            if act is not None:
                act(effect)
            else:
                self.execute(self.node.perform(effect, self.now_ms()))

    def resume(self, then: Callable[[*Results, int], Effects], *results: *Results) -> None:
        """Call a continuation and carry out its effects; an exception in it stops the node.

        An exception while a response is made or encoded concerns that request only, and is caught there
        (runtime/failed_requests).
        """
        began = time.monotonic()
        self.loop.slow_steps.begins(began)
        try:
            self.execute(then(*results, self.now_ms()))
            took_s = time.monotonic() - began
            if took_s > SLOW_S:
                self.loop.slow_steps.ended(then, took_s)
        except Exception as problem:  # noqa: BLE001 - a bug: stop rather than go on with a broken state
            self.fail(problem)

    def fail(self, problem: BaseException) -> None:
        """Stop the node because of a bug or a failed disk."""
        ours = None if isinstance(problem, (ConfigError, StorageError)) else problem
        log_line(NODE_STOPS(error=problem), ours)
        if self.failure is None:
            self.failure = problem
        self.loop.stop()

    def ask(self, work: Callable[[], T], timeout_s: float) -> T:
        """Run `work` on the event loop for another thread; return its result, or raise what it raised.

        TimeoutError when the event loop did not run it in time.
        """
        answers: queue.SimpleQueue[tuple[T, None] | tuple[None, Exception]] = queue.SimpleQueue()

        def answer(result: object, now_ms: int) -> Effects:
            try:
                answers.put((work(), None))
            except Exception as problem:  # noqa: BLE001 - it is the caller's, and does not stop the node
                answers.put((None, problem))
            return []

        self._doorbell.ring(answer, None)
        try:
            found = answers.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError("the event loop is busy") from None
        if found[1] is not None:
            raise found[1]
        return found[0]

    @property
    def flush_times(self) -> Times:
        """How long rounds of syncs took."""
        return self._flushes.times

    def delayed(self) -> Counter[object]:
        """Return how many operations of each kind, such as `produce`, wait with a timer of their own."""
        return Counter(key[0] for key in self._timers if isinstance(key, tuple))

    @property
    def stuck_compactions(self) -> int:
        """Rounds of compaction that are over but whose process could not be ended."""
        return self._compactors.stuck

    @property
    def abandoned_threads(self) -> int:
        """Threads whose work has timed out and has not ended yet, as when a remote store hangs."""
        return self._pools.abandoned

    def pool_facts(self) -> dict[str, PoolFacts]:
        """Return what the thread pools of each name do."""
        return self._pools.facts()

    def close(self) -> bool:
        """Close the connections and end the threads, after the node was shut down.

        False: a thread waits for a disk or a store that hangs. The process must then exit at once,
        without it.
        """
        self._housekeeping.cancel()
        for server in self.servers:
            server.close()
        self.links.close()
        for timer in self._timers.values():
            timer.cancel()
        self.answers.close()
        self.incoming.close()
        self._compactors.close()
        until_s = time.monotonic() + END_S
        ended = self._flushes.close(until_s), self._pools.close(until_s)
        self._doorbell.close()
        return all(ended)

    # ---- effects

    def _reply(self, effect: Reply[RequestContext]) -> None:
        connection: Connection = effect.context.connection  # type: ignore[assignment] # ours
        if effect.message is None:
            connection.answer(None, effect.context.turn)
        elif connection.closed:
            if effect.context.is_large:
                connection.response_memory.keeps(effect.message)
        elif effect.context.is_large:
            connection.response_memory.keeps(effect.message)
            encoding = connection.dispatcher.encoding(effect)
            self.execute(self._encode_on(effect, encoding, self.now_ms()))
        else:
            try:
                parts = connection.dispatcher.encode(effect)
            except Exception as problem:  # noqa: BLE001 - it may concern this response alone
                connection.failed(problem, effect.context)
            else:
                connection.answer(parts, effect.context.turn)

    def _encode_on(self, effect: Reply[RequestContext], encoding: Encoding, now_ms: int) -> Effects:
        """Encode the response to a sliced request, in slices, too."""
        work = self._encode(effect, encoding)
        return self._encoding.begin(work, now_ms, is_urgent=effect.context.is_urgent)

    def _encode(
        self, effect: Reply[RequestContext], encoding: Encoding
    ) -> Generator[Effects, int, None]:
        """Encode the remaining slices. Where responses hold too much memory, stop, and continue later."""
        connection: Connection = effect.context.connection  # type: ignore[assignment] # ours
        memory = effect.context.response_memory
        try:
            while not connection.closed:
                yield []
                if memory is not None and memory.must_wait():
                    memory.wait(partial(self._encode_on, effect, encoding))
                    return
                size_bytes = next(encoding)
                if memory is not None:
                    memory.grow(size_bytes)
        except StopIteration as done:
            connection.answer(done.value, effect.context.turn)
        except Exception as problem:  # noqa: BLE001 - it may concern this response alone
            connection.failed(problem, effect.context)

    def _close_connection(self, effect: CloseConnection[RequestContext]) -> None:
        connection: Connection = effect.context.connection  # type: ignore[assignment] # ours
        if effect.problem is None:
            connection.close()
            return
        connection.failed(effect.problem, effect.context, closes=effect.instead is None)
        if effect.instead is not None:
            self._reply(effect.instead)

    def _submit(self, effect: Submit[Any]) -> None:
        refusal = self._pools.add(effect)
        if refusal is not None:
            self.loop.call_soon(self.resume, effect.then, refusal)

    def _set_timer(self, effect: SetTimer) -> None:
        old = self._timers.get(effect.key)
        if old is not None:
            old.cancel()
        delay_s = max(0, effect.at_ms - self.now_ms()) / 1000
        self._timers[effect.key] = self.loop.call_later(delay_s, self._fire, effect)

    def _fire(self, effect: SetTimer) -> None:
        del self._timers[effect.key]
        self.resume(effect.then)

    def _cancel_timer(self, effect: CancelTimer) -> None:
        timer = self._timers.pop(effect.key, None)
        if timer is not None:
            timer.cancel()

    def _flushed(self, flush: Flush, problem: StorageError | None) -> None:
        self.resume(flush.then, problem)

    def _keep_house(self) -> None:
        self._housekeeping = self.loop.call_later(_HOUSEKEEPING_S, self._keep_house)
        self.clock.follow()
        now_ms = self.now_ms()
        for server in self.servers:
            server.sweep(now_ms)
        self.links.sweep(now_ms)
        process_lines.sweep()
