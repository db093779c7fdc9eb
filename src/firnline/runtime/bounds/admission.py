"""How much of large requests may be under way at once, over all listeners of a node. WORLD.

What changes something is done to its end, in slices, also when its client has hung up meanwhile: one client
after the other could have the node keep a hundred megabytes of a request each. So the next large one waits,
unread as far as it has not come, until less is under way. Small ones do not wait.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from firnline.api.context import OF_BROKERS
from firnline.base.units import KIB, MIB

# As of one request, socket.request.max.bytes, and some.
_HELD_BYTES_MAX = 128 * MIB
# A request that is smaller is not worth a wait: so many of them as clients can send in a second are little.
LARGE_BYTES = 16 * KIB
# Fetch: nothing is kept of it for who has hung up. And what brokers ask of controllers, for clients or not.
_NEVER_WAITING = OF_BROKERS | {1, 58}


class Admission:
    """Counts the bytes of requests that are done in slices.

    call_soon(call)  runs something in one of the next turns of the loop
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.bytes_max = _HELD_BYTES_MAX
        self.held_bytes = 0
        self._call_soon = call_soon
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_due = False

    def must_wait(self, frame: memoryview) -> bool:
        """Whether the request in a whole frame, its size included, is to wait."""
        if len(frame) <= LARGE_BYTES or not self.is_full:
            return False
        return int.from_bytes(frame[4:6], "big") not in _NEVER_WAITING

    @property
    def is_full(self) -> bool:
        """Whether a large request has to wait. Where nothing is under way none does, however large it is."""
        return self.held_bytes >= self.bytes_max

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def hold(self, context: Any, size: int) -> None:
        """Count a request of `size` bytes until its last slice is done."""
        self.held_bytes += size

        def ended() -> None:
            self.held_bytes -= size
            self._go_on()

        context.on_end = ended

    def wait(self, again: Callable[[], None]) -> None:
        """Have `again` called when there is room, in the order of those who wait."""
        self._waiting.append(again)

    def _go_on(self) -> None:
        if self._waiting and not self._is_due and not self.is_full:
            self._is_due = True
            self._call_soon(self._admit)

    def _admit(self) -> None:
        """Let one in: the next one in another turn, if it leaves room."""
        self._is_due = False
        if self._waiting and not self.is_full:
            self._waiting.popleft()()
        self._go_on()
