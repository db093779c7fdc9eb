"""The Fetches at the end of a leader's log that wait for something new: how many may. PURE.

A replica has one Fetch under way. A newer one says that nobody reads the answer to the older, as after a
connection that was lost: that is answered at once. Voters therefore always have room. For all others there
is a bound, or clients that make up ids could fill the memory: beyond it whoever has waited longest
is answered with what there is, which is no error, and may ask again. Source: KIP-595.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from firnline.base.effects import Effect
from firnline.base.ids import Uuid

Answer = Callable[[Any], Effect]
# Fetches of those who are no voters; there are as many as brokers, and one of each.
OTHERS_MAX = 1_000


class Parked(NamedTuple):
    """A Fetch that waits until `deadline_ms`."""

    partition: Any
    max_bytes: int
    deadline_ms: int
    answer: Answer


class ParkedFetches:
    """Fetches that wait, in the order they came."""

    def __init__(self) -> None:
        self._voters: dict[Hashable, Parked] = {}
        self._others: dict[Hashable, Parked] = {}
        self._anonymous = 0

    def __len__(self) -> int:
        return len(self._voters) + len(self._others)

    def add(
        self, waiter: Parked, node_id: int, directory_id: Uuid, *, is_voter: bool
    ) -> list[Parked]:
        """Let a Fetch wait; return those to be answered in its stead. `node_id` -1: of a consumer."""
        if is_voter:
            older = self._voters.pop(node_id, None)
            self._voters[node_id] = waiter
            return [] if older is None else [older]
        key: Hashable = (node_id, directory_id)
        if node_id < 0:
            self._anonymous += 1
            key = self._anonymous
        older = self._others.pop(key, None)
        if older is None and len(self._others) >= OTHERS_MAX:
            older = self._others.pop(next(iter(self._others)))
        self._others[key] = waiter
        return [] if older is None else [older]

    def take(self, is_ready: Callable[[Parked], bool]) -> list[Parked]:
        """Return those that are ready; they wait no more."""
        found: list[Parked] = []
        for waiting in (self._voters, self._others):
            ready = [key for key, waiter in waiting.items() if is_ready(waiter)]
            found += [waiting.pop(key) for key in ready]
        return found

    @property
    def first_ms(self) -> int | None:
        """When the first of them is late; None where none waits."""
        waiting = (*self._voters.values(), *self._others.values())
        return min((waiter.deadline_ms for waiter in waiting), default=None)
