"""Signals that end a command in good order, and calls that a signal or a deadline ends. WORLD."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self, TypeVar

from firnline.base.errors import FirnlineError
from firnline.client.deadline import Deadline

T = TypeVar("T")
_SLICE_S = 0.05
# A call that keeps a deadline of its own is given up so much later: it says better what it waited for.
LATER_S = 0.5
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(Exception):
    """A signal came while the command waited for something that it can do without."""


class DeadlineMissed(FirnlineError):
    """A call did not return in time."""

    def __init__(self) -> None:
        super().__init__("no answer in time")


class StopSignals:
    """Counts SIGINT and SIGTERM in place of letting them interrupt; the loops of a command ask for them.

        with StopSignals() as stop:
            while not stop.count: ...

    A third signal acts as it would without this.
    """

    def __init__(self) -> None:
        self.count = 0
        self.signal_number = 0
        self._before: dict[int, object] = {}

    @property
    def exit_code(self) -> int:
        """What a shell makes of the signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.signal_number

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._count)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before.clear()

    def _count(self, number: int, _: FrameType | None) -> None:
        self.count += 1
        self.signal_number = number
        if self.count == 2:
            self._restore()


def in_time(call: Callable[[], T], deadline: Deadline, stop: StopSignals, *, signals: int = 0) -> T:
    """Make a call that blocks, on a thread of its own, so that a deadline and a signal end the wait for it.

    signals  so many have come already, and do not end this wait

    Raises what the call raises, DeadlineMissed, and Stopped.
    """
    found: list[T] = []
    problems: list[BaseException] = []

    def work() -> None:
        try:
            found.append(call())
        except BaseException as problem:  # noqa: BLE001 - it is raised again below
            problems.append(problem)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(_SLICE_S)
        if stop.count > signals:
            raise Stopped
        if deadline.is_over and worker.is_alive():
            raise DeadlineMissed
    if problems:
        raise problems[0]
    return found[0]
