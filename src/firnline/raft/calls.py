"""The gate that every event passes, the requests under way, and the timers of the quorum. PURE. Source:
KIP-595; spec Q22.

Theory of operation. Every request, response and timer of the quorum is an event, and `Gate.take` runs it: at
once, or in its turn if the gate is saving. If the event changed epoch, vote or leader, the gate saves them;
the replies and requests of the event leave when the save is durable. `Calls` sends each peer one request at a
time. A response counts only until the role changes: `forget` drops all requests, so a late response decides
nothing.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from firnline.base.effects import (
    CancelTimer,
    Effects,
    Peer,
    Reply,
    Request,
    Send,
    SetTimer,
    Unanswered,
)
from firnline.base.log_lines.quorum import SAVE_IS_SLOW
from firnline.raft.election_state import ElectionState
from firnline.raft.ports import ElectionStore

SILENCES_MIN = 3
# The most events that wait for a save: without a limit, requests would fill the memory while a disk hangs.
WAITING_MAX = 1_000
# A save that takes longer is reported to the operator.
SLOW_SAVE_MS = 5_000
_NEXT = ("raft", "next")
_SLOW = ("raft", "slow save")

Event = Callable[[int], Effects]
Response = TypeVar("Response")


class Gate:
    """Where the events of the quorum come in, and where its messages go out.

    The messages of an event that changed epoch, vote or leader are held until the change is durable; later
    events wait, in their order. So each event finds a state that is saved, and the event loop waits for no
    disk. Effects inside this node (syncs, timers, the listener's effects) are not held. The reasons are in
    docs/decisions/0031-votes-off-the-loop.md.

    Invariants:
      I1  no message leaves before the state that it was made in survives a power cut.
      I2  no event runs in a state that may yet be lost, and no record of an epoch is written to the log
          before this node's vote in that epoch is saved.
    """

    __slots__ = (
        "_began_ms",
        "_finish",
        "_held",
        "_is_inside",
        "_is_next_set",
        "_is_slow_set",
        "_postpone",
        "_saved",
        "_state",
        "_store",
        "_waiting",
        "is_saving",
    )

    def __init__(
        self,
        store: ElectionStore,
        state: Callable[[], ElectionState],
        postpone: Callable[[int], Effects],
    ) -> None:
        self._store = store
        self._state = state
        self._postpone = postpone
        self._saved = ElectionState(0)
        self._waiting: deque[Event] = deque()
        self._held: Effects = []
        self._finish: Event | None = None
        self._began_ms = 0
        self._is_inside = self._is_next_set = self._is_slow_set = False
        self.is_saving = False

    def load(self) -> ElectionState | None:
        """Return the saved state; None if there is none. StorageError if it is damaged."""
        saved = self._store.load()
        self._saved = saved or self._saved
        return saved

    @property
    def is_full(self) -> bool:
        """Do so many events wait that requests must be refused?"""
        return len(self._waiting) >= WAITING_MAX

    def take(self, event: Event, now_ms: int) -> Effects:
        """Run an event: now, or in its turn when the change before it is saved."""
        if self._is_inside:
            return event(now_ms)  # it is a part of the event that is running
        self._waiting.append(event)
        return [] if self.is_saving or self._is_next_set else self._next(now_ms)

    def once_saved(self, finish: Event) -> None:
        """End the running event with `finish`, when its change is saved."""
        self._finish = finish

    def hold(self, effects: Effects) -> Effects:
        """Hold messages of another part of this node, if they must wait for the save like the quorum's
        own."""
        if not self.is_saving:
            return effects
        self._held += effects
        return []

    def close(self) -> None:
        """Drop all waiting events and held messages; a save that is under way completes."""
        self._waiting.clear()
        self._held, self._finish = [], None

    def _next(self, now_ms: int) -> Effects:
        """Run one waiting event in this turn of the event loop, so that others have their turn before the
        next."""
        self._is_next_set = False
        # An event that raised an exception may have changed the state; that is saved too.
        effects = self._settle([], now_ms)
        if self._waiting and not self.is_saving:
            event = self._waiting.popleft()
            self._is_inside = True
            try:
                happened = event(now_ms)
            finally:
                self._is_inside = False
            effects += self._settle(happened, now_ms)
        return effects + self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> Effects:
        if not self._waiting or self.is_saving or self._is_next_set:
            return []
        self._is_next_set = True
        return [SetTimer(key=_NEXT, at_ms=now_ms, then=self._next)]

    def _settle(self, effects: Effects, now_ms: int) -> Effects:
        """Let the effects of an event go, or save its change first."""
        state = self._state()
        if state == self._saved:
            return effects + self._finished(now_ms)
        self.is_saving, self._began_ms = True, now_ms
        self._held = [effect for effect in effects if isinstance(effect, Reply | Send)]
        local = [effect for effect in effects if not isinstance(effect, Reply | Send)]
        saving = self._store.save(state, partial(self._on_saved, state), now_ms)
        if self.is_saving:
            self._is_slow_set = True
            at_ms = now_ms + SLOW_SAVE_MS
            local.append(SetTimer(key=_SLOW, at_ms=at_ms, then=self._on_slow))
        return local + saving

    def _on_saved(self, state: ElectionState, problem: Exception | None, now_ms: int) -> Effects:
        if problem is not None:
            # rel-P9: after a failed save nobody knows what the disk has. The node stops, and no message has
            # left.
            raise problem
        self._saved, self.is_saving = state, False
        effects = self._postpone(now_ms - self._began_ms)
        if self._is_slow_set:
            self._is_slow_set = False
            effects.append(CancelTimer(key=_SLOW))
        effects += self._held
        self._held = []
        return effects + self._finished(now_ms) + self._go_on(now_ms)

    def _finished(self, now_ms: int) -> Effects:
        finish, self._finish = self._finish, None
        return [] if finish is None else finish(now_ms)

    def _on_slow(self, now_ms: int) -> Effects:
        return [SAVE_IS_SLOW(after_s=(now_ms - self._began_ms) // 1000)]


class Calls:
    """The requests under way, and the peers that rest after a failure."""

    __slots__ = (
        "_backoff_ms",
        "_gate",
        "_last_number",
        "_resting",
        "_silences",
        "_timeout_ms",
        "_waiting",
    )

    def __init__(self, gate: Gate, *, timeout_ms: int, backoff_ms: int) -> None:
        self._gate = gate
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._last_number = 0
        self._waiting: dict[int, int] = {}  # node id -> number of the request
        self._resting: dict[int, int] = {}  # node id -> when it may be asked again
        self._silences: dict[int, int] = {}  # node id -> requests in a row without an answer

    @property
    def is_waiting(self) -> bool:
        """Is any request under way?"""
        return bool(self._waiting)

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        """May a request be sent to that peer now?"""
        return node_id not in self._waiting and not self.is_resting(node_id, now_ms)

    def is_silent(self, node_id: int) -> bool:
        """Did it leave the last few requests unanswered? One may be the fault of an old connection."""
        return self._silences.get(node_id, 0) >= SILENCES_MIN

    def is_resting(self, node_id: int, now_ms: int) -> bool:
        """Did it fail so lately that no request is sent to it yet?"""
        return self._resting.get(node_id, now_ms) > now_ms

    def next_ready_ms(self, now_ms: int) -> int | None:
        """When the first resting peer may be asked again; None if none rests."""
        return min((at_ms for at_ms in self._resting.values() if at_ms > now_ms), default=None)

    def ask(
        self,
        peer: Peer,
        request: Request[Response],
        then: Callable[[Response | Unanswered, int], Effects],
        *,
        version_min: int = 0,
    ) -> Send[Response]:
        """Send a request; `then(response or Unanswered, now_ms)` runs unless the request was forgotten."""
        assert peer.node_id not in self._waiting, "one request at a time"
        self._last_number += 1
        number = self._last_number
        self._waiting[peer.node_id] = number
        self._resting.pop(peer.node_id, None)

        def answered(response: Response | Unanswered, now_ms: int) -> Effects:
            if self._waiting.get(peer.node_id) != number:
                return []
            del self._waiting[peer.node_id]
            self._count_silence(peer.node_id, response)
            return then(response, now_ms)

        return Send(
            peer=peer,
            request=request,
            timeout_ms=self._timeout_ms,
            then=lambda response, now_ms: self._gate.take(partial(answered, response), now_ms),
            version_min=version_min,
        )

    def _count_silence(self, node_id: int, response: object) -> None:
        is_silent = isinstance(response, Unanswered) and not response.is_unsupported
        self._silences[node_id] = self._silences.get(node_id, 0) + 1 if is_silent else 0

    def rest(self, node_id: int, now_ms: int) -> None:
        """Send that peer nothing for the retry back-off."""
        self._resting[node_id] = now_ms + self._backoff_ms

    def forget(self) -> None:
        """Drop all requests under way; every peer may be asked again."""
        self._waiting.clear()
        self._resting.clear()
        self._silences.clear()


class Timers:
    """Timers by name. A timer that was moved or cancelled does nothing when it fires."""

    __slots__ = ("_gate", "_set")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._set: dict[str, tuple[int, Event]] = {}

    def at_ms(self, name: str) -> int | None:
        """The time of that timer; None if it is not set."""
        found = self._set.get(name)
        return None if found is None else found[0]

    def set(self, name: str, at_ms: int, then: Event) -> Effects:
        """Call `then(now_ms)` at that time; this replaces an earlier timer of the same name."""
        self._set[name] = at_ms, then

        def fired(now_ms: int) -> Effects:
            if self.at_ms(name) != at_ms:
                return []
            del self._set[name]
            return then(now_ms)

        return [SetTimer(key=("raft", name), at_ms=at_ms, then=partial(self._gate.take, fired))]

    def postpone(self, by_ms: int, *names: str) -> Effects:
        """Move these timers; one that is due but has not fired yet is moved too."""
        effects: Effects = []
        for name in names if by_ms > 0 else ():
            if name in self._set:
                at_ms, then = self._set[name]
                effects += self.set(name, at_ms + by_ms, then)
        return effects

    def cancel(self, *names: str) -> Effects:
        """Cancel these timers."""
        return [
            CancelTimer(key=("raft", name))
            for name in names
            if self._set.pop(name, None) is not None
        ]

    def cancel_all(self) -> Effects:
        """Cancel every timer."""
        return self.cancel(*tuple(self._set))
