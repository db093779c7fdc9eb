"""One node, whole: all parts, and what the runtime, the handlers and the simulator see of them. PURE.

A combined node: controller and broker in one process. Everything happens in calls that return effects;
the runtime carries them out and calls their continuations. An effect that one part of the node has for
another comes back through `perform`. Source: house, sections 5 and 7.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from firnline.base.effects import Append, Effect, Effects, EnsureTopic
from firnline.base.errors import Bug, KafkaError
from firnline.base.ids import Uuid
from firnline.base.ports import Fs, Rng
from firnline.broker.fetch import Fetching
from firnline.broker.hosted import ByName, HostedPartitions
from firnline.broker.hosting import Hosting
from firnline.broker.internal_topics import InternalTopics
from firnline.broker.leaders import Leaders
from firnline.broker.lifecycle import Lifecycle, Stage
from firnline.broker.list_offsets import ListingOffsets
from firnline.broker.produce import Outcome, Producing
from firnline.broker.storage import Storage
from firnline.config.broker import BrokerConfig
from firnline.controller.controller import Controller
from firnline.coordinator.groups import GroupCoordinator
from firnline.coordinator.producer_ids import ProducerIds
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.features import SUPPORTED
from firnline.metadata.image import EMPTY_IMAGE, ClusterImage, ControllerImage, FeatureRange
from firnline.metadata.loader import difference
from firnline.metadata.quorum import MetadataQuorum
from firnline.replica.partition import ACKS_ALL, Partition

if TYPE_CHECKING:
    from firnline.tiered.remote_log import RemoteLog

# What an append of one of our own coordinators may wait for followers.
_COORDINATOR_TIMEOUT_MS = 5_000


class BrokerNode:
    """The parts, by the names that handlers use. Made by `broker/wiring.py: build_node`."""

    config: BrokerConfig
    rng: Rng
    node_id: int
    cluster_id: str
    quorum: MetadataQuorum
    controller: Controller
    storage: Storage
    hosted: HostedPartitions
    hosting: Hosting
    leaders: Leaders
    producing: Producing
    fetching: Fetching
    listing_offsets: ListingOffsets
    groups: GroupCoordinator
    producer_ids: ProducerIds
    internal_topics: InternalTopics
    lifecycle: Lifecycle
    tier: "RemoteLog | None"
