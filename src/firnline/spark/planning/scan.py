"""Driver side: options and filters -> tasks. Reads what the plan needs of catalogs and indexes. SPARK.

Everything here runs once per query, in one process, without a broker. Partitions are planned side by side.
Source: spark section 4.
"""

import gc
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain, groupby
from threading import Semaphore

from firnline.base.errors import ConfigError
from firnline.base.ids import Uuid
from firnline.base.units import INT64_MAX
from firnline.formats.transaction_index import AbortedTxn
from firnline.records.batch import HEADER_BYTES, parse_header
from firnline.spark.integrity import load_optional
from firnline.spark.options.parse import (
    EARLIEST,
    LATEST,
    ByTimestamp,
    OffsetSpec,
    OffsetSpecs,
    Options,
)
from firnline.spark.planning.calls import Calls
from firnline.spark.planning.catalogs import (
    PartitionRows,
    Place,
    head_of_nothing,
)
from firnline.spark.planning.filters import (
    EVERYTHING,
    Filters,
    Spans,
    overlap,
    touches,
    within,
    without,
)
from firnline.spark.planning.plan import (
    Gap,
    Load,
    OffsetIndex,
    Piece,
    Range,
    Segment,
    Task,
    bytes_of,
    needs_index,
    pack,
    parse_offset_index,
    pieces_of,
    task_bytes,
)
from firnline.spark.planning.shares import Share, divide_shares
from firnline.spark.planning.timestamps import first_offset_at
from firnline.spark.planning.transactions import AbortedByOffset, Producers, aborted_in
from firnline.spark.read import DataLoss, located
from firnline.spark.schema import COLUMNS, CorruptSegment, OpenTxn
from firnline.stores.port import ObjectMissing, ObjectStore
from firnline.tiered.catalog.format import CatalogHead, CatalogTopic, PartRef
from firnline.tiered.objects.catalog_reader import (
    list_heads_of_topic,
    list_topics,
    read_head,
    resolve_topic,
    with_newest,
)
from firnline.tiered.objects.layout import OFFSET_INDEX, PRODUCER_SNAPSHOT, HeadName

# Searches for a timestamp that hold a chunk of a segment in memory at the same time.
_SEARCHES_AT_ONCE = 16
_log = logging.getLogger(__name__)


def plan_scan(
    store: ObjectStore,
    options: Options,
    filters: Filters = Filters(),  # noqa: B008
    *,
    columns: tuple[str, ...] = COLUMNS,
) -> list[Task]:
    """Return the tasks of one batch read of `columns`; empty if there is nothing to read.

    filters  rows that none of them takes may be left out

    Raises ConfigError for impossible topics, partitions and offsets, DataLoss for offsets that are gone or
    not in the tier yet, CatalogCorrupt and CorruptSegment for what is damaged. If several partitions have an
    error, it is that of the first. Errors of the store pass through.
    """
    for note in options.notes:
        _log.warning("%s", note)
    with Calls(store) as calls, _no_collection():
        chosen = choose_partitions(store, options, filters, calls)
        scan = _Scan(store, options, filters, calls, needs_states="transaction" in columns)
        shares = [s for s in calls.each_partition(scan.share, chosen) if s is not None]
        return scan.tasks(shares)


def tasks_for_cores() -> int:
    """Return how many tasks keep the driver's cores busy."""
    return 2 * (os.cpu_count() or 1)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from traversing a plan that grows: that is a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# ------------------------------------------------------------------------------------ partitions


def choose_partitions(
    store: ObjectStore, options: Options, filters: Filters, calls: Calls
) -> list[Place]:
    """Return the partitions that `subscribe`, `subscribePattern` or `assign` select and the filters take.

    In the order of the options; those of which nothing is in the tier only if offsets name them. Raises
    ConfigError with the existing names if a topic does not exist, or if offsets by partition do not name
    exactly the partitions of the topics that the filters take.
    """
    topics = _choose_topics(store, options, calls)
    taken = {topic.topic: topic for topic in topics if filters.takes_topic(topic.topic)}
    found = calls.each(lambda t: list_heads_of_topic(store, t.topic_id), taken.values())
    chosen = []
    for topic, heads in zip(taken.values(), found, strict=True):
        wanted = heads if options.assigned is None else options.assigned[topic.topic]
        chosen += [Place(topic, p, heads.get(p)) for p in wanted]
    others = {topic.topic for topic in topics} - set(taken)
    named = _named_partitions(options, chosen, set(taken), others)
    more = named - {(place.topic.topic, place.partition) for place in chosen}
    chosen += [Place(taken[name], partition, None) for name, partition in sorted(more)]
    places = [place for place in chosen if filters.takes_partition(place.partition)]
    for place in places:
        if place.head is None:
            _log.warning(
                "nothing of this partition is in the tier: topic=%s partition=%d",
                place.topic.topic,
                place.partition,
            )
    return [p for p in places if p.head is not None or (p.topic.topic, p.partition) in named]


def _choose_topics(store: ObjectStore, options: Options, calls: Calls) -> list[CatalogTopic]:
    if options.pattern is not None:
        pattern = re.compile(options.pattern)
        live = sorted(
            (t for t in _live_topics(store, options) if pattern.search(t.topic)),
            key=lambda t: (t.topic, t.registered_ms, t.topic_id),
        )
        return list({t.topic: t for t in live}.values())
    names = list(dict.fromkeys(options.topics if options.assigned is None else options.assigned))
    found = calls.each(lambda name: resolve_topic(store, name), names)
    for name, topic in zip(names, found, strict=True):
        if topic is None or topic.is_deleted:
            raise _no_such_topic(store, options, name, was_deleted=topic is not None)
    return [topic for topic in found if topic is not None]


def _live_topics(store: ObjectStore, options: Options) -> list[CatalogTopic]:
    topics = list_topics(store)
    if not topics:
        raise ConfigError(
            "no catalog was found: there is no tier here, or nothing has been copied to it yet",
            uri=options.tier_uri,
        )
    return [t for t in topics if not t.is_deleted]


def _no_such_topic(
    store: ObjectStore, options: Options, name: str, *, was_deleted: bool
) -> ConfigError:
    there = sorted({t.topic for t in _live_topics(store, options)})
    return ConfigError(
        "the topic was deleted" if was_deleted else "no such topic in the tier",
        topic=name,
        uri=options.tier_uri,
        there=there,
    )


def _named_partitions(
    options: Options, chosen: Sequence[Place], taken: set[str], others: set[str]
) -> set[tuple[str, int]]:
    """Return the partitions of taken topics that offsets or timestamps of the options name.

    others  topics that a filter leaves out, whose partitions are not known
    """
    ends = {"starting": options.starting, "ending": options.ending}
    named = []
    for name, places in ends.items():
        if not isinstance(places, Mapping):
            continue
        named.append(
            {(topic, p) for topic, ps in places.items() if topic not in others for p in ps}
        )
        there = {(each.topic.topic, each.partition) for each in chosen if each.head is not None}
        if options.assigned is None:
            # The tier does not know how many partitions a topic has.
            foreign = {each for each in named[-1] if each[0] not in taken}
        else:
            foreign = named[-1] - {(each.topic.topic, each.partition) for each in chosen}
        if there - named[-1] or foreign:
            raise ConfigError(
                f"{name}Offsets must name every partition that is read, and no other",
                missing=sorted(there - named[-1]),
                unknown=sorted(foreign),
            )
    if len(named) == 2 and named[0] != named[1]:
        raise ConfigError(
            "starting and ending offsets must name the same partitions",
            only_one_names=sorted(named[0] ^ named[1]),
        )
    return named[0] if named else set()


# ------------------------------------------------------------------------------------ tasks


class _Scan:
    """One planning run. Its methods may be called from several threads.

    needs_states  whether the reader tells what became of transactions
    """

    def __init__(
        self,
        store: ObjectStore,
        options: Options,
        filters: Filters,
        calls: Calls,
        *,
        needs_states: bool,
    ) -> None:
        self.store, self.options, self.filters, self.calls = store, options, filters, calls
        self.needs_states = needs_states
        self._searches = Semaphore(_SEARCHES_AT_ONCE)

    def share(self, place: Place) -> Share | None:
        """Return what is to be read of a partition; None if nothing is."""
        if place.head is None:
            return _Partition(self, head_of_nothing(place.topic, place.partition)).share()

        def use(topic_id: Uuid, partition: int, name: HeadName) -> Share | None:
            head = read_head(self.store, topic_id, partition, name)
            with _located(head.topic, partition):
                return _Partition(self, head).share()

        return with_newest(self.store, place.topic.topic_id, place.partition, place.head, use)

    def tasks(self, shares: Sequence[Share]) -> list[Task]:
        """Divide all that is to be read: offsets if the user asks for that, and then bytes."""
        size = self._task_bytes(shares)
        parts = divide_shares(shares, self.options)
        return [
            part.task(packed)
            for part, pieces in zip(parts, self._pieces(parts, size), strict=True)
            for packed in pack(pieces, split_bytes=size)
        ]

    def _task_bytes(self, shares: Sequence[Share]) -> int:
        options = self.options
        if options.divides_offsets:
            return options.split_bytes
        return task_bytes(
            sum(
                bytes_of(one, offsets=share.offsets, times_ms=self.filters.times_ms)
                for share in shares
                for one in share.ranges
            ),
            split_bytes=options.split_bytes,
            max_tasks=options.max_tasks,
            min_tasks=tasks_for_cores(),
        )

    def _pieces(self, shares: Sequence[Share], split_bytes: int) -> Iterator[list[Piece]]:
        """Return the pieces of each share; indexes are loaded side by side, and not kept."""

        def cut(share: Share, one: Range, load_index: Load) -> list[Piece]:
            return pieces_of(
                one,
                split_bytes=split_bytes,
                load_index=load_index,
                confirms=self.confirms,
                offsets=share.offsets,
                times_ms=self.filters.times_ms,
            )

        def cut_by_index(parts: list[tuple[Share, Range]]) -> list[list[Piece]]:
            load_once = cache(self.load_index)
            with _located(parts[0][0].topic, parts[0][0].partition):
                return [cut(share, one, load_once) for share, one in parts]

        waiting = (
            (share, one)
            for share in shares
            for one in share.ranges
            if needs_index(one, split_bytes=split_bytes)
        )
        # Neighbours may be parts of the same segment.
        by_segment = [list(parts) for _, parts in groupby(waiting, lambda p: p[1].segment.stem)]
        indexed = chain.from_iterable(self.calls.each(cut_by_index, by_segment))
        for share in shares:
            found: list[Piece] = []
            for one in share.ranges:
                by_index = needs_index(one, split_bytes=split_bytes)
                found += next(indexed) if by_index else cut(share, one, self.load_index)
            yield found

    def load_index(self, segment: Segment) -> OffsetIndex | None:
        """Return the segment's offset index; None if there is none that can be trusted (T58)."""
        index = None
        data = load_optional(self.store, segment, OFFSET_INDEX)
        if data is not None:
            index = parse_offset_index(data, segment)
        if index is None:
            _log.warning(
                "no usable offset index for %s: the complete segment is read", segment.stem
            )
        return index

    def confirms(self, segment: Segment, index: OffsetIndex, entries: Sequence[int]) -> bool:
        """Whether the batches at these entries end where the entries say.

        An index with a checksum in the catalog is known to be right. For others, the batches are read.
        """
        known = segment.fingerprint
        if known is not None and known.sum_of(OFFSET_INDEX) is not None:
            return True
        for number in entries:
            position = int(index.positions[number])
            head = self.store.get(segment.key(), position, HEADER_BYTES)
            if len(head) < HEADER_BYTES:
                return False
            header = parse_header(head)
            if header.magic != 2 or header.last_offset != int(index.last_offsets[number]):
                _log.warning("an offset index differs from its segment %s", segment.stem)
                return False
        return True

    def first_at(self, ranges: Sequence[Range], timestamp_ms: int) -> int | None:
        """Return the offset of the first record of `ranges` at or after a timestamp, or None."""
        with self._searches:
            return first_offset_at(
                self.store,
                ranges,
                timestamp_ms,
                load_index=self.load_index,
                confirms=self.confirms,
            )


# ------------------------------------------------------------------------------------ one partition


class _Partition:
    """Plans one version of one partition's catalog."""

    def __init__(self, scan: _Scan, head: CatalogHead) -> None:
        self.scan, self.head, self.options = scan, head, scan.options
        self.rows = PartitionRows(scan.store, head, scan.calls)
        self.producers = Producers(scan.store)

    def share(self) -> Share | None:
        """Return what is to be read; None if nothing is. Raises ObjectMissing if the version is gone."""
        end = self._end()
        start_offset = self._resolve(self.options.starting, end, is_start=True)
        end_offset = self._resolve(self.options.ending, end, is_start=False)
        head, filters = self.head, self.scan.filters
        if end_offset < start_offset:
            raise ConfigError(
                "the ending offset is below the starting offset", topic=head.topic,
                partition=head.partition, starting=start_offset, ending=end_offset,
            )  # fmt: skip
        offsets = overlap(filters.offsets, ((start_offset, end_offset),))
        offsets = tuple(span for span in offsets if span[0] < span[1])
        if not offsets:
            return None
        ranges = self._ranges(offsets)
        if not ranges:
            return None
        needs_states = self.scan.needs_states
        needs_aborted = needs_states or self.options.read_committed
        return Share(
            head.topic,
            head.topic_id,
            head.partition,
            tuple(ranges),
            offsets,
            AbortedByOffset(self._aborted(ranges) if needs_aborted else ()),
            self._unfinished() if needs_states else (),
        )

    def _end(self) -> int:
        """Return the end of what can be read of the tier, exclusive."""
        if not self.options.read_committed:
            return self.rows.end_offset()
        end = first = None
        for ranges in self.rows.from_the_top():
            if ranges:
                end, first = ranges[-1].end_offset, ranges[0].start_offset
                stable = self.producers.stable_end(ranges)
                if stable is not None:
                    return min(end, stable)
        return self.head.log_start_offset if first is None else first

    def _resolve(self, places: OffsetSpecs, end: int, *, is_start: bool) -> int:
        """Return one end of the range as an offset within [log start, end]."""
        head = self.head
        if isinstance(places, Mapping):
            place: OffsetSpec = places[head.topic][head.partition]
        else:
            place = places
        if isinstance(place, ByTimestamp):
            return self._at_time(place.timestamp_ms, end, is_start=is_start)
        if place == EARLIEST:
            return head.log_start_offset
        if place == LATEST:
            return end
        if place < head.log_start_offset:
            self._lose("an offset is below the log start", offset=place, end=end)
        if place > end:
            self._lose("an offset is not in the tier, or not yet", offset=place, end=end)
        return min(max(place, head.log_start_offset), end)

    def _at_time(self, timestamp_ms: int, end: int, *, is_start: bool) -> int:
        found = self._first_at(timestamp_ms)
        if found is not None:
            return min(found, end)
        if is_start and not self.options.latest_if_no_such_time:
            raise ConfigError(
                "no record is at or after the starting time;"
                " startingOffsetsByTimestampStrategy=latest reads nothing instead",
                topic=self.head.topic, partition=self.head.partition, timestamp_ms=timestamp_ms,
            )  # fmt: skip
        return end

    def _first_at(self, timestamp_ms: int) -> int | None:
        """Return the first offset of the lineage at or after a timestamp; None if there is none.

        Parts without such a record matter for nothing, so the others are read one by one, lowest first. A
        version of the format that names no times has them all read at once.
        """
        searched = self.head.log_start_offset
        while True:
            later = [
                ref
                for ref in self.rows.unread
                if ref.max_timestamp_ms is None or ref.max_timestamp_ms >= timestamp_ms
            ]
            floor = min((ref.start_offset for ref in later), default=INT64_MAX)
            if floor > searched:
                ranges = [r for r in self.rows.ranges(searched, floor) if isinstance(r, Range)]
                found = self.scan.first_at(ranges, timestamp_ms)
                if found is not None:
                    return found
                searched = floor
            if not later:
                return None
            next_ones = {
                ref for ref in later if ref.max_timestamp_ms is None or ref.start_offset == floor
            }
            self.rows.read(next_ones.__contains__)

    def _ranges(self, offsets: Spans) -> list[Range]:
        """Return the ranges with wanted offsets and times, clipped; complains of offsets that are lost."""
        low, high = offsets[0][0], offsets[-1][1]
        times_ms = self.scan.filters.times_ms

        def has_offsets(ref: PartRef) -> bool:
            return touches(offsets, ref.start_offset, ref.end_offset)

        self.rows.read(
            lambda ref: (
                has_offsets(ref) and touches(times_ms, ref.min_timestamp_ms, ref.max_timestamp_ms)
            )
        )
        found, held = [], []
        for one in self.rows.ranges(low, high):
            if isinstance(one, Gap):
                continue
            held.append((one.start_offset, one.end_offset))
            inside = within(offsets, *held[-1])
            if inside and _may_have(one.segment, times_ms):
                found.append(Range(one.segment, inside[0][0], inside[-1][1]))
        # What a part without these times has is not looked at.
        held += [
            (ref.start_offset, ref.end_offset + 1) for ref in self.rows.unread if has_offsets(ref)
        ]
        for start, end in without(offsets, held):
            self._lose("offsets are in no segment of the tier", from_offset=start, to_offset=end)
        return found

    def _aborted(self, ranges: Sequence[Range]) -> tuple[AbortedTxn, ...]:
        """Return the aborted transactions that may have records in `ranges`.

        Their markers may be in any later segment. But where no transaction that begins below the end of
        `ranges` is open any more at the end of a segment, the markers of all are at or below it.
        """
        rows, start, end = self.rows, ranges[0].start_offset, ranges[-1].end_offset
        rows.read(lambda ref: ref.end_offset >= start and ref.start_offset < end)
        known = [r for r in rows.ranges(start, end) if isinstance(r, Range)]
        last = known[-1].segment
        complete = [r for r in rows.ranges(start, last.end_offset + 1) if isinstance(r, Range)]
        reaches_end = complete[-1] == Range(last, complete[-1].start_offset, last.end_offset + 1)
        if not (reaches_end and self._is_settled(last, end)):
            rows.read(lambda ref: ref.end_offset >= start)
            complete = [r for r in rows.ranges(start, INT64_MAX) if isinstance(r, Range)]
        return aborted_in(self.scan.store, complete, self.scan.calls)

    def _is_settled(self, segment: Segment, end_offset: int) -> bool:
        """Whether it is known that no transaction from below `end_offset` is open at the segment's end."""
        if PRODUCER_SNAPSHOT not in segment.suffixes:
            return False
        try:
            begun = self.producers.open_at_end(segment)
        except (CorruptSegment, ObjectMissing):
            return False
        return all(txn.first_offset >= end_offset for txn in begun)

    def _unfinished(self) -> tuple[OpenTxn, ...]:
        """Return the transactions of the partition whose outcome is not in the tier."""
        first = self.head.log_start_offset
        for ranges in self.rows.from_the_top():
            found = self.producers.unfinished(ranges)
            if found is not None:
                return found
            first = ranges[0].start_offset if ranges else first
        return (OpenTxn(first),)

    def _lose(self, why: str, **facts: int) -> None:
        problem = DataLoss(
            why,
            topic=self.head.topic,
            partition=self.head.partition,
            **facts,
            log_start=self.head.log_start_offset,
        )
        if self.options.fail_on_data_loss:
            raise problem
        _log.warning("%s", problem)


def _may_have(segment: Segment, times_ms: Spans) -> bool:
    """Whether a segment may have a record with one of these timestamps."""
    return times_ms == EVERYTHING or touches(times_ms, segment.min_timestamp_ms, segment.newest_ms)


@contextmanager
def _located(topic: str, partition: int) -> Iterator[None]:
    """Add the partition to errors about damage that is found while planning."""
    try:
        yield
    except CorruptSegment as problem:
        if "topic" in problem.facts:
            raise
        raise located(problem, topic, partition) from None
