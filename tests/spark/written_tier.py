"""A tier written by hand for tests: segments from `records.build`, indexes and catalog beside them."""

import struct
from collections.abc import Mapping, Sequence

from crc32c import crc32c

from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.formats.producer_snapshot import SnapshotEntry, encode_snapshot
from firnline.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    headers,
)
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import NONE, compress
from firnline.records.record import encode_records
from firnline.records.walk import BatchWalk, Slot
from firnline.spark import decode_python
from firnline.spark.options.parse import Options
from firnline.spark.planning.filters import Filters
from firnline.spark.planning.plan import Task
from firnline.spark.planning.scan import plan_read
from firnline.spark.schema import COLUMNS, Wanted
from firnline.stores.port import ObjectStore
from firnline.tiered.catalog.format import (
    CatalogHead,
    CatalogSegment,
    PartRef,
    Split,
    encode_head,
    encode_part,
    reference,
)
from firnline.tiered.lineage import segment_epochs
from firnline.tiered.objects.catalog_changes import begin_catalog
from firnline.tiered.objects.fingerprint import Fingerprint, ObjectSum
from firnline.tiered.objects.layout import (
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    HeadName,
    head_key,
    part_key,
    segment_stem,
)

T0 = 1_700_000_000_000


def batch(base: int, count: int, *, epoch: int = 0, tag: str = "", **kinds: object) -> bytes:
    """A batch whose records say which offset and which leader they were: key `offset`, value `tag:offset`."""
    rows = [
        NewRecord(b"%d" % o, f"{tag}:{o}".encode() + b"." * (o % 50), T0 + o * 1000)
        for o in range(base, base + count)
    ]
    return bytes(build_batch(rows, base_offset=base, leader_epoch=epoch, **kinds))  # type: ignore[arg-type]


def batches(base: int, end: int, *, per: int = 10, epoch: int = 0, tag: str = "") -> list[bytes]:
    """Batches for offsets [base, end)."""
    return [batch(o, min(per, end - o), epoch=epoch, tag=tag) for o in range(base, end, per)]


def compacted(
    base: int,
    kept: Sequence[int],
    end: int,
    *,
    epoch: int = 0,
    codec: int = NONE,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch for offsets [base, end) as compaction leaves it: only the records at `kept`, also none."""
    body = compress(codec, b"".join(
        encode_records([(0, b"%d" % o, f":{o}".encode(), ())], o - base) for o in kept
    ))  # fmt: skip
    time_ms = T0 + base * 1000
    front = (base, HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body), epoch, 2)
    rest = (codec | attributes, end - base - 1, time_ms, time_ms, *producer, len(kept))
    head = bytearray(HEADER.pack(*front, 0, *rest))
    crc = crc32c(bytes(head[CRC_START:]) + body)
    return HEADER.pack(*front, crc, *rest) + body


def fingerprint_of(segment: CatalogSegment, bodies: Mapping[str, bytes]) -> Fingerprint:
    """What the copier would have noted of these objects."""
    walk = BatchWalk(
        segment.base_offset, segment.end_offset, segment.epochs,
        offsets=bodies.get(OFFSET_INDEX, b""), times=bodies.get(TIME_INDEX, b""),
    )  # fmt: skip
    assert walk.feed(bodies[LOG]) == len(bodies[LOG]), walk.problem
    return Fingerprint(
        may_have_gaps=walk.has_gaps,
        first_crc=walk.state[Slot.FIRST_CRC],
        heads_crc=walk.state[Slot.HEADS_CRC],
        sums=tuple((s, ObjectSum(len(b), crc32c(b))) for s, b in bodies.items()),
    )


def plan_scan(
    store: ObjectStore,
    options: Options,
    filters: Filters = Filters(),  # noqa: B008
    *,
    columns: tuple[str, ...] = COLUMNS,
) -> list[Task]:
    """Return the tasks of a read of the tier alone."""
    tasks = plan_read(store, options, filters, columns=columns).tasks
    return [task for task in tasks if isinstance(task, Task)]


class WrittenPartition:
    """One partition in a store; `segment` puts data, `publish` makes it visible."""

    def __init__(
        self, store: ObjectStore, topic: str, partition: int = 0, *, number: int = 1
    ) -> None:
        self.store, self.topic, self.partition = store, topic, partition
        self.topic_id = bytes([number]) * 16
        self.segments: list[CatalogSegment] = []

    def segment(
        self,
        parts: Sequence[bytes],
        epochs: Epochs = ((0, 0),),
        *,
        index_interval_bytes: int = 0,
        aborted: Sequence[tuple[int, int, int]] = (),
        open_at: Sequence[int] = (),
        suffixes: Sequence[str] = (LOG, OFFSET_INDEX, TIME_INDEX, PRODUCER_SNAPSHOT),
        is_old: bool = False,
        split_bytes: int = 0,
        offsets: tuple[int, int] | None = None,
    ) -> CatalogSegment:
        """Put one segment of `parts`; `epochs` is the history of the leader that copies it.

        `is_old`: as it was written before catalogs said anything about bytes. `split_bytes`: the row names
        the lowest timestamp, and a split after each further so many bytes. `offsets`: first and last offset
        of the segment, if compaction removed batches there.
        """
        data = b"".join(parts)
        heads = list(headers(data))
        base, end = offsets or (heads[0].base_offset, heads[-1].last_offset)
        number = len(self.segments) + 1
        segment_id = bytes([self.partition + 1]) * 8 + number.to_bytes(8, "big")
        kept = tuple(suffixes) + ((TXN_INDEX,) if aborted else ())
        segment = CatalogSegment(
            segment_id=segment_id,
            base_offset=base,
            end_offset=end,
            size_bytes=len(data),
            max_timestamp_ms=max(h.max_timestamp for h in heads),
            epochs=segment_epochs(epochs, base, end),
            stem=segment_stem(
                self.topic_id, self.partition, base_offset=base, segment_id=segment_id
            ),
            suffixes=kept,
        )
        index, times, since, newest = bytearray(), bytearray(), 0, -1
        for head in heads:
            newest = max(newest, head.max_timestamp)
            if since > index_interval_bytes:
                index += struct.pack(">ii", head.last_offset - base, head.position)
                times += struct.pack(">qi", newest, head.last_offset - base)
                since = 0
            since += head.size_bytes
        snapshot = encode_snapshot(
            SnapshotEntry(n, 0, 0, end, 0, T0, 0, at) for n, at in enumerate(open_at)
        )
        txns = b"".join(
            struct.pack(">hqqqq", 0, p, first, last, last) for p, first, last in aborted
        )
        bodies = {
            LOG: data, OFFSET_INDEX: bytes(index), TIME_INDEX: bytes(times),
            PRODUCER_SNAPSHOT: snapshot, TXN_INDEX: txns,
        }  # fmt: skip
        bodies = {suffix: body for suffix, body in bodies.items() if suffix in kept}
        for suffix, body in bodies.items():
            self.store.put(segment.key(suffix), (body,), size_bytes=len(body))
        if not is_old:
            segment = segment._replace(fingerprint=fingerprint_of(segment, bodies))
        if split_bytes:
            segment = segment._replace(
                min_timestamp_ms=min(min(times_of(part)) for part in parts),
                splits=splits_of(heads, split_bytes),
            )
        self.segments.append(segment)
        return segment

    def publish(
        self,
        epochs: Epochs = ((0, 0),),
        *,
        log_start: int = 0,
        log_end: int | None = None,
        sequence: int = 1,
        rows_per_part: int = 0,
        refs_per_part: int = 0,
        tail: int = 0,
    ) -> None:
        """Write a catalog head that names every segment so far, and the topic's name.

        `rows_per_part`: all but the last `tail` rows are in parts; `refs_per_part`: and these in parts of
        level 1.
        """
        begin_catalog(
            self.store,
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            now_ms=T0,
        )
        last = max((s.end_offset + 1 for s in self.segments), default=0)
        rows, parts = self.segments, list[PartRef]()
        if rows_per_part:
            name = HeadName(epochs[-1][0], sequence)
            kept = len(rows) - tail
            parts = self._put_parts(name, rows[:kept], 0, rows_per_part)
            if refs_per_part:
                parts = self._put_parts(name, parts, 1, refs_per_part)
            rows = rows[kept:]
        head = CatalogHead(
            topic=self.topic, topic_id=self.topic_id, partition=self.partition,
            leader_epoch=epochs[-1][0], sequence=sequence, broker_id=1, written_ms=T0,
            metadata_partition=0, metadata_offset=0, log_start_offset=log_start,
            log_end_offset=last if log_end is None else log_end,
            epochs=epochs, parts=tuple(parts), removed=(), tail=tuple(rows),
        )  # fmt: skip
        key = head_key(self.topic_id, self.partition, HeadName(head.leader_epoch, sequence))
        data = encode_head(head)
        self.store.put(key, (data,), size_bytes=len(data))

    def _put_parts(
        self,
        name: HeadName,
        rows: Sequence[CatalogSegment] | Sequence[PartRef],
        level: int,
        per: int,
    ) -> list[PartRef]:
        refs = []
        for at in range(0, len(rows), per):
            some = rows[at : at + per]
            key = part_key(self.topic_id, self.partition, name, level * 500 + at // per)
            data = encode_part(self.topic_id, self.partition, some, level)
            self.store.put(key, (data,), size_bytes=len(data))
            refs.append(reference(key, level, some, data))
        return refs


def times_of(part: bytes) -> list[int]:
    """The timestamps of a batch's records, in ms."""
    wanted = Wanted("", 0, ("timestamp",), verify_crc=False)
    return [
        int(micros) // 1000
        for found in decode_python.decode(part, wanted)
        for micros in found.column("timestamp").cast("int64").to_pylist()
    ] or [-1]


def splits_of(heads: Sequence[BatchHeader], split_bytes: int) -> tuple[Split, ...]:
    """The first batch at or after each further `split_bytes`, as the copier notes them."""
    found, newest, following = [], -1, split_bytes
    for head in heads:
        if head.position >= following:
            found.append(Split(head.base_offset, head.position, newest))
            following = (head.position // split_bytes + 1) * split_bytes
        newest = max(newest, head.max_timestamp)
    return tuple(found)
