"""Driver side: options and filters -> tasks. Reads what the plan needs of catalogs and indexes. SPARK.

Everything here runs once per query, in one process. Partitions are planned side by side. If the options name
brokers, these say which offsets there are. Then the tier gives what it has, and the partition's leader the
rest. Source: spark section 4.
"""

import gc
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain, groupby
from threading import Semaphore
from typing import NamedTuple

from firnline.base.errors import ConfigError
from firnline.base.ids import Uuid, uuid_text
from firnline.base.units import INT64_MAX
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.formats.transaction_index import AbortedTxn
from firnline.records.batch import HEADER_BYTES, parse_header
from firnline.spark.brokers.cluster import CLEANUP_POLICY, Brokers, Key
from firnline.spark.gaps.causes import LOST, NOT_IN_TIER, TOPIC_DELETED, LeftOut, Missing
from firnline.spark.gaps.expired import ExpiredTask, plan_expired
from firnline.spark.gaps.explain import report
from firnline.spark.integrity import load_optional
from firnline.spark.log_lines import warn
from firnline.spark.options.brokers import AUTO
from firnline.spark.options.parse import EARLIEST, LATEST, Options
from firnline.spark.planning.bounds import (
    Ends,
    before_fork,
    lose,
    place_of,
    resolve,
    within_ends,
)
from firnline.spark.planning.calls import Calls
from firnline.spark.planning.catalogs import (
    PartitionRows,
    Place,
    head_of_nothing,
    read_rows,
)
from firnline.spark.planning.cut import Bounds, Cut, TopicCut, end_of_epoch
from firnline.spark.planning.filters import (
    EVERYTHING,
    Filters,
    Spans,
    touches,
    within,
    without,
)
from firnline.spark.planning.live import choose_live, differing
from firnline.spark.planning.plan import (
    Load,
    OffsetIndex,
    Piece,
    Range,
    Segment,
    TailTask,
    Task,
    bytes_of,
    needs_index,
    pack,
    parse_offset_index,
    pieces_of,
    task_bytes,
)
from firnline.spark.planning.rest import (
    Rest,
    dev_data_of,
    end_on_disk,
    warn_of_foreign,
    warn_of_rest,
)
from firnline.spark.planning.shares import Share, divide_shares
from firnline.spark.planning.tiered_partitions import choose_partitions, was_deleted
from firnline.spark.planning.timestamps import first_offset_at
from firnline.spark.planning.transactions import NO_ABORTED, AbortedByOffset, Producers, aborted_in
from firnline.spark.read import located
from firnline.spark.schema import COLUMNS, CorruptSegment, OpenTxn
from firnline.stores.port import ObjectMissing, ObjectStore
from firnline.tiered.catalog.format import CatalogTopic, PartRef
from firnline.tiered.lineage import epoch_at
from firnline.tiered.objects.catalog_reader import (
    list_heads_of_topic,
    with_newest,
)
from firnline.tiered.objects.layout import OFFSET_INDEX, PRODUCER_SNAPSHOT, HeadName

# Searches for a timestamp that hold a chunk of a segment in memory at the same time.
_SEARCHES_AT_ONCE = 16
# The garbage collector traverses fewer within a few milliseconds.
_MANY_OBJECTS = 5_000
_log = logging.getLogger(__name__)


class Plan(NamedTuple):
    """The tasks of one batch read, empty if there is nothing to read, and the offsets that they give.

    left_out  what was asked for and is in no task
    expired   how the table `gaps` finds out why offsets are below a log start, if brokers can tell
    """

    tasks: list[Task | TailTask]
    cut: Cut
    left_out: tuple[LeftOut, ...] = ()
    expired: tuple[ExpiredTask, ...] = ()


def plan_read(
    store: ObjectStore | None,
    options: Options,
    filters: Filters = Filters(),  # noqa: B008
    *,
    columns: tuple[str, ...] = COLUMNS,
) -> Plan:
    """Plan one batch read of `columns`.

    store    the tier's; None if only brokers are read
    filters  rows that none of them takes may be left out

    Raises ConfigError for impossible topics, partitions and offsets, DataLoss for offsets that are gone or
    not there yet, CatalogCorrupt and CorruptSegment for what is damaged, NoAnswer if brokers do not answer.
    If several partitions have an error, it is that of the first. Errors of the store pass through.
    """
    for note in options.notes:
        warn(_log, "note about the options", note=note)
    with Calls(store) as calls, _no_collection():
        scan = _Scan(store, options, filters, calls, needs_states="transaction" in columns)
        if options.brokers is None:
            shares = scan.shares(choose_partitions(scan.store, options, filters, calls))
            warn_of_rest(set(scan.rests))
        else:
            with Brokers(options.brokers) as brokers:
                shares = scan.live_shares(brokers)
                if options.reports_gaps:
                    left_out, expired = plan_expired(brokers, scan.left_out())
                    return Plan(scan.tasks(shares), scan.cut(), left_out, expired)
        report(options, scan.left_out())
        return Plan(scan.tasks(shares), scan.cut(), scan.left_out())


def tasks_for_cores() -> int:
    """Return how many tasks keep the driver's cores busy."""
    return 2 * (os.cpu_count() or 1)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from traversing a plan that grows: that is a third of the time.

    What was made meanwhile counts as old then. Else the first thing made next would have all of it traversed.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # `unfreeze` would also undo what somebody else has frozen. To count that walks over all of it, so a
        # small plan does not look.
        if gc.get_count()[0] > _MANY_OBJECTS and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if was_enabled:
            gc.enable()


# ------------------------------------------------------------------------------------ tasks


class _Scan:
    """One planning run. Its methods may be called from several threads.

    needs_states  whether the reader tells what became of transactions
    """

    def __init__(
        self,
        store: ObjectStore | None,
        options: Options,
        filters: Filters,
        calls: Calls,
        *,
        needs_states: bool,
    ) -> None:
        self._store, self.options, self.filters, self.calls = store, options, filters, calls
        self.needs_states = needs_states
        self.tiers: dict[Key, tuple[Epochs, int]] = {}
        self._searches = Semaphore(_SEARCHES_AT_ONCE)
        self._bounds: dict[tuple[CatalogTopic, int], Bounds] = {}
        self._lost: dict[tuple[CatalogTopic, int], tuple[Missing, ...]] = {}
        self._gone: list[LeftOut] = []
        self.policies: dict[str, str] = {}
        self.rests: list[Rest] = []
        self._deleted: dict[Uuid, bool] = {}
        self.dev_data = dev_data_of(options.tier_uri)

    @property
    def store(self) -> ObjectStore:
        assert self._store is not None, "a plan without a tier reads no object"
        return self._store

    def cut(self) -> Cut:
        """Return the bounds of all partitions that were planned."""
        partitions: dict[tuple[str, Uuid], dict[int, Bounds]] = {}
        for (topic, partition), bounds in self._bounds.items():
            partitions.setdefault((topic.topic, topic.topic_id), {})[partition] = bounds
        topics = {name: TopicCut(topic_id, found) for (name, topic_id), found in partitions.items()}
        return Cut(topics, self.options.read_committed)

    def left_out(self) -> tuple[LeftOut, ...]:
        """Return what of the requested offsets no task reads, by partition."""
        found = [*self._gone]
        for (topic, partition), bounds in self._bounds.items():
            missing = (*bounds.left_out, *self._lost.get((topic, partition), ()))
            if missing:
                found.append(LeftOut(topic.topic, topic.topic_id, partition, missing))
        return tuple(found)

    def shares(self, places: Sequence[Place]) -> list[Share]:
        """Return what is to be read of each partition, without those of which nothing is."""
        return [s for s in self.calls.each_partition(self.share, places) if s is not None]

    def live_shares(self, brokers: Brokers) -> list[Share]:
        """As `shares`, of the partitions and offsets that the brokers have now.

        Of the tier only what is of the leader's history: it may not know yet of an unclean election.
        """
        places = self._live_places(brokers)
        found: dict[Key, Share] = {}
        while places:
            self.tiers.clear()
            for share in self.shares(places):
                found[share.topic, share.partition] = share
            limits = differing(brokers, self.tiers)
            places = [
                place._replace(tier_end=limits[key])
                for place in places
                if (key := (place.topic.topic, place.partition)) in limits
            ]
            for place in places:
                warn(
                    _log, "the tier has another history than the leader", topic=place.topic.topic,
                    partition=place.partition, offset=place.tier_end,
                )  # fmt: skip
        return list(found.values())

    def _live_places(self, brokers: Brokers) -> list[Place]:
        live = choose_live(brokers, self.options, self.filters, self._gone.append)
        if self.options.explains_gaps:
            settings = brokers.topic_settings({one.topic for one in live})
            self.policies = {
                topic: each.get(CLEANUP_POLICY, "").replace(" ", "")
                for topic, each in settings.items()
            }
        topics = {
            one.topic_id: CatalogTopic(one.topic_id, one.topic, 0, is_deleted=False) for one in live
        }
        heads: Sequence[Mapping[int, HeadName]] = [{} for _ in topics]
        if self.options.read_from == AUTO:
            heads = self.calls.each(lambda t: list_heads_of_topic(self.store, t), topics)
            if topics and not any(heads):
                warn_of_foreign(self.store, self.options.tier_uri, brokers)
        by_id = dict(zip(topics, heads, strict=True))
        return [
            Place(topics[p.topic_id], p.partition, by_id[p.topic_id].get(p.partition), p.bounds)
            for p in live
        ]

    def share(self, place: Place) -> Share | None:
        """Return what is to be read of a partition; None if nothing is."""
        if place.head is None and place.bounds is not None:
            return self._tail(place, place.bounds)
        if place.head is None:
            head = head_of_nothing(place.topic, place.partition)
            return _Partition(self, PartitionRows(self.store, head, (), self.calls), place).share()

        def use(topic_id: Uuid, partition: int, name: HeadName) -> Share | None:
            rows = read_rows(self.store, topic_id, partition, name, self.calls)
            topic = rows.head.topic
            if topic != place.topic.topic:  # a cut says which id a topic has
                raise ConfigError(
                    "asOf has the id of another topic: is it as it was printed?",
                    topic=place.topic.topic, id=uuid_text(topic_id), topic_of_id=topic,
                )  # fmt: skip
            with _located(topic, partition):
                return _Partition(self, rows, place).share()

        return with_newest(self.store, place.topic.topic_id, place.partition, place.head, use)

    def _tail(self, place: Place, bounds: Bounds) -> Share | None:
        """Return the share of a partition of which nothing is in the tier."""
        self.note(place, bounds)
        offsets = within(self.filters.offsets, bounds.start_offset, bounds.end_offset)
        if not offsets:
            return None
        topic = place.topic
        return Share(
            topic.topic, topic.topic_id, place.partition, (), offsets, NO_ABORTED,
            tail=offsets, leader_epoch=bounds.leader_epoch,
            cleanup_policy=self.policies.get(topic.topic, ""),
        )  # fmt: skip

    def was_deleted(self, topic: CatalogTopic) -> bool:
        """Whether a topic that has nothing in the tier was deleted; asked once for each."""
        if topic.topic_id not in self._deleted:
            self._deleted[topic.topic_id] = was_deleted(self.store, topic)
        return self._deleted[topic.topic_id]

    def note(self, place: Place, bounds: Bounds, lost: tuple[Missing, ...] = ()) -> None:
        """Keep the bounds of a partition for the cut, and the offsets inside that nobody has."""
        self._bounds[place.topic, place.partition] = bounds
        self._lost[place.topic, place.partition] = lost

    def tasks(self, shares: Sequence[Share]) -> list[Task | TailTask]:
        """Divide all that is to be read: offsets if the user asks for that, and then bytes."""
        size = self._task_bytes(shares)
        parts = divide_shares(shares, self.options)
        found: list[Task | TailTask] = []
        for part, pieces in zip(parts, self._pieces(parts, size), strict=True):
            found += [part.task(packed) for packed in pack(pieces, split_bytes=size)]
            found += part.tail_tasks()
        return found

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

        def by_index(one: Range) -> bool:
            return needs_index(one, split_bytes=split_bytes) and not self._reads_complete(one)

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

        waiting = ((share, one) for share in shares for one in share.ranges if by_index(one))
        # Neighbours may be parts of the same segment.
        by_segment = [list(parts) for _, parts in groupby(waiting, lambda p: p[1].segment.stem)]
        indexed = chain.from_iterable(self.calls.each(cut_by_index, by_segment))
        for share in shares:
            found: list[Piece] = []
            for one in share.ranges:
                found += next(indexed) if by_index(one) else cut(share, one, _no_index)
            yield found

    def _reads_complete(self, one: Range) -> bool:
        """Whether one task has to see the complete segment, unless its row names splits.

        An index says where batches end, and not whether offsets are missing before the next one begins.
        """
        is_unsure = self.options.on_gap is not None and one.segment.fingerprint is None
        return self.options.reports_gaps or is_unsure

    def load_index(self, segment: Segment) -> OffsetIndex | None:
        """Return the segment's offset index; None if there is none that can be trusted (T58)."""
        index = None
        data = load_optional(self.store, segment, OFFSET_INDEX)
        if data is not None:
            index = parse_offset_index(data, segment)
        if index is None:
            message = "no usable offset index: the complete segment is read"
            warn(_log, message, segment=segment.stem)
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
                warn(_log, "an offset index differs from its segment", segment=segment.stem)
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

    def __init__(self, scan: _Scan, rows: PartitionRows, place: Place) -> None:
        self.scan, self.rows, self.options, self.place = scan, rows, scan.options, place
        self.head = rows.head
        self.producers = Producers(scan.store)

    def share(self) -> Share | None:
        """Return what is to be read; None if nothing is. Raises ObjectMissing if the version is gone."""
        head, filters, bounds = self.head, self.scan.filters, self._bounds()
        self.scan.note(self.place, bounds)
        if self.place.head is not None and self.place.bounds is None:
            self._look_for_rest()
        offsets = within(filters.offsets, bounds.start_offset, bounds.end_offset)
        if not offsets:
            return None
        ranges, missing = self._ranges(offsets, self._tier_end())
        if self.place.bounds is None:
            lost = tuple(self._lost_inside(start, end) for start, end in missing)
            self.scan.note(self.place, bounds, lost)
            missing = ()
        elif ranges:
            where = head.topic, head.partition
            self.scan.tiers[where] = head.epochs, ranges[-1].end_offset
        if not ranges and not missing:
            return None
        needs_states = self.scan.needs_states
        needs_aborted = bool(ranges) and (needs_states or self.options.read_committed)
        return Share(
            head.topic,
            head.topic_id,
            head.partition,
            tuple(ranges),
            offsets,
            AbortedByOffset(self._aborted(ranges)) if needs_aborted else NO_ABORTED,
            self._unfinished() if needs_states and self.place.bounds is None else (),
            missing,
            bounds.leader_epoch,
            self.scan.policies.get(head.topic, ""),
        )

    def _look_for_rest(self) -> None:
        """Note that the log has more than the tier, if that is known and this read would have it."""
        head, options = self.head, self.options
        data, on_disk = self.scan.dev_data, None
        if data is not None:
            on_disk = end_on_disk(data, head.topic_id, head.topic, head.partition)
        if self.rows.is_empty:
            if on_disk != 0:  # else the log is empty
                self.scan.rests.append(Rest(head.topic, head.partition, None, 0))
            return
        if options.as_of or place_of(options.ending, head.topic, head.partition) != LATEST:
            return
        end = self.rows.end_offset()
        known = max(head.log_end_offset, on_disk or 0)
        if known > end and within(self.scan.filters.offsets, end, INT64_MAX):
            self.scan.rests.append(Rest(head.topic, head.partition, end, known))

    def _bounds(self) -> Bounds:
        """Return what is to be read of the partition: as the brokers say, else of what the tier has."""
        head, options = self.head, self.options
        start = head.log_start_offset
        live = self.place.bounds
        if live is not None:
            is_first = (
                options.as_of is None
                and place_of(options.starting, head.topic, head.partition) == EARLIEST
            )
            if not is_first or start <= live.start_offset:
                return live
            # Retention went on since the leader was asked.
            return live._replace(start_offset=min(start, live.end_offset), log_start_offset=start)
        ends = self._ends()
        end = ends.end_offset
        if options.as_of is None:
            epoch = epoch_at(head.epochs, end - 1)
            return resolve(
                options, ends, self._first_at, leader_epoch=-1 if epoch is None else epoch
            )
        cut = options.as_of.topics[head.topic].partitions[head.partition]
        fork = end_of_epoch(head.epochs, cut.leader_epoch)
        if cut.leader_epoch >= 0 and fork < cut.end_offset:
            cut = before_fork(options, cut, head.topic, head.partition, fork)
        return within_ends(options, cut, ends)

    def _ends(self) -> Ends:
        """Return what there is in the tier."""
        head, options = self.head, self.options
        end = max(self._end(), head.log_start_offset)
        written = end
        if options.explains_gaps and options.read_committed:
            written = max(self.rows.end_offset(), end)
        cause = NOT_IN_TIER
        if self.place.head is None and options.as_of and self.scan.was_deleted(self.place.topic):
            cause, detail = TOPIC_DELETED, "the topic of the cut was deleted, and its objects too"
        elif self.place.head is None:
            detail = "nothing of this partition is in the tier"
        else:
            detail = (
                "the tier ends at {end}; its catalog was written when the log ended at"
                f" {head.log_end_offset}"
            )
        return Ends(
            head.topic, head.partition, head.log_start_offset, end, "the tier", written,
            (cause, detail),
        )  # fmt: skip

    def _tier_end(self) -> int:
        """Return up to which offset records come from the tier, exclusive.

        Beside brokers that is where a transaction is open at the tier's end: its outcome may be on brokers.
        """
        if self.place.bounds is None:
            return INT64_MAX
        is_stable = self.options.read_committed or self.scan.needs_states
        return min(self.place.tier_end, self._stable_end() if is_stable else INT64_MAX)

    def _end(self) -> int:
        """Return the end of what can be read of the tier, exclusive."""
        return self._stable_end() if self.options.read_committed else self.rows.end_offset()

    def _stable_end(self) -> int:
        end = first = None
        for ranges in self.rows.from_the_top():
            if ranges:
                end, first = ranges[-1].end_offset, ranges[0].start_offset
                stable = self.producers.stable_end(ranges)
                if stable is not None:
                    return min(end, stable)
        return self.head.log_start_offset if first is None else first

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

    def _ranges(self, offsets: Spans, tier_end: int) -> tuple[list[Range], Spans]:
        """Return the ranges with wanted offsets and times, clipped, and the offsets that are in none."""
        low, high = offsets[0][0], min(offsets[-1][1], tier_end)
        times_ms = self.scan.filters.times_ms

        def has_offsets(ref: PartRef) -> bool:
            return ref.start_offset < tier_end and touches(
                offsets, ref.start_offset, ref.end_offset
            )

        self.rows.read(
            lambda ref: (
                has_offsets(ref) and touches(times_ms, ref.min_timestamp_ms, ref.max_timestamp_ms)
            )
        )
        ranges = [r for r in self.rows.ranges(low, high) if isinstance(r, Range)]
        held = [(one.start_offset, one.end_offset) for one in ranges]
        if len(offsets) > 1:  # else these ranges have nothing else
            ranges = [part for one in ranges if (part := _clipped(one, offsets)) is not None]
        found = [one for one in ranges if _may_have(one.segment, times_ms)]
        # What a part without these times has is not looked at.
        held += [
            (ref.start_offset, min(ref.end_offset + 1, tier_end))
            for ref in self.rows.unread
            if has_offsets(ref)
        ]
        return found, without(offsets, held)

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

    def _lost_inside(self, start_offset: int, end_offset: int) -> Missing:
        """Return offsets that the tier should have; raise or log as the options say."""
        head = self.head
        ends = Ends(
            head.topic, head.partition, head.log_start_offset, head.log_end_offset, "the tier"
        )
        why = "offsets are in no segment of the tier"
        lose(self.options, LOST, why, ends, from_offset=start_offset, to_offset=end_offset)
        detail = (
            f"in no segment of the tier that is of the partition's history, between its log start"
            f" {head.log_start_offset} and {self.rows.end_offset()}, where the tier ends"
        )
        return Missing(start_offset, end_offset, LOST, detail)


def _no_index(_segment: Segment) -> OffsetIndex | None:
    return None


def _clipped(one: Range, offsets: Spans) -> Range | None:
    """Return the range from its first wanted offset to its last; None if it has none."""
    inside = within(offsets, one.start_offset, one.end_offset)
    return Range(one.segment, inside[0][0], inside[-1][1]) if inside else None


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
