"""What brokers exchange about replicas: with the active controller, and a follower with its leader. PURE.

The package `replica` proposes ISR changes and log directories, and the package `controller` decides. Neither
imports the other; both import these types. `LeaderPort` is what a follower asks of its leader (Kafka
`LeaderEndPoint`); `outbound/replica_fetch.py` implements it. Source: KIP-227, KIP-405, KIP-497, KIP-595,
KIP-858, KIP-903.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import NO_BROKER_EPOCH, Uuid
from firnline.base.ports import Buffer

LATEST, EARLIEST = -1, -2
EpochEnd = tuple[int, int]  # leader epoch and its end offset; (-1, -1) for none


class IsrMember(NamedTuple):
    """A member of a proposed ISR.

    broker_epoch  that of the incarnation which last fetched from the leader; -1 where the leader does not
                  know it: then the controller does not check it (I10, I17)
    """

    broker_id: int
    broker_epoch: int = NO_BROKER_EPOCH


class IsrChange(NamedTuple):
    """The proposal of a partition's leader, and the state that it believes the partition to be in.

    leader_epoch           the epoch in which it leads
    partition_epoch        that of the latest change that it knows of
    new_isr                the proposed ISR, ascending by id unless the order itself is the change
    leader_recovery_state  0: the leader has recovered; 1: it still recovers from an unclean election
    """

    topic_id: Uuid
    partition: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[IsrMember, ...]
    leader_recovery_state: int = 0


class IsrAnswer(NamedTuple):
    """The state of the partition after the controller's decision; fields as in the metadata image."""

    leader_id: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    leader_recovery_state: int = 0


class DirectoryAssignment(NamedTuple):
    """The sending broker's replica of a partition is in that log directory of the broker.

    `LOST_DIRECTORY` where its directory has failed.
    """

    topic_id: Uuid
    partition: int
    directory: Uuid


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

    def last_tiered(
        self,
        leader_id: int,
        position: Position,
        then: Callable[[EpochEnd | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        """Ask for the last offset in the tier: (leader epoch there, offset); OFFSET_NOT_AVAILABLE: none."""
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
