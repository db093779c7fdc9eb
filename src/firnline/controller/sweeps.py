"""Sweeps: the changes to partitions after a broker or a log directory came or went, in parts. PURE.

One record fences a broker, but tens of thousands of ISRs and leaders may have to change after it. A sweep
makes these changes in parts, between which the controller handles heartbeats and requests. Sweeps run one
after the other, in the order in which they began, so a broker's sweep ends before the next broker is fenced
(I6). A new controller begins a sweep for every inactive broker, because the last controller may have died in
the middle of one. It learns of failed directories from the heartbeats. Source: KIP-631, KIP-858; spec I5, I6,
I25, I26.
"""

from collections.abc import Callable, Iterable, Iterator, Set
from typing import NamedTuple

from firnline.base.ids import PartitionKey, Uuid
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

# The bounds of one part, 2 ms with its write: records made, and partitions checked.
CHANGES_PER_PART_MAX = 100
CHECKS_PER_PART_MAX = 5_000
_CHECKS_PER_STEP = 1_000

# (topic id, partition), or None after a number of partitions without a match.
PartitionSteps = Iterator[PartitionKey | None]


class Newest(NamedTuple):
    """The cluster as of the last write, and its index."""

    image: ClusterImage
    lookup: PartitionIndex


class _Sweep(NamedTuple):
    """The work for one broker that went (`lost`) or came; broker_id None: for all leaderless partitions.

    directories  the failed log directories of a broker that stays, else None
    """

    broker_id: int | None
    lost: bool
    places: PartitionSteps
    directories: Set[Uuid] | None = None


class Sweeps:
    """The queue of sweeps.

    newest()  returns the newest metadata; called at each step
    _sweeps   oldest first, and only the first works: so a broker's sweep ends before the next one is fenced
              (I6). At most one for each broker, and one for each set of its failed directories
    _failed   by broker: the failed directories for which a sweep has begun since the broker came. Heartbeats
              repeat them, and a sweep begins once
    """

    def __init__(self, config: BrokerConfig, newest: Callable[[], Newest]) -> None:
        self._config = config
        self._newest = newest
        self._sweeps: list[_Sweep] = []
        self._failed: dict[int, Set[Uuid]] = {}

    @property
    def is_busy(self) -> bool:
        """Whether any sweep is left."""
        return bool(self._sweeps)

    def leaves(self, broker_id: int) -> bool:
        """Whether this broker went and its sweep has not ended."""
        return any(each.lost and each.broker_id == broker_id for each in self._sweeps)

    def is_much(self, broker_id: int) -> bool:
        """Whether the loss of this broker changes more partitions than one part may."""
        image, lookup = self._newest()
        found = 0
        for topic_id in lookup.topics_of(broker_id):
            found += len(concerned(image.topics_by_id[topic_id], broker_id))
            if found > CHANGES_PER_PART_MAX:
                return True
        return False

    def begin_anew(self) -> None:
        """Begin as a new controller: sweep for every inactive broker, and for leaderless partitions."""
        self.stop()
        image, lookup = self._newest()
        for broker_id in sorted(image.brokers):
            if not image.brokers[broker_id].is_active:
                self.lose(broker_id)
        if lookup.leaderless:
            self._sweeps.append(_Sweep(None, False, self._without_leader()))

    def stop(self) -> None:
        """Drop all sweeps."""
        self._sweeps, self._failed = [], {}

    def lose(self, broker_id: int) -> None:
        """Begin to remove this broker from every ISR and every leadership (I25)."""
        self.forget(broker_id)
        self._sweeps.append(_Sweep(broker_id, True, self._led_or_in_sync(broker_id)))

    def gain(self, broker_id: int) -> None:
        """Begin to elect this broker in partitions without a leader (I5)."""
        self.forget(broker_id)
        self._sweeps.append(_Sweep(broker_id, False, self._without_leader()))

    def lose_directories(self, broker_id: int, directories: Set[Uuid]) -> bool:
        """Begin to remove the replicas in these failed directories from ISRs and leaderships (KIP-858).

        Every heartbeat repeats the directories; return False if a sweep for them has begun. It begins again
        after the broker went and came, which drops its sweeps, and at every new controller.
        """
        if directories <= self._failed.get(broker_id, frozenset()):
            return False
        self._failed[broker_id] = directories
        places = self._led_or_in_sync(broker_id, directories)
        self._sweeps.append(_Sweep(broker_id, False, places, directories))
        return True

    def forget(self, broker_id: int) -> None:
        """Drop the sweeps of a broker: it came back or went again, so they are done or outdated."""
        self._failed.pop(broker_id, None)
        self._sweeps = [each for each in self._sweeps if each.broker_id != broker_id]

    def part(self, changed: Iterable[BrokerImage] = ()) -> list[Message]:
        """Do one part. The caller writes its records before the next part.

        changed  brokers as the records before these leave them
        """
        image, _ = self._newest()
        for broker in changed:
            image = image._replace(brokers=image.brokers.set(broker.broker_id, broker))
        changes, checks = PartitionChanges(image, self._config), 0
        while self._sweeps:
            sweep = self._sweeps[0]
            for place in sweep.places:
                checks += _CHECKS_PER_STEP if place is None else 1
                if place is not None:
                    _change(changes, sweep, *place)
                if len(changes.records) >= CHANGES_PER_PART_MAX or checks >= CHECKS_PER_PART_MAX:
                    return changes.records
            self._sweeps.remove(sweep)
        return changes.records

    # ------------------------------------------------------------------------- partitions

    def _led_or_in_sync(
        self, broker_id: int, directories: Set[Uuid] | None = None
    ) -> PartitionSteps:
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
            if looked >= _CHECKS_PER_STEP:
                looked = 0
                yield None

    def _without_leader(self) -> PartitionSteps:
        looked = 0
        for topic_id in list(self._newest().lookup.leaderless):
            topic = self._newest().image.topics_by_id.get(topic_id)
            if topic is None:
                continue
            for number, partition in sorted(topic.partitions.items()):
                if partition.leader == NO_LEADER:
                    yield topic_id, number
            looked += len(topic.partitions)
            if looked >= _CHECKS_PER_STEP:
                looked = 0
                yield None


def concerned(topic: TopicImage, broker_id: int) -> list[int]:
    """Return the partitions of a topic that a broker leads or is an ISR member of, ascending."""
    found = [
        number
        for number, partition in topic.partitions.items()
        if broker_id in partition.isr or partition.leader == broker_id
    ]
    found.sort()
    return found


def _change(changes: PartitionChanges, sweep: _Sweep, topic_id: Uuid, number: int) -> None:
    """Change one partition as the sweep says, if that is still necessary."""
    before = changes.partition(topic_id, number)
    if before is None:
        return
    topic = changes.image.topics_by_id[topic_id]
    lost = sweep.broker_id
    if sweep.lost or sweep.directories is not None:
        assert lost is not None
        if sweep.directories is not None and directory_of(before, lost) not in sweep.directories:
            return  # the replica was moved to another directory meanwhile
        if lost in before.isr or before.leader == lost:
            rest = tuple(node_id for node_id in before.isr if node_id != lost)
            changes.change(topic_id, number, Target(isr=rest), changes.election_of(topic.name))
    elif before.leader == NO_LEADER:
        if sweep.broker_id is None:
            changes.change(topic_id, number, AS_IT_IS, CLEAN)
        elif sweep.broker_id in before.replicas:
            changes.change(topic_id, number, AS_IT_IS, changes.election_of(topic.name))
