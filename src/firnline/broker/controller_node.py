"""A complete controller: the metadata quorum, and the controller that decides while it is active. PURE.

A process with only the controller role runs one; a combined node contains one; the simulator runs nothing
else. While active it fences brokers without heartbeats. On standby it replicates the metadata log. Every
controller, active or not, registers its addresses in the metadata once. Source: KIP-631, KIP-919; I6, I7.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from firnline.base.background import Background
from firnline.base.counting.machine import MachineFacts
from firnline.base.effects import CancelTimer, Effect, Effects, SetTimer
from firnline.base.errors import Bug, KafkaError, some_of
from firnline.base.log_lines import cluster as lines
from firnline.base.log_lines.cluster import LAST_REPLICA_STANDING
from firnline.base.ports import Loggers, NoLoggers
from firnline.broker.change_log.change_log import ChangeLog
from firnline.broker.controller_port import (
    NOBODY_ACTIVE,
    ControllerPort,
    LocalController,
    NearestController,
    RegisterController,
    refusal_to_join,
)
from firnline.config.broker import BrokerConfig
from firnline.controller.controller import Controller
from firnline.controller.rounds import Round
from firnline.metadata.delta import ClusterDelta, QuorumObserver
from firnline.metadata.features import CONTROLLER_REGISTRATION_SINCE, SUPPORTED
from firnline.metadata.image import ClusterImage, ControllerImage, FeatureRange
from firnline.metadata.partition_counts import is_last_standing
from firnline.metadata.quorum import MetadataQuorum, R, WriteCallback
from firnline.metadata.result import ControllerResult

_FENCING = ("controller", "fencing")
_SWEEPING = ("controller", "sweeping")
_REGISTRATION = ("controller", "registration")
_LEAVING = ("controller", "leaving")
# As Kafka does, check for brokers without heartbeats four times in a session timeout.
_CHECKS_PER_SESSION = 4
_REGISTRATION_RETRY_MS = 200
_LEAVING_CHECK_MS = 10
# A leader that gets no confirmation of its resignation leaves after this time.
_LEAVING_MAX_MS = 5_000
# How long a controller waits for brokers that are shutting down: without it they may find no controller.
_BROKERS_LEAVE_MAX_MS = 2_000
_MS_PER_SECOND = 1_000


class NodeOwner(Protocol):
    """Runs a node. Each method is called once, on the event loop."""

    def node_running(self, now_ms: int) -> None:
        """The controller has joined the quorum, or the broker is unfenced: clients may be served."""
        ...

    def node_stopped(self, now_ms: int) -> None:
        """Everything is handed over and synced, and the files are closed. No call may follow."""
        ...


class Unowned:
    """The owner of a node in a test or a benchmark; it needs neither call."""

    def node_running(self, now_ms: int) -> None:
        """Do nothing."""

    def node_stopped(self, now_ms: int) -> None:
        """Do nothing."""


class ControllerParts(NamedTuple):
    """The parts of a controller.

    is_sole        whether it is the only voter
    remote         the port to an active controller on another node; None in a quorum of one
    first_effects  the effects of opening the quorum's directory
    close_files    syncs and closes the files of the quorum
    """

    quorum: MetadataQuorum
    controller: Controller
    registration: ControllerImage
    is_sole: bool
    remote: ControllerPort | None
    foreign_cluster_problem: Callable[[], KafkaError | None]
    first_effects: Effects
    close_files: Callable[[], None]


class ControllerNode:
    """The controller of a node, and the observer of its quorum (`metadata.delta.QuorumObserver`).

    make_parts(observer)  returns the parts; their quorum calls `observer`: this object if it runs alone, else
                          the broker's node, which passes the calls on
    owner                 is called when the node runs, and when it has stopped
    """

    # The endpoint type of a controller in DescribeCluster.
    endpoint_type = 2
    # A controller that is not active answers NOT_CONTROLLER, and the client looks for the active one.
    forwards = False

    def __init__(
        self,
        *,
        config: BrokerConfig,
        cluster_id: str,
        make_parts: Callable[[QuorumObserver], ControllerParts],
        owner: NodeOwner,
    ) -> None:
        parts = make_parts(self)
        quorum, controller = parts.quorum, parts.controller
        self.sliced_tasks = Background("controller requests", is_round_robin=True)
        self.config = config
        self.loggers: Loggers = NoLoggers()
        self.machine = MachineFacts()
        self.node_id: int = config.node_id
        self.cluster_id = cluster_id
        self.quorum = quorum
        self.controller = controller
        self.registration = parts.registration
        local = LocalController(controller, quorum, is_sole=parts.is_sole)
        self.port: ControllerPort = (
            local if parts.remote is None else NearestController(local, parts.remote)
        )
        self._owner = owner
        self._foreign_cluster_problem = parts.foreign_cluster_problem
        self._first_effects = parts.first_effects
        self._close_files = parts.close_files
        self._change_log = ChangeLog(
            self.node_id,
            is_part=lambda: self._is_registered or quorum.is_active,
            decides=lambda: quorum.is_active,
            counts=lambda: quorum.partition_counts,
        )
        self._is_registered = False
        self._leaves_until_ms: int | None = None
        self._is_closed = False
        self._unclean_elections = Round(
            "unclean-elections",
            quorum,
            controller.elect_unclean_leaders,
            interval_ms=config.unclean_leader_election_interval_ms,
        )
        self._rounds = [self._unclean_elections]
        if config.auto_leader_rebalance_enable:
            interval_ms = config.leader_imbalance_check_interval_seconds * _MS_PER_SECOND
            balancing = controller.balance_leaders
            self._rounds.append(Round("balancing", quorum, balancing, interval_ms=interval_ms))

    # ----------------------------------------------------------------------------- what handlers use

    @property
    def image(self) -> ClusterImage:
        """The committed image of the cluster."""
        return self.quorum.image

    @property
    def inactive_problem(self) -> KafkaError | None:
        """The error of every request while this controller is not active."""
        return None if self.quorum.is_active else NOBODY_ACTIVE

    @property
    def supported_features(self) -> Mapping[str, FeatureRange]:
        """The feature levels that this release supports."""
        return SUPPORTED

    def write_topics(
        self, result: ControllerResult[R], then: WriteCallback[R], now_ms: int
    ) -> Effects:
        """As `quorum.write`, for new partitions; a controller opens none of them."""
        return self.quorum.write(result, then, now_ms)

    # -------------------------------------------------------------------------------------- life

    def start(self, now_ms: int) -> Effects:
        """Join the quorum. Raises ConfigError and StorageError for problems of the operator."""
        effects = [*self._first_effects, *self.quorum.start(now_ms)]
        effects.append(self._registration_timer(now_ms))
        self._owner.node_running(now_ms)
        return effects

    def became_active(self, now_ms: int) -> Effects:
        """This controller is active from now on."""
        self.controller.activate(now_ms)
        effects: Effects = [
            lines.BECAME_CONTROLLER(
                node=self.node_id,
                epoch=self.quorum.epoch,
                metadata_offset=self.quorum.newest.offset,
            ),
            self._fencing_timer(now_ms),
        ]
        if self.controller.is_sweeping:
            effects.append(self._sweeping_timer(now_ms))
        for each in self._rounds:
            effects += each.start(now_ms)
        if not self._is_registered:
            effects += self._register(now_ms)
        return effects

    def image_published(self, delta: ClusterDelta, image: ClusterImage, now_ms: int) -> Effects:
        """`QuorumObserver` of a controller that runs alone: a change of the cluster is committed."""
        return self._change_log.published(delta, now_ms) + self.on_image(delta, now_ms)

    def on_image(self, delta: ClusterDelta, now_ms: int) -> Effects:
        """A changed config may allow an election that a partition waits for (I27)."""
        if not self.quorum.is_active:
            return []
        effects = _doubtful_elections(delta)
        if (delta.brokers or delta.topics) and self.controller.is_sweeping:
            effects.append(self._sweeping_timer(now_ms))
        if delta.configs:
            effects += self._unclean_elections.soon(now_ms)
        return effects

    def became_inactive(self, now_ms: int) -> Effects:
        """Another controller is active, or none."""
        self.controller.deactivate()
        effects: Effects = [
            lines.RESIGNED_CONTROLLER(
                node=self.node_id,
                epoch=self.quorum.epoch,
                metadata_offset=self.image.offset,
            ),
            CancelTimer(key=_FENCING),
            CancelTimer(key=_SWEEPING),
        ]
        for each in self._rounds:
            effects += each.stop()
        return effects

    def shutdown(self, now_ms: int) -> Effects:
        """Resign, then close the files and call the owner. May be called again.

        If the cluster stops as a whole, brokers in a controlled shutdown leave first: without a controller
        they would wait for a response that no node can give.
        """
        if self._leaves_until_ms is not None or self._is_closed:
            return []
        self._leaves_until_ms = now_ms + _LEAVING_MAX_MS
        until_ms = now_ms + _BROKERS_LEAVE_MAX_MS
        return [CancelTimer(key=_REGISTRATION), *self._wait_for_brokers(until_ms, now_ms)]

    def _wait_for_brokers(self, until_ms: int, now_ms: int) -> Effects:
        """Stay while other brokers are shutting down and the quorum has a leader."""
        if self._is_closed:
            return []
        is_needed = any(
            broker.in_controlled_shutdown and not broker.fenced and broker_id != self.node_id
            for broker_id, broker in sorted(self.image.brokers.items())
        )
        if is_needed and now_ms < until_ms and not self.quorum.raft.is_cut_off:
            at_ms = now_ms + _LEAVING_CHECK_MS
            return [
                SetTimer(key=_LEAVING, at_ms=at_ms, then=partial(self._wait_for_brokers, until_ms))
            ]
        return [*self.quorum.stop(now_ms), *self._leave(now_ms)]

    def _leave(self, now_ms: int) -> Effects:
        """Wait until the other voters know, or long enough; for a thread that writes, however long it takes.

        The process must keep the lock of its directory until that thread has ended. Otherwise a vote that it
        saves late would replace the vote of a process that started since, which could then vote twice.
        """
        assert self._leaves_until_ms is not None
        if self._is_closed:
            return []
        raft = self.quorum.raft
        if raft.is_writing or (not raft.is_stopped and now_ms < self._leaves_until_ms):
            at_ms = now_ms + _LEAVING_CHECK_MS
            return [SetTimer(key=_LEAVING, at_ms=at_ms, then=self._leave)]
        self.close()
        self._owner.node_stopped(now_ms)
        return []

    def close(self) -> None:
        """Sync and close the files. No call may follow."""
        if not self._is_closed:
            self._is_closed = True
            self.quorum.close()
            self._close_files()

    def perform(self, effect: Effect, now_ms: int) -> Effects:
        """A controller has no effects for its own parts."""
        raise Bug("nobody carries out this effect", effect=type(effect).__name__)

    # ----------------------------------------------------------------------------------- fencing

    def _fencing_timer(self, now_ms: int) -> SetTimer:
        interval_ms = max(1, self.config.broker_session_timeout_ms // _CHECKS_PER_SESSION)
        return SetTimer(key=_FENCING, at_ms=now_ms + interval_ms, then=self._check_sessions)

    def _check_sessions(self, now_ms: int) -> Effects:
        if self.controller.is_sweeping:  # also if the change itself wrote no records
            return [self._fencing_timer(now_ms), self._sweeping_timer(now_ms)]
        return [self._fencing_timer(now_ms), *self._fence(now_ms)]

    def _fence(self, now_ms: int) -> Effects:
        """Fence brokers whose sessions have expired, each after the one before is committed (I6)."""
        if not self.quorum.is_active:
            return []

        def fenced(outcome: int | KafkaError | None, at_ms: int) -> Effects:
            return self._fence(at_ms) if isinstance(outcome, int) else []

        return self.quorum.write(self.controller.fence_stale(now_ms), fenced, now_ms)

    def _sweeping_timer(self, now_ms: int) -> SetTimer:
        return SetTimer(key=_SWEEPING, at_ms=now_ms, then=self._sweep)

    def _sweep(self, now_ms: int) -> Effects:
        """Run one slice of the elections that follow from brokers that came or left."""
        if not self.quorum.is_active:
            return []
        effects = self.quorum.write(self.controller.sweep(), _ignored, now_ms)
        if self.controller.is_sweeping:
            return [*effects, self._sweeping_timer(now_ms)]
        return [*effects, *self._fence(now_ms)]

    # ------------------------------------------------------------------------------ registration

    def _registration_timer(self, now_ms: int) -> SetTimer:
        at_ms = now_ms + _REGISTRATION_RETRY_MS
        return SetTimer(key=_REGISTRATION, at_ms=at_ms, then=self._register_until_written)

    def _register_until_written(self, now_ms: int) -> Effects:
        """Register this controller, and retry until the committed image has the registration."""
        if self._is_registered:
            return []
        problem = self._foreign_cluster_problem()
        if problem is not None:
            raise refusal_to_join("controller", problem)
        if self.image.controllers.get(self.node_id) == self.registration:
            self._is_registered = True
            return []
        timer = self._registration_timer(now_ms)
        return [timer, *self._register(now_ms)]

    def _register(self, now_ms: int) -> Effects:
        if self.image.metadata_version < CONTROLLER_REGISTRATION_SINCE:
            return []
        command = RegisterController(registration=self.registration)
        return self.port.ask(command, _ignored, now_ms)


def _ignored(outcome: object, now_ms: int) -> Effects:
    """Ignore an error: the timer retries."""
    return []


def _doubtful_elections(delta: ClusterDelta) -> Effects:
    """Warn of leaders that may lack acknowledged records although they are in the ISR (rel-R5).

    One line for each broker that leads again as the last replica of the ISR. `ChangeLog` tells of unclean
    elections.
    """
    effects: Effects = []
    alone: dict[int, list[str]] = {}
    for topic in delta.topics:
        known = {} if topic.before is None else topic.before.partitions
        for number in topic.partitions:
            before, after = known.get(number), topic.after.partitions[number]
            if before is None:
                continue
            if is_last_standing(before, after):
                alone.setdefault(after.leader, []).append(f"{topic.after.name}-{number}")
    for broker_id, names in alone.items():
        effects.append(LAST_REPLICA_STANDING(broker=broker_id, partitions=some_of(names)))
    return effects
