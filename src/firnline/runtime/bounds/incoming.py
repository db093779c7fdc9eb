"""How many bytes of requests a node holds that are not whole yet, or wait behind others. WORLD.

A request may be a hundred megabytes, and whoever sends it need not go on. So all that has come of requests
has a bound. Where it is reached the next bytes of a large request stay in its socket; one goes on, so that
there is always one that can end, of another address each time. What is small waits for nothing. A sender that
is slow while others need the room loses its connection, and so does, a quarter above the bound, who holds
most. Decision 0027.
"""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Protocol

from firnline.base.limits import SENDER_BYTES_PER_LOOK, SENDER_BYTES_PER_S, SENDER_GRACE_MS
from firnline.base.units import KIB, MIB, SECOND_MS
from firnline.protocol.frame import BufferPool
from firnline.runtime.bounds.looks import Looks, slow_ones
from firnline.runtime.poll import PollLoop

INCOMING_BYTES_MAX = 512 * MIB
# A request that holds no more than this waits for nothing.
_SMALL_BYTES = 64 * KIB
# Looks after which a slow sender is closed: where all others wait for it, and where nobody waits.
_LOOKS_WHILE_OTHERS_WAIT, _LOOKS_OF_A_SLOW_SENDER = 3, 10
_held_bytes = attrgetter("held_bytes")


class Sender(Protocol):
    """A connection."""

    @property
    def peer_host(self) -> str:
        """Its address."""
        ...

    def close_sender(self, held_bytes: int, why: str) -> None:
        """Close it, and say why."""
        ...


class Inlet:
    """What of one connection's requests is here and not handled.

    held_bytes  memory
    came_bytes  of all that came of requests that did not come whole, ever
    is_stopped  we do not read from it: what is here waits for us, not for its sender
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
        "looks",
        "sender",
    )

    def __init__(self, incoming: "Incoming", sender: Sender) -> None:
        self._incoming = incoming
        self.sender: Sender | None = sender
        self.held_bytes = self.came_bytes = 0
        self._seen_bytes = self._began_bytes = 0
        self._began_ms: int | None = None  # when the request began that is not whole
        self._stopped_ms = 0
        self.looks = 0  # how many found that next to nothing came
        self.is_stopped = False

    def begins(self, size_bytes: int, now_ms: int) -> None:
        """The first bytes of a request have come, and not all of it."""
        self._began_ms, self._began_bytes = now_ms, self.came_bytes
        self.came_bytes += size_bytes

    def ends(self) -> None:
        """The request is whole."""
        self._began_ms = None

    def hold(self, size_bytes: int) -> None:
        """So much is held from now on."""
        more, self.held_bytes = size_bytes - self.held_bytes, size_bytes
        self._incoming.changed(self, more)

    def came(self, size_bytes: int) -> None:
        """The sender goes on."""
        self.came_bytes += size_bytes

    def must_wait(self, more_bytes: int) -> bool:
        """Whether no more is to be received now, where memory for it is to be had first."""
        return not self._incoming.may_grow(self, more_bytes)

    def wait(self, again: Callable[[], None], now_ms: int) -> None:
        """Have `again` called once there may be room. Not where the connection closes before."""
        self.stop(now_ms)
        self._incoming.wait(self, again)

    def stop(self, now_ms: int) -> None:
        """It is not read from, until `go_on`."""
        self.is_stopped, self._stopped_ms = True, now_ms

    def go_on(self, now_ms: int) -> None:
        """It is read from again: the time in which it was not is not the sender's."""
        self.is_stopped = False
        if self._began_ms is not None:
            self._began_ms += now_ms - self._stopped_ms

    def is_too_slow(self, now_ms: int) -> bool:
        """Whether the request should be whole by now, however slow the line."""
        if self._began_ms is None or self.is_stopped:
            return False
        came_bytes = self.came_bytes - self._began_bytes
        allowed_ms = SENDER_GRACE_MS + came_bytes * SECOND_MS // SENDER_BYTES_PER_S
        return now_ms - self._began_ms > allowed_ms

    def look(self) -> None:
        """Note whether the sender goes on: called once a second while there is too little room."""
        is_slow = self.came_bytes - self._seen_bytes < SENDER_BYTES_PER_LOOK
        self.looks = self.looks + 1 if is_slow and not self.is_stopped else 0
        self._seen_bytes = self.came_bytes

    def close(self) -> None:
        """Its connection has gone, and all that it held."""
        self._incoming.forget(self)
        self.sender = None  # it refers to us: memory comes back at once


class Incoming:
    """All inlets of a node."""

    def __init__(self, loop: PollLoop, bytes_max: int) -> None:
        self._loop = loop
        self.bytes_max = bytes_max
        self.buffers = BufferPool()
        self.held_bytes = 0
        self.slow_senders = 0
        # Who goes on where the bound is reached.
        self.one: Inlet | None = None
        self._holding: dict[Inlet, None] = {}
        # By address, the one whose turn it is first.
        self._waiting: dict[str, dict[Inlet, Callable[[], None]]] = {}
        self._is_due = self._is_relief_due = False
        self._looks = Looks(loop, self._look)

    @property
    def waiting(self) -> int:
        """How many connections are not read from for want of room."""
        return sum(map(len, self._waiting.values()))

    def inlet(self, sender: Sender) -> Inlet:
        return Inlet(self, sender)

    def changed(self, inlet: Inlet, more_bytes: int) -> None:
        self.held_bytes += more_bytes
        self.buffers.is_scarce = 2 * self.held_bytes > self.bytes_max
        if not inlet.held_bytes:
            self._holding.pop(inlet, None)
            inlet.looks = 0
            if self.one is inlet:
                self.one = None
        elif inlet not in self._holding:
            self._holding[inlet] = None
        if more_bytes < 0:
            self._go_on()
        elif self.held_bytes >= self.bytes_max:
            self._looks.soon()
            if self._is_overfull and not self._is_relief_due:
                self._is_relief_due = True
                self._loop.call_soon(self._loop.take_in_turns, self._relief())

    def may_grow(self, inlet: Inlet, more_bytes: int) -> bool:
        if self.held_bytes + more_bytes <= self.bytes_max:
            return True
        if inlet.held_bytes + more_bytes <= _SMALL_BYTES:
            return True
        self._looks.soon()
        if self.one is None:
            self.one = inlet
        return self.one is inlet

    def wait(self, inlet: Inlet, again: Callable[[], None]) -> None:
        assert inlet.sender is not None
        self._waiting.setdefault(inlet.sender.peer_host, {})[inlet] = again
        self._looks.soon()

    def forget(self, inlet: Inlet) -> None:
        assert inlet.sender is not None
        of_address = self._waiting.get(inlet.sender.peer_host)
        if of_address is not None:
            of_address.pop(inlet, None)
            if not of_address:
                del self._waiting[inlet.sender.peer_host]
        held, inlet.held_bytes = inlet.held_bytes, 0
        if self.one is inlet:
            self.one = None
        self.changed(inlet, -held)

    @property
    def _others_bytes(self) -> int:
        """What all hold but the one that goes on."""
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
        """Let one go on, of the next address; if it does, the one after it in another turn."""
        self._is_due = False
        if not self._waiting:
            return
        address = next(iter(self._waiting))
        of_address = self._waiting.pop(address)
        inlet = next(iter(of_address))
        again = of_address.pop(inlet)
        if of_address:
            self._waiting[address] = of_address  # behind all others
        again()
        if not inlet.is_stopped:
            self._go_on()

    # ---- who has to go

    def _look(self) -> None:
        """Close who is slow, as far as others wait for the room."""
        if self.held_bytes < self.bytes_max and not self._waiting:
            for inlet in self._holding:
                inlet.looks = 0
            return
        self._looks.soon()
        looks = _LOOKS_WHILE_OTHERS_WAIT if self._waiting else _LOOKS_OF_A_SLOW_SENDER
        slow = slow_ones(self._holding, looks, _held_bytes)
        # The one for whose end all others wait goes however little is held.
        slow.sort(key=lambda inlet: inlet is not self.one)
        self._loop.take_in_turns(self._closing_slow(slow))

    def _closing_slow(self, slow: list[Inlet]) -> Iterator[None]:
        """Close one in each step: thousands of them hold little each."""
        for inlet in slow:
            if self.held_bytes < self.bytes_max // 2 and inlet is not self.one:
                break
            if inlet.looks:  # else its request is whole meanwhile
                self._close(inlet, "sends too slowly")
            yield

    def _relief(self) -> Iterator[None]:
        """Too many began large requests at once: the addresses that hold most of them make room.

        One connection is closed in each step.
        """
        for inlet in self._by_what_their_addresses_hold() if self._is_overfull else ():
            if self._others_bytes <= self.bytes_max:
                break
            if inlet.held_bytes and inlet is not self.one:
                self._close(inlet, "is one of too many")
            yield
        self._is_relief_due = False

    def _by_what_their_addresses_hold(self) -> Iterator[Inlet]:
        """All that hold something, the largest of the address with most first."""
        of_address: dict[str, list[Inlet]] = {}
        for inlet in self._holding:
            if inlet.sender is not None:
                of_address.setdefault(inlet.sender.peer_host, []).append(inlet)
        addresses = [(sum(map(_held_bytes, inlets)), inlets) for inlets in of_address.values()]
        addresses.sort(key=lambda row: row[0], reverse=True)
        for _, inlets in addresses:
            inlets.sort(key=_held_bytes, reverse=True)
            yield from inlets

    def _close(self, inlet: Inlet, why: str) -> None:
        if inlet.sender is not None:
            self.slow_senders += 1
            inlet.sender.close_sender(inlet.held_bytes, why)

    def close(self) -> None:
        self._looks.close()
