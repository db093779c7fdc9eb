"""Builds PartitionChangeRecords: from a partition and its target state, the smallest record for it. PURE.

A change elects a leader if the present one may not go on, completes a reassignment whose target replicas are
all in sync, and raises the leader epoch where Kafka does. Eligible leader replicas (KIP-966) are not
implemented: the last member of an ISR stays in it, without leading, when its broker goes. Source: KIP-455,
KIP-631, KIP-903; spec I11, I25, I26.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from firnline.base.errors import ConfigError
from firnline.base.ids import (
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    ZERO_UUID,
    PartitionKey,
    Uuid,
)
from firnline.config.broker import BrokerConfig
from firnline.config.layers import broker_config
from firnline.config.parse import parse
from firnline.config.topic import topic_keys
from firnline.metadata.delta import changed_partition
from firnline.metadata.features import DIRECTORIES_SINCE, NO_BUMP_ON_SHRINK_SINCE
from firnline.metadata.image import (
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    ResourceType,
)
from firnline.metadata.records import PartitionChangeRecord
from firnline.protocol.schema import Message

RECOVERED, RECOVERING = 0, 1
_UNCLEAN_KEY = "unclean.leader.election.enable"


class Target(NamedTuple):
    """The target state of a partition; None: no change. An empty ISR means that none of it can lead.

    A new directory does not make its replica electable in the same change.
    """

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    recovery_state: int | None = None
    directory: tuple[int, Uuid] | None = None  # of that broker's replica


AS_IT_IS = Target()


class _FullTarget(NamedTuple):
    """A target with a value for every field."""

    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    recovery_state: int


class Election(NamedTuple):
    """The kind of election. `prefers_first`: the preferred leader, even if the present one could stay."""

    prefers_first: bool = False
    is_unclean: bool = False


CLEAN = Election()
PREFERRED = Election(prefers_first=True)
UNCLEAN = Election(is_unclean=True)


class ElectedLeader(NamedTuple):
    """The result of an election. Unclean: the leader is not in the ISR, records may be lost."""

    leader: int
    is_unclean: bool


class PartitionChanges:
    """The changes of one decision, in order. Each sees the results of those before it.

    is_active  whether a broker may lead; None: as the image says
    image      the newest image before the decision; it does not change
    records    the records so far, in the order in which they have to be replayed
    _changed   the partitions that these records change, as they are after them. What is not here is as in
               `image`, so a second change of a partition builds on the first
    """

    def __init__(
        self,
        image: ClusterImage,
        config: BrokerConfig,
        is_active: Callable[[int], bool] | None = None,
    ) -> None:
        self.image = image
        self.records: list[Message] = []
        self._config = config
        self._is_unclean_by_default: bool | None = None
        self._is_active = is_active  # a bound method here would make a reference cycle
        self._changed: dict[PartitionKey, PartitionImage] = {}

    def partition(self, topic_id: Uuid, number: int) -> PartitionImage | None:
        """Return the partition after the changes so far, or None if there is no such partition."""
        changed = self._changed.get((topic_id, number))
        if changed is not None:
            return changed
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(number)

    def change(
        self, topic_id: Uuid, number: int, target: Target, election: Election = CLEAN
    ) -> PartitionImage | None:
        """Change an existing partition; return its new state, or None if nothing changes."""
        before = self.partition(topic_id, number)
        assert before is not None
        record = self._record(topic_id, number, before, target, election)
        if record is None:
            return None
        return self._written(topic_id, number, before, record)

    def restate(self, topic_id: Uuid, number: int) -> PartitionImage:
        """Give an existing partition a new partition epoch and no other change; return its state."""
        before = self.partition(topic_id, number)
        assert before is not None
        record = PartitionChangeRecord(partition_id=number, topic_id=topic_id, isr=before.isr)
        return self._written(topic_id, number, before, record)

    def _written(
        self, topic_id: Uuid, number: int, before: PartitionImage, record: PartitionChangeRecord
    ) -> PartitionImage:
        self.records.append(record)
        after = changed_partition(before, record)
        assert after.isr or not before.isr, "an ISR is never empty (rel-R17)"
        assert _has_all(after.replicas, after.isr), "only replicas are in the ISR (rel-R17)"
        assert after.partition_epoch > before.partition_epoch, (
            "each change has a partition epoch of its own (rel-R16)"
        )
        assert after.leader == before.leader or after.leader_epoch > before.leader_epoch, (
            "another leader has a leader epoch of its own (I11)"
        )
        self._changed[topic_id, number] = after
        return after

    def election_of(self, topic_name: str) -> Election:
        """The kind of election for the topic when a leader cannot go on (I26)."""
        return UNCLEAN if self.is_unclean_allowed(topic_name) else CLEAN

    def is_unclean_allowed(self, topic_name: str) -> bool:
        """unclean.leader.election.enable of the topic, else of this node."""
        text = self.image.topic_config_overrides(topic_name).get(_UNCLEAN_KEY)
        if text is not None:
            try:
                return bool(parse(topic_keys()[_UNCLEAN_KEY], text))
            except ConfigError:
                pass  # a later release wrote it: ignored, as in `topic_config`
        if self._is_unclean_by_default is None:
            cluster, node = (
                self.image.config(ResourceType.BROKER, name)
                for name in ("", str(self._config.node_id))
            )
            settings = broker_config(self._config, cluster, node)
            self._is_unclean_by_default = settings.unclean_leader_election_enable
        return self._is_unclean_by_default

    def may_lead(self, partition: PartitionImage, node_id: int) -> bool:
        """Whether the broker is active and the log directory of its replica online (KIP-858)."""
        is_active = self._is_active or self._is_active_broker
        if not is_active(node_id):
            return False
        directory = directory_of(partition, node_id)
        if directory is None:
            return True  # this change adds the replica
        return self.image.brokers[node_id].has_online(directory)

    def _is_active_broker(self, node_id: int) -> bool:
        broker = self.image.brokers.get(node_id)
        return broker is not None and broker.is_active

    def _record(
        self,
        topic_id: Uuid,
        number: int,
        before: PartitionImage,
        target: Target,
        election: Election,
    ) -> PartitionChangeRecord | None:
        wanted = _completed(_filled(target, before))
        record = PartitionChangeRecord(partition_id=number, topic_id=topic_id)
        leader, is_unclean = elect(
            wanted.replicas,
            wanted.isr,
            before.leader,
            election,
            may_lead=lambda node_id: self.may_lead(before, node_id),
        )
        isr = (leader,) if is_unclean else wanted.isr or before.isr
        assert leader == NO_LEADER or leader in isr, "only a member of the ISR leads (I26)"
        recovery_state = RECOVERING if is_unclean else wanted.recovery_state
        level = self.image.metadata_version
        is_shrunk = level < NO_BUMP_ON_SHRINK_SINCE and not _has_all(isr, before.isr)
        if leader != before.leader or is_shrunk or not _has_all(wanted.replicas, before.replicas):
            record.leader = leader  # naming a leader, even the same, makes a new leader epoch (I11)
        if isr != before.isr:
            record.isr = isr
        if recovery_state != before.leader_recovery_state:
            record.leader_recovery_state = recovery_state
        if target.directory is not None or not _is_as_before(wanted, before):
            self._set_assignment(record, before, wanted, target.directory)
        return record if len(vars(record)) > _FIELDS_OF_NO_CHANGE else None

    def _set_assignment(
        self,
        record: PartitionChangeRecord,
        before: PartitionImage,
        wanted: _FullTarget,
        directory: tuple[int, Uuid] | None,
    ) -> None:
        if wanted.replicas != before.replicas:
            record.replicas = wanted.replicas
        if wanted.removing != before.removing_replicas:
            record.removing_replicas = wanted.removing
        if wanted.adding != before.adding_replicas:
            record.adding_replicas = wanted.adding
        if self.image.metadata_version < DIRECTORIES_SINCE:
            return
        known = dict(zip(before.replicas, before.directories, strict=False))
        if directory is not None:
            known[directory[0]] = directory[1]
        directories = tuple(
            known[node_id] if node_id in known else default_directory(self.image.brokers[node_id])
            for node_id in wanted.replicas
        )
        if directories != before.directories:
            record.directories = directories


_FIELDS_OF_NO_CHANGE = len(vars(PartitionChangeRecord(partition_id=0, topic_id=ZERO_UUID)))


def elect(
    replicas: Sequence[int],
    isr: Sequence[int],
    leader: int,
    election: Election,
    *,
    may_lead: Callable[[int], bool],
) -> ElectedLeader:
    """Elect the present leader if it may lead, else the first of the ISR in assignment order (I26)."""
    first = replicas[0]
    if election.prefers_first and first in isr and may_lead(first):
        return ElectedLeader(first, False)
    if leader in isr and leader in replicas and may_lead(leader):
        return ElectedLeader(leader, False)
    for node_id in replicas:
        if node_id in isr and may_lead(node_id):
            return ElectedLeader(node_id, False)
    if election.is_unclean:
        found = next(filter(may_lead, replicas), NO_LEADER)
        return ElectedLeader(found, found != NO_LEADER)
    return ElectedLeader(NO_LEADER, False)


def directory_of(partition: PartitionImage, broker_id: int) -> Uuid | None:
    """The log directory of a replica, or None if it was never recorded."""
    if broker_id not in partition.replicas or not partition.directories:
        return None
    return partition.directories[partition.replicas.index(broker_id)]


def default_directory(broker: BrokerImage) -> Uuid:
    """The directory in which a broker will put a new replica, by its registration (KIP-858)."""
    if not broker.log_dirs:
        return MIGRATING_DIRECTORY
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY


def _filled(target: Target, before: PartitionImage) -> _FullTarget:
    return _FullTarget(
        before.isr if target.isr is None else target.isr,
        before.replicas if target.replicas is None else target.replicas,
        before.removing_replicas if target.removing is None else target.removing,
        before.adding_replicas if target.adding is None else target.adding,
        before.leader_recovery_state if target.recovery_state is None else target.recovery_state,
    )


def _completed(wanted: _FullTarget) -> _FullTarget:
    """Complete a reassignment if all target replicas are in sync: remove the others (KIP-455)."""
    if not wanted.removing and not wanted.adding:
        return wanted
    isr = tuple(node_id for node_id in wanted.isr if node_id not in wanted.removing)
    replicas = tuple(node_id for node_id in wanted.replicas if node_id not in wanted.removing)
    if not isr or not replicas or not _has_all(isr, replicas):
        return wanted
    return wanted._replace(isr=isr, replicas=replicas, removing=(), adding=())


def _is_as_before(wanted: _FullTarget, before: PartitionImage) -> bool:
    """Whether the assignment is unchanged, the common case; then the directories are too."""
    return (
        wanted.replicas == before.replicas
        and wanted.removing == before.removing_replicas
        and wanted.adding == before.adding_replicas
    )


def _has_all(after: Sequence[int], before: Sequence[int]) -> bool:
    return all(node_id in after for node_id in before)
