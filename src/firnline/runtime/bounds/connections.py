"""Bounds the number of connections, so that no address locks out the others. WORLD.

At the limit a new connection evicts an idle one: of the address with the most connections, the one that has
been silent for longest. If all connections of that address are busy, one of them is evicted only for an
address that has less than half as many. Decision 0027.
"""

import time
from collections.abc import Callable, Mapping
from heapq import nsmallest
from typing import NamedTuple, Protocol

from firnline.base.log_lines.line import Log
from firnline.base.log_lines.process import CONNECTION_CLOSED, CONNECTION_REFUSED
from firnline.base.owners import Owners
from firnline.base.units import INT32_MAX

# A search through all connections of an address takes some ms: it remembers so many of the oldest.
_REMEMBERED = 256
# After the limit was lowered, each new connection evicts up to so many.
_EVICTED_AT_ONCE = 64
# To find all connections of an address busy takes 0.1 us for each. This pause for each, after such a search,
# keeps searches below a hundredth of the event loop's time, even if connections come without end.
_LOOK_AGAIN_S = 0.000_01


class Limits(NamedTuple):
    """Limits on all connections, on those of one address, and on those of particular addresses."""

    total: int = INT32_MAX
    per_address: int = INT32_MAX
    overrides: Mapping[str, int] = {}

    def of(self, address: str) -> int:
        """Return the limit of an address."""
        return self.overrides.get(address, self.per_address)


class Peer(Protocol):
    """A connection."""

    @property
    def peer_host(self) -> str:
        """The peer's address."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether every request has its response."""
        ...

    @property
    def last_active_ms(self) -> int: ...

    def close(self) -> None: ...


class Connections:
    """The connections of the listeners that share one limit.

    limits()      the present limits: they may be altered at run time
    has_room()    whether there is a descriptor for one more
    log(line)     logs a line, with a limit on how often
    evicted       how many connections were closed for a new one
    refused       how many new connections were closed at once
    """

    def __init__(
        self,
        limits: Callable[[], Limits],
        *,
        has_room: Callable[[], bool] = lambda: True,
        log: Callable[[Log], None] = lambda line: None,
    ) -> None:
        self._limits = limits
        self._has_room = has_room
        self._log = log
        self._counts: dict[str, int] = {}
        self.count = 0
        self.evicted = self.refused = 0
        self._evictable: Owners[Peer] = Owners()
        self._oldest: list[tuple[int, Peer]] = []  # of one address, the oldest last
        self._oldest_of = ""
        self._look_again_s = 0.0

    def admit(self, address: str, *, is_protected: bool = False) -> bool:
        """Whether to accept a connection from `address`; closes others for it where that helps.

        is_protected  of a listener that only brokers use: accepted above the limit, as in Kafka
        """
        limits = self._limits()
        allowed = limits.of(address)
        if self._counts.get(address, 0) >= allowed:
            why = f"it may have {allowed} (max.connections.per.ip and its overrides)"
            return self._refuse(address, why)
        has_room = True
        for _ in range(_EVICTED_AT_ONCE):
            has_room = self._has_room()
            if (has_room and self.count < limits.total) or not self._evict(address):
                break
        else:
            has_room = self._has_room()
        if not has_room:
            why = "the last descriptors are kept for the logs. Raise the limit of open files (ulimit -n,"
            return self._refuse(address, f"{why} LimitNOFILE), or let fewer clients connect")
        if self.count >= limits.total and not is_protected:
            return self._refuse(address, f"all {limits.total} are in use (max.connections)")
        return True

    def add(self, peer: Peer, *, is_protected: bool = False) -> None:
        """Count an accepted connection."""
        self.count += 1
        self._counts[peer.peer_host] = self._counts.get(peer.peer_host, 0) + 1
        if not is_protected:
            self._evictable.add(peer.peer_host, peer)

    def remove(self, peer: Peer, *, is_protected: bool = False) -> None:
        """Remove a closed connection."""
        self.count -= 1
        left = self._counts.pop(peer.peer_host) - 1
        if left:
            self._counts[peer.peer_host] = left
        if not is_protected:
            self._evictable.remove(peer.peer_host, peer)

    def _refuse(self, address: str, why: str) -> bool:
        self.refused += 1
        self._log(CONNECTION_REFUSED(host=address, reason=why))
        return False

    def _evict(self, newcomer: str) -> bool:
        """Close a connection of the address that has the most; False where none may be closed."""
        address = self._evictable.largest()
        if address is None:
            return False
        has = self._evictable.size_of(address)
        may_close_busy = 2 * self._counts.get(newcomer, 0) < has
        if not may_close_busy and time.monotonic() < self._look_again_s:
            return False
        peer = self._oldest_idle(address)
        if peer is None:
            self._look_again_s = time.monotonic() + has * _LOOK_AGAIN_S
            if not may_close_busy:
                return False
            busy = self._evictable.things_of(address)
            peer = min(busy, key=lambda each: each.last_active_ms)
        self.evicted += 1
        why = f"no more fit: it was the least active of an address with {has} of {self.count}"
        self._log(
            CONNECTION_CLOSED(
                host=address,
                reason=f"{why}, and {newcomer} got its place",
                setting="max.connections",
            )
        )
        peer.close()
        return True

    def _oldest_idle(self, address: str) -> Peer | None:
        for is_fresh in (False, True):
            if is_fresh or address != self._oldest_of:
                self._remember(address)
            while self._oldest:
                last_active_ms, peer = self._oldest.pop()
                if peer.is_idle and peer.last_active_ms == last_active_ms:
                    return peer
        return None

    def _remember(self, address: str) -> None:
        idle = [(p.last_active_ms, p) for p in self._evictable.things_of(address) if p.is_idle]
        self._oldest_of = address
        self._oldest = nsmallest(_REMEMBERED, idle, key=lambda row: row[0])
        self._oldest.reverse()
