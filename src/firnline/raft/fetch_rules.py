"""May a follower go on at its place, and if not, where? PURE. Source: KIP-595, KIP-630; spec 1.7.

A place is an offset and the epoch of the record before it. The leader judges the place that a Fetch names;
the follower finds out where its own log stops being the leader's.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import OffsetAndEpoch


class Valid(NamedTuple):
    """The follower's log is a prefix of the leader's: records follow."""


class Diverging(NamedTuple):
    """The follower has records the leader has not: the leader's newest epoch at or before the
    follower's, and where it ends, exclusive. No records are sent."""

    epoch: int
    end_offset: int


class SnapshotNeeded(NamedTuple):
    """What the follower lacks is no more in the log, or costs more to read there: fetch this first."""

    snapshot_id: OffsetAndEpoch


Verdict = Valid | Diverging | SnapshotNeeded


class Lineage(Protocol):
    """What the rules look at in a log; every `ReplicatedLog` has it. Snapshot 0-0 is none (Q12)."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def newest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch: ...


def validate_fetch(log: Lineage, offset: int, last_fetched_epoch: int) -> Verdict:
    """Judge, on the leader, the place a follower fetches from; spec 1.7 line by line."""
    newest, earliest = log.newest_snapshot_id, log.earliest_snapshot_id
    if offset == 0:
        # A snapshot is smaller than the history it stands for.
        if newest is not None:
            return SnapshotNeeded(newest)
        if log.start_offset == 0:
            return Valid()
    if earliest is not None and _is_before(log.start_offset, earliest, offset, last_fetched_epoch):
        assert newest is not None, "where there is an earliest snapshot there is a newest one"
        return SnapshotNeeded(newest)
    own_end, own_epoch = log.end_offset_for(last_fetched_epoch)
    if own_epoch != last_fetched_epoch or own_end < offset:
        return Diverging(own_epoch, own_end)
    return Valid()


def _is_before(start_offset: int, earliest: OffsetAndEpoch, offset: int, epoch: int) -> bool:
    """Is the place one that log and earliest snapshot do not vouch for?"""
    at_start = offset == start_offset and epoch != earliest.epoch
    return offset < start_offset or at_start or epoch < earliest.epoch


def truncation_point(
    log: Lineage, diverging: Diverging, *, high_watermark: int
) -> int | KafkaError:
    """Return where a follower that was told `diverging` cuts its log, exclusive end.

    KafkaError when that lies below `high_watermark`: what is committed never goes (X8, rel-Q7).
    """
    offset = min(diverging.end_offset, log.end_offset)
    if diverging.epoch > 0:  # epoch 0: nobody ever led, nothing of the own log can be the leader's
        own_end, own_epoch = log.end_offset_for(diverging.epoch)
        offset = min(own_end, offset) if own_epoch == diverging.epoch else own_end
    if offset < high_watermark:
        return KafkaError(
            Code.CORRUPT_MESSAGE,
            "the leader's metadata log diverges from this node's below what is committed: two quorums"
            " wrote to it, or a voter lost its disk. Keep this directory, and compare it with the others",
            truncation_offset=offset,
            high_watermark=high_watermark,
            diverging_epoch=diverging.epoch,
            diverging_end_offset=diverging.end_offset,
        )
    return offset


def end_offset_for(
    epoch: int,
    *,
    epochs: Sequence[tuple[int, int]],
    end_offset: int,
    newest_snapshot_id: OffsetAndEpoch | None,
    earliest_snapshot_id: OffsetAndEpoch | None,
) -> OffsetAndEpoch:
    """Return the newest epoch that is at most `epoch`, and its end offset, exclusive (spec 1.7, 4).

    `epochs` are the log's (epoch, start offset), ascending. Before the first of them lies what the
    earliest snapshot holds, when it ends there; otherwise nothing is known, and the asked epoch ends
    where the first one begins.
    """
    if not epochs or epoch >= epochs[-1][0]:
        return OffsetAndEpoch(end_offset, last_epoch(epochs, end_offset, newest_snapshot_id))
    after = bisect_right(epochs, epoch, key=lambda entry: entry[0])
    end = epochs[after][1]
    if after:
        return OffsetAndEpoch(end, epochs[after - 1][0])
    if earliest_snapshot_id is not None and earliest_snapshot_id.offset == end:
        return earliest_snapshot_id
    return OffsetAndEpoch(end, epoch)


def last_epoch(
    epochs: Sequence[tuple[int, int]], end_offset: int, newest_snapshot_id: OffsetAndEpoch | None
) -> int:
    """Return the epoch of the record before `end_offset`, in the log or a snapshot; 0 for none (Q4, Q38)."""
    if epochs:
        return epochs[-1][0]
    if newest_snapshot_id is not None and newest_snapshot_id.offset == end_offset:
        return newest_snapshot_id.epoch
    return 0
