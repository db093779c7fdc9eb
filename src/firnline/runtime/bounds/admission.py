"""How much of large requests may be under way at once, over all listeners of a node. WORLD.

What changes something is done to its end, in slices, also when its client has hung up meanwhile: one client
after the other could have the node keep a hundred megabytes of a request each. So the next large one waits,
unread as far as it has not come, until less is under way. Small ones do not wait.

Replicas and brokers do not wait for clients. But anybody may pass for one, so they wait for one another.
"""

from collections import deque
from collections.abc import Callable

from firnline.api.context import OF_BROKERS, RequestContext
from firnline.base.limits import LARGE_REQUEST_BYTES, SLICED_REQUESTS_BYTES_MAX

# Fetch, which may be a replica's, and what brokers ask of controllers, for clients or not.
_OF_BROKERS = OF_BROKERS | {1, 58}


class Room:
    """Counts the bytes of requests that are done in slices.

    call_soon(call)  runs something in one of the next turns of the loop
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.bytes_max = SLICED_REQUESTS_BYTES_MAX
        self.held_bytes = 0
        self._call_soon = call_soon
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_due = False

    @property
    def is_full(self) -> bool:
        """Whether a large request has to wait. Where nothing is under way none does, however large it is."""
        return self.held_bytes >= self.bytes_max

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def hold(self, context: RequestContext, size: int) -> None:
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


class Admission:
    """The room of clients, and that of replicas and brokers."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.clients, self.brokers = Room(call_soon), Room(call_soon)

    def full_room(self, frame: memoryview) -> Room | None:
        """Where the request in a whole frame, its size included, is to wait. None: it need not."""
        if len(frame) <= LARGE_REQUEST_BYTES:
            return None
        room = self._room_of(int.from_bytes(frame[4:6], "big"))
        return room if room.is_full else None

    def hold(self, context: RequestContext, size: int) -> None:
        """Count a request of `size` bytes until its last slice is done."""
        self._room_of(context.api_key).hold(context, size)

    def _room_of(self, key: int) -> Room:
        return self.brokers if key in _OF_BROKERS else self.clients
