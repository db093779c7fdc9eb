"""Which rule of a topic removed offsets below a log start, as far as the metadata of the tier tells. PURE.

`__remote_log_metadata` has each segment that was ever in the tier: offsets, size, newest timestamp, and
when its removal began. Together with the limits of the topic, that tells a removal by time from one by size.
Nobody writes down who removed what was in no segment. Source: KIP-405; decision 0048.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from firnline.base.ids import Uuid, uuid_text
from firnline.spark.gaps.causes import (
    DELETE_RECORDS,
    EXPIRED_OR_DELETED,
    RETENTION_SIZE,
    RETENTION_TIME,
    Missing,
)
from firnline.tiered.spi import RemoteSegment, SegmentState, SegmentUpdate

NO_LIMIT = -1


class Limits(NamedTuple):
    """The limits of a topic as they are now; None: no broker says it."""

    retention_ms: int | None = None
    retention_bytes: int | None = None

    @property
    def text(self) -> str:
        """What the evidence says of them."""
        ms, size = ("unknown" if each is None else str(each) for each in self)
        return f"now retention.ms={ms} and retention.bytes={size}"


class Known(NamedTuple):
    """A segment that was in the tier. Offsets are inclusive.

    removed_ms  when its removal began; None: it is there
    """

    segment_id: Uuid
    base_offset: int
    end_offset: int
    size_bytes: int
    newest_ms: int
    copied_ms: int
    removed_ms: int | None = None


class History:
    """The finished segments of one partition, by the records of `__remote_log_metadata` in their order."""

    def __init__(self) -> None:
        self._begun: dict[Uuid, RemoteSegment] = {}
        self._known: dict[Uuid, Known] = {}

    def note(self, change: RemoteSegment | SegmentUpdate) -> None:
        """Apply the next record. A copy that was not finished gave nobody any offset."""
        if isinstance(change, RemoteSegment):
            self._begun[change.segment_id] = change
            if change.state == SegmentState.COPY_STARTED:
                return
        segment = self._begun.get(change.segment_id)
        if segment is None:
            return
        known = self._known.get(change.segment_id)
        if known is None and change.state == SegmentState.COPY_FINISHED:
            self._known[change.segment_id] = Known(
                segment.segment_id, segment.base_offset, segment.end_offset, segment.size_bytes,
                segment.largest_time_ms, change.event_timestamp_ms,
            )  # fmt: skip
        elif (
            known is not None
            and known.removed_ms is None
            and change.state >= SegmentState.DELETE_STARTED
        ):
            removed_ms = change.event_timestamp_ms
            self._known[change.segment_id] = known._replace(removed_ms=removed_ms)

    def explain(self, missing: Missing, limits: Limits) -> Iterator[Missing]:
        """Yield offsets below the log start, which is their end, by what is known of their removal."""
        at, log_start = missing.start_offset, missing.end_offset
        there = [
            s for s in self._known.values() if s.base_offset < log_start and s.end_offset >= at
        ]
        removed = sorted(
            (s for s in there if s.removed_ms is not None and s.end_offset < log_start),
            key=lambda s: (s.base_offset, -s.end_offset),
        )
        for segment in removed:
            if segment.end_offset < at:
                continue
            if segment.base_offset > at:
                yield from self._not_removed(at, segment.base_offset, there, log_start, limits)
                at = segment.base_offset
            yield self._of(segment, at, limits)
            at = segment.end_offset + 1
        if at < log_start:
            yield from self._not_removed(at, log_start, there, log_start, limits)

    def _not_removed(
        self, start: int, end: int, there: list[Known], log_start: int, limits: Limits
    ) -> Iterator[Missing]:
        """Yield offsets that no removed segment had. Those of one that stays were deleted by request."""
        begun = [s for s in there if s.removed_ms is None and s.end_offset >= log_start]
        kept = min(begun, key=lambda s: s.base_offset, default=None)
        border = end if kept is None else min(max(kept.base_offset, start), end)
        if start < border:
            detail = f"no segment that was removed from the tier had them; {limits.text}"
            yield Missing(start, border, EXPIRED_OR_DELETED, detail)
        if kept is not None and border < end:
            detail = (
                "their segment is still in the tier: retention removes complete segments, so DeleteRecords"
                " moved the log start into it"
            )
            yield Missing(border, end, DELETE_RECORDS, detail, uuid_text(kept.segment_id))

    def _of(self, segment: Known, start: int, limits: Limits) -> Missing:
        removed_ms = segment.removed_ms
        assert removed_ms is not None
        age_ms = removed_ms - segment.newest_ms
        left_bytes = sum(
            other.size_bytes
            for other in self._known.values()
            if other.base_offset > segment.base_offset
            and other.copied_ms <= removed_ms
            and (other.removed_ms is None or other.removed_ms > removed_ms)
        )
        ms, size = limits
        cause = EXPIRED_OR_DELETED
        if ms is not None and 0 <= ms <= age_ms:
            cause = RETENTION_TIME
        elif size is not None and 0 <= size <= left_bytes:
            cause = RETENTION_SIZE
        detail = (
            f"its removal began at {removed_ms} ms, when its newest record was {age_ms} ms old and"
            f" {left_bytes} bytes of later segments were in the tier; {limits.text}"
        )
        if cause == EXPIRED_OR_DELETED:
            detail += (
                ", which do not explain it alone: DeleteRecords, or limits that were changed since"
            )
        return Missing(start, segment.end_offset + 1, cause, detail, uuid_text(segment.segment_id))


def limits_of(settings: Mapping[str, str]) -> Limits:
    """Return the limits that a topic's settings name."""
    found = (settings.get(name) for name in ("retention.ms", "retention.bytes"))
    return Limits(*(int(text) if text and text.lstrip("-").isdigit() else None for text in found))
