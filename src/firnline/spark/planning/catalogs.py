"""The rows of one partition's catalog, read part by part as a plan needs them. SPARK.

Parts say which offsets and times their segments have, so most of them need no request. What a plan may leave
out follows from one rule: a segment serves an offset, or does not, whatever other segments there are
(`lineage.plan_ranges`). So the segments that overlap some offsets are enough to plan these.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeVar

from firnline.base.ids import Uuid
from firnline.base.units import INT64_MAX
from firnline.spark.planning.calls import Calls
from firnline.spark.planning.cut import Bounds
from firnline.spark.planning.plan import SEGMENTS, Gap, Range, Segment, lineage_ranges
from firnline.stores.port import ObjectStore
from firnline.tiered.catalog.format import (
    ROWS_MAX,
    CatalogCorrupt,
    CatalogHead,
    CatalogTopic,
    PartRef,
    decode_part_as,
)
from firnline.tiered.objects.catalog_reader import read_head_as, with_newest
from firnline.tiered.objects.layout import (
    HeadName,
    old_parts_folder,
    parts_folder,
)

T = TypeVar("T")


class Place(NamedTuple):
    """A partition of a topic, and its newest head in a listing; None: nothing of it is in the tier.

    bounds    what is to be read, if the brokers have said so; then they give what the tier does not have
    tier_end  nothing from this offset on is to be read from the tier
    """

    topic: CatalogTopic
    partition: int
    head: HeadName | None
    bounds: Bounds | None = None
    tier_end: int = INT64_MAX


def head_of_nothing(topic: CatalogTopic, partition: int) -> CatalogHead:
    """Return the head of a partition of which nothing is in the tier: offset 0 is its begin and its end."""
    return CatalogHead(
        topic=topic.topic,
        topic_id=topic.topic_id,
        partition=partition,
        leader_epoch=0,
        sequence=0,
        broker_id=0,
        written_ms=0,
        metadata_partition=0,
        metadata_offset=0,
        log_start_offset=0,
        log_end_offset=0,
        epochs=(),
        parts=(),
        removed=(),
        tail=(),
    )


# Decoding holds the interpreter anyway. One part at a time: a decoded one takes many times its bytes.
_decoding = threading.Lock()


class PartitionRows:
    """The segments of one catalog version that have been read so far, and the parts that have not.

    tail      the rows of the head, which itself has none: `read_rows`
    is_empty  whether the catalog names no segment at all

    Methods raise ObjectMissing if a part is gone, which implies a newer version, and CatalogCorrupt.
    """

    def __init__(
        self, store: ObjectStore, head: CatalogHead, tail: Sequence[Segment], calls: Calls
    ) -> None:
        self.head = head
        self.is_empty = not (tail or head.parts)
        self._store, self._calls = store, calls
        self._removed = {segment_id for segment_id, _ in head.removed}
        folder_of = parts_folder if head.version > 1 else old_parts_folder
        self._folder = folder_of(head.topic_id, head.partition)
        self._keys: set[str] = set()
        self._segments: list[Segment] = []
        self._unread: list[PartRef] = []
        self._last: tuple[tuple[int, int], Sequence[Range | Gap]] | None = None
        self._take(tail, head.parts)

    @property
    def unread(self) -> tuple[PartRef, ...]:
        """The parts that have not been read and may have segments at or above the log start."""
        return tuple(self._unread)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments that have been read and count."""
        return tuple(self._segments)

    def read(self, wants: Callable[[PartRef], bool]) -> None:
        """Read all parts that `wants` takes, and those below them, side by side."""
        while True:
            refs = [ref for ref in self._unread if wants(ref)]
            if not refs:
                return
            self._read(refs)

    def ranges(self, start_offset: int, end_offset: int) -> Sequence[Range | Gap]:
        """Return the lineage in [start, end) by the segments that have been read. Ends with a Range."""
        start = max(start_offset, self.head.log_start_offset)
        end = min(end_offset, self.head.log_end_offset)
        # A plan asks where the lineage ends, whether the log goes on, and then for the same ranges.
        if self._last is None or self._last[0] != (start, end):
            near = [s for s in self._segments if s.end_offset >= start and s.base_offset < end]
            found = lineage_ranges(near, self.head.epochs, start_offset=start, end_offset=end)
            self._last = (start, end), found
        return self._last[1]

    def from_the_top(self) -> Iterator[list[Range]]:
        """Yield the ranges of the lineage above all unread parts, then read the highest part, and so on.

        The newest segments are in the head, so the first ones come without a request.
        """
        while True:
            floor = max((ref.end_offset + 1 for ref in self._unread), default=0)
            yield [r for r in self.ranges(floor, INT64_MAX) if isinstance(r, Range)]
            if not self._unread:
                return
            self._read([max(self._unread, key=attrgetter("end_offset"))])

    def end_offset(self) -> int:
        """Return where the tier's part of the lineage ends, exclusive; the log start if there is none."""
        for ranges in self.from_the_top():
            if ranges:
                return ranges[-1].end_offset
        return self.head.log_start_offset

    def _read(self, refs: list[PartRef]) -> None:
        """Replace these unread parts by their rows, or by the references in them."""
        for ref in refs:
            if ref.key in self._keys or not ref.key.startswith(self._folder):
                raise CatalogCorrupt(
                    "a catalog refers to a part twice, or to another's", key=ref.key
                )
            self._keys.add(ref.key)
        reading = set(refs)
        self._unread = [ref for ref in self._unread if ref not in reading]
        for rows, below in self._calls.each(self._read_part, refs):
            self._take(rows, below)

    def _read_part(self, ref: PartRef) -> tuple[list[Segment], list[PartRef]]:
        data = self._store.get(ref.key, 0, ref.size_bytes + 1)
        with _decoding:
            return decode_part_as(SEGMENTS, data, ref)

    def _take(self, rows: Iterable[Segment], refs: Iterable[PartRef]) -> None:
        start, self._last = self.head.log_start_offset, None
        self._segments += [
            r for r in rows if r.end_offset >= start and r.segment_id not in self._removed
        ]
        if len(self._segments) > ROWS_MAX:
            raise CatalogCorrupt("a catalog has too many rows", key=self._folder, limit=ROWS_MAX)
        self._unread += [ref for ref in refs if ref.end_offset >= start]


def read_rows(
    store: ObjectStore, topic_id: Uuid, partition: int, name: HeadName, calls: Calls
) -> PartitionRows:
    """Read the head `name`, and what it has of the rows. Raises ObjectMissing, CatalogCorrupt."""
    return PartitionRows(store, *read_head_as(SEGMENTS, store, topic_id, partition, name), calls)


def has_segment(store: ObjectStore, topic_id: Uuid, partition: int, wanted: Segment) -> bool:
    """Whether the newest catalog still names a segment; reads only the parts that can."""

    def look(topic_id: Uuid, partition: int, name: HeadName) -> bool:
        with Calls(store) as calls:
            rows = read_rows(store, topic_id, partition, name, calls)
            rows.read(
                lambda ref: (
                    ref.start_offset <= wanted.end_offset and ref.end_offset >= wanted.end_offset
                )
            )
            return any(s.segment_id == wanted.segment_id for s in rows.segments)

    return bool(with_newest(store, topic_id, partition, None, look))
