"""What a follower asks of the leader it follows, and the answers. PURE. Source: KIP-227, KIP-405, KIP-595.

`outbound/replica_fetch.py` implements `LeaderPort` with requests to other brokers (Kafka `LeaderEndPoint`).
"""

from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import Uuid
from firnline.base.ports import Buffer
from firnline.replica.tier_start import EpochEnd

LATEST, EARLIEST = -1, -2


class Position(NamedTuple):
    """What to fetch of one partition: the records from `fetch_offset`, our log end offset."""

    topic: str
    topic_id: Uuid
    partition: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class LeaderFetch(NamedTuple):
    """One Fetch. `positions` changed since the last Fetch of the session; `forgotten` leave the session."""

    session_id: int
    session_epoch: int
    positions: tuple[Position, ...]
    forgotten: tuple[Position, ...]


class Fetched(NamedTuple):
    """The response for one partition. `diverging`: (epoch, its end offset at the leader), and no records."""

    topic_id: Uuid
    partition: int
    error: Code
    records: Buffer
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None = None


class FetchReply(NamedTuple):
    """A Fetch response. It contains only partitions with changes."""

    session_id: int
    parts: Collection[Fetched]


class LeaderPort(Protocol):
    """Sends requests to other brokers."""

    def fetch(
        self,
        leader_id: int,
        ask: LeaderFetch,
        then: Callable[[FetchReply | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        """Fetch. A KafkaError is of the whole request: NETWORK_EXCEPTION if no answer came."""
        ...

    def list_offset(
        self,
        leader_id: int,
        position: Position,
        which: int,
        then: Callable[[int | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        """Ask for the leader's log end offset (LATEST) or log start offset (EARLIEST)."""
        ...

    def local_start(
        self,
        leader_id: int,
        position: Position,
        then: Callable[[EpochEnd | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        """Ask for the leader's local log start offset: (leader epoch there, offset)."""
        ...

    def epoch_end(
        self,
        leader_id: int,
        position: Position,
        epoch: int,
        then: Callable[[EpochEnd | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        """Ask for (the largest epoch <= `epoch`, its end offset), or (-1, -1)."""
        ...
