"""While there is too little room: who makes use of what is kept for him, looked at once a second. WORLD."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from firnline.runtime.poll import PollLoop

if TYPE_CHECKING:
    from firnline.runtime.timers import Timer

_LOOK_S = 1.0


class Slow(Protocol):
    """What one connection holds. `looks`: how many found, one after the other, that it was slow."""

    looks: int

    def look(self) -> None: ...


Peer = TypeVar("Peer", bound=Slow)


class Looks:
    """Calls `look` a second after it was asked for, once however often it was asked for meanwhile."""

    def __init__(self, loop: PollLoop, look: Callable[[], None]) -> None:
        self._loop = loop
        self._look = look
        self._timer: Timer | None = None

    def soon(self) -> None:
        """Ask for a look."""
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_S, self._due)

    def _due(self) -> None:
        self._timer = None
        self._look()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def slow_ones(peers: Iterable[Peer], looks: int, size: Callable[[Peer], int]) -> list[Peer]:
    """Look at each; return those that have been slow for so many looks, the largest first."""
    found = []
    for peer in peers:
        peer.look()
        if peer.looks >= looks:
            found.append(peer)
    found.sort(key=size, reverse=True)
    return found
