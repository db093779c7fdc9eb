"""The remote segments of a log's lineage, in the order of their expiration, and their total size. PURE.

Expiration reads it every half minute. Without changes that takes no time, otherwise it takes as long as the
changes. After a change of the log's leader epochs, which may change the segments of its lineage, all segments
are compared again, in slices. Source: spec 3.5, 3.7.
"""

from bisect import bisect_left
from collections.abc import Generator, Iterable

from firnline.base.errors import KafkaError
from firnline.base.ids import TopicIdPartition, Uuid
from firnline.base.units import INT64_MAX
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.log.log import Log
from firnline.tiered.lineage import Lineage, filled
from firnline.tiered.metadata.ordered import Ordered
from firnline.tiered.spi import Look, Mark, RemoteLogMetadata, RemoteSegment, SegmentState

# Segments that one step adds or frees.
PLACED_IN_STEP = 500
# Sorts before all epochs: segments below them.
_BELOW = -1


# The order in the lineage: leader epoch, base offset, end offset, segment id.
RetainedKey = tuple[int, int, int, Uuid]


class Retained:
    """The finished segments of one partition that expiration considers.

    own        segments of the log's lineage, by leader epoch and offset
    below      segments below all leader epochs of the log, by offset
    own_bytes  the total size of `own`, copies of the same offsets by two leaders counted once (rel-T15)
    moves      grows with each change of `own` except at its end
    """

    def __init__(self, metadata: RemoteLogMetadata, where: TopicIdPartition, log: Log) -> None:
        self._metadata, self._where, self._log = metadata, where, log
        self.lineage = Lineage(())
        self.own: Ordered[RetainedKey] = Ordered()
        self.below: Ordered[RetainedKey] = Ordered()
        self.own_bytes = 0
        self.moves = 0
        self._keys: dict[Uuid, RetainedKey] = {}
        self._mark: Mark | None = None  # None: compare all segments
        self._log_end = 0
        # The least end offset of the segments that would be in the lineage if they did not end above the log.
        self._beyond_end = INT64_MAX

    def bring_up_to_date(self) -> Generator[None, None, KafkaError | None]:
        """Apply the changes, in slices. Return an error if the metadata is not available now.

        At the end everything is of one moment: changes between two steps are applied, too.
        """
        while True:
            if not self._is_current():
                self._mark = None
            look = self._metadata.look(self._where, self._mark)
            if isinstance(look, KafkaError):
                return look
            if look.everything is not None:
                yield from self._clear()
                self.lineage = Lineage(self._log.epochs.entries())
            self._log_end = self._log.log_end_offset
            has_yielded = yield from self._take_in(look)
            self._mark = look.mark  # a run that stops earlier starts again from the old mark
            if look.everything is None and not has_yielded:
                return None

    def key(self, segment: RemoteSegment) -> RetainedKey | None:
        """Return the key of a segment among `own`, whatever its state; None if it is not in the lineage."""
        epoch = self.lineage.first_epoch_of(segment)
        return None if epoch is None else _key(epoch, segment)

    def _is_current(self) -> bool:
        """Whether the log still has the epochs of the comparison, and does not end further on."""
        epochs = filled(self._log.epochs.entries())
        if _basis_of(epochs) != _basis_of(self.lineage.epochs):
            return False
        return self._log_end <= self._log.log_end_offset <= self._beyond_end

    def _clear(self) -> Generator[None, None, None]:
        """Remove all segments, in slices."""
        self.moves += 1
        self._beyond_end, self.own_bytes = INT64_MAX, 0
        for ordered in (self.own, self.below):
            while ordered.keys:
                for key in ordered.keys[-PLACED_IN_STEP:]:
                    self._keys.pop(key[-1], None)
                del ordered.keys[-PLACED_IN_STEP:], ordered.rows[-PLACED_IN_STEP:]
                if ordered.keys:
                    yield

    def _take_in(self, look: Look) -> Generator[None, None, bool]:
        """Add and remove the changed segments; return whether that took more than one step."""
        changes: Iterable[tuple[Uuid, RemoteSegment | None]] = look.changed.items()
        if look.everything is not None:
            changes = ((segment.segment_id, segment) for segment in look.everything.segments)
        number = 0
        for number, (segment_id, segment) in enumerate(changes):
            if number and number % PLACED_IN_STEP == 0:
                yield
            self._take_out(segment_id)
            if segment is not None and segment.state == SegmentState.COPY_FINISHED:
                self._place(segment)
        return number >= PLACED_IN_STEP

    def _take_out(self, segment_id: Uuid) -> None:
        key = self._keys.pop(segment_id, None)
        if key is None:
            return
        if key[0] == _BELOW:
            self.below.drop(key)
            return
        self.own_bytes -= self._bytes_of(key)
        self.own.drop(key)
        self.own_bytes += self._bytes_of(key)
        self.moves += 1

    def _place(self, segment: RemoteSegment) -> None:
        epochs = self.lineage.epochs
        if epochs and segment.epochs[-1][0] < epochs[0][0]:
            key = self._keys[segment.segment_id] = _key(_BELOW, segment)
            self.below.put(key, segment)
            return
        if not self.lineage.holds(segment, INT64_MAX):
            return
        if segment.end_offset >= self._log_end:
            self._beyond_end = min(self._beyond_end, segment.end_offset)
            return
        found = self.key(segment)
        assert found is not None, "it shares an epoch with the log"
        if self.own.keys and found < self.own.keys[-1]:
            self.moves += 1
        self._keys[segment.segment_id] = found
        self.own_bytes -= self._bytes_of(found)
        self.own.put(found, segment)
        self.own_bytes += self._bytes_of(found)

    def _bytes_of(self, key: RetainedKey) -> int:
        """Return what `own_bytes` counts for the segments of these offsets."""
        keys = self.own.keys
        at = bisect_left(keys, (*key[:3], b""))
        return self.own.rows[at].size_bytes if at < len(keys) and is_copy(keys[at], key) else 0


def is_copy(one: RetainedKey, another: RetainedKey) -> bool:
    """Whether both are keys of the same offsets: of copies by two leaders."""
    return one[:3] == another[:3]


def _key(epoch: int, segment: RemoteSegment) -> RetainedKey:
    return epoch, segment.base_offset, segment.end_offset, segment.segment_id


def _basis_of(epochs: Epochs) -> object:
    """Return the part of a log's epochs that determines which segments are in its lineage.

    The start offset of the first epoch does not: it rises with the log start offset.
    """
    return tuple(epoch for epoch, _ in epochs[:1]), epochs[1:]
