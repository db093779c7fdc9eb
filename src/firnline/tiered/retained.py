"""What the tier holds of a log's own history: in the order in which it expires, and how much it is. PURE.

Expiration asks each half a minute. Where nothing changed since, the answer costs nothing; else as much as
what changed. Where the epochs of the log changed, so that other segments may belong to its history, all are
looked at again, in slices. Source: spec 3.5, 3.7.
"""

from collections.abc import Generator, Iterable

from firnline.base.errors import KafkaError
from firnline.base.ids import TopicIdPartition, Uuid
from firnline.base.units import INT64_MAX
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.log.log import Log
from firnline.tiered.lineage import Lineage, filled
from firnline.tiered.metadata.ordered import Ordered
from firnline.tiered.spi import Look, Mark, RemoteLogMetadata, RemoteSegment, SegmentState

# Segments that are placed, or let go of, in a step of the loop.
PLACED_IN_STEP = 500
# Comes before all epochs: what lies below them.
_BELOW = -1


# Where one is in the history: leader epoch, base offset, end offset, segment id.
Key = tuple[int, int, int, Uuid]


class Retained:
    """The finished segments of one partition, as far as expiration has to look at them.

    own        of the log's history, by its epochs and by offsets in each
    below      below every epoch that the log knows, by offsets
    own_bytes  how large `own` is
    moves      grows with each change of `own` but those at its end
    """

    def __init__(self, metadata: RemoteLogMetadata, where: TopicIdPartition, log: Log) -> None:
        self._metadata, self._where, self._log = metadata, where, log
        self.lineage = Lineage(())
        self.own: Ordered[Key] = Ordered()
        self.below: Ordered[Key] = Ordered()
        self.own_bytes = 0
        self.moves = 0
        self._keys: dict[Uuid, Key] = {}
        self._mark: Mark | None = None  # None: all is to be compared
        self._log_end = 0
        # The least end of those that belong to the history, but for that they reach beyond the log.
        self._beyond_end = INT64_MAX

    def bring_up_to_date(self) -> Generator[None, None, KafkaError | None]:
        """Take in what changed; yields after so many segments. Return why that cannot be known now.

        In the end all is of one moment: what changed between two steps has been taken in, too.
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
            self._mark = look.mark  # who gives up before begins where it began
            if look.everything is None and not has_yielded:
                return None

    def key(self, segment: RemoteSegment) -> Key | None:
        """Return where a segment has its turn among `own`, whatever its state; None: nowhere."""
        epoch = self.lineage.first_epoch_of(segment)
        return None if epoch is None else _key(epoch, segment)

    def _is_current(self) -> bool:
        """Whether the log has the epochs that all was compared with, and ends no further on."""
        epochs = filled(self._log.epochs.entries())
        if _basis_of(epochs) != _basis_of(self.lineage.epochs):
            return False
        return self._log_end <= self._log.log_end_offset <= self._beyond_end

    def _clear(self) -> Generator[None, None, None]:
        """Forget all, which of very many takes long, too."""
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
        """Place what came, and take out what went; return whether it took more than a step."""
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
        gone = self.own.drop(key)
        assert gone is not None
        self.own_bytes -= gone.size_bytes
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
        self.own.put(found, segment)
        self.own_bytes += segment.size_bytes


def _key(epoch: int, segment: RemoteSegment) -> Key:
    return epoch, segment.base_offset, segment.end_offset, segment.segment_id


def _basis_of(epochs: Epochs) -> object:
    """Return what of a log's epochs decides which segments belong to it.

    Where the first one begins says nothing of that: the log start may rise within it.
    """
    return tuple(epoch for epoch, _ in epochs[:1]), epochs[1:]
