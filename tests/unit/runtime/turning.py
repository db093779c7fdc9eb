"""A loop in the test's hands, with what is flushed on it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from firnline.base.effects import Flush
from firnline.base.errors import StorageError
from firnline.runtime.poll import PollLoop
from firnline.runtime.threads.doorbell import Doorbell, Then

DEADLINE_S = 20.0


class Turning:
    """`flushed` is what came back so far; `until` turns the loop."""

    def __init__(self) -> None:
        self.loop = PollLoop()
        self.doorbell = Doorbell(self.loop, self.on_done)
        self.flushed: list[tuple[Flush, StorageError | None]] = []

    def on_done(self, then: Then[Any], result: Any) -> None:
        then(result, 0)

    def on_flushed(self, flush: Flush, problem: StorageError | None) -> None:
        self.flushed.append((flush, problem))
        flush.then(problem, 0)

    def until(self, is_so: Callable[[], bool], within_s: float = DEADLINE_S) -> None:
        """Turn until it is so."""
        deadline_s = time.monotonic() + within_s

        def look() -> None:
            assert time.monotonic() < deadline_s, "it never came"
            if is_so():
                self.loop.stop()
            else:
                self.loop.call_later(0.001, look)

        look()
        self.loop.run()

    def for_a_while(self) -> None:
        """Turn for as long as what is wrong would take to come."""
        over = time.monotonic() + 0.1
        self.until(lambda: time.monotonic() > over)


@contextmanager
def turning() -> Iterator[Any]:
    made = Turning()
    try:
        yield made
    finally:
        made.doorbell.close()
        made.loop.close()
