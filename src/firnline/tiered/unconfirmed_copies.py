"""Copies of this process with an unknown outcome: their objects are deleted if the segment is deleted. PURE.

A hanging put may end after another broker has considered its segment abandoned, deleted it, and published
that. Then no metadata refers to the new objects, and no listing would find them. So the process that put them
checks the metadata until the segment is finished, or deleted; in the second case it deletes the objects
again. A segment that the metadata does not have yet is no reason to delete. Source: KIP-405; rel-T12,
rel-T13.
"""

from functools import partial

from firnline.base.effects import Effects, SetTimer
from firnline.base.ids import Uuid
from firnline.tiered.hosted import Services
from firnline.tiered.settings import store_timeout_ms
from firnline.tiered.spi import RemoteSegment, SegmentState

REMEMBERED = 1000
_TIMER = ("tier", "late copies")


class UnconfirmedCopies:
    """The copies of a node with an unknown outcome, oldest first."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._waiting: dict[Uuid, RemoteSegment] = {}
        self._deleting: dict[Uuid, None] = {}
        self._is_ticking = False

    def __len__(self) -> int:
        return len(self._waiting)

    def note(self, segment: RemoteSegment, now_ms: int) -> Effects:
        """Objects of the segment were put, and it is unknown whether it was finished."""
        self._waiting[segment.segment_id] = segment
        if len(self._waiting) > REMEMBERED:
            del self._waiting[next(iter(self._waiting))]
        return self._look(now_ms)

    def _look(self, now_ms: int) -> Effects:
        """Delete the objects of deleted segments; check the others again later."""
        effects: Effects = []
        for segment_id, segment in list(self._waiting.items()):
            if segment_id in self._deleting:
                continue  # do not send more deletes to a store that hangs
            if self._is_deleted(segment):
                self._deleting[segment_id] = None
                name = f"delete late copy of {segment.topic}-{segment.partition}"
                work = partial(self._services.storage.delete_segment, segment)
                then = partial(self._deleted, segment_id)
                effects += self._services.circuits.submit(
                    "delete",
                    now_ms,
                    name=name,
                    pool="expire",
                    work=work,
                    then=then,
                    run_timeout_ms=store_timeout_ms(),
                )
            elif self._state(segment) == SegmentState.COPY_FINISHED:
                del self._waiting[segment_id]
        return effects + self._tick(now_ms)

    def _tick(self, now_ms: int) -> Effects:
        if self._is_ticking or not self._waiting:
            return []
        self._is_ticking = True
        at_ms = now_ms + self._services.settings.task_interval_ms
        return [SetTimer(key=_TIMER, at_ms=at_ms, then=self._ticked)]

    def _ticked(self, now_ms: int) -> Effects:
        self._is_ticking = False
        return self._look(now_ms)

    def _state(self, segment: RemoteSegment) -> SegmentState | None:
        known = self._services.metadata.get(segment.topic_id_partition, segment.segment_id)
        return None if known is None else known.state

    def _is_deleted(self, segment: RemoteSegment) -> bool:
        if self._state(segment) == SegmentState.DELETE_STARTED:
            return True
        return self._services.metadata.was_deleted(segment.topic_id_partition, segment.segment_id)

    def _deleted(self, segment_id: Uuid, result: Exception | None, now_ms: int) -> Effects:
        self._deleting.pop(segment_id, None)
        if not isinstance(result, Exception):
            self._waiting.pop(segment_id, None)
        return self._tick(now_ms)
