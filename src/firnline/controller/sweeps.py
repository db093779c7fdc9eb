"""What a broker's coming or going means for its partitions, a part at a time; so with a directory. PURE.

A broker that is fenced has left the cluster with one record; tens of thousands of ISRs and leaderships follow
from it, and heartbeats are heard between their parts. The brokers' turns come in the order of their going, so
that each is done before the next (I6), and a new controller goes over all that are gone: the last may have
died in the middle. Which directories failed it hears from their brokers, with every heartbeat. Source:
KIP-631, KIP-858; spec I5, I6, I25, I26.
"""

from collections.abc import Callable, Iterable, Iterator, Set
from typing import NamedTuple

from firnline.base.ids import Uuid
from firnline.config.broker import BrokerConfig
from firnline.controller.partition_change import (
    AS_IT_IS,
    CLEAN,
    PartitionChanges,
    Target,
    directory_of,
)
from firnline.metadata.image import NO_LEADER, BrokerImage, ClusterImage, TopicImage
from firnline.metadata.partition_counts import PartitionIndex
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
    """One broker that goes (`lost`), or one that comes; nobody: whoever can lead by now.

    directories  of one that stays: those that failed
    """

    broker_id: int | None
    lost: bool
    places: Places
    directories: Set[Uuid] | None = None


class Sweeps:
    """The work that is left, in order.

    newest()  where it reads the cluster, at each step anew
    """

    def __init__(self, config: BrokerConfig, newest: Callable[[], Newest]) -> None:
        self._config = config
        self._newest = newest
        self._sweeps: list[_Sweep] = []
        # By broker: what was begun for since it came.
        self._failed: dict[int, Set[Uuid]] = {}

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
        self.stop()
        image, lookup = self._newest()
        for broker_id in sorted(image.brokers):
            if not image.brokers[broker_id].is_active:
                self.lose(broker_id)
        if lookup.leaderless:
            self._sweeps.append(_Sweep(None, False, self._without_leader()))

    def stop(self) -> None:
        """Forget what is left."""
        self._sweeps, self._failed = [], {}

    def lose(self, broker_id: int) -> None:
        """This broker goes: out of every ISR, and away from every leadership (I25)."""
        self.forget(broker_id)
        self._sweeps.append(_Sweep(broker_id, True, self._led_or_in_sync(broker_id)))

    def gain(self, broker_id: int) -> None:
        """This broker comes: it may lead partitions that nobody leads (I5)."""
        self.forget(broker_id)
        self._sweeps.append(_Sweep(broker_id, False, self._without_leader()))

    def lose_directories(self, broker_id: int, directories: Set[Uuid]) -> bool:
        """These of a broker failed: it leads nothing in them, and is in no ISR (KIP-858). Is that news?

        It says so with every heartbeat. It is news again after the broker went and came, which ends what was
        begun, and to every new controller.
        """
        if directories <= self._failed.get(broker_id, frozenset()):
            return False
        self._failed[broker_id] = directories
        places = self._led_or_in_sync(broker_id, directories)
        self._sweeps.append(_Sweep(broker_id, False, places, directories))
        return True

    def forget(self, broker_id: int) -> None:
        """What was to be done for a broker is done, or would be wrong: it came back, or went again."""
        self._failed.pop(broker_id, None)
        self._sweeps = [each for each in self._sweeps if each.broker_id != broker_id]

    def part(self, changed: Iterable[BrokerImage] = ()) -> list[Message]:
        """Do a part; the records are to be written before the next one.

        changed  brokers as records before these make them
        """
        image, _ = self._newest()
        for broker in changed:
            image = image._replace(brokers=image.brokers.set(broker.broker_id, broker))
        changes, looks = PartitionChanges(image, self._config), 0
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

    def _led_or_in_sync(self, broker_id: int, directories: Set[Uuid] | None = None) -> Places:
        looked = 0
        for topic_id in self._newest().lookup.topics_of(broker_id):
            topic = self._newest().image.topics_by_id.get(topic_id)
            if topic is None:
                continue
            for number in concerned(topic, broker_id):
                if (
                    directories is None
                    or directory_of(topic.partitions[number], broker_id) in directories
                ):
                    yield topic_id, number
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
    lost = sweep.broker_id
    if sweep.lost or sweep.directories is not None:
        assert lost is not None
        if sweep.directories is not None and directory_of(before, lost) not in sweep.directories:
            return  # it was moved meanwhile
        if lost in before.isr or before.leader == lost:
            rest = tuple(node_id for node_id in before.isr if node_id != lost)
            changes.change(topic_id, number, Target(isr=rest), changes.election_of(topic.name))
    elif before.leader == NO_LEADER:
        if sweep.broker_id is None:
            changes.change(topic_id, number, AS_IT_IS, CLEAN)
        elif sweep.broker_id in before.replicas:
            changes.change(topic_id, number, AS_IT_IS, changes.election_of(topic.name))
