"""Finds partition leaders, preferred read replicas and addresses in the committed metadata image. PURE.

Source: KIP-392, KIP-951 (CurrentLeader and NodeEndpoints in responses), spec C14.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from firnline.base.effects import Peer
from firnline.metadata.image import EMPTY_IMAGE, NO_LEADER, ClusterImage
from firnline.replica.isr import BrokerFact
from firnline.replica.partition import Partition


class NodeAddress(NamedTuple):
    """The address of a node under the listener that the client uses."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ActedOn:
    """The newest image that has been applied to all partitions of this node. `Hosting` updates it.

    Leaders read the state of other brokers from this image. From a newer one, a leader might consider a
    broker gone that has just joined the ISR.
    """

    __slots__ = ("image",)

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE


class OtherBrokers:
    """The other brokers in the image that was applied: `replica.isr.Brokers`.

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
        """Return the broker's epoch and whether it is active; None if the image does not have it."""
        broker = self._acted_on.image.brokers.get(broker_id)
        return None if broker is None else BrokerFact(broker.epoch, broker.is_active)


class RackAware:
    """Selects an in-sync replica in the consumer's rack if the leader is in another (KIP-392)."""

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
    """Return the in-sync follower that a consumer should read from, or None: the leader.

    `near(broker_id)`: whether a broker is alive and in the consumer's rack. Of several followers it is the
    one with the highest log end offset, then the one that caught up last (KIP-392).
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
    """Looks up leaders and addresses in the image that is committed at the time of the call."""

    __slots__ = ("_image",)

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image

    def leader_of(self, topic: str | None, index: int) -> tuple[int, int] | None:
        """Return (leader's node id, leader epoch); None if there is no leader."""
        if topic is None:
            return None
        partition = self._image().partition(topic, index)
        if partition is None or partition.leader == NO_LEADER:
            return None
        return partition.leader, partition.leader_epoch

    def addresses(self, node_ids: Iterable[int], listener: str) -> list[NodeAddress]:
        """Return the addresses of those of `node_ids` that have one under `listener`."""
        brokers = self._image().brokers
        addresses = []
        for node_id in node_ids:
            broker = brokers.get(node_id)
            endpoint = None if broker is None else broker.endpoint(listener)
            if broker is not None and endpoint is not None:
                addresses.append(NodeAddress(node_id, endpoint.host, endpoint.port, broker.rack))
        return addresses

    def peer(self, listener: str, node_id: int) -> Peer | None:
        """Return the address where a broker listens for brokers: `listener`, or else its first listener."""
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
    """Return the broker that clients use as the controller. Any unfenced broker forwards requests to it.

    It is the active controller if that is a broker, else this node, else the first broker; -1: none.
    """
    for wanted in (leader_id, node_id, *sorted(image.brokers)):
        broker = image.brokers.get(wanted)
        if broker is not None and not broker.fenced:
            return wanted
    return -1
