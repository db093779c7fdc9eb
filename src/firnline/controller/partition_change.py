"""One partition before -> after, as the smallest record that says so. PURE.

Source: KIP-455, KIP-631, KIP-903; spec I11, I25, I26. Eligible leader replicas (KIP-966) come later: until
then the last member of an ISR stays in it, without leading, when its broker goes.
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
    """What a partition is to be; None for what stays. An empty ISR: nobody of it is left to lead.

    A directory does not make its replica electable in the same change.
    """

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    recovery_state: int | None = None
    directory: tuple[int, Uuid] | None = None  # of that broker's replica


AS_IT_IS = Target()


class _Whole(NamedTuple):
    """A target that says of everything what it is to be."""

    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    recovery_state: int


class Election(NamedTuple):
    """How a leader is found. `prefers_first`: the first replica, even where the present leader may stay."""

    prefers_first: bool = False
    is_unclean: bool = False


CLEAN = Election()
PREFERRED = Election(prefers_first=True)
UNCLEAN = Election(is_unclean=True)


class ElectedLeader(NamedTuple):
    """Who is to lead; unclean: not of the ISR, so that records may be lost."""

    leader: int
    is_unclean: bool


class PartitionChanges:
    """The changes of one decision, in order; each sees those before it.

    is_active  which brokers may lead; None for those the image calls active
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
        self._is_active = is_active  # a method of ours would be a cycle for each decision
        self._changed: dict[PartitionKey, PartitionImage] = {}

    def partition(self, topic_id: Uuid, number: int) -> PartitionImage | None:
        """Return the partition as the changes so far leave it; None for an unknown one."""
        changed = self._changed.get((topic_id, number))
        if changed is not None:
            return changed
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(number)

    def change(
        self, topic_id: Uuid, number: int, target: Target, election: Election = CLEAN
    ) -> PartitionImage | None:
        """Change a partition that is known; return it after that, or None where nothing changes."""
        before = self.partition(topic_id, number)
        assert before is not None
        record = self._record(topic_id, number, before, target, election)
        if record is None:
            return None
        return self._written(topic_id, number, before, record)

    def restate(self, topic_id: Uuid, number: int) -> PartitionImage:
        """Write a known partition down as it is; return it, in a new partition epoch and else the same."""
        before = self.partition(topic_id, number)
        assert before is not None
        record = PartitionChangeRecord(partition_id=number, topic_id=topic_id, isr=before.isr)
        return self._written(topic_id, number, before, record)

    def _written(
        self, topic_id: Uuid, number: int, before: PartitionImage, record: PartitionChangeRecord
    ) -> PartitionImage:
        self.records.append(record)
        after = changed_partition(before, record)
        assert after.isr or not before.isr, "rel-R17"
        assert _has_all(after.replicas, after.isr), "rel-R17"
        self._changed[topic_id, number] = after
        return after

    def election_of(self, topic_name: str) -> Election:
        """How leaders of that topic are found when the present one cannot go on (I26)."""
        return UNCLEAN if self.is_unclean_allowed(topic_name) else CLEAN

    def is_unclean_allowed(self, topic_name: str) -> bool:
        """May a replica that is not in sync lead when no other can? The topic's word, then this node's."""
        text = self.image.topic_config_overrides(topic_name).get(_UNCLEAN_KEY)
        if text is not None:
            try:
                return bool(parse(topic_keys()[_UNCLEAN_KEY], text))
            except ConfigError:
                pass  # as in `topic_config`: a later release wrote it
        if self._is_unclean_by_default is None:
            cluster, node = (
                self.image.config(ResourceType.BROKER, name)
                for name in ("", str(self._config.node_id))
            )
            settings = broker_config(self._config, cluster, node)
            self._is_unclean_by_default = settings.unclean_leader_election_enable
        return self._is_unclean_by_default

    def may_lead(self, partition: PartitionImage, node_id: int) -> bool:
        """Is this broker active, and the directory of its replica in use? KIP-858."""
        is_active = self._is_active or self._is_active_broker
        if not is_active(node_id):
            return False
        directory = directory_of(partition, node_id)
        if directory is None:
            return True  # a replica that comes with this change
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
        wanted: _Whole,
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
    """Return who leads: the present leader if it may, else the first of the ISR in assignment order (I26)."""
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
    """Where a replica is; None where nobody ever said."""
    if broker_id not in partition.replicas or not partition.directories:
        return None
    return partition.directories[partition.replicas.index(broker_id)]


def default_directory(broker: BrokerImage) -> Uuid:
    """Where a broker will put a new replica, as far as its registration tells. KIP-858."""
    if not broker.log_dirs:
        return MIGRATING_DIRECTORY
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY


def _filled(target: Target, before: PartitionImage) -> _Whole:
    return _Whole(
        before.isr if target.isr is None else target.isr,
        before.replicas if target.replicas is None else target.replicas,
        before.removing_replicas if target.removing is None else target.removing,
        before.adding_replicas if target.adding is None else target.adding,
        before.leader_recovery_state if target.recovery_state is None else target.recovery_state,
    )


def _completed(wanted: _Whole) -> _Whole:
    """End a reassignment whose target replicas are all in sync: those on their way out go (KIP-455)."""
    if not wanted.removing and not wanted.adding:
        return wanted
    isr = tuple(node_id for node_id in wanted.isr if node_id not in wanted.removing)
    replicas = tuple(node_id for node_id in wanted.replicas if node_id not in wanted.removing)
    if not isr or not replicas or not _has_all(isr, replicas):
        return wanted
    return wanted._replace(isr=isr, replicas=replicas, removing=(), adding=())


def _is_as_before(wanted: _Whole, before: PartitionImage) -> bool:
    """Is the assignment what it was? Nearly always, and its directories then are, too."""
    return (
        wanted.replicas == before.replicas
        and wanted.removing == before.removing_replicas
        and wanted.adding == before.adding_replicas
    )


def _has_all(after: Sequence[int], before: Sequence[int]) -> bool:
    return all(node_id in after for node_id in before)
