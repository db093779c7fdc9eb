"""The base of all simulated clients: find brokers and leaders, send requests, and continue after failures.
SIM.

A client is a process of the simulated world like any other: it has a clock and connections, and talks only to
brokers. Source: spec C12 (metadata), C13.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from firnline.base.effects import Effect, Effects, Peer, Request, Send, SetTimer, Unanswered
from firnline.base.errors import Bug
from firnline.base.ids import SYSTEM_TOPICS, Uuid
from firnline.metadata.meta_log import MetaLog
from firnline.metadata.quorum import MetadataQuorum
from firnline.protocol.messages.k03_metadata import MetadataRequest
from firnline.raft.node import RaftNode
from firnline.sim.cluster.draw import broker_ids
from firnline.sim.host import ReceivedRequest
from firnline.sim.net import BROKER_PORT, HOST_PREFIX
from firnline.sim.options import Options
from firnline.sim.world import Chance

ResponseCallback = Callable[[Any, int], Effects]
Response = TypeVar("Response")
# Clients are numbered from here on; nodes have lower numbers.
CLIENT_IDS_FROM = 101
REQUEST_TIMEOUT_MS = 5_000
_METADATA_MS = 4_000
_SOON_MS = 200


class PartitionLeader(NamedTuple):
    """One partition as a client knows it."""

    topic: str
    topic_id: Uuid
    partition: int
    leader_id: int
    leader_epoch: int

    @property
    def key(self) -> tuple[Uuid, int]:
        return self.topic_id, self.partition


class Client:
    """The common part of all clients. `places` holds the partitions of the last Metadata response."""

    # Attributes of a node that a client does not have; nobody reads them.
    broker: Any = None
    controller: Any = None
    knows_internal = False  # whether internal topics are in `places`
    quorum: MetadataQuorum
    raft: RaftNode
    log: MetaLog

    def __init__(self, options: Options, chance: Chance) -> None:
        assert options.cluster is not None
        self.shape = options.cluster
        self.chance = chance
        self.places: dict[tuple[Uuid, int], PartitionLeader] = {}
        self._brokers = broker_ids(options)
        self._is_asking = False
        self._is_soon = False

    # ---- the interface of a machine

    def start(self, now_ms: int) -> Effects:
        """Find the leaders."""
        return self.refresh(now_ms)

    def takes(self, port: int) -> bool:
        return False

    def on_request(self, request: Any, call: ReceivedRequest, now_ms: int) -> Effects:
        raise Bug("nobody asks a client")

    def perform(self, effect: Effect, now_ms: int) -> Effects:
        raise Bug("nobody carries out this effect", effect=type(effect).__name__)

    def shutdown(self, then: Callable[[], None], now_ms: int) -> Effects:
        then()
        return []

    # ---- requests

    def ask(
        self,
        broker_id: int,
        request: Request[Response],
        then: Callable[[Response | Unanswered, int], Effects],
        *,
        channel: str,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        version_max: int = 32_767,
    ) -> Send[Response]:
        """Send a request to a broker; `then(answer or Unanswered, now_ms)`."""
        return Send(
            peer=Peer(broker_id, f"{HOST_PREFIX}{broker_id}", BROKER_PORT),
            request=request,
            timeout_ms=timeout_ms,
            then=then,
            channel=channel,
            version_max=version_max,
        )

    def any_broker(self) -> int:
        return self.chance.pick(self._brokers)

    def refresh(self, now_ms: int) -> Effects:
        """Ask some broker for the leaders, unless such a request is in progress."""
        if self._is_asking:
            return []
        self._is_asking, self._is_soon = True, False
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return [self.ask(self.any_broker(), request, self._on_metadata, channel="metadata")]

    def _on_metadata(self, answer: Any, now_ms: int) -> Effects:
        self._is_asking, self._is_soon = False, False
        if isinstance(answer, Unanswered) or not answer.topics:
            return [SetTimer(key="metadata", at_ms=now_ms + _SOON_MS, then=self.refresh)]
        found = [
            PartitionLeader(
                topic.name, topic.topic_id, row.partition_index, row.leader_id, row.leader_epoch
            )
            for topic in answer.topics
            if not topic.error_code
            and (self.knows_internal or not (topic.is_internal or topic.name in SYSTEM_TOPICS))
            for row in topic.partitions
        ]
        self.places = {place.key: self._newer(place) for place in found}
        timer = SetTimer(key="metadata", at_ms=now_ms + _METADATA_MS, then=self.refresh)
        return [timer, *self.on_places(now_ms)]

    def _newer(self, place: PartitionLeader) -> PartitionLeader:
        """As clients do: a broker that lags does not send them back to a deposed leader (KIP-320)."""
        known = self.places.get(place.key, place)
        return known if known.leader_epoch > place.leader_epoch else place

    def refresh_soon(self, now_ms: int) -> Effects:
        """Ask again soon: what is known of leaders was wrong."""
        if self._is_soon or self._is_asking:
            return []
        self._is_soon = True
        return [SetTimer(key="metadata", at_ms=now_ms + _SOON_MS // 2, then=self.refresh)]

    def on_places(self, now_ms: int) -> Effects:
        """`places` has changed."""
        return []
