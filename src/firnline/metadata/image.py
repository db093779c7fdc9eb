"""The cluster's metadata at one offset: an immutable image, which a reader may keep for ever. PURE.

Maps are `immutables.Map`: a new image shares everything unchanged with the old one. Records that this release
does not act on (ACLs, quotas, SCRAM credentials, delegation tokens) are kept as they are, so that no snapshot
loses them. Source: KIP-631.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from immutables import Map

from firnline.base.ids import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    NO_EPOCH,
    NO_OFFSET,
    UNASSIGNED_DIRECTORY,
    Uuid,
)
from firnline.protocol.schema import Message

NO_LEADER = -1
# A replica with one of these directories may be in use.
_SOMEWHERE = (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY)
# No block of producer ids was allocated yet: the first one begins at 0.
NO_PRODUCER_IDS = -1
METADATA_VERSION = "metadata.version"
ELR_VERSION = "eligible.leader.replicas.version"

# The fields that tell a kept record from others of its type.
KeptKey = tuple[int, tuple[object, ...]]


class ResourceType(IntEnum):
    """The kind of resource a configuration belongs to, numbered as in ConfigRecord and the configuration
    APIs."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """One configurable resource. The broker "" stands for all brokers."""

    resource_type: int
    name: str


class Endpoint(NamedTuple):
    """A listener of a node. `security_protocol` as in RegisterBrokerRecord: 0 is PLAINTEXT."""

    listener: str
    host: str
    port: int
    security_protocol: int = 0


class FeatureRange(NamedTuple):
    """The levels of a feature that a node supports, both inclusive."""

    lowest: int
    highest: int


class PartitionImage(NamedTuple):
    """One partition, as its records leave it.

    replicas               the assignment, preferred leader first. During a reassignment it holds the old
                           replicas and the new ones
    directories            the log directory of each replica, in the order of `replicas`; MIGRATING_DIRECTORY
                           where none was recorded
    isr                    the in-sync replicas, all of them replicas. Never emptied: the last member stays,
                           without leading, when its broker goes (rel-R17)
    leader                 a member of the ISR; -1: none may lead
    leader_epoch           from 0; one more with each record that names a leader, even the same (I11). Brokers
                           refuse requests of an older one
    partition_epoch        from 0; one more with each change record. A proposal names the one that it is based
                           on, so of two proposals only one can be applied (KIP-497)
    removing_replicas      members of `replicas` that leave when the reassignment is complete (KIP-455)
    adding_replicas        members of `replicas` that came with the reassignment; cancelling removes them
    leader_recovery_state  1: the leader was elected uncleanly and has not reported its recovery; no replica
                           joins before it has. Else 0
    elr, last_known_elr    as a Kafka controller recorded them (KIP-966); kept, not acted on
    """

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


class TopicImage(NamedTuple):
    """One topic with its partitions by number."""

    name: str
    topic_id: Uuid
    partitions: Map[int, PartitionImage]


class BrokerImage(NamedTuple):
    """One registered broker. `epoch` is the offset of the record that registered it (I1)."""

    broker_id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Map[str, FeatureRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[Uuid, ...]
    # None if the broker did not say, which a snapshot keeps.
    cordoned_log_dirs: tuple[Uuid, ...] | None = None
    is_migrating_zk_broker: bool = False

    @property
    def is_active(self) -> bool:
        """May it lead and join an ISR? It is neither fenced nor in controlled shutdown."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def takes_new_replicas(self) -> bool:
        """Is one of its directories not cordoned? KIP-1066."""
        cordoned = self.cordoned_log_dirs
        return not cordoned or not self.log_dirs or any(d not in cordoned for d in self.log_dirs)

    def has_online(self, directory: Uuid) -> bool:
        """May a replica in that directory be in use, according to the registration? KIP-858."""
        if directory in self.log_dirs or directory in _SOMEWHERE:
            return True
        return not self.log_dirs and directory != LOST_DIRECTORY

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return its address for that listener name; None if it has none."""
        return next((e for e in self.endpoints if e.listener == listener), None)


class ControllerImage(NamedTuple):
    """One registered controller."""

    controller_id: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Map[str, FeatureRange]
    zk_migration_ready: bool = False


class ClusterImage(NamedTuple):
    """The state after all records of the metadata log up to `offset`, inclusive; `epoch` is the last
    one's."""

    offset: int = NO_OFFSET
    epoch: int = NO_EPOCH
    features: Map[str, int] = Map()
    brokers: Map[int, BrokerImage] = Map()
    controllers: Map[int, ControllerImage] = Map()
    topics_by_name: Map[str, TopicImage] = Map()
    topics_by_id: Map[Uuid, TopicImage] = Map()
    configs: Map[ConfigResource, Map[str, str]] = Map()
    next_producer_id: int = NO_PRODUCER_IDS
    kept: Map[KeptKey, Message] = Map()

    @property
    def metadata_version(self) -> int:
        """Level of metadata.version in force; 0 before the bootstrap records."""
        return self.features.get(METADATA_VERSION, 0)

    @property
    def has_elr(self) -> bool:
        """Are eligible leader replicas in force (KIP-966)? A snapshot has them only then."""
        return self.features.get(ELR_VERSION, 0) > 0

    def topic(self, name: str) -> TopicImage | None:
        return self.topics_by_name.get(name)

    def partition(self, name: str, partition: int) -> PartitionImage | None:
        topic = self.topics_by_name.get(name)
        return None if topic is None else topic.partitions.get(partition)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return the settings of one resource; empty if there are none."""
        return self.configs.get(ConfigResource(resource_type, name), _NOTHING)

    def topic_config_overrides(self, name: str) -> Mapping[str, str]:
        """The topic's own settings, without those of brokers."""
        return self.config(ResourceType.TOPIC, name)

    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics_by_name.values())


_NOTHING: Map[str, str] = Map()
EMPTY_IMAGE = ClusterImage()
