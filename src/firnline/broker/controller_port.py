"""The port of a node to the active controller, in this process or on another node. PURE.

Each request of a node to the controller is a command, whose type names its outcome. Both are values of the
domain; `outbound/remote_controller.py` makes messages of them. Every command gets exactly one outcome or
KafkaError: NOT_CONTROLLER if no active controller is known, NETWORK_EXCEPTION if it did not answer; the
caller retries both. Source: KIP-497, KIP-500, KIP-631, KIP-730, KIP-858, KIP-919.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from firnline.base.effects import Effects
from firnline.base.errors import Bug, Code, ConfigError, KafkaError
from firnline.base.event import event
from firnline.base.ids import ProducerIdBlock
from firnline.base.replicas import DirectoryAssignment, IsrAnswer, IsrChange
from firnline.controller.brokers import Heartbeat, HeartbeatAnswer, Registration
from firnline.controller.controller import Controller
from firnline.controller.topics import NewTopic
from firnline.metadata.image import ControllerImage
from firnline.metadata.quorum import MetadataQuorum
from firnline.metadata.result import ControllerResult

Outcome = TypeVar("Outcome")
# Takes the outcome of a command, and the time in ms.
ControllerCallback = Callable[[Outcome | KafkaError, int], Effects]

NOBODY_ACTIVE = KafkaError(Code.NOT_CONTROLLER, "this is not the active controller")


_REMEDIES = {
    Code.INCONSISTENT_CLUSTER_ID: "cluster.id in its meta.properties is not that of the nodes in"
    " controller.quorum.voters: name the right voters, or format its directories with their cluster id",
    Code.INVALID_REGISTRATION: "another broker has a directory.id of its meta.properties: log.dirs was"
    " copied; format directories of its own for this node",
    Code.DUPLICATE_BROKER_REGISTRATION: "another broker with this node.id is running: stop it, or give this"
    " one an id and log directories of its own",
}


def refusal_to_join(who: str, problem: KafkaError) -> ConfigError:
    """Return the error of a node that cannot join the cluster, with its remedy."""
    return ConfigError(f"this {who} cannot join the cluster: {with_remedy(problem)}")


def with_remedy(problem: KafkaError) -> str:
    """Return the controller's error, with its remedy."""
    remedy = _REMEDIES.get(problem.code)
    return f"{problem}; {remedy}" if remedy else str(problem)


class Command(Generic[Outcome]):
    """A request to the active controller; `Outcome` is the type of its result."""

    __slots__ = ()


@event
class RegisterBroker(Command[int]):
    """Register a new incarnation of a broker. The outcome is its broker epoch."""

    registration: Registration


@event
class RegisterController(Command[None]):
    """Register the listeners and supported features of a controller."""

    registration: ControllerImage


@event
class BrokerHeartbeat(Command[HeartbeatAnswer]):
    """Keep a broker's session alive, and request its state: fenced, unfenced or shutting down."""

    heartbeat: Heartbeat


@event
class AllocateProducerIds(Command[ProducerIdBlock]):
    """Get a block of producer ids for one broker."""

    broker_id: int
    broker_epoch: int


@event
class CreateTopics(Command[list[KafkaError | None]]):
    """Create topics that a node needs. The outcome has None or an error for each, in the same order."""

    topics: Sequence[NewTopic]


@event
class AlterPartitions(Command[list[IsrAnswer | KafkaError]]):
    """Propose ISRs as a leader. The outcome has a result for each, in the same order."""

    broker_id: int
    broker_epoch: int
    changes: Sequence[IsrChange]


@event
class AssignDirectories(Command[list[KafkaError | None]]):
    """Report the directories of a broker's replicas. The outcome is as that of `CreateTopics`."""

    broker_id: int
    broker_epoch: int
    assignments: Sequence[DirectoryAssignment]


class ControllerPort(Protocol):
    """Sends commands to the active controller."""

    def ask(
        self, command: Command[Outcome], then: ControllerCallback[Outcome], now_ms: int
    ) -> Effects:
        """Send the command; call `then(outcome or KafkaError, now_ms)` afterwards."""
        ...


class LocalController:
    """The controller in this process. The outcome is NOT_CONTROLLER while it is not active."""

    def __init__(self, controller: Controller, quorum: MetadataQuorum, *, is_sole: bool) -> None:
        self._controller = controller
        self._quorum = quorum
        # The only voter holds the lock of its directory: so an earlier incarnation of its broker cannot be
        # alive (I34).
        self._is_sole = is_sole

    @property
    def is_active(self) -> bool:
        return self._quorum.is_active

    def ask(
        self, command: Command[Outcome], then: ControllerCallback[Outcome], now_ms: int
    ) -> Effects:
        """See `ControllerPort`."""
        if not self.is_active:
            return then(NOBODY_ACTIVE, now_ms)
        return self._quorum.write(self._decide(command, now_ms), then, now_ms)

    def _decide(self, command: Command[Any], now_ms: int) -> ControllerResult[Any]:
        controller = self._controller
        match command:
            case RegisterBroker():
                return controller.register_broker(
                    command.registration, now_ms, replaces_dead_incarnation=self._is_sole
                )
            case RegisterController():
                return controller.register_controller(command.registration)
            case BrokerHeartbeat():
                return controller.heartbeat(command.heartbeat, now_ms)
            case AllocateProducerIds():
                return controller.allocate_producer_ids(
                    broker_id=command.broker_id, broker_epoch=command.broker_epoch
                )
            case CreateTopics():
                made = controller.create_topics(command.topics)
                outcomes: Any = [
                    each if isinstance(each, KafkaError) else None for each in made.response
                ]
                return made._replace(response=outcomes)
            case AlterPartitions():
                return controller.alter_partitions(
                    broker_id=command.broker_id,
                    broker_epoch=command.broker_epoch,
                    wanted=command.changes,
                )
            case AssignDirectories():
                return controller.assign_directories(
                    broker_id=command.broker_id,
                    broker_epoch=command.broker_epoch,
                    wanted=command.assignments,
                )
        raise Bug("the controller does not decide this command", command=type(command).__name__)


class NearestController:
    """The controller in this process while it is active, else the active one on another node."""

    def __init__(self, local: LocalController, remote: ControllerPort) -> None:
        self._local = local
        self._remote = remote

    def ask(
        self, command: Command[Outcome], then: ControllerCallback[Outcome], now_ms: int
    ) -> Effects:
        """See `ControllerPort`."""
        active: ControllerPort = self._local if self._local.is_active else self._remote
        return active.ask(command, then, now_ms)
