"""Bounds the memory of requests that are incomplete or wait for earlier ones. WORLD.

A request may have a hundred megabytes, and its sender may stop half-way. So the received bytes of all such
requests have a bound, `bytes_max` (decision 0027):
- At the bound the next bytes of a large request stay in its socket. One request, `one`, goes on, so that one
  can always end; addresses take turns at it. Small requests never wait.
- A sender that is slow while others need the memory loses its connection.
- A quarter above the bound, the addresses that hold the most lose connections.
"""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Protocol

from firnline.base.limits import SENDER_BYTES_PER_CHECK, SENDER_BYTES_PER_S, SENDER_GRACE_MS
from firnline.base.units import KIB, MIB, SECOND_MS
from firnline.protocol.frame import BufferPool
from firnline.runtime.bounds.slow_peers import SlowPeerCheck, slow_ones
from firnline.runtime.poll import PollLoop

INCOMING_BYTES_MAX = 512 * MIB
# A request that holds no more than this never waits.
_SMALL_BYTES = 64 * KIB
# After so many checks a slow sender is closed: where others wait for memory, and where nobody waits.
_CHECKS_WHILE_OTHERS_WAIT, _CHECKS_OF_A_SLOW_SENDER = 3, 10
_held_bytes = attrgetter("held_bytes")


class Sender(Protocol):
    """A connection."""

    @property
    def peer_host(self) -> str:
        """The peer's address."""
        ...

    def close_sender(self, held_bytes: int, why: str) -> None:
        """Close the connection with a warning that says why."""
        ...


class RequestMemory:
    """The memory of one connection's requests that are received in part, or not handled yet.

    held_bytes  the memory
    came_bytes  all bytes ever received of requests that came in pieces
    is_stopped  we do not read from the socket: the request waits for us, not for its sender
    """

    __slots__ = (
        "_began_bytes",
        "_began_ms",
        "_incoming",
        "_seen_bytes",
        "_stopped_ms",
        "came_bytes",
        "held_bytes",
        "is_stopped",
        "sender",
        "slow_checks",
    )

    def __init__(self, incoming: "Incoming", sender: Sender) -> None:
        self._incoming = incoming
        self.sender: Sender | None = sender
        self.held_bytes = self.came_bytes = 0
        self._seen_bytes = self._began_bytes = 0
        self._began_ms: int | None = None  # when the incomplete request began
        self._stopped_ms = 0
        self.slow_checks = 0  # consecutive checks that found the sender slow
        self.is_stopped = False

    def begins(self, size_bytes: int, now_ms: int) -> None:
        """The first bytes of a request were received, but not all of it."""
        self._began_ms, self._began_bytes = now_ms, self.came_bytes
        self.came_bytes += size_bytes

    def ends(self) -> None:
        """The request is complete."""
        self._began_ms = None

    def hold(self, size_bytes: int) -> None:
        """Set how many bytes are held."""
        more, self.held_bytes = size_bytes - self.held_bytes, size_bytes
        self._incoming.changed(self, more)

    def came(self, size_bytes: int) -> None:
        """Count further bytes from the sender."""
        self.came_bytes += size_bytes

    def must_wait(self, more_bytes: int) -> bool:
        """Whether the connection has to wait before it allocates that much more memory."""
        return not self._incoming.may_grow(self, more_bytes)

    def wait(self, again: Callable[[], None], now_ms: int) -> None:
        """Call `again` once there may be memory, unless the connection closes before."""
        self.stop(now_ms)
        self._incoming.wait(self, again)

    def stop(self, now_ms: int) -> None:
        """Nothing is read from the socket until `go_on`."""
        self.is_stopped, self._stopped_ms = True, now_ms

    def go_on(self, now_ms: int) -> None:
        """The socket is read again; the pause does not count as the sender's time."""
        self.is_stopped = False
        if self._began_ms is not None:
            self._began_ms += now_ms - self._stopped_ms

    def is_too_slow(self, now_ms: int) -> bool:
        """Whether the request should be complete by now, even on a slow network."""
        if self._began_ms is None or self.is_stopped:
            return False
        came_bytes = self.came_bytes - self._began_bytes
        allowed_ms = SENDER_GRACE_MS + came_bytes * SECOND_MS // SENDER_BYTES_PER_S
        return now_ms - self._began_ms > allowed_ms

    def check(self) -> None:
        """Note whether the sender goes on; called once a second while memory is short."""
        is_slow = self.came_bytes - self._seen_bytes < SENDER_BYTES_PER_CHECK
        self.slow_checks = self.slow_checks + 1 if is_slow and not self.is_stopped else 0
        self._seen_bytes = self.came_bytes

    def close(self) -> None:
        """The connection has closed and its memory is freed."""
        self._incoming.forget(self)
        self.sender = None  # it refers to us: without the cycle our memory is freed at once


class Incoming:
    """The memory of all incomplete and waiting requests of a node."""

    def __init__(self, loop: PollLoop, bytes_max: int) -> None:
        self._loop = loop
        self.bytes_max = bytes_max
        self.buffers = BufferPool()
        self.held_bytes = 0
        self.slow_senders = 0
        # The only request that goes on at the bound.
        self.one: RequestMemory | None = None
        self._holding: dict[RequestMemory, None] = {}
        # By address; the first address is next.
        self._waiting: dict[str, dict[RequestMemory, Callable[[], None]]] = {}
        self._is_due = self._is_relief_due = False
        self._slow_check = SlowPeerCheck(loop, self._check)

    @property
    def waiting(self) -> int:
        """How many connections are not read for lack of memory."""
        return sum(map(len, self._waiting.values()))

    def memory_of(self, sender: Sender) -> RequestMemory:
        return RequestMemory(self, sender)

    def changed(self, memory: RequestMemory, more_bytes: int) -> None:
        self.held_bytes += more_bytes
        self.buffers.is_scarce = 2 * self.held_bytes > self.bytes_max
        if not memory.held_bytes:
            self._holding.pop(memory, None)
            memory.slow_checks = 0
            if self.one is memory:
                self.one = None
        elif memory not in self._holding:
            self._holding[memory] = None
        if more_bytes < 0:
            self._go_on()
        elif self.held_bytes >= self.bytes_max:
            self._slow_check.soon()
            if self._is_overfull and not self._is_relief_due:
                self._is_relief_due = True
                self._loop.call_soon(self._loop.run_in_slices, self._relief())

    def may_grow(self, memory: RequestMemory, more_bytes: int) -> bool:
        if self.held_bytes + more_bytes <= self.bytes_max:
            return True
        if memory.held_bytes + more_bytes <= _SMALL_BYTES:
            return True
        self._slow_check.soon()
        if self.one is None:
            self.one = memory
        return self.one is memory

    def wait(self, memory: RequestMemory, again: Callable[[], None]) -> None:
        assert memory.sender is not None
        self._waiting.setdefault(memory.sender.peer_host, {})[memory] = again
        self._slow_check.soon()

    def forget(self, memory: RequestMemory) -> None:
        assert memory.sender is not None
        of_address = self._waiting.get(memory.sender.peer_host)
        if of_address is not None:
            of_address.pop(memory, None)
            if not of_address:
                del self._waiting[memory.sender.peer_host]
        held, memory.held_bytes = memory.held_bytes, 0
        if self.one is memory:
            self.one = None
        self.changed(memory, -held)

    @property
    def _others_bytes(self) -> int:
        """The memory of all requests but `one`."""
        return self.held_bytes - (0 if self.one is None else self.one.held_bytes)

    @property
    def _is_overfull(self) -> bool:
        return self._others_bytes > self.bytes_max + self.bytes_max // 4

    def _go_on(self) -> None:
        is_room = self.one is None or self.held_bytes < self.bytes_max
        if self._waiting and is_room and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._admit)

    def _admit(self) -> None:
        """Let one request of the next address go on; if it does, admit the next one in another turn."""
        self._is_due = False
        if not self._waiting:
            return
        address = next(iter(self._waiting))
        of_address = self._waiting.pop(address)
        memory = next(iter(of_address))
        again = of_address.pop(memory)
        if of_address:
            self._waiting[address] = of_address  # behind all others
        again()
        if not memory.is_stopped:
            self._go_on()

    # ---- evictions

    def _check(self) -> None:
        """Close the connections of slow senders while other requests need the memory."""
        if self.held_bytes < self.bytes_max and not self._waiting:
            for memory in self._holding:
                memory.slow_checks = 0
            return
        self._slow_check.soon()
        checks = _CHECKS_WHILE_OTHERS_WAIT if self._waiting else _CHECKS_OF_A_SLOW_SENDER
        slow = slow_ones(self._holding, checks, _held_bytes)
        # All others wait for `one`: if it is slow it is closed first, even if little memory is held.
        slow.sort(key=lambda memory: memory is not self.one)
        self._loop.run_in_slices(self._closing_slow(slow))

    def _closing_slow(self, slow: list[RequestMemory]) -> Iterator[None]:
        """Close one connection in each step: there may be thousands that hold little each."""
        for memory in slow:
            if self.held_bytes < self.bytes_max // 2 and memory is not self.one:
                break
            if memory.slow_checks:  # else the request is complete by now
                self._close(memory, "sends too slowly")
            yield

    def _relief(self) -> Iterator[None]:
        """Too many large requests began at once: close connections of the addresses that hold the most.

        It closes one connection in each step.
        """
        for memory in self._by_what_their_addresses_hold() if self._is_overfull else ():
            if self._others_bytes <= self.bytes_max:
                break
            if memory.held_bytes and memory is not self.one:
                self._close(memory, "is one of too many")
            yield
        self._is_relief_due = False

    def _by_what_their_addresses_hold(self) -> Iterator[RequestMemory]:
        """Return all that hold memory, ordered by the total of their address, then by their own."""
        of_address: dict[str, list[RequestMemory]] = {}
        for memory in self._holding:
            if memory.sender is not None:
                of_address.setdefault(memory.sender.peer_host, []).append(memory)
        addresses = [
            (sum(map(_held_bytes, memories)), memories) for memories in of_address.values()
        ]
        addresses.sort(key=lambda row: row[0], reverse=True)
        for _, memories in addresses:
            memories.sort(key=_held_bytes, reverse=True)
            yield from memories

    def _close(self, memory: RequestMemory, why: str) -> None:
        if memory.sender is not None:
            self.slow_senders += 1
            memory.sender.close_sender(memory.held_bytes, why)

    def close(self) -> None:
        self._slow_check.close()
