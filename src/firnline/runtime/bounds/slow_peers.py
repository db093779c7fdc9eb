"""While memory is short: check once a second which peers are slow to send or to read. WORLD."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from firnline.runtime.poll import PollLoop

if TYPE_CHECKING:
    from firnline.runtime.timers import Timer

_LOOK_S = 1.0


class Slow(Protocol):
    """The memory of one connection. `looks`: how many consecutive checks found its peer slow."""

    looks: int

    def look(self) -> None: ...


Peer = TypeVar("Peer", bound=Slow)


class SlowPeerCheck:
    """Calls `look` a second after `soon`, once for all calls of `soon` meanwhile."""

    def __init__(self, loop: PollLoop, look: Callable[[], None]) -> None:
        self._loop = loop
        self._look = look
        self._timer: Timer | None = None

    def soon(self) -> None:
        """Schedule a check, unless one is scheduled."""
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_S, self._due)

    def _due(self) -> None:
        self._timer = None
        self._look()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def slow_ones(peers: Iterable[Peer], looks: int, size: Callable[[Peer], int]) -> list[Peer]:
    """Check each peer; return those that were slow in `looks` consecutive checks, the largest first."""
    found = []
    for peer in peers:
        peer.look()
        if peer.looks >= looks:
            found.append(peer)
    found.sort(key=size, reverse=True)
    return found
