"""What a broker's coming or going means for its partitions, a part at a time. PURE.

A broker that is fenced has left the cluster with one record; tens of thousands of ISRs and leaderships follow
from it, and heartbeats are heard between their parts. The brokers' turns come in the order of their going, so
that each is done before the next (I6), and a new controller goes over all that are gone: the last may have
died in the middle. Source: KIP-631; spec I5, I6, I25, I26.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from firnline.base.ids import Uuid
from firnline.config.broker import BrokerConfig
from firnline.controller.partition_change import (
    AS_IT_IS,
    CLEAN,
    PartitionChanges,
    Target,
)
from firnline.metadata.census import PartitionIndex
from firnline.metadata.image import NO_LEADER, ClusterImage, TopicImage
from firnline.protocol.schema import Message

# One part, 2 ms with its writing: records that it may make, and partitions that it may look at.
CHANGES_PER_PART_MAX = 100
LOOKS_PER_PART_MAX = 5_000
_LOOKS_PER_STEP = 1_000

# (topic id, partition), or None where some were looked at in vain.
Places = Iterator[tuple[Uuid, int] | None]


class Newest(NamedTuple):
    """The cluster as of the last write, and its index."""

    image: ClusterImage
    lookup: PartitionIndex


class _Sweep(NamedTuple):
    """One broker that goes (`lost`), or one that comes; nobody: whoever can lead by now."""

    broker_id: int | None
    lost: bool
    places: Places


class Sweeps:
    """The work that is left, in order.

    newest()  where it reads the cluster, at each step anew
    """

    def __init__(self, config: BrokerConfig, newest: Callable[[], Newest]) -> None:
        self._config = config
        self._newest = newest
        self._sweeps: list[_Sweep] = []

    @property
    def is_busy(self) -> bool:
        """Is anything left to do?"""
        return bool(self._sweeps)

    def leaves(self, broker_id: int) -> bool:
        """Has this broker gone, with partitions left that may not know?"""
        return any(each.lost and each.broker_id == broker_id for each in self._sweeps)

    def is_much(self, broker_id: int) -> bool:
        """Does this broker's going change more partitions than one part may?"""
        image, lookup = self._newest()
        found = 0
        for topic_id in lookup.topics_of(broker_id):
            found += len(concerned(image.topics_by_id[topic_id], broker_id))
            if found > CHANGES_PER_PART_MAX:
                return True
        return False

    def begin_anew(self) -> None:
        """A new controller: look after everybody who is gone, and those without a leader."""
        self._sweeps = []
        image, lookup = self._newest()
        for broker_id in sorted(image.brokers):
            if not image.brokers[broker_id].is_active:
                self.lose(broker_id)
        if lookup.leaderless:
            self._sweeps.append(_Sweep(None, False, self._without_leader()))

    def stop(self) -> None:
        """Forget what is left."""
        self._sweeps = []

    def lose(self, broker_id: int) -> None:
        """This broker goes: out of every ISR, and away from every leadership (I25)."""
        self.forget(broker_id)
        self._sweeps.append(_Sweep(broker_id, True, self._led_or_in_sync(broker_id)))

    def gain(self, broker_id: int) -> None:
        """This broker comes: it may lead partitions that nobody leads (I5)."""
        self.forget(broker_id)
        self._sweeps.append(_Sweep(broker_id, False, self._without_leader()))

    def forget(self, broker_id: int) -> None:
        """What was to be done for a broker is done, or would be wrong: it came back, or went again."""
        self._sweeps = [each for each in self._sweeps if each.broker_id != broker_id]

    def part(self, is_active: Mapping[int, bool]) -> list[Message]:
        """Do a part; the records are to be written before the next one.

        is_active  brokers that become so, or not, with records before these
        """
        image, _ = self._newest()

        def may_lead(node_id: int) -> bool:
            broker = image.brokers.get(node_id)
            return broker is not None and is_active.get(node_id, broker.is_active)

        changes, looks = PartitionChanges(image, self._config, may_lead), 0
        while self._sweeps:
            sweep = self._sweeps[0]
            for place in sweep.places:
                looks += _LOOKS_PER_STEP if place is None else 1
                if place is not None:
                    _change(changes, sweep, *place)
                if len(changes.records) >= CHANGES_PER_PART_MAX or looks >= LOOKS_PER_PART_MAX:
                    return changes.records
            self._sweeps.remove(sweep)
        return changes.records

    # ------------------------------------------------------------------------- where to look

    def _led_or_in_sync(self, broker_id: int) -> Places:
        looked = 0
        for topic_id in self._newest().lookup.topics_of(broker_id):
            topic = self._newest().image.topics_by_id.get(topic_id)
            if topic is None:
                continue
            yield from ((topic_id, number) for number in concerned(topic, broker_id))
            looked += len(topic.partitions)
            if looked >= _LOOKS_PER_STEP:
                looked = 0
                yield None

    def _without_leader(self) -> Places:
        looked = 0
        for topic_id in list(self._newest().lookup.leaderless):
            topic = self._newest().image.topics_by_id.get(topic_id)
            if topic is None:
                continue
            for number, partition in sorted(topic.partitions.items()):
                if partition.leader == NO_LEADER:
                    yield topic_id, number
            looked += len(topic.partitions)
            if looked >= _LOOKS_PER_STEP:
                looked = 0
                yield None


def concerned(topic: TopicImage, broker_id: int) -> list[int]:
    """Return the partitions of a topic that a broker leads, or is in the ISR of, ascending."""
    found = [
        number
        for number, partition in topic.partitions.items()
        if broker_id in partition.isr or partition.leader == broker_id
    ]
    found.sort()
    return found


def _change(changes: PartitionChanges, sweep: _Sweep, topic_id: Uuid, number: int) -> None:
    """Do at one place what the sweep is for, if it is still to be done there."""
    before = changes.partition(topic_id, number)
    if before is None:
        return
    topic = changes.image.topics_by_id[topic_id]
    if sweep.lost:
        lost = sweep.broker_id
        if lost in before.isr or before.leader == lost:
            rest = tuple(node_id for node_id in before.isr if node_id != lost)
            changes.change(topic_id, number, Target(isr=rest), changes.election_of(topic.name))
    elif before.leader == NO_LEADER:
        if sweep.broker_id is None:
            changes.change(topic_id, number, AS_IT_IS, CLEAN)
        elif sweep.broker_id in before.replicas:
            changes.change(topic_id, number, AS_IT_IS, changes.election_of(topic.name))
