"""Runs rounds of compaction in processes: starts one, passes its groups to the loop, ends it. WORLD.

A thread waits for each process, in the kernel. If a process dies, or sends nothing for two minutes, its round
fails: the log is as before, except for the groups that were swapped in. Files that the process was writing
are deleted once it has ended. The error has the process's end, and its last output.
"""

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import firnline
from firnline.base.effects import Effects
from firnline.base.errors import StorageError
from firnline.base.log_lines.storage import COMPACTION_STUCK
from firnline.log.compaction.cleaner import Damaged
from firnline.log.compaction.rounds import (
    CleanedGroup,
    Compaction,
    RoundDone,
    fields_of,
    remove_leftovers,
)
from firnline.runtime.disk import RealFs

_COMMAND = [sys.executable, "-P", "-m", "firnline.runtime.compact_main"]
_ROOT = str(Path(firnline.__file__).parents[1])
# As long as a disk may hang before it counts as failed in other places.
SILENCE_MAX_S = 120.0
# A process that waits for a disk cannot end before the disk answers; the node does not wait longer than this.
_END_MAX_S = 5.0
_KILL_MAX_S = 5.0
_NICE = 19
_RETRIED = "the round is tried again at the next check for logs that are due"
_LINE_BYTES_MAX = 1 << 20
_READ_BYTES = 1 << 16
Ring = Callable[[Callable[..., Effects], Any], None]


class Compactors:
    """The processes that compact logs of one node.

    ring  hands a continuation and its result to the loop, from any thread
    """

    def __init__(self, ring: Ring, silence_max_s: float = SILENCE_MAX_S) -> None:
        self._ring = ring
        self._silence_max_s = silence_max_s
        self._rounds: dict[int, _Round] = {}
        self._begun = 0
        self._is_closed = False

    def add(self, effect: Compaction) -> None:
        """Begin a round. Called on the loop."""
        self._begun += 1
        number = self._begun
        self._rounds[number] = _Round(effect, self._ring, self._silence_max_s)
        done = partial(self._done, number, effect)
        name = f"firnline-compact-{number}"
        thread = threading.Thread(
            target=self._rounds[number].run, args=(done,), name=name, daemon=True
        )
        try:
            thread.start()
        except RuntimeError as problem:
            done(
                StorageError(
                    "a thread for compaction cannot be started",
                    problem=problem,
                    remedy="raise the limit of threads and of memory for the user that runs the server",
                )
            )
            return
        self._rounds[number].thread = thread

    @property
    def stuck(self) -> int:
        """The number of failed rounds whose process cannot be ended; each keeps its place."""
        return sum(one.is_stuck for one in self._rounds.values())

    def _done(self, number: int, effect: Compaction, result: RoundDone | Exception) -> None:
        def then(found: RoundDone | Exception, now_ms: int) -> Effects:
            self._rounds.pop(number, None)
            return effect.then(found, now_ms)

        self._ring(then, result)

    def close(self) -> None:
        """End all processes, and wait a few seconds for them; the loop does not run any more."""
        for one in list(self._rounds.values()):
            one.end()
        end_s = time.monotonic() + _END_MAX_S
        for one in list(self._rounds.values()):
            if one.thread is not None:
                one.thread.join(max(0.0, end_s - time.monotonic()))


class _Round:
    """One round, on a thread that waits for its process."""

    def __init__(self, effect: Compaction, ring: Ring, silence_max_s: float) -> None:
        self._effect = effect
        self._ring = ring
        self._silence_max_s = silence_max_s
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._effects: Effects = []
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._said = b""
        self._lock = threading.Lock()
        self._is_over = False
        self.is_stuck = False
        self.thread: threading.Thread | None = None

    def run(self, done: Callable[[RoundDone | Exception], None]) -> None:
        result: RoundDone | Exception
        try:
            result = self._run()
        except StorageError as problem:
            result = problem
        except (OSError, ValueError, KeyError, TypeError) as problem:
            result = StorageError("the process that compacts failed", problem=problem)
        if not isinstance(result, RoundDone):
            with contextlib.suppress(StorageError):  # the directory is deleted, or has failed
                remove_leftovers(RealFs(), self._effect.job.path)
        done(result)

    def _run(self) -> RoundDone | StorageError:
        with self._lock:
            if self._is_over:
                return StorageError("the node stops")
            process = self._process = self._begin()
        try:
            self._write(process, fields_of(self._effect.job))
            while True:
                message = self._read(process)
                if "group" in message:
                    bases, size_bytes = message["group"]
                    is_in = self._put(CleanedGroup(tuple(bases), size_bytes))
                    self._write(process, is_in)
                    if not is_in:
                        return StorageError("the log changed while it was compacted")
                elif "done" in message:
                    return RoundDone(*message["done"])
                elif "problem" in message:
                    kind = Damaged if message["is_damage"] else StorageError
                    return kind(message["problem"], **message["facts"])
        except BrokenPipeError:
            raise self._early_end(process) from None
        finally:
            self._reap(process)

    def _begin(self) -> "subprocess.Popen[bytes]":
        paths = [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        try:
            process = subprocess.Popen(
                _COMMAND,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                # Ctrl-C at a terminal is for the broker. Not a session of its own: a scheduler that groups by
                # session (sched_autogroup_enabled) would give it as much CPU as the broker.
                process_group=0,
            )
        except OSError as problem:
            raise StorageError(
                "the process that compacts cannot be started", problem=problem, remedy=_RETRIED
            ) from None
        # Before it imports its modules, which takes more CPU than a short round.
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        return process

    def _put(self, group: CleanedGroup) -> bool:
        """Let the loop swap a group in; wait until it has."""

        def on_group(_: None, now_ms: int) -> Effects:
            effects = self._effect.on_group(group, now_ms)
            self._answers.put(effects is not None)
            return effects or []

        self._ring(on_group, None)
        return self._answers.get()

    def _write(self, process: "subprocess.Popen[bytes]", message: Any) -> None:
        assert process.stdin is not None
        fd = process.stdin.fileno()
        os.set_blocking(fd, False)
        rest = memoryview(json.dumps(message).encode() + b"\n")
        while rest:
            self._wait(fd, select.POLLOUT)
            rest = rest[os.write(fd, rest) :]

    def _wait(self, fd: int, what: int) -> None:
        """Wait until the process reads or writes; StorageError if it does neither in time."""
        poll = select.poll()  # `select` refuses descriptors above 1023
        poll.register(fd, what)
        if not poll.poll(1000 * self._silence_max_s):
            raise StorageError(
                "the process that compacts says nothing any more, and is ended",
                path=self._effect.job.path,
                after_s=self._silence_max_s,
                remedy=f"see whether the disk answers; {_RETRIED}",
            )

    def _read(self, process: "subprocess.Popen[bytes]") -> Any:
        assert process.stdout is not None
        fd = process.stdout.fileno()
        while b"\n" not in self._unread:
            self._wait(fd, select.POLLIN)
            data = os.read(fd, _READ_BYTES)
            if not data or len(self._unread) > _LINE_BYTES_MAX:
                raise self._early_end(process)
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def _early_end(self, process: "subprocess.Popen[bytes]") -> StorageError:
        """Return the error of a process that ended early, without its pid, so that it is logged once."""
        assert process.stderr is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_MAX_S)
        os.set_blocking(process.stderr.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            self._said += os.read(process.stderr.fileno(), _READ_BYTES)
        lines = self._said.decode(errors="replace").strip().splitlines()
        code = process.returncode
        facts = {"path": self._effect.job.path, "exit": code, "said": lines[-1] if lines else None}
        remedy = _RETRIED
        if code is not None and code < 0:
            facts["exit"] = signal.Signals(-code).name
        if code == -signal.SIGKILL:
            remedy = (
                "where the kernel's log tells of no memory left, lower log.cleaner.dedupe.buffer.size; "
                + _RETRIED
            )
        known = {name: value for name, value in facts.items() if value is not None}
        return StorageError("the process that compacts ended early", **known, remedy=remedy)

    def _reap(self, process: "subprocess.Popen[bytes]") -> None:
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            with contextlib.suppress(OSError):  # unwritten output is of no use any more
                stream.close()
        process.kill()
        try:
            process.wait(_KILL_MAX_S)
        except subprocess.TimeoutExpired:
            line = COMPACTION_STUCK(process=process.pid, log=self._effect.job.path)
            self.is_stuck = True
            self._ring(lambda _, now_ms: [line], None)
            process.wait()

    def end(self) -> None:
        """Give up. Called on another thread."""
        with self._lock:
            self._is_over = True
            if self._process is not None:
                self._process.kill()
        self._answers.put(False)
