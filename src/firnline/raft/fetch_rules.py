"""Does a fetch offset belong to the leader's log, and if not, where must the follower truncate? PURE. Source:
KIP-595, KIP-630; spec 1.7.

A place is an offset and the epoch of the record before it. The leader validates the place in a Fetch; on a
divergence the follower finds where its own log stops being the leader's.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import OffsetAndEpoch


class Valid(NamedTuple):
    """The follower's log is a prefix of the leader's: the response has records."""


class Diverging(NamedTuple):
    """The follower has records that the leader lacks: the leader's newest epoch up to the follower's, and its
    end offset, exclusive. The response has no records."""

    epoch: int
    end_offset: int


class SnapshotNeeded(NamedTuple):
    """The log no longer has the records, or reading them costs more: the follower fetches this snapshot
    first."""

    snapshot_id: OffsetAndEpoch


Verdict = Valid | Diverging | SnapshotNeeded


class Lineage(Protocol):
    """What the rules need of a log; every `ReplicatedLog` has it. Snapshot 0-0 counts as none (Q12)."""

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
    """Validate, on the leader, the place in a Fetch; spec 1.7 line by line."""
    newest, earliest = log.newest_snapshot_id, log.earliest_snapshot_id
    if offset == 0:
        # A snapshot is smaller than the log that it replaces.
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
    """Is the place before what log and earliest snapshot can confirm?"""
    at_start = offset == start_offset and epoch != earliest.epoch
    return offset < start_offset or at_start or epoch < earliest.epoch


def truncation_point(
    log: Lineage, diverging: Diverging, *, high_watermark: int
) -> int | KafkaError:
    """Return where a follower truncates after a divergence, exclusive end.

    KafkaError if that is below `high_watermark`: a committed record is never truncated (X8, rel-Q7).
    """
    offset = min(diverging.end_offset, log.end_offset)
    if (
        diverging.epoch > 0
    ):  # epoch 0: there never was a leader, so no record here can be the leader's
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

    `epochs` are the log's (epoch, start offset), ascending. The records before the first of them are in the
    earliest snapshot, if it ends there. If not, they are unknown, and `epoch` ends where the first one
    begins.
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
