"""How many connections a node has, and whose: no address locks out the others. WORLD.

Where there are as many as there may be, one that is idle makes room for the next: of the address that has
most of them, the one from which nothing has come for longest. An address whose connections are all busy loses
one only to another that has less than half as many. Decision 0027.
"""

import time
from collections.abc import Callable, Mapping
from heapq import nsmallest
from typing import NamedTuple, Protocol

from firnline.base.owners import Owners
from firnline.base.units import INT32_MAX

# To look through all connections of an address costs some ms: so many of the oldest are then remembered.
_REMEMBERED = 256
# Where the limit was lowered, so many go for each that comes.
_EVICTED_AT_ONCE = 64
# To find that all of an address are busy costs a tenth of a microsecond each. Who knocks without a pause has
# no more than a hundredth of the loop looked through for it.
_LOOK_AGAIN_S = 0.000_01


class Limits(NamedTuple):
    """Connections in all, of one address, and of those addresses that have a limit of their own."""

    total: int = INT32_MAX
    per_address: int = INT32_MAX
    overrides: Mapping[str, int] = {}

    def of(self, address: str) -> int:
        """Return how many an address may have."""
        return self.overrides.get(address, self.per_address)


class Peer(Protocol):
    """A connection."""

    @property
    def peer_host(self) -> str:
        """Its address."""
        ...

    @property
    def is_idle(self) -> bool:
        """Nothing was asked that is not answered."""
        ...

    @property
    def last_active_ms(self) -> int: ...

    def close(self) -> None: ...


class Connections:
    """The connections of the listeners that one limit is for.

    limits()      what holds now: it may be altered at run time
    has_room()    whether there is a descriptor for one more
    warn(line)    tells the operator, as often as is good for a log
    evicted       connections that made room for another
    refused       connections that were closed at once
    """

    def __init__(
        self,
        limits: Callable[[], Limits],
        *,
        has_room: Callable[[], bool] = lambda: True,
        warn: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._limits = limits
        self._has_room = has_room
        self._warn = warn
        self._counts: dict[str, int] = {}
        self.count = 0
        self.evicted = self.refused = 0
        self._evictable: Owners[Peer] = Owners()
        self._oldest: list[tuple[int, Peer]] = []  # of one address, the oldest last
        self._oldest_of = ""
        self._look_again_s = 0.0

    def admit(self, address: str, *, is_protected: bool = False) -> bool:
        """Whether a connection from there is to be taken; others are closed for it where that helps.

        is_protected  of brokers alone: as in Kafka it is taken, whatever clients hold
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
        """One more is there."""
        self.count += 1
        self._counts[peer.peer_host] = self._counts.get(peer.peer_host, 0) + 1
        if not is_protected:
            self._evictable.add(peer.peer_host, peer)

    def remove(self, peer: Peer, *, is_protected: bool = False) -> None:
        """It has closed."""
        self.count -= 1
        left = self._counts.pop(peer.peer_host) - 1
        if left:
            self._counts[peer.peer_host] = left
        if not is_protected:
            self._evictable.remove(peer.peer_host, peer)

    def _refuse(self, address: str, why: str) -> bool:
        self.refused += 1
        self._warn(f"refused a connection from {address}: {why}")
        return False

    def _evict(self, newcomer: str) -> bool:
        """Close one connection of the address that has most of them; False where none is to be closed."""
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
        self._warn(
            f"closed the least active connection of {address}, which has {has} of {self.count}, for one of"
            f" {newcomer}: no more fit (max.connections, ulimit -n). max.connections.per.ip bounds an address"
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
