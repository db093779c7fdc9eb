"""Whom a client should ask instead: leaders and their addresses, from the committed image. PURE.

Source: KIP-951 (CurrentLeader and NodeEndpoints in answers), spec C14.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from firnline.base.effects import Peer
from firnline.metadata.image import EMPTY_IMAGE, NO_LEADER, ClusterImage
from firnline.replica.isr import BrokerFact
from firnline.replica.partition import Partition


class Place(NamedTuple):
    """Where a node is reached under the listener of whoever asks."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ActedOn:
    """The image that all partitions of this node are as new as. `Hosting` brings it up to date.

    What a leader believes of other brokers is no newer, or it might take a broker for gone that has just come
    into an ISR.
    """

    __slots__ = ("image",)

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE


class OtherBrokers:
    """The other brokers as the image has them that was acted on: `replica.isr.Brokers`.

    epoch()  of this broker's own registration, or -1
    """

    __slots__ = ("_acted_on", "_epoch", "lag_max_ms")

    def __init__(self, acted_on: ActedOn, epoch: Callable[[], int], *, lag_max_ms: int) -> None:
        self._acted_on = acted_on
        self._epoch = epoch
        self.lag_max_ms = lag_max_ms

    @property
    def own_epoch(self) -> int:
        return self._epoch()

    def fact(self, broker_id: int) -> BrokerFact | None:
        """Return what the image says of a broker; None where it knows none."""
        broker = self._acted_on.image.brokers.get(broker_id)
        return None if broker is None else BrokerFact(broker.epoch, broker.is_active)


class RackAware:
    """Sends consumers to an in-sync replica in their own rack, if the leader is not there (KIP-392)."""

    __slots__ = ("_image",)

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image

    def __call__(self, partition: Partition, rack: str, listener: str, offset: int) -> int | None:
        """`broker.fetch.Prefer`."""
        near = partial(self._is_near, rack, listener)
        return closest(partition, offset, near) if rack else None

    def _is_near(self, rack: str, listener: str, broker_id: int) -> bool:
        broker = self._image().brokers.get(broker_id)
        if broker is None or broker.fenced or broker.rack != rack:
            return False
        return broker.endpoint(listener) is not None


def closest(partition: Partition, fetch_offset: int, near: Callable[[int], bool]) -> int | None:
    """Return the in-sync follower that a consumer should read from instead of the leader; None: none.

    `near(broker_id)`: whether a broker is alive, and in the rack of the consumer. Of several, the one that
    has most, or was last seen to have all (KIP-392).
    """
    if near(partition.node_id):
        return None
    fit = [
        (follower.end_offset, follower.caught_up_ms, broker_id)
        for broker_id, follower in partition.followers.items()
        if broker_id in partition.isr
        and follower.log_start_offset <= fetch_offset <= follower.end_offset
        and near(broker_id)
    ]
    return max(fit)[2] if fit else None


class Leaders:
    """Reads the image that is committed at the moment of the question."""

    __slots__ = ("_image",)

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image

    def leader_of(self, topic: str | None, index: int) -> tuple[int, int] | None:
        """Return (leader's node id, leader epoch); None when there is no leader."""
        if topic is None:
            return None
        partition = self._image().partition(topic, index)
        if partition is None or partition.leader == NO_LEADER:
            return None
        return partition.leader, partition.leader_epoch

    def places(self, node_ids: Iterable[int], listener: str) -> list[Place]:
        """Return the addresses of `node_ids`, those that have one under `listener`."""
        brokers = self._image().brokers
        places = []
        for node_id in node_ids:
            broker = brokers.get(node_id)
            endpoint = None if broker is None else broker.endpoint(listener)
            if broker is not None and endpoint is not None:
                places.append(Place(node_id, endpoint.host, endpoint.port, broker.rack))
        return places

    def peer(self, listener: str, node_id: int) -> Peer | None:
        """Return where a broker listens for brokers: under that name, or on the first that it has."""
        broker = self._image().brokers.get(node_id)
        if broker is None or not broker.endpoints:
            return None
        endpoint = broker.endpoint(listener) or broker.endpoints[0]
        return Peer(node_id, endpoint.host, endpoint.port)

    def exists(self, topic: str, index: int) -> bool:
        """Whether the image has the partition."""
        return self._image().partition(topic, index) is not None

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with that id."""
        topic = self._image().topics_by_id.get(topic_id)
        return None if topic is None else topic.name


def any_broker(image: ClusterImage, leader_id: int, node_id: int) -> int:
    """The broker that clients take for the controller, one that serves: they all pass changes on.

    The active controller where it is a broker, else this node, else the first one; -1 for none.
    """
    for wanted in (leader_id, node_id, *sorted(image.brokers)):
        broker = image.brokers.get(wanted)
        if broker is not None and not broker.fenced:
            return wanted
    return -1
