"""The active controller, as the rest of a node talks to it: here or on another node. PURE.

Values go in and come out as the domain knows them; `outbound/remote_controller.py` knows what travels.
Every call is answered exactly once, by its outcome or a KafkaError: NOT_CONTROLLER where nobody active is
known, NETWORK_EXCEPTION where it did not answer, both to be tried again. Source: KIP-500, KIP-631.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from firnline.base.effects import Effects
from firnline.base.errors import Code, ConfigError, KafkaError
from firnline.controller import isr_changes
from firnline.controller.brokers import Heartbeat, Registration
from firnline.controller.controller import Controller
from firnline.controller.directories import Place
from firnline.controller.topics import NewTopic
from firnline.metadata.image import ControllerImage, PartitionImage
from firnline.metadata.quorum import MetadataQuorum
from firnline.replica.directories import Placed
from firnline.replica.isr import IsrAnswer, IsrChange

# Any: what each method of ControllerPort says.
Then = Callable[[Any, int], Effects]

NOBODY_ACTIVE = KafkaError(Code.NOT_CONTROLLER, "this is not the active controller")


_REMEDIES = {
    Code.INCONSISTENT_CLUSTER_ID: "cluster.id in its meta.properties is not that of the nodes in"
    " controller.quorum.voters: name the right voters, or format its directories with their cluster id",
    Code.INVALID_REGISTRATION: "another broker has a directory.id of its meta.properties: log.dirs was"
    " copied; format directories of its own for this node",
    Code.DUPLICATE_BROKER_REGISTRATION: "another broker of this node.id runs: stop it, or give this one an id"
    " and log directories of its own",
}


def refusal_to_join(who: str, problem: KafkaError) -> ConfigError:
    """Say why this node cannot be part of the cluster, and what to do about it."""
    return ConfigError(f"this {who} cannot join the cluster: {with_remedy(problem)}")


def with_remedy(problem: KafkaError) -> str:
    """Say what the controller said, and what to do about it."""
    remedy = _REMEDIES.get(problem.code)
    return f"{problem}; {remedy}" if remedy else str(problem)


class ControllerPort(Protocol):
    """What a node asks of the active controller; `then(outcome or KafkaError, now_ms)`."""

    def register_broker(self, wanted: Registration, then: Then, now_ms: int) -> Effects:
        """The outcome is the broker epoch."""
        ...

    def register_controller(self, wanted: ControllerImage, then: Then, now_ms: int) -> Effects:
        """The outcome is None."""
        ...

    def heartbeat(self, beat: Heartbeat, then: Then, now_ms: int) -> Effects:
        """The outcome is a HeartbeatAnswer."""
        ...

    def allocate_producer_ids(
        self, *, broker_id: int, broker_epoch: int, then: Then, now_ms: int
    ) -> Effects:
        """The outcome is a controller.ids.ProducerIdBlock."""
        ...

    def create_topics(self, wanted: Sequence[NewTopic], then: Then, now_ms: int) -> Effects:
        """The outcome is a list of None or KafkaError, in the order asked."""
        ...

    def alter_partition(
        self,
        wanted: Sequence[IsrChange],
        *,
        broker_id: int,
        broker_epoch: int,
        then: Then,
        now_ms: int,
    ) -> Effects:
        """The outcome is a list of replica.isr.IsrAnswer or KafkaError, in the order asked."""
        ...

    def assign_directories(
        self,
        wanted: Sequence[Placed],
        *,
        broker_id: int,
        broker_epoch: int,
        then: Then,
        now_ms: int,
    ) -> Effects:
        """The outcome is a list of None or KafkaError, in the order asked."""
        ...


class LocalController:
    """The controller in this process. It refuses, NOT_CONTROLLER, while it is not the active one."""

    def __init__(self, controller: Controller, quorum: MetadataQuorum, *, is_sole: bool) -> None:
        self._controller = controller
        self._quorum = quorum
        # Alone in the quorum and holding the directory's lock, a broker knows that its earlier
        # incarnation is dead (I34).
        self._is_sole = is_sole

    @property
    def is_active(self) -> bool:
        return self._quorum.is_active

    def register_broker(self, wanted: Registration, then: Then, now_ms: int) -> Effects:
        """See `ControllerPort`."""
        if not self.is_active:
            return then(NOBODY_ACTIVE, now_ms)
        result = self._controller.register_broker(
            wanted, now_ms, replaces_dead_incarnation=self._is_sole
        )
        return self._quorum.write(result, then, now_ms)

    def register_controller(self, wanted: ControllerImage, then: Then, now_ms: int) -> Effects:
        """See `ControllerPort`."""
        return self._quorum.write(self._controller.register_controller(wanted), then, now_ms)

    def heartbeat(self, beat: Heartbeat, then: Then, now_ms: int) -> Effects:
        """See `ControllerPort`."""
        if not self.is_active:
            return then(NOBODY_ACTIVE, now_ms)
        return self._quorum.write(self._controller.heartbeat(beat, now_ms), then, now_ms)

    def allocate_producer_ids(
        self, *, broker_id: int, broker_epoch: int, then: Then, now_ms: int
    ) -> Effects:
        """See `ControllerPort`."""
        result = self._controller.allocate_producer_ids(
            broker_id=broker_id, broker_epoch=broker_epoch
        )
        return self._quorum.write(result, then, now_ms)

    def create_topics(self, wanted: Sequence[NewTopic], then: Then, now_ms: int) -> Effects:
        """See `ControllerPort`."""

        def made(outcome: Any, at_ms: int) -> Effects:
            if isinstance(outcome, KafkaError):
                return then(outcome, at_ms)
            return then([each if isinstance(each, KafkaError) else None for each in outcome], at_ms)

        return self._quorum.write(self._controller.create_topics(wanted), made, now_ms)

    def alter_partition(
        self,
        wanted: Sequence[IsrChange],
        *,
        broker_id: int,
        broker_epoch: int,
        then: Then,
        now_ms: int,
    ) -> Effects:
        """See `ControllerPort`."""
        if not self.is_active:
            return then(NOBODY_ACTIVE, now_ms)
        result = self._controller.alter_partitions(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            wanted=[_as_decided(change) for change in wanted],
        )

        def decided(outcome: Any, at_ms: int) -> Effects:
            if isinstance(outcome, KafkaError):
                return then(outcome, at_ms)
            return then([_as_told(each) for each in outcome], at_ms)

        return self._quorum.write(result, decided, now_ms)

    def assign_directories(
        self,
        wanted: Sequence[Placed],
        *,
        broker_id: int,
        broker_epoch: int,
        then: Then,
        now_ms: int,
    ) -> Effects:
        """See `ControllerPort`."""
        if not self.is_active:
            return then(NOBODY_ACTIVE, now_ms)
        result = self._controller.assign_directories(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            wanted=[Place(*each) for each in wanted],
        )
        return self._quorum.write(result, then, now_ms)


class NearestController:
    """The controller in this process while it is the active one, else the one that is."""

    def __init__(self, local: LocalController, remote: ControllerPort) -> None:
        self._local = local
        self._remote = remote

    @property
    def _active(self) -> ControllerPort:
        return self._local if self._local.is_active else self._remote

    def register_broker(self, wanted: Registration, then: Then, now_ms: int) -> Effects:
        """See `ControllerPort`."""
        return self._active.register_broker(wanted, then, now_ms)

    def register_controller(self, wanted: ControllerImage, then: Then, now_ms: int) -> Effects:
        """See `ControllerPort`."""
        return self._active.register_controller(wanted, then, now_ms)

    def heartbeat(self, beat: Heartbeat, then: Then, now_ms: int) -> Effects:
        """See `ControllerPort`."""
        return self._active.heartbeat(beat, then, now_ms)

    def allocate_producer_ids(
        self, *, broker_id: int, broker_epoch: int, then: Then, now_ms: int
    ) -> Effects:
        """See `ControllerPort`."""
        return self._active.allocate_producer_ids(
            broker_id=broker_id, broker_epoch=broker_epoch, then=then, now_ms=now_ms
        )

    def create_topics(self, wanted: Sequence[NewTopic], then: Then, now_ms: int) -> Effects:
        """See `ControllerPort`."""
        return self._active.create_topics(wanted, then, now_ms)

    def alter_partition(
        self,
        wanted: Sequence[IsrChange],
        *,
        broker_id: int,
        broker_epoch: int,
        then: Then,
        now_ms: int,
    ) -> Effects:
        """See `ControllerPort`."""
        return self._active.alter_partition(
            wanted, broker_id=broker_id, broker_epoch=broker_epoch, then=then, now_ms=now_ms
        )

    def assign_directories(
        self,
        wanted: Sequence[Placed],
        *,
        broker_id: int,
        broker_epoch: int,
        then: Then,
        now_ms: int,
    ) -> Effects:
        """See `ControllerPort`."""
        return self._active.assign_directories(
            wanted, broker_id=broker_id, broker_epoch=broker_epoch, then=then, now_ms=now_ms
        )


def _as_decided(change: IsrChange) -> isr_changes.IsrChange:
    """A proposal as the controller knows it."""
    return isr_changes.IsrChange(
        change.topic_id,
        change.partition,
        change.leader_epoch,
        change.partition_epoch,
        tuple(isr_changes.IsrMember(broker_id, epoch) for broker_id, epoch in change.new_isr),
        change.leader_recovery_state,
    )


def _as_told(outcome: PartitionImage | KafkaError) -> IsrAnswer | KafkaError:
    """A decision as the leader knows it."""
    if isinstance(outcome, KafkaError):
        return outcome
    return IsrAnswer(
        outcome.leader,
        outcome.leader_epoch,
        outcome.isr,
        outcome.partition_epoch,
        outcome.leader_recovery_state,
    )
