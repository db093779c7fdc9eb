"""While memory is short: check once a second which peers are slow to send or to read. WORLD."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from firnline.runtime.poll import PollLoop

if TYPE_CHECKING:
    from firnline.runtime.timers import Timer

_CHECK_S = 1.0


class Slow(Protocol):
    """The memory of one connection. `slow_checks`: how many consecutive checks found its peer slow."""

    slow_checks: int

    def check(self) -> None: ...


Peer = TypeVar("Peer", bound=Slow)


class SlowPeerCheck:
    """Calls `check` a second after `soon`, once for all calls of `soon` meanwhile."""

    def __init__(self, loop: PollLoop, check: Callable[[], None]) -> None:
        self._loop = loop
        self._check = check
        self._timer: Timer | None = None

    def soon(self) -> None:
        """Schedule a check, unless one is scheduled."""
        if self._timer is None:
            self._timer = self._loop.call_later(_CHECK_S, self._due)

    def _due(self) -> None:
        self._timer = None
        self._check()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def slow_ones(peers: Iterable[Peer], checks: int, size: Callable[[Peer], int]) -> list[Peer]:
    """Check each peer; return those that were slow in `checks` consecutive checks, the largest first."""
    found = []
    for peer in peers:
        peer.check()
        if peer.slow_checks >= checks:
            found.append(peer)
    found.sort(key=size, reverse=True)
    return found
