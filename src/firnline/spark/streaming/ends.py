"""What can be read now: of the tier's catalogs, or as the brokers say. SPARK."""

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from firnline.base.ids import Uuid
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.spark.brokers.cluster import Brokers
from firnline.spark.options.brokers import BROKER
from firnline.spark.options.parse import EARLIEST, LATEST, Options
from firnline.spark.planning import live, rest, scan, tiered_partitions
from firnline.spark.planning.calls import Calls
from firnline.spark.planning.catalogs import PartitionRows, Place, read_rows
from firnline.spark.planning.cut import Cut, end_of_epoch
from firnline.spark.planning.filters import Filters
from firnline.spark.planning.plan import Range
from firnline.spark.planning.scan import plan_read
from firnline.spark.planning.tiered_partitions import choose_partitions
from firnline.spark.streaming.admission import PartitionEnds
from firnline.spark.streaming.offsets import Key
from firnline.stores.port import ObjectStore
from firnline.tiered.objects.catalog_reader import newest_head, with_newest
from firnline.tiered.objects.layout import HeadName

# An offset that no record has: such a plan finds where partitions begin and end, and nothing more.
_NO_OFFSET = Filters(offsets=((-1, 0),))
# What is taken for the size of a record that is not in the tier yet, if nothing of its partition is.
_RECORD_BYTES = 1024
_PLANNERS = tuple(
    logging.getLogger(planner.__name__) for planner in (live, rest, scan, tiered_partitions)
)
_SAID_MAX = 1000


class Ends(Protocol):
    """Says what there is of the partitions that the options select. All methods raise as `plan_read`."""

    def now(self) -> list[PartitionEnds]:
        """Return the partitions and their offsets; with read_committed up to the last stable one."""

    def starting(self) -> dict[Key, int]:
        """Return where a new query begins, as the options say."""

    def end_after(self, topic_id: Uuid, key: Key, begin: int, end: int, size_bytes: int) -> int:
        """Return the end of the offsets from `begin` to `end` that take about so many bytes."""

    def forks(self, epochs: Mapping[Key, int], there: Sequence[PartitionEnds]) -> dict[Key, int]:
        """Return where the records up to a leader epoch end in the history of now, exclusive.

        Without partitions of which nobody knows that. `there` is what `now` has returned.
        """


class _SaidOnce(logging.Filter):
    """Lets the planner say each thing once: Spark asks an idle stream up to 100 times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_new = text not in self._said
        if len(self._said) >= _SAID_MAX:
            self._said.clear()
        self._said.add(text)
        return is_new

    def __enter__(self) -> None:
        for logger in _PLANNERS:
            logger.addFilter(self)

    def __exit__(self, *_: object) -> None:
        for logger in _PLANNERS:
            logger.removeFilter(self)


class TierEnds:
    """The ends of what the tier has. Reads catalogs again only if a listing shows newer ones."""

    def __init__(self, store: ObjectStore, options: Options) -> None:
        self._store, self._options = store, options
        self._seen: list[Place] | None = None
        self._once = _SaidOnce()
        self._ends: list[PartitionEnds] = []
        self._histories: dict[tuple[Uuid, int], Epochs] = {}

    def now(self) -> list[PartitionEnds]:
        with self._once:
            return self._now()

    def _now(self) -> list[PartitionEnds]:
        options = _everything(self._options)
        with Calls(self._store) as calls:
            seen = choose_partitions(self._store, options, Filters(), calls)
        if seen != self._seen:
            found = _of_cut(plan_read(self._store, options, _NO_OFFSET).cut, is_of_tier=True)
            if options.read_committed:
                every = options._replace(read_committed=False)
                logs = {
                    one.key: one for one in _of_cut(plan_read(self._store, every, _NO_OFFSET).cut)
                }
                found = [
                    one._replace(
                        log_end_offset=max(one.end_offset, logs.get(one.key, one).end_offset)
                    )
                    for one in found
                ]
            self._ends = found
            self._histories.clear()
            # Newer heads may have come meanwhile; then the next listing differs, too.
            self._seen = seen
        return self._ends

    def starting(self) -> dict[Key, int]:
        return _starts(self._store, self._options)

    def end_after(self, topic_id: Uuid, key: Key, begin: int, end: int, size_bytes: int) -> int:
        return end_after(self._store, topic_id, key, begin, end, size_bytes)

    def forks(self, epochs: Mapping[Key, int], there: Sequence[PartitionEnds]) -> dict[Key, int]:
        found, ids = {}, {one.topic: one.topic_id for one in there}
        for (topic, partition), epoch in epochs.items():
            place = ids[topic], partition
            if place not in self._histories:
                head = newest_head(self._store, *place)
                self._histories[place] = () if head is None else head.epochs
            if self._histories[place]:
                found[topic, partition] = end_of_epoch(self._histories[place], epoch)
        return found


class LiveEnds:
    """The ends as the brokers have them; the store, if there is one, says how large records are."""

    def __init__(self, store: ObjectStore | None, options: Options) -> None:
        self._store, self._options = store, options._replace(read_from=BROKER)
        self._once = _SaidOnce()
        self._forks: dict[Key, int] = {}
        self._question: object = None

    def now(self) -> list[PartitionEnds]:
        with self._once:
            return _of_cut(plan_read(None, _everything(self._options), _NO_OFFSET).cut)

    def starting(self) -> dict[Key, int]:
        return _starts(None, self._options)

    def end_after(self, topic_id: Uuid, key: Key, begin: int, end: int, size_bytes: int) -> int:
        if self._store is None:
            return min(end, begin + size_bytes // _RECORD_BYTES)
        return end_after(self._store, topic_id, key, begin, end, size_bytes)

    def forks(self, epochs: Mapping[Key, int], there: Sequence[PartitionEnds]) -> dict[Key, int]:
        assert self._options.brokers is not None
        # After a new leader an idle stream has the same question until new records come.
        question = epochs, {one.key: one.leader_epoch for one in there}
        if question != self._question:
            with Brokers(self._options.brokers) as brokers:
                found = brokers.epoch_ends(epochs)
            self._forks = {key: one.offset for key, one in found.items() if one.offset >= 0}
            self._question = question
        return self._forks


def ends_of(store: ObjectStore | None, options: Options) -> Ends:
    """Return who says what there is: the brokers if the options name them, else the tier."""
    if options.brokers is not None:
        return LiveEnds(store, options)
    assert store is not None
    return TierEnds(store, options)


def _everything(options: Options) -> Options:
    return options._replace(starting=EARLIEST, ending=LATEST, notes=())


def _of_cut(cut: Cut, *, is_of_tier: bool = False) -> list[PartitionEnds]:
    return [
        PartitionEnds(
            topic,
            each.topic_id,
            partition,
            bounds.start_offset,
            bounds.end_offset,
            bounds.end_offset,
            bounds.leader_epoch,
            is_of_tier,
        )
        for topic, each in sorted(cut.topics.items())
        for partition, bounds in sorted(each.partitions.items())
    ]


def _starts(store: ObjectStore | None, options: Options) -> dict[Key, int]:
    cut = plan_read(store, options._replace(ending=LATEST), _NO_OFFSET).cut
    return {one.key: one.log_start_offset for one in _of_cut(cut)}


# ------------------------------------------------------------------------------------ bytes


def end_after(
    store: ObjectStore, topic_id: Uuid, key: Key, begin: int, end: int, size_bytes: int
) -> int:
    """Return the end of the offsets from `begin` to `end` whose records take about `size_bytes`.

    Within a segment each offset counts the average of the segment. Offsets that are not in the tier count
    the average of the last segment before them. Reads only the parts of the catalog that have the offsets.
    """

    def walk(topic_id: Uuid, partition: int, name: HeadName) -> int:
        with Calls(store) as calls:
            rows = read_rows(store, topic_id, partition, name, calls)
            return _Walk(rows).end_after(begin, end, size_bytes)

    found = with_newest(store, topic_id, key[1], None, walk)
    return min(end, begin + size_bytes // _RECORD_BYTES) if found is None else found


class _Walk:
    """Walks the segments of one version of a catalog upwards."""

    def __init__(self, rows: PartitionRows) -> None:
        self._rows = rows
        self._record_bytes = float(_RECORD_BYTES)

    def end_after(self, begin: int, end: int, size_bytes: int) -> int:
        at, left = begin, float(size_bytes)
        while at < end:
            upper = self._known_until(at, end)
            for one in self._rows.ranges(at, upper):
                if not isinstance(one, Range):
                    continue
                segment = one.segment
                offsets = segment.end_offset + 1 - segment.base_offset
                self._record_bytes = max(segment.size_bytes / offsets, 1.0)
                size = (one.end_offset - one.start_offset) * self._record_bytes
                if size > left:
                    return one.start_offset + int(left / self._record_bytes)
                left -= size
                at = one.end_offset
            if upper == end:  # what remains is not in the tier
                return min(end, at + int(left / self._record_bytes))
            at = upper
        return end

    def _known_until(self, at: int, end: int) -> int:
        """Read the parts that have the offset `at`; return up to where no further part is needed."""
        self._rows.read(lambda ref: ref.start_offset <= at <= ref.end_offset)
        later = [ref.start_offset for ref in self._rows.unread if ref.end_offset >= at]
        return min([end, *later])
