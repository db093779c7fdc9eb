"""Requests under way, moments to come, and the gate that every event passes. PURE. Source: KIP-595; spec Q22.

Each peer is asked one thing at a time. An answer counts only while its question does: a change of role
forgets all questions, so that what was asked in an earlier life decides nothing in this one.
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
    Warn,
)
from firnline.raft.election_state import ElectionState
from firnline.raft.ports import ElectionStore

SILENCES_MIN = 3
# Events that may wait for a save; of requests beyond it a disk that hangs would fill the memory.
WAITING_MAX = 1_000
# When the operator hears of a save that is not done.
SLOW_SAVE_MS = 5_000
_NEXT = ("raft", "next")
_SLOW = ("raft", "slow save")
_SLOW_LINE = (
    "metadata quorum: epoch and vote are not on disk after {seconds} s. Until they are, this node takes no"
    " part in the quorum, and others elect without it: look at the disk of the metadata log"
)

Event = Callable[[int], Effects]
Response = TypeVar("Response")


class Gate:
    """Where the events of the quorum come in, and where its messages go out.

    An event that changed epoch, vote or leader has its messages held until the disk has the change; events
    that come meanwhile wait, in their order. So whatever happens finds a state that is saved, and the loop
    waits for no disk. What stays in this node goes on at once: syncs, timers, what the listener wants done.
    Why so: docs/decisions/0031-votes-off-the-loop.md.

    Invariants:
      I1  no message leaves before the state that it was made in survives a power cut.
      I2  no event happens in a state that may yet be lost, and no record of an epoch is written to the log
          before it is saved how this node voted there.
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
        """What was saved last; None for nothing. StorageError when it is damaged."""
        saved = self._store.load()
        self._saved = saved or self._saved
        return saved

    @property
    def is_full(self) -> bool:
        """Does so much wait that requests are to be refused?"""
        return len(self._waiting) >= WAITING_MAX

    def take(self, event: Event, now_ms: int) -> Effects:
        """Let it happen: now, or in its turn once the change before it is saved."""
        if self._is_inside:
            return event(now_ms)  # a part of the event that happens now
        self._waiting.append(event)
        return [] if self.is_saving or self._is_next_set else self._next(now_ms)

    def once_saved(self, finish: Event) -> None:
        """End the event that happens now with `finish`, when what it changed is saved."""
        self._finish = finish

    def hold(self, effects: Effects) -> Effects:
        """Have messages of somebody else's that tell of the state wait like the quorum's own."""
        if not self.is_saving:
            return effects
        self._held += effects
        return []

    def close(self) -> None:
        """Nothing that waits is to happen or to leave any more; a save that is under way comes to its end."""
        self._waiting.clear()
        self._held, self._finish = [], None

    def _next(self, now_ms: int) -> Effects:
        """One event in a step: others may have the loop before the next of those that waited."""
        self._is_next_set = False
        # What an event changed that raised then is saved like any other.
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
        """Let the effects of an event go, or save what it changed first."""
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
            # rel-P9: what the disk has now nobody knows. The node stops, and has told nobody.
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
        return [Warn(line=_SLOW_LINE.format(seconds=(now_ms - self._began_ms) // 1000))]


class Calls:
    """Whom this node waits for, and whom it leaves alone for a while after a failure."""

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
        self._waiting: dict[int, int] = {}  # node id -> number of the question
        self._resting: dict[int, int] = {}  # node id -> when it may be asked again
        self._silences: dict[int, int] = {}  # node id -> questions in a row that nobody answered

    @property
    def is_waiting(self) -> bool:
        """Is any question open?"""
        return bool(self._waiting)

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        """May that peer be asked now?"""
        return node_id not in self._waiting and not self.is_resting(node_id, now_ms)

    def is_silent(self, node_id: int) -> bool:
        """Did it leave the last few questions unanswered? One may be the fault of an old connection."""
        return self._silences.get(node_id, 0) >= SILENCES_MIN

    def is_resting(self, node_id: int, now_ms: int) -> bool:
        """Did it fail so lately that it is left alone?"""
        return self._resting.get(node_id, now_ms) > now_ms

    def next_ready_ms(self, now_ms: int) -> int | None:
        """When the first of the resting peers may be asked again; None when nobody rests."""
        return min((at_ms for at_ms in self._resting.values() if at_ms > now_ms), default=None)

    def ask(
        self,
        peer: Peer,
        request: Request[Response],
        then: Callable[[Response | Unanswered, int], Effects],
        *,
        version_min: int = 0,
    ) -> Send[Response]:
        """Ask `peer`; `then(response or Unanswered, now_ms)` unless the question was forgotten."""
        assert peer.node_id not in self._waiting, "one question at a time"
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
        """Leave that peer alone for the retry back-off."""
        self._resting[node_id] = now_ms + self._backoff_ms

    def forget(self) -> None:
        """Nothing that was asked counts any more, and everybody may be asked."""
        self._waiting.clear()
        self._resting.clear()
        self._silences.clear()


class Timers:
    """Moments by name. A timer whose moment was moved or dropped since does nothing when it fires."""

    __slots__ = ("_gate", "_set")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._set: dict[str, tuple[int, Event]] = {}

    def at_ms(self, name: str) -> int | None:
        """The moment of that name; None for none."""
        found = self._set.get(name)
        return None if found is None else found[0]

    def set(self, name: str, at_ms: int, then: Event) -> Effects:
        """Call `then(now_ms)` at that moment; it replaces an earlier one of the name."""
        self._set[name] = at_ms, then

        def fired(now_ms: int) -> Effects:
            if self.at_ms(name) != at_ms:
                return []
            del self._set[name]
            return then(now_ms)

        return [SetTimer(key=("raft", name), at_ms=at_ms, then=partial(self._gate.take, fired))]

    def postpone(self, by_ms: int, *names: str) -> Effects:
        """Move the moments of these names; one that has come and not happened yet has not come, then."""
        effects: Effects = []
        for name in names if by_ms > 0 else ():
            if name in self._set:
                at_ms, then = self._set[name]
                effects += self.set(name, at_ms + by_ms, then)
        return effects

    def cancel(self, *names: str) -> Effects:
        """Drop the moments of these names."""
        return [
            CancelTimer(key=("raft", name))
            for name in names
            if self._set.pop(name, None) is not None
        ]

    def cancel_all(self) -> Effects:
        """Drop every moment."""
        return self.cancel(*tuple(self._set))
