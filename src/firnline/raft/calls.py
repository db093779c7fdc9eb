"""Requests under way and moments to come: what a change of role forgets. PURE. Source: KIP-595; spec Q22.

Each peer is asked one thing at a time. An answer counts only while its question does: a change of role
forgets all questions, so that what was asked in an earlier life decides nothing in this one.
"""

from collections.abc import Callable
from typing import Any

from firnline.base.effects import CancelTimer, Effects, Peer, Send, SetTimer, Unanswered

SILENCES_MIN = 3


class Calls:
    """Whom this node waits for, and whom it leaves alone for a while after a failure."""

    __slots__ = ("_backoff_ms", "_last_number", "_resting", "_silences", "_timeout_ms", "_waiting")

    def __init__(self, *, timeout_ms: int, backoff_ms: int) -> None:
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
        request: Any,
        then: Callable[[Any, int], Effects],
        *,
        version_min: int = 0,
    ) -> Send:
        """Ask `peer`; `then(response or Unanswered, now_ms)` unless the question was forgotten."""
        assert peer.node_id not in self._waiting, "one question at a time"
        self._last_number += 1
        number = self._last_number
        self._waiting[peer.node_id] = number
        self._resting.pop(peer.node_id, None)

        def answered(response: Any, now_ms: int) -> Effects:
            if self._waiting.get(peer.node_id) != number:
                return []
            del self._waiting[peer.node_id]
            self._count_silence(peer.node_id, response)
            return then(response, now_ms)

        return Send(
            peer=peer,
            request=request,
            timeout_ms=self._timeout_ms,
            then=answered,
            version_min=version_min,
        )

    def _count_silence(self, node_id: int, response: Any) -> None:
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

    __slots__ = ("_at_ms",)

    def __init__(self) -> None:
        self._at_ms: dict[str, int] = {}

    def at_ms(self, name: str) -> int | None:
        """The moment of that name; None for none."""
        return self._at_ms.get(name)

    def set(self, name: str, at_ms: int, then: Callable[[int], Effects]) -> Effects:
        """Call `then(now_ms)` at that moment; it replaces an earlier one of the name."""
        self._at_ms[name] = at_ms

        def fired(now_ms: int) -> Effects:
            if self._at_ms.get(name) != at_ms:
                return []
            del self._at_ms[name]
            return then(now_ms)

        return [SetTimer(key=("raft", name), at_ms=at_ms, then=fired)]

    def cancel(self, *names: str) -> Effects:
        """Drop the moments of these names."""
        return [
            CancelTimer(key=("raft", name))
            for name in names
            if self._at_ms.pop(name, None) is not None
        ]

    def cancel_all(self) -> Effects:
        """Drop every moment."""
        return self.cancel(*tuple(self._at_ms))
