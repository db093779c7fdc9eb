"""Which offsets the batches of a part of a log do not give, from their headers. SPARK, without Spark.

Records are looked at only in batches that have fewer of them than offsets: compaction leaves such batches.
All other batches are told apart in columns of headers. Source: KIP-98 (control batches, aborted
transactions); Kafka's `LogCleaner` (a batch keeps its offsets when its records go).
"""

import logging
from collections.abc import Iterable, Iterator

import numpy as np

from firnline.base.ports import Buffer
from firnline.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK
from firnline.spark.decode import decode_frames
from firnline.spark.frames import Frames, Ints, Mask, is_aborted
from firnline.spark.gaps.causes import (
    ABORTED,
    COMPACTED,
    COMPACTED_OR_LOST,
    CONTROL,
    Missing,
    is_refused,
    is_reported,
)
from firnline.spark.log_lines import warn
from firnline.spark.planning.plan import Segment, TailTask
from firnline.spark.schema import DataLoss, ReadSettings, Wanted

_CONTROL_DETAIL = "the marker that ends a transaction"
_ABORTED_DETAIL = (
    "of a transaction that was aborted; kafka.isolation.level=read_uncommitted gives the records"
)
_log = logging.getLogger(__name__)


class Account:
    """Accounts for the offsets [start, end) of one reader, batch by batch; then `finish`.

    hole  the cause of offsets of which no batch has a record, and its evidence

    The batches must ascend, and must have been checked. What is not yielded is given as records.
    """

    def __init__(self, wanted: Wanted, hole: tuple[str, str]) -> None:
        self._wanted, self._hole = wanted, hole
        # Each offset below is accounted for.
        self.at = wanted.start_offset

    def note(self, data: Buffer, frames: Frames, wanted: Wanted | None = None) -> Iterator[Missing]:
        """Yield what the next batches do not give, in order.

        wanted  with the aborted transactions of these batches, if they are not those of the account
        """
        wanted = self._wanted if wanted is None else wanted
        base = frames.column("base_offset")
        last = base + frames.column("last_offset_delta")
        inside = (last >= self.at) & (base < self._wanted.end_offset)
        if not inside.any():
            return
        frames, base, last = frames.only(inside), base[inside], last[inside]
        expected = np.concatenate(([self.at], last[:-1] + 1))
        attributes = frames.column("attributes")
        is_control = (attributes & CONTROL_MASK) != 0
        is_partial = (frames.column("record_count") < last - base + 1) & ~is_control
        is_void = self._is_void(frames, attributes, wanted)
        present = self._present(data, frames.only(is_partial), wanted)
        for n in np.flatnonzero((base > expected) | is_control | is_partial | is_void).tolist():
            low, high = int(base[n]), int(last[n]) + 1
            if low > expected[n]:
                yield from self._clipped(self._gone(int(expected[n]), low))
            its = self._of_batch(frames, n, CONTROL if is_control[n] else ABORTED)
            if is_partial[n]:
                yield from self._inside(present, low, high, its if is_void[n] else None)
            elif is_control[n] or is_void[n]:
                yield from self._clipped(its._replace(start_offset=low, end_offset=high))
        self.at = min(int(last[-1]) + 1, self._wanted.end_offset)

    def finish(self) -> Iterator[Missing]:
        """Yield what is left: nothing comes after the last batch."""
        if self.at < self._wanted.end_offset:
            yield self._gone(self.at, self._wanted.end_offset)
            self.at = self._wanted.end_offset

    def _is_void(self, frames: Frames, attributes: Ints, wanted: Wanted) -> Mask:
        if (
            wanted.keeps_aborted
            or not wanted.aborted
            or not (attributes & TRANSACTIONAL_MASK).any()
        ):
            return np.zeros(len(attributes), dtype=np.bool_)
        return is_aborted(
            frames.column("base_offset"), frames.column("producer_id"), attributes,
            aborted=wanted.aborted,
        )  # fmt: skip

    def _present(self, data: Buffer, frames: Frames, wanted: Wanted) -> Ints:
        """Return the offsets of the records in these batches, ascending."""
        if not len(frames.begins):
            return np.empty(0, np.int64)
        every = wanted._replace(columns=("offset",), aborted=(), keeps_aborted=True)
        found = [each.column("offset").to_numpy() for each in decode_frames(data, frames, every)]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    def _inside(
        self, present: Ints, low: int, high: int, void: Missing | None
    ) -> Iterator[Missing]:
        """Yield what a batch [low, high) has no record of; if it is `void`, its records as well."""
        low, high = max(low, self.at), min(high, self._wanted.end_offset)
        first, last = np.searchsorted(present, (low, high)).tolist()
        its = present[first:last]
        if not len(its):
            if low < high:
                yield self._gone(low, high)
            return
        begins = np.flatnonzero(np.diff(its, prepend=low - 2) > 1)
        runs = zip(its[begins].tolist(), its[np.append(begins[1:] - 1, len(its) - 1)].tolist())
        at = low
        for begin, end in runs:
            if at < begin:
                yield self._gone(at, begin)
            if void is not None:
                yield void._replace(start_offset=begin, end_offset=end + 1)
            at = end + 1
        if at < high:
            yield self._gone(at, high)

    def _gone(self, start: int, end: int) -> Missing:
        return Missing(start, end, *self._hole, self._wanted.segment_id)

    def _of_batch(self, frames: Frames, number: int, cause: str) -> Missing:
        head = frames.heads[number]
        epoch, producer = int(head["leader_epoch"]), int(head["producer_id"])
        return Missing(
            0, 0, cause, _CONTROL_DETAIL if cause == CONTROL else _ABORTED_DETAIL,
            self._wanted.segment_id,
            epoch if epoch >= 0 else None, producer if producer >= 0 else None,
        )  # fmt: skip

    def _clipped(self, one: Missing) -> Iterator[Missing]:
        start = max(one.start_offset, self.at)
        end = min(one.end_offset, self._wanted.end_offset)
        if start < end:
            yield one._replace(start_offset=start, end_offset=end)


def hole_in(segment: Segment) -> tuple[str, str]:
    """Return the cause of offsets that are missing in a segment, and the evidence."""
    if segment.fingerprint is None:
        return (
            COMPACTED_OR_LOST,
            "the segment's catalog row does not say whether offsets may be missing",
        )
    return (
        COMPACTED,
        "they were missing when the segment was copied, and nothing of it has changed since",
    )


def hole_at_leader(task: TailTask) -> tuple[str, str]:
    """Return the cause of offsets that the leader skips, and the evidence."""
    policy = task.cleanup_policy
    if "compact" in policy.split(","):
        return (
            COMPACTED,
            f"the leader has no record of them; the topic's cleanup.policy is {policy}",
        )
    return (
        COMPACTED_OR_LOST,
        f"the leader has no record of them; the topic's cleanup.policy is {policy or 'not known'}",
    )


class Refusal:
    """What a task that reads records does about the gaps that it finds: it fails, or tells them at the end.

    A line for each cause: compaction may have left a million holes.
    """

    def __init__(self, how: ReadSettings, topic: str, partition: int) -> None:
        self._how, self._where = how, {"topic": topic, "partition": partition}
        self._left_out: dict[str, tuple[Missing, int]] = {}

    def note(self, found: Iterable[Missing]) -> None:
        """Raise DataLoss for the first gap that the options refuse; keep the others for `report`."""
        how = self._how
        for each in found:
            if is_refused(how.on_gap, fail_on_data_loss=how.fail_on_data_loss, cause=each.cause):
                raise DataLoss(
                    "a read does not give these offsets", **self._where,
                    from_offset=each.start_offset, to_offset=each.end_offset, cause=each.cause,
                    detail=each.detail, onGap=how.on_gap,
                )  # fmt: skip
            if is_reported(how.on_gap, each.cause):
                first, count = self._left_out.get(each.cause, (each, 0))
                self._left_out[each.cause] = (first, count + each.end_offset - each.start_offset)

    def report(self) -> None:
        """Log what was left out."""
        for first, count in self._left_out.values():
            warn(
                _log, "offsets are left out", **self._where, cause=first.cause,
                from_offset=first.start_offset, offsets=count, detail=first.detail,
            )  # fmt: skip


def merged(rows: Iterable[Missing]) -> Iterator[Missing]:
    """Yield the rows with neighbours of one cause, evidence and place as one row."""
    pending: Missing | None = None
    for row in rows:
        if pending is not None and pending[1] == row[0] and pending[2:] == row[2:]:
            pending = pending._replace(end_offset=row.end_offset)
            continue
        if pending is not None:
            yield pending
        pending = row
    if pending is not None:
        yield pending
