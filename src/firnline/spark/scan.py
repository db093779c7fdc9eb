"""Driver side: options -> tasks. Reads catalogs and, where they save bytes, indexes. SPARK.

Everything here runs once per query, in one process, without a broker. Source: spark section 4.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from firnline.base.errors import ConfigError
from firnline.base.units import KIB, ceil_div
from firnline.formats.transaction_index import AbortedTxn
from firnline.records.batch import HEADER_BYTES, parse_header
from firnline.spark.integrity import load_optional
from firnline.spark.options import EARLIEST, LATEST, ByTimestamp, OffsetSpec, OffsetSpecs, Options
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
from firnline.spark.schema import CorruptSegment
from firnline.spark.timestamps import first_offset_at
from firnline.spark.transactions import aborted_in, stable_end
from firnline.stores.port import ObjectStore
from firnline.tiered.catalog.format import CatalogSegment, CatalogTopic, PartitionCatalog
from firnline.tiered.objects.catalog_reader import (
    list_partitions,
    list_topics,
    read_catalog,
    resolve_topic,
)
from firnline.tiered.objects.layout import OFFSET_INDEX

_SPLIT_BYTES_MIN = 64 * KIB
_log = logging.getLogger(__name__)


class PartitionRange(NamedTuple):
    """The part of one partition that is to be read."""

    catalog: PartitionCatalog
    ranges: tuple[Range, ...]
    aborted: tuple[AbortedTxn, ...]


def plan_scan(store: ObjectStore, options: Options) -> list[Task]:
    """Return the tasks of one batch read; empty if there is nothing to read.

    Raises ConfigError for impossible topics, partitions and offsets, DataLoss for offsets that are gone or
    not in the tier yet.
    """
    scan = _Scan(store, options)
    shares = scan.shares()
    total = sum(p.size_bytes for _, ps in scan.pieces(shares, options.split_bytes) for p in ps)
    share_bytes = ceil_div(max(total, 1), options.min_partitions)
    split_bytes = min(options.split_bytes, max(_SPLIT_BYTES_MIN, share_bytes))
    return [
        Task(s.catalog.topic, s.catalog.topic_id, s.catalog.partition, packed, s.aborted)
        for s, pieces in scan.pieces(shares, split_bytes)
        for packed in pack(pieces, split_bytes=split_bytes)
    ]


def choose_partitions(store: ObjectStore, options: Options) -> list[tuple[CatalogTopic, int]]:
    """Return the partitions that `subscribe`, `subscribePattern` or `assign` select, in order.

    Raises ConfigError with the existing names if one does not exist.
    """
    if options.pattern is not None:
        names = sorted({t.topic for t in _live_topics(store, options)})
        wanted: Mapping[str, tuple[int, ...] | None] = {
            n: None for n in names if re.fullmatch(options.pattern, n)
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
        there = list_partitions(store, topic.topic_id)
        missing = sorted(set(partitions or ()) - set(there))
        if missing:
            raise ConfigError(
                "no such partition in the tier", topic=name, partition=missing[0],
                there=list(there),
            )  # fmt: skip
        chosen += [(topic, p) for p in (there if partitions is None else partitions)]
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
    """One planning run; caches the indexes it has loaded."""

    def __init__(self, store: ObjectStore, options: Options) -> None:
        self.store, self.options = store, options
        self._indexes: dict[bytes, OffsetIndex | None] = {}

    def shares(self) -> list[PartitionRange]:
        """Return what is to be read, by partition; leaves out partitions without a range."""
        chosen = choose_partitions(self.store, self.options)
        for places, name in ((self.options.starting, "starting"), (self.options.ending, "ending")):
            _check_complete(places, name, chosen)
        shares = []
        for topic, partition in chosen:
            catalog = read_catalog(self.store, topic.topic_id, partition)
            share = None if catalog is None else self._share(catalog)
            if share is not None:
                shares.append(share)
        return shares

    def pieces(
        self, shares: Sequence[PartitionRange], split_bytes: int
    ) -> list[tuple[PartitionRange, list[Piece]]]:
        return [
            (
                share,
                [
                    piece
                    for one in share.ranges
                    for piece in pieces_of(
                        one,
                        split_bytes=split_bytes,
                        load_index=self.load_index,
                        confirms=self.confirms,
                    )
                ],
            )
            for share in shares
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
        if self.options.read_committed:
            after = [r for r in there if r.end_offset > ranges[0].start_offset]
            with _located(catalog):
                aborted = aborted_in(self.store, after)
        return PartitionRange(catalog, tuple(ranges), aborted)

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
    places: OffsetSpecs, name: str, chosen: Sequence[tuple[CatalogTopic, int]]
) -> None:
    """Offsets by partition must name each partition that is read, and no other."""
    if not isinstance(places, Mapping):
        return
    named = {(topic, p) for topic, partitions in places.items() for p in partitions}
    wanted = {(topic.topic, p) for topic, p in chosen}
    if named != wanted:
        raise ConfigError(
            f"{name}Offsets must name every partition that is read, and no other",
            missing=sorted(wanted - named),
            unknown=sorted(named - wanted),
        )
