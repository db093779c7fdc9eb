"""Which partitions a read takes, and which offsets of them, as the brokers say. SPARK.

A few requests to each leader, for all of its partitions together. Source: Spark's guide 'Structured Streaming
+ Kafka Integration'.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from firnline.base.errors import ConfigError
from firnline.base.ids import Uuid, uuid_text
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.spark.brokers.cluster import Brokers, Found, Key, LiveTopic
from firnline.spark.gaps.causes import TOPIC_DELETED, LeftOut, Missing, is_refused
from firnline.spark.log_lines import warn, warn_of
from firnline.spark.options.parse import EARLIEST, LATEST, ByTimestamp, OffsetSpecs, Options
from firnline.spark.planning.bounds import Ends, before_fork, place_of, resolve, within_ends
from firnline.spark.planning.cut import Bounds, Cut, end_of_epoch
from firnline.spark.planning.filters import Filters
from firnline.spark.schema import DataLoss
from firnline.tiered.lineage import epoch_at

_CLUSTER = "the partition"
_log = logging.getLogger(__name__)


class LivePartition(NamedTuple):
    """A partition that exists now, and what is to be read of it."""

    topic: str
    topic_id: Uuid
    partition: int
    bounds: Bounds


def choose_live(
    brokers: Brokers, options: Options, filters: Filters, left_out: Callable[[LeftOut], None]
) -> list[LivePartition]:
    """Return the partitions that the options select and the filters take, by topic and number.

    left_out  is called for each partition of a cut whose topic was deleted

    Raises ConfigError for a topic that does not exist, and for offsets that do not name exactly the
    partitions; DataLoss for offsets that are gone.
    """
    topics = live_topics(brokers, options, left_out)
    chosen = [
        (topic.name, partition)
        for topic in topics.values()
        for partition in _partitions(options, topic)
    ]
    for which, places in (("starting", options.starting), ("ending", options.ending)):
        _check_named(which, places, chosen)
    keys = [
        (topic, partition)
        for topic, partition in chosen
        if filters.takes_topic(topic) and filters.takes_partition(partition)
    ]
    bounds = _bounds(brokers, options, keys)
    return [LivePartition(t, topics[t].topic_id, p, bounds[t, p]) for t, p in keys]


def live_topics(
    brokers: Brokers, options: Options, left_out: Callable[[LeftOut], None] = lambda _: None
) -> dict[str, LiveTopic]:
    """Return the topics that the options select and that exist now, by name. Errors: see `choose_live`."""
    if options.pattern is not None:
        pattern = re.compile(options.pattern)
        there = brokers.topics(None)
        topics = {name: there[name] for name in sorted(there) if pattern.search(name)}
        if not topics:
            warn(_log, "no topic matches subscribePattern", pattern=options.pattern)
    else:
        names = options.topics if options.assigned is None else options.assigned
        topics = brokers.topics(list(dict.fromkeys(names)))
    if options.as_of is not None:
        topics = {
            name: topics[name]
            for name in topics
            if _is_of(options, options.as_of, topics[name], left_out)
        }
    return topics


def _is_of(
    options: Options, cut: Cut, topic: LiveTopic, left_out: Callable[[LeftOut], None]
) -> bool:
    """Whether the cut has this topic, and not a former one of its name."""
    known = cut.topics.get(topic.name)
    if known is None:
        if options.pattern is None:
            raise ConfigError("asOf does not have the topic", topic=topic.name)
        return False
    if known.topic_id == topic.topic_id:
        return True
    problem = DataLoss(
        "the topic of the cut was deleted; another one has its name", topic=topic.name
    )
    refused = is_refused(
        options.on_gap, fail_on_data_loss=options.fail_on_data_loss, cause=TOPIC_DELETED
    )
    if refused and not options.reports_gaps:
        raise problem
    if not options.explains_gaps:
        warn_of(_log, problem)
    detail = (
        f"the topic id {uuid_text(known.topic_id)} of the cut is gone; another topic has its name"
    )
    for partition, bounds in known.partitions.items():
        if options.assigned is None or partition in options.assigned[topic.name]:
            gone = Missing(bounds.start_offset, bounds.end_offset, TOPIC_DELETED, detail)
            left_out(LeftOut(topic.name, known.topic_id, partition, (gone,)))
    return False


def _partitions(options: Options, topic: LiveTopic) -> list[int]:
    there: Iterable[int] = topic.partitions
    if options.as_of is not None:
        there = sorted(options.as_of.topics[topic.name].partitions)
        unknown = sorted(set(there) - set(topic.partitions))
        if unknown:  # a topic never has fewer partitions than it had
            raise ConfigError(
                "asOf has partitions that the topic never had: is it as it was printed?",
                topic=topic.name, partitions=unknown,
            )  # fmt: skip
    if options.assigned is None:
        return list(there)
    wanted = options.assigned[topic.name]
    absent = sorted(set(wanted) - set(there))
    if absent:
        warn(_log, "no such partitions", topic=topic.name, partitions=absent)
    return [partition for partition in there if partition in wanted]


def _check_named(which: str, places: OffsetSpecs, chosen: Sequence[Key]) -> None:
    if not isinstance(places, Mapping):
        return
    named = {(topic, partition) for topic, row in places.items() for partition in row}
    if named != set(chosen):
        raise ConfigError(
            f"{which}Offsets must name every partition that is read, and no other",
            missing=sorted(set(chosen) - named),
            unknown=sorted(named - set(chosen)),
        )


def _bounds(brokers: Brokers, options: Options, keys: Sequence[Key]) -> dict[Key, Bounds]:
    def ask(wishes: Mapping[Key, int]) -> dict[Key, Found]:
        return brokers.offsets(wishes, read_committed=options.read_committed)

    starts, latest = ask(dict.fromkeys(keys, EARLIEST)), ask(dict.fromkeys(keys, LATEST))
    written: Mapping[Key, Found] = {}
    if options.explains_gaps and options.read_committed:
        written = brokers.offsets(dict.fromkeys(keys, LATEST), read_committed=False)
    ends = {
        key: Ends(
            *key, starts[key].offset, max(starts[key].offset, latest[key].offset), _CLUSTER,
            written[key].offset if key in written else None,
        )
        for key in keys
    }  # fmt: skip
    if options.as_of is not None:
        cut = {(t, p): options.as_of.topics[t].partitions[p] for t, p in keys}
        cut |= _replaced(brokers, options, cut)
        return {key: within_ends(options, cut[key], ends[key]) for key in keys}
    asked = [
        _at_times(brokers, options, places, keys) for places in (options.starting, options.ending)
    ]
    found: dict[Key, Bounds] = {}
    for key in keys:

        def first_at(timestamp_ms: int, key: Key = key) -> int | None:
            offset = next(each[key, timestamp_ms] for each in asked if (key, timestamp_ms) in each)
            return None if offset < 0 else offset

        epoch = latest[key].leader_epoch
        found[key] = resolve(options, ends[key], first_at, leader_epoch=epoch)
    return found


def _at_times(
    brokers: Brokers, options: Options, places: OffsetSpecs, keys: Sequence[Key]
) -> dict[tuple[Key, int], int]:
    """Return the first offset at or after each timestamp that is named for one end; -1: there is none."""
    wishes = {}
    for key in keys:
        place = place_of(places, *key)
        if isinstance(place, ByTimestamp):
            wishes[key] = place.timestamp_ms
    found = brokers.offsets(wishes, read_committed=options.read_committed)
    return {(key, time_ms): found[key].offset for key, time_ms in wishes.items()}


def _replaced(brokers: Brokers, options: Options, cut: Mapping[Key, Bounds]) -> dict[Key, Bounds]:
    """Return what is left of those partitions of a cut of which an unclean election has replaced records.

    Then the last epoch of the cut ends below the end of the cut. Raises DataLoss as `before_fork`.
    """
    epochs = {
        key: bounds.leader_epoch
        for key, bounds in cut.items()
        if bounds.leader_epoch >= 0 and bounds.end_offset > bounds.start_offset
    }
    return {
        key: before_fork(options, cut[key], *key, max(found.offset, 0))
        for key, found in brokers.epoch_ends(epochs).items()
        if found.offset < cut[key].end_offset
    }


def differing(brokers: Brokers, tiers: Mapping[Key, tuple[Epochs, int]]) -> dict[Key, int]:
    """Compare the tier's histories with the leaders'; return where those that differ do so at the latest.

    tiers  for each partition the history in the tier, and the offset up to which it is to be read, exclusive
    """
    last = {key: epoch_at(epochs, end - 1) for key, (epochs, end) in tiers.items()}
    ends = brokers.epoch_ends({key: epoch for key, epoch in last.items() if epoch is not None})
    found = {}
    for key, (epochs, end) in tiers.items():
        theirs = ends.get(key)
        if theirs is None or theirs.leader_epoch < 0:
            found[key] = 0
        elif theirs.leader_epoch != last[key]:
            found[key] = min(theirs.offset, end_of_epoch(epochs, theirs.leader_epoch))
        elif theirs.offset < end:
            found[key] = theirs.offset
    return found
