"""Periodic tasks of the active controller. PURE. Source: KIP-631; spec I27."""

from collections.abc import Callable

from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.metadata.quorum import MetadataQuorum
from firnline.metadata.result import ControllerResult


class Round:
    """One periodic task. `decide` does a small part of it and answers whether more is left."""

    def __init__(
        self,
        name: str,
        quorum: MetadataQuorum,
        decide: Callable[[], ControllerResult[bool]],
        *,
        interval_ms: int,
    ) -> None:
        self._key = ("controller", name)
        self._quorum = quorum
        self._decide = decide
        self._interval_ms = interval_ms

    def start(self, now_ms: int) -> Effects:
        """Begin the task. Call it when this controller becomes active."""
        return self.soon(now_ms + self._interval_ms)

    def stop(self) -> Effects:
        """Stop the task."""
        return [CancelTimer(key=self._key)]

    def soon(self, at_ms: int) -> Effects:
        """Run at that time instead of the scheduled one."""
        return [SetTimer(key=self._key, at_ms=at_ms, then=self._run)]

    def _run(self, now_ms: int) -> Effects:
        if not self._quorum.is_active:
            return []

        def done(outcome: object, at_ms: int) -> Effects:
            return self.soon(at_ms) if outcome is True else []

        next_effects = self.soon(now_ms + self._interval_ms)
        return next_effects + self._quorum.write(self._decide(), done, now_ms)
