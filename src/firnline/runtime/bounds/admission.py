"""Admission control: bounds the bytes of large requests that a node handles at once. WORLD.

A request that changes something is finished even if its client disconnects. So clients that connect and
disconnect could leave a node with any number of requests of 100 MiB each. Therefore the next large request
waits for permits, its rest unread, until fewer bytes are under way. Small ones do not wait.

Requests of replicas and brokers have permits of their own and do not wait for clients. Any client can send
such requests, so they are bounded, too.
"""

from collections import deque
from collections.abc import Callable

from firnline.api.context import OF_BROKERS, RequestContext
from firnline.base.limits import LARGE_REQUEST_BYTES, SLICED_REQUESTS_BYTES_MAX

# Fetch, which may be a replica's, and what brokers send to controllers, on behalf of clients or not.
_OF_BROKERS = OF_BROKERS | {1, 58}


class Permits:
    """A semaphore over the bytes of requests that are handled in slices.

    call_soon(call)  runs `call` in one of the next turns of the event loop
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.bytes_max = SLICED_REQUESTS_BYTES_MAX
        self.held_bytes = 0
        self._call_soon = call_soon
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_due = False

    @property
    def is_full(self) -> bool:
        """Whether a large request has to wait. Where nothing is under way, a request of any size may run."""
        return self.held_bytes >= self.bytes_max

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def hold(self, context: RequestContext, size: int) -> None:
        """Count a request of `size` bytes until its last slice has run."""
        self.held_bytes += size

        def ended() -> None:
            self.held_bytes -= size
            self._go_on()

        context.on_end = ended

    def wait(self, again: Callable[[], None]) -> None:
        """Call `again` when there are permits; first come, first served."""
        self._waiting.append(again)

    def _go_on(self) -> None:
        if self._waiting and not self._is_due and not self.is_full:
            self._is_due = True
            self._call_soon(self._admit)

    def _admit(self) -> None:
        """Admit one request; the next one in another turn, if permits are left."""
        self._is_due = False
        if self._waiting and not self.is_full:
            self._waiting.popleft()()
        self._go_on()


class Admission:
    """The permits of clients, and those of replicas and brokers."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.clients, self.brokers = Permits(call_soon), Permits(call_soon)

    def permits_to_await(self, frame: memoryview) -> Permits | None:
        """Return the permits that the request in a complete frame must wait for, None where it need not."""
        if len(frame) <= LARGE_REQUEST_BYTES:
            return None
        permits = self._permits_of(int.from_bytes(frame[4:6], "big"))
        return permits if permits.is_full else None

    def hold(self, context: RequestContext, size: int) -> None:
        """Count a request of `size` bytes until its last slice has run."""
        self._permits_of(context.api_key).hold(context, size)

    def _permits_of(self, key: int) -> Permits:
        return self.brokers if key in _OF_BROKERS else self.clients
