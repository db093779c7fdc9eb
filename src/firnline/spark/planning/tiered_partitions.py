"""Which partitions a read of the tier alone takes, as its catalogs say. SPARK.

Two listings for all: of the names of topics, and of the heads of each topic's partitions.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from firnline.base.errors import ConfigError, some_of
from firnline.base.ids import uuid_text
from firnline.config.parse import nearest
from firnline.spark.log_lines import warn
from firnline.spark.options.parse import Options
from firnline.spark.planning.calls import Calls
from firnline.spark.planning.catalogs import Place
from firnline.spark.planning.filters import Filters
from firnline.stores.port import ObjectStore
from firnline.tiered.catalog.format import CatalogTopic
from firnline.tiered.objects.catalog_reader import list_heads_of_topic, list_topics, topics_named

_log = logging.getLogger(__name__)
_LEGAL = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]+")


def choose_partitions(
    store: ObjectStore, options: Options, filters: Filters, calls: Calls
) -> list[Place]:
    """Return the partitions that `subscribe`, `subscribePattern` or `assign` select and the filters take.

    In the order of the options; those of which nothing is in the tier only if offsets name them. Raises
    ConfigError with the existing names if a topic does not exist, or if offsets by partition do not name
    exactly the partitions of the topics that the filters take.
    """
    topics = _choose_topics(store, options, calls)
    cut = None if options.as_of is None else options.as_of.topics
    taken = {topic.topic: topic for topic in topics if filters.takes_topic(topic.topic)}
    found = calls.each(lambda t: list_heads_of_topic(store, t.topic_id), taken.values())
    chosen = []
    for topic, heads in zip(taken.values(), found, strict=True):
        wanted: Iterable[int] = heads if cut is None else cut[topic.topic].partitions
        if options.assigned is not None:
            inside = set(wanted)
            wanted = [p for p in options.assigned[topic.topic] if cut is None or p in inside]
        chosen += [Place(topic, p, heads.get(p)) for p in wanted]
    others = {topic.topic for topic in topics} - set(taken)
    named = _named_partitions(options, chosen, set(taken), others)
    more = named - {(place.topic.topic, place.partition) for place in chosen}
    chosen += [Place(taken[name], partition, None) for name, partition in sorted(more)]
    places = [place for place in chosen if filters.takes_partition(place.partition)]
    for place in places:
        if place.head is None:
            message = "nothing of this partition is in the tier"
            warn(_log, message, topic=place.topic.topic, partition=place.partition)
    return [p for p in places if p.head is not None or cut or (p.topic.topic, p.partition) in named]


def _choose_topics(store: ObjectStore, options: Options, calls: Calls) -> list[CatalogTopic]:
    if options.pattern is not None:
        pattern = re.compile(options.pattern)
        live = sorted(
            (t for t in _live_topics(store, options) if pattern.search(t.topic)),
            key=lambda t: (t.topic, t.registered_ms, t.topic_id),
            reverse=True,
        )
        if not live:
            warn(_log, "no topic matches subscribePattern", pattern=options.pattern)
        return [_newest(list(them)) for _, them in groupby(live, attrgetter("topic"))][::-1]
    names = list(dict.fromkeys(options.topics if options.assigned is None else options.assigned))
    if options.as_of is not None:
        absent = sorted(set(names) - set(options.as_of.topics))
        if absent:
            raise ConfigError("asOf does not have these topics", topics=absent)
        return [
            CatalogTopic(options.as_of.topics[n].topic_id, n, 0, is_deleted=False) for n in names
        ]

    def named(name: str) -> list[CatalogTopic]:
        # A store may refuse the key of a name that no topic can have, such as `a/b`.
        return topics_named(store, name) if _LEGAL.fullmatch(name) else []

    chosen = []
    for name, found in zip(names, calls.each(named, names), strict=True):
        if not found or found[0].is_deleted:
            raise _no_such_topic(store, options, name, was_deleted=bool(found))
        chosen.append(_newest([topic for topic in found if not topic.is_deleted]))
    return chosen


def was_deleted(store: ObjectStore, topic: CatalogTopic) -> bool:
    """Whether a topic of which nothing is in the tier was deleted, as far as the tier can tell.

    Its name says so until its last object is removed; later a topic does that has the same name now.
    """
    named = {each.topic_id: each for each in topics_named(store, topic.topic)}
    if topic.topic_id in named:
        return named[topic.topic_id].is_deleted
    return any(not each.is_deleted for each in named.values())


def _newest(topics: Sequence[CatalogTopic]) -> CatalogTopic:
    """Return the first of the topics of one name; the log names the others, which are not read.

    Nobody has deleted them: their brokers had another data directory, or lost their metadata.
    """
    if len(topics) > 1:
        others = some_of([uuid_text(each.topic_id) for each in topics[1:]])
        warn(
            _log, "the tier has several topics of one name; the newest is read, not the former ones",
            count=len(topics), topic=topics[0].topic, topic_id=uuid_text(topics[0].topic_id),
            former=others, advice="the table `topics` tells of all",
        )  # fmt: skip
    return topics[0]


def _live_topics(store: ObjectStore, options: Options) -> list[CatalogTopic]:
    topics = list_topics(store)
    if not topics:
        raise ConfigError(
            "no catalog was found: there is no tier here, or nothing has been copied to it yet",
            uri=options.tier_uri,
            remedy="copied is what topics with remote.storage.enable=true have; `firnline tier flush TOPIC`"
            " does it now",
        )
    return [t for t in topics if not t.is_deleted]


def _no_such_topic(
    store: ObjectStore, options: Options, name: str, *, was_deleted: bool
) -> ConfigError:
    there = sorted({t.topic for t in _live_topics(store, options)})
    facts = {"topic": name, "uri": options.tier_uri, "there": some_of(there)}
    if was_deleted:
        return ConfigError("the topic was deleted", **facts)
    near = nearest(name, there)
    hint = f"; did you mean {near}?" if near else ""
    remedy = (
        "a topic with remote.storage.enable=true is there once a segment of it was copied, which"
        f" `firnline tier flush {name}` does now; or name the brokers: kafka.bootstrap.servers"
    )
    return ConfigError(f"no such topic in the tier{hint}", **facts, remedy=remedy)


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
