"""What `firnline doctor` finds about consumer groups. WORLD."""

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from shlex import quote
from typing import NamedTuple

from firnline.base.errors import KafkaError, some_of
from firnline.base.ids import TopicPartition
from firnline.cli.operations.words import count_of
from firnline.client.admin import EARLIEST, LATEST, Admin
from firnline.client.groups import list_groups
from firnline.client.operations.group_offsets import Committed, committed_offsets
from firnline.client.operations.partitions import OffsetAt, by_topic, offsets_at
from firnline.client.operations.patience import GLANCE_S

Offsets = Mapping[TopicPartition, OffsetAt | KafkaError]
_MEASURED = 3


class Trouble(NamedTuple):
    """One problem of a cluster: where it is, and what to do about it."""

    kind: str
    where: str
    what: str
    remedy: str


class _Look(NamedTuple):
    """How far a group was at one moment, over the partitions whose ends are known."""

    lag: int
    end: int


def look_at_groups(
    admin: Admin, topics: Collection[str], watch_s: float, looked: Counter[str]
) -> Iterator[Trouble]:
    """Check committed offsets against the logs, and, over `watch_s`, whether a lag grows."""
    states = {row.group: row.state for row in list_groups(admin)}
    looked["groups"] += len(states)
    committed = _of_topics(committed_offsets(admin, states, most_s=GLANCE_S), topics)
    places = {place for offsets in committed.values() for place in offsets}
    starts = offsets_at(admin, dict.fromkeys(places, EARLIEST), most_s=GLANCE_S)
    ends = offsets_at(admin, dict.fromkeys(places, LATEST), most_s=GLANCE_S)
    for group, offsets in sorted(committed.items()):
        yield from _out_of_range(group, offsets, starts, ends)
    behind = [group for group, offsets in committed.items() if _look(offsets, ends).lag > 0]
    if not watch_s or not behind:
        return
    moments = {group: [_look(committed[group], ends)] for group in behind}
    for _ in range(_MEASURED - 1):
        time.sleep(watch_s / (_MEASURED - 1))
        now = _of_topics(committed_offsets(admin, behind, most_s=GLANCE_S), topics)
        places = {place for offsets in now.values() for place in offsets}
        ends = offsets_at(admin, dict.fromkeys(places, LATEST), most_s=GLANCE_S)
        for group, offsets in now.items():
            moments[group].append(_look(offsets, ends))
    looked[f"groups whose lag was watched for {watch_s:g} s"] += len(behind)
    for group in sorted(behind):
        if _grows(moments[group]):
            yield _growing(group, states[group], moments[group], watch_s)


def _of_topics(
    found: Mapping[str, Committed | KafkaError], topics: Collection[str]
) -> dict[str, Committed]:
    return {
        group: {p: offset for p, offset in offsets.items() if not topics or p.topic in topics}
        for group, offsets in found.items()
        if not isinstance(offsets, KafkaError)
    }


def _out_of_range(
    group: str, offsets: Committed, starts: Offsets, ends: Offsets
) -> Iterator[Trouble]:
    """Yield one row for each topic of which some committed offsets are not in the log."""
    outside: dict[TopicPartition, str] = {}
    for place, offset in sorted(offsets.items()):
        start, end = starts[place], ends[place]
        if isinstance(start, KafkaError) or isinstance(end, KafkaError):
            continue
        if offset < start.offset:
            outside[place] = f"{place.partition}: {offset}, but the log begins at {start.offset}"
        elif offset > end.offset:
            outside[place] = f"{place.partition}: {offset}, but the log ends at {end.offset}"
    for topic, partitions in by_topic(list(outside)).items():
        said = [outside[TopicPartition(topic, number)] for number in partitions]
        word = f"{topic}:{','.join(map(str, partitions))}"
        yield Trouble(
            "offset-out-of-range",
            f"group {group}, topic {topic}",
            f"committed for partition {some_of(said, 3)}; its consumers go where auto.offset.reset says",
            f"stop them, then `firnline group reset {quote(group)} --topic {word} --to-current --execute`"
            " (takes the nearest offset there is)",
        )


def _look(offsets: Committed, ends: Offsets) -> _Look:
    lag = total = 0
    for place, offset in offsets.items():
        end = ends[place]
        if not isinstance(end, KafkaError):
            lag += max(0, end.offset - offset)
            total += end.offset
    return _Look(lag, total)


def _grows(moments: list[_Look]) -> bool:
    """Whether the lag grew from moment to moment, by more than half of what was written.

    A group that keeps up, and commits every five seconds, shows a lag that goes up and down.
    """
    pairs = pairwise(moments)
    written = moments[-1].end - moments[0].end
    return all(now.lag > then.lag for then, now in pairs) and (
        2 * (moments[-1].lag - moments[0].lag) > written
    )


def _growing(group: str, state: str, moments: list[_Look], watch_s: float) -> Trouble:
    lag, grown = moments[-1].lag, moments[-1].lag - moments[0].lag
    what = f"{count_of(lag, 'record')} behind, {grown} more than {watch_s:g} s ago"
    name = quote(group)
    if state == "Empty":
        remedy = f"nobody reads: start its consumers; or, if it is not needed, `firnline group delete {name}`"
    else:
        remedy = (
            f"`firnline group describe {name}` shows where; add consumers, up to one a partition"
        )
    return Trouble("lag-grows", f"group {group}", what, remedy)
