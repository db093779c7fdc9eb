"""Driver side: options -> tasks. Reads catalogs and, where they save bytes, indexes. SPARK.

Everything here runs once per query, in one process, without a broker. Source: spark section 4.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from firnline.base.errors import ConfigError
from firnline.formats.transaction_index import AbortedTxn
from firnline.records.batch import HEADER_BYTES, parse_header
from firnline.spark.division import divide
from firnline.spark.integrity import load_optional
from firnline.spark.options.parse import (
    EARLIEST,
    LATEST,
    ByTimestamp,
    OffsetSpec,
    OffsetSpecs,
    Options,
)
from firnline.spark.plan import (
    Gap,
    OffsetIndex,
    Piece,
    Range,
    Task,
    clip,
    lineage_ranges,
    pack,
    parse_offset_index,
    pieces_of,
)
from firnline.spark.read import DataLoss, located
from firnline.spark.schema import COLUMNS, CorruptSegment, OpenTxn
from firnline.spark.timestamps import first_offset_at
from firnline.spark.transactions import aborted_in, stable_end, unfinished_in
from firnline.stores.port import ObjectStore
from firnline.tiered.catalog.format import CatalogSegment, CatalogTopic, PartitionCatalog
from firnline.tiered.objects.catalog_reader import list_topics, read_catalog, resolve_topic
from firnline.tiered.objects.layout import OFFSET_INDEX

_log = logging.getLogger(__name__)


class PartitionRange(NamedTuple):
    """The part of one partition that is to be read."""

    catalog: PartitionCatalog
    ranges: tuple[Range, ...]
    aborted: tuple[AbortedTxn, ...]
    unfinished: tuple[OpenTxn, ...] = ()


def plan_scan(
    store: ObjectStore, options: Options, columns: tuple[str, ...] = COLUMNS
) -> list[Task]:
    """Return the tasks of one batch read of `columns`; empty if there is nothing to read.

    Raises ConfigError for impossible topics, partitions and offsets, DataLoss for offsets that are gone or
    not in the tier yet.
    """
    for note in options.notes:
        _log.warning("%s", note)
    scan = _Scan(store, options, needs_states="transaction" in columns)
    split_bytes = options.split_bytes
    return [
        Task(
            s.catalog.topic,
            s.catalog.topic_id,
            s.catalog.partition,
            packed,
            s.aborted,
            s.unfinished,
        )
        for s in divide_shares(scan.shares(), options)
        for packed in pack(scan.pieces(s), split_bytes=split_bytes)
    ]


def divide_shares(shares: Sequence[PartitionRange], options: Options) -> list[PartitionRange]:
    """Divide shares by offsets, as `minPartitions` and `maxRecordsPerPartition` want it."""
    spans = [(share.ranges[0].start_offset, share.ranges[-1].end_offset) for share in shares]
    divided = divide(
        [end - start for start, end in spans],
        parts_min=options.min_partitions,
        records_max=options.max_records_per_partition,
    )
    found = []
    for share, (at, _), sizes in zip(shares, spans, divided, strict=True):
        for size in sizes:
            ranges = clip(share.ranges, start_offset=at, end_offset=at + size)
            at += size
            found.append(share._replace(ranges=tuple(r for r in ranges if isinstance(r, Range))))
    return [share for share in found if share.ranges]


def choose_partitions(store: ObjectStore, options: Options) -> list[tuple[CatalogTopic, int]]:
    """Return the partitions that `subscribe`, `subscribePattern` or `assign` select, in order.

    A pattern matches anywhere in a name, as in the official source. `assign` may name partitions that are not
    in the tier. Raises ConfigError with the existing names if a topic does not exist.
    """
    if options.pattern is not None:
        names = sorted({t.topic for t in _live_topics(store, options)})
        wanted: Mapping[str, tuple[int, ...] | None] = {
            n: None for n in names if re.search(options.pattern, n)
        }
    elif options.assigned is not None:
        wanted = options.assigned
    else:
        wanted = dict.fromkeys(options.topics)
    chosen = []
    for name, partitions in wanted.items():
        topic = resolve_topic(store, name)
        if topic is None or topic.is_deleted:
            raise _no_such_topic(store, options, name, was_deleted=topic is not None)
        chosen += [(topic, p) for p in (topic.partitions if partitions is None else partitions)]
    return chosen


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


class _Scan:
    """One planning run; caches the indexes it has loaded.

    needs_states  whether the reader tells what became of transactions
    """

    def __init__(self, store: ObjectStore, options: Options, *, needs_states: bool) -> None:
        self.store, self.options, self.needs_states = store, options, needs_states
        self._indexes: dict[bytes, OffsetIndex | None] = {}

    def shares(self) -> list[PartitionRange]:
        """Return what is to be read, by partition; leaves out partitions without a range."""
        chosen = choose_partitions(self.store, self.options)
        named = self._named(chosen)
        topics = {topic.topic: topic for topic, _ in chosen}
        chosen += [
            (topics[name], p) for name, p in sorted(named - {(t.topic, p) for t, p in chosen})
        ]
        shares = []
        for topic, partition in chosen:
            catalog = self._catalog(topic, partition, is_named=(topic.topic, partition) in named)
            share = None if catalog is None else self._share(catalog)
            if share is not None:
                shares.append(share)
        return shares

    def _named(self, chosen: Sequence[tuple[CatalogTopic, int]]) -> set[tuple[str, int]]:
        """Return the partitions that offsets or timestamps of the options name."""
        is_assigned = self.options.assigned is not None
        ends = {"starting": self.options.starting, "ending": self.options.ending}
        named = [
            _check_complete(places, name, chosen, is_assigned=is_assigned)
            for name, places in ends.items()
            if isinstance(places, Mapping)
        ]
        if len(named) == 2 and named[0] != named[1]:
            raise ConfigError(
                "starting and ending offsets must name the same partitions",
                only_one_names=sorted(named[0] ^ named[1]),
            )
        return named[0] if named else set()

    def _catalog(
        self, topic: CatalogTopic, partition: int, *, is_named: bool
    ) -> PartitionCatalog | None:
        """Return the catalog of a partition; if the tier has none, an empty one for offsets that name it.

        Then offset 0 is its beginning and its end, and any other one is not in the tier.
        """
        catalog = None
        if partition in topic.partitions:
            catalog = read_catalog(self.store, topic.topic_id, partition)
        if catalog is None:
            _log.warning(
                "nothing of this partition is in the tier: topic=%s partition=%d",
                topic.topic,
                partition,
            )
        if catalog is None and is_named:
            return PartitionCatalog(
                topic.topic, topic.topic_id, partition, 0, 0, 0, 0, 0, 0, 0, 0, (), ()
            )
        return catalog

    def pieces(self, share: PartitionRange) -> list[Piece]:
        """Return the byte ranges of a share, cut at about `splitBytes`."""
        return [
            piece
            for one in share.ranges
            for piece in pieces_of(
                one,
                split_bytes=self.options.split_bytes,
                load_index=self.load_index,
                confirms=self.confirms,
            )
        ]

    def load_index(self, segment: CatalogSegment) -> OffsetIndex | None:
        """Return the segment's offset index; None if there is none that can be trusted (T58)."""
        if segment.segment_id not in self._indexes:
            index = None
            data = load_optional(self.store, segment, OFFSET_INDEX)
            if data is not None:
                index = parse_offset_index(data, segment)
            if index is None:
                _log.warning(
                    "no usable offset index for %s: the complete segment is read", segment.stem
                )
            self._indexes[segment.segment_id] = index
        return self._indexes[segment.segment_id]

    def confirms(self, segment: CatalogSegment, index: OffsetIndex, entries: Sequence[int]) -> bool:
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

    def _share(self, catalog: PartitionCatalog) -> PartitionRange | None:
        lineage = lineage_ranges(catalog)
        there = [r for r in lineage if isinstance(r, Range)]
        end = there[-1].end_offset if there else catalog.log_start_offset
        aborted: tuple[AbortedTxn, ...] = ()
        if self.options.read_committed and there:
            with _located(catalog):
                end = min(end, stable_end(self.store, there))
        start_offset = self._resolve(self.options.starting, catalog, there, end, is_start=True)
        end_offset = self._resolve(self.options.ending, catalog, there, end, is_start=False)
        if end_offset < start_offset:
            raise ConfigError(
                "the ending offset is below the starting offset", topic=catalog.topic,
                partition=catalog.partition, starting=start_offset, ending=end_offset,
            )  # fmt: skip
        ranges = []
        for one in clip(lineage, start_offset=start_offset, end_offset=end_offset):
            if isinstance(one, Gap):
                self._lose(
                    catalog, "offsets are in no segment of the tier",
                    from_offset=one.start_offset, to_offset=one.end_offset,
                )  # fmt: skip
            else:
                ranges.append(one)
        if not ranges:
            return None
        unfinished: tuple[OpenTxn, ...] = ()
        with _located(catalog):
            if self.options.read_committed or self.needs_states:
                after = [r for r in there if r.end_offset > ranges[0].start_offset]
                aborted = aborted_in(self.store, after)
            if self.needs_states:
                unfinished = unfinished_in(self.store, there)
        return PartitionRange(catalog, tuple(ranges), aborted, unfinished)

    def _resolve(
        self,
        places: OffsetSpecs,
        catalog: PartitionCatalog,
        ranges: Sequence[Range],
        end: int,
        *,
        is_start: bool,
    ) -> int:
        """Return one end of the range of `catalog` as an offset within [log start, end]."""
        if isinstance(places, Mapping):
            place: OffsetSpec = places[catalog.topic][catalog.partition]
        else:
            place = places
        if isinstance(place, ByTimestamp):
            return self._at_time(place.timestamp_ms, catalog, ranges, end, is_start=is_start)
        if place == EARLIEST:
            return catalog.log_start_offset
        if place == LATEST:
            return end
        if place < catalog.log_start_offset:
            self._lose(catalog, "an offset is below the log start", offset=place, end=end)
        if place > end:
            self._lose(catalog, "an offset is not in the tier, or not yet", offset=place, end=end)
        return min(max(place, catalog.log_start_offset), end)

    def _at_time(
        self,
        timestamp_ms: int,
        catalog: PartitionCatalog,
        ranges: Sequence[Range],
        end: int,
        *,
        is_start: bool,
    ) -> int:
        with _located(catalog):
            found = first_offset_at(
                self.store,
                ranges,
                timestamp_ms,
                load_index=self.load_index,
                confirms=self.confirms,
            )
        if found is not None:
            return min(found, end)
        if is_start and not self.options.latest_if_no_such_time:
            raise ConfigError(
                "no record is at or after the starting time;"
                " startingOffsetsByTimestampStrategy=latest reads nothing instead",
                topic=catalog.topic, partition=catalog.partition, timestamp_ms=timestamp_ms,
            )  # fmt: skip
        return end

    def _lose(self, catalog: PartitionCatalog, why: str, **facts: int) -> None:
        problem = DataLoss(
            why,
            topic=catalog.topic,
            partition=catalog.partition,
            **facts,
            log_start=catalog.log_start_offset,
        )
        if self.options.fail_on_data_loss:
            raise problem
        _log.warning("%s", problem)


@contextmanager
def _located(catalog: PartitionCatalog) -> Iterator[None]:
    """Add the partition to errors about damage that is found while planning."""
    try:
        yield
    except CorruptSegment as problem:
        raise located(problem, catalog.topic, catalog.partition) from None


def _check_complete(
    places: Mapping[str, Mapping[int, OffsetSpec]],
    name: str,
    chosen: Sequence[tuple[CatalogTopic, int]],
    *,
    is_assigned: bool,
) -> set[tuple[str, int]]:
    """Return the partitions that offsets name: each one that is read, and no other.

    The tier does not know how many partitions a topic has. So those of a subscribed topic that are not in the
    tier may be named too.
    """
    named = {(topic, p) for topic, partitions in places.items() for p in partitions}
    there = {(topic.topic, p) for topic, p in chosen if p in topic.partitions}
    if is_assigned:
        foreign = named - {(topic.topic, p) for topic, p in chosen}
    else:
        subscribed = {topic.topic for topic, _ in chosen}
        foreign = {each for each in named if each[0] not in subscribed}
    if there - named or foreign:
        raise ConfigError(
            f"{name}Offsets must name every partition that is read, and no other",
            missing=sorted(there - named),
            unknown=sorted(foreign),
        )
    return named
