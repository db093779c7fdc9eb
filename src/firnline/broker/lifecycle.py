"""The lifecycle of a broker: registration, heartbeats, and controlled shutdown. PURE.

Theory of operation. A process registers once, with retries until a controller answers, and gets its broker
epoch. When the committed image has that registration, the node applies the image and opens its logs. Until
they are open, each heartbeat requests to stay fenced; then it requests to be unfenced. When the image says
so, clients are served. In a controlled shutdown the heartbeats request to leave; the controller first moves
the leadership of this broker to others, then lets it go, and the logs are closed. The active controller may
be in this process or in another one, may change, and may be absent for a while. Source: KIP-631, KIP-903;
spec 2.1, 2.2, 2.7, I4.
"""

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.base.errors import Code, ConfigError, KafkaError, StorageError
from firnline.base.ids import NO_BROKER_EPOCH, PartitionKey, Uuid
from firnline.base.log_lines.broker import CONTROLLER_SILENT, NOT_UNFENCED, SUPERSEDED
from firnline.base.log_lines.storage import PARTITION_NOT_SERVED
from firnline.broker.controller_port import (
    BrokerHeartbeat,
    ControllerPort,
    RegisterBroker,
    refusal_to_join,
    with_remedy,
)
from firnline.broker.storage import Storage
from firnline.config.broker import BrokerConfig
from firnline.controller.brokers import Heartbeat, HeartbeatAnswer, Registration
from firnline.metadata.image import ClusterImage
from firnline.replica.hosted import HostedPartitions
from firnline.replica.partition import Partition

_REGISTER = ("broker", "registration")
_HEARTBEAT = ("broker", "heartbeat")
_UNREPORTED = ("broker", "unreported failure")
# As in Kafka: 100 ms after a failure, twice as long after each further one.
_RETRY_MS = 100
# While no controller is active: a retry is cheap, and the election ends soon.
_NOBODY_MS = 20
# While the controller waits for this broker to catch up, or this broker for its release.
_SOON_MS = 50
# After this time without a majority of controllers, a broker that shuts down expects no answer any more.
_CUT_OFF_MS = 1_000
# A controlled shutdown takes a few heartbeats, which must not be seconds apart.
_LEAVING_INTERVAL_MS = 10
# Errors that only the operator can solve. All others are retried, for as long as Kafka does: the session of
# an earlier incarnation, a controller that shuts down, or a response that makes no sense.
_FINAL = (
    Code.CLUSTER_AUTHORIZATION_FAILED,
    Code.INCONSISTENT_CLUSTER_ID,
    Code.INVALID_REGISTRATION,
)
# The errors of a controller without a registration of this broker.
_UNKNOWN = (Code.STALE_BROKER_EPOCH, Code.BROKER_ID_NOT_REGISTERED)

_SUPERSEDED_EVERY_MS = 60_000


class Stage(Enum):
    """The stages of a broker's life."""

    STARTING = "starting"
    REGISTERED = "registered"
    FENCED = "fenced"
    RUNNING = "running"
    LEAVING = "leaving"
    STOPPED = "stopped"


class LifecycleObserver(Protocol):
    """Carries out the transitions of a broker's life: the node. `Lifecycle` calls it, on the event loop.

    Each method is called once in the life of a process, in this order, and returns effects.
    """

    def broker_registered(self, then: Callable[[int], Effects], now_ms: int) -> Effects:
        """The committed image has the registration: apply the complete image, then every change of it.

        Call `then(now_ms)` once the image is applied. Raises ConfigError for problems that the operator has
        to solve.
        """
        ...

    def broker_unfenced(self, now_ms: int) -> Effects:
        """The broker is unfenced: clients may be served."""
        ...

    def broker_released(self, now_ms: int) -> Effects:
        """The controller has released the broker, or there is none: lead nothing any more, and close."""
        ...


class Lifecycle:
    """One incarnation of this broker.

    image()                      the latest image of this node
    is_cut_off()                 whether too few voters are reachable for any to lead
    foreign_cluster_problem()    an error if the voters belong to another cluster
    observer                     carries out the transitions: registered, unfenced, released
    failed_directories()         the ids of the log directories that have failed
    cordoned_directories()       the ids of those that take no new replicas; None if the cluster's
                                 metadata.version has no cordoned directories
    """

    def __init__(
        self,
        *,
        port: ControllerPort,
        image: Callable[[], ClusterImage],
        is_cut_off: Callable[[], bool],
        foreign_cluster_problem: Callable[[], KafkaError | None],
        registration: Registration,
        config: BrokerConfig,
        observer: LifecycleObserver,
        failed_directories: Callable[[], tuple[Uuid, ...]] = tuple,
        cordoned_directories: Callable[[], tuple[Uuid, ...] | None] = lambda: None,
    ) -> None:
        self.stage = Stage.STARTING
        self.broker_epoch = NO_BROKER_EPOCH
        self._port = port
        self._image = image
        self._is_cut_off = is_cut_off
        self._foreign_cluster_problem = foreign_cluster_problem
        self._registration = registration
        self._config = config
        self._observer = observer
        self._failed_directories = failed_directories
        self._cordoned_directories = cordoned_directories
        # Those that a heartbeat has reported.
        self._reported_failed: tuple[Uuid, ...] = ()
        self._is_reporting = False
        self._started_ms = 0
        self._failures = 0
        self._is_registering = False
        self._is_sending = False
        # The image is applied, and its logs are open.
        self._is_ready = False
        self._is_unfenced = False
        self._answered_ms = 0
        self._warned_of: Code | None = None
        self._superseded_ms: int | None = None  # when the operator was warned last

    @property
    def is_registered(self) -> bool:
        """Whether the image has the registration of this incarnation, so that metadata is applied."""
        return self.stage not in (Stage.STARTING, Stage.REGISTERED)

    # ------------------------------------------------------------------------------ registration

    def start(self, now_ms: int) -> Effects:
        """Register this incarnation as soon as a controller is active."""
        assert self.stage is Stage.STARTING
        self._started_ms = now_ms
        return self.register(now_ms)

    def register(self, now_ms: int) -> Effects:
        """Send the registration; retry after an error. The locks of the directories are held."""
        if self.stage is not Stage.STARTING or self._is_registering:
            return []
        self._is_registering = True
        command = RegisterBroker(registration=self._registration)
        return self._port.ask(command, self._registered, now_ms)

    def _registered(self, outcome: int | KafkaError, now_ms: int) -> Effects:
        self._is_registering = False
        if self.stage is not Stage.STARTING:
            return []  # shut down meanwhile
        if isinstance(outcome, KafkaError):
            return self._register_again(outcome, now_ms)
        self.broker_epoch = outcome
        self.stage = Stage.REGISTERED
        self._failures = 0
        self._answered_ms = now_ms
        return [CancelTimer(key=_REGISTER), *self.on_metadata(now_ms), *self._heartbeat(now_ms)]

    def _register_again(self, problem: KafkaError, now_ms: int) -> Effects:
        foreign = self._foreign_cluster_problem()
        if foreign is not None or problem.code in _FINAL:
            raise refusal_to_join("broker", foreign or problem)
        waited_ms = now_ms - self._started_ms
        if waited_ms >= self._config.initial_broker_registration_timeout_ms:
            raise ConfigError(
                f"this broker could not register within {waited_ms} ms"
                f" (initial.broker.registration.timeout.ms): {with_remedy(problem)}"
            )
        # After a crash the controller first elects leaders for the partitions of the last incarnation.
        is_settling = problem.code is Code.REQUEST_TIMED_OUT
        effects = [] if is_settling else self._warn(problem)
        at_ms = now_ms + self._pause_ms(problem, self._config.broker_session_timeout_ms)
        return [*effects, SetTimer(key=_REGISTER, at_ms=at_ms, then=self.register)]

    def on_metadata(self, now_ms: int) -> Effects:
        """The image has changed: once it has the registration, apply all of it (rel-R4)."""
        image = self._image()
        if self.is_in(image):
            # The epoch in the metadata counts: with that of a wrong response the broker would stay fenced.
            self.broker_epoch = image.brokers[self._registration.broker_id].epoch
            if self.stage is Stage.REGISTERED:
                self.stage = Stage.FENCED
                return self._observer.broker_registered(self._applied, now_ms)
        elif self.stage is Stage.REGISTERED and image.offset >= self.broker_epoch:
            return self._was_not_registered(now_ms)
        return self._serve_once_known(now_ms) if self._is_unfenced else []

    def _was_not_registered(self, now_ms: int) -> Effects:
        """The response was wrong, or another process registered since: register again to find out (I3)."""
        self.stage = Stage.STARTING
        self._started_ms = now_ms
        timer = SetTimer(key=_REGISTER, at_ms=now_ms + _SOON_MS, then=self.register)
        return [CancelTimer(key=_HEARTBEAT), timer]

    def _applied(self, now_ms: int) -> Effects:
        """The image is applied and its logs are open: request to be unfenced."""
        self._is_ready = True
        return self._heartbeat(now_ms)

    # -------------------------------------------------------------------------------- heartbeats

    def _heartbeat(self, now_ms: int) -> Effects:
        """Send a heartbeat; the next one after its response."""
        if self.stage in (Stage.STARTING, Stage.STOPPED) or self._is_sending:
            return []
        self._is_sending = True
        is_ready, is_leaving = self._is_ready, self.stage is Stage.LEAVING
        failed = self._failed_directories()
        heartbeat = Heartbeat(
            self._registration.broker_id,
            self.broker_epoch,
            metadata_offset=self._image().offset,
            want_fence=not is_ready and not is_leaving,
            want_shut_down=is_leaving,
            offline_log_dirs=failed,
            cordoned_log_dirs=self._cordoned_directories(),
        )

        def on_outcome(outcome: HeartbeatAnswer | KafkaError, at_ms: int) -> Effects:
            self._is_sending = False
            if self.stage is Stage.STOPPED:
                return []
            effects = self._heartbeat_answered(outcome, at_ms)
            if not isinstance(outcome, KafkaError):
                self._reported_failed = failed
                if self._failed_directories() != failed:
                    return effects + self._heartbeat(at_ms)
            if (self._is_ready, self.stage is Stage.LEAVING) != (is_ready, is_leaving):
                return effects + self._heartbeat(at_ms)  # the response is to an outdated heartbeat
            return effects

        return self._port.ask(BrokerHeartbeat(heartbeat=heartbeat), on_outcome, now_ms)

    def _heartbeat_answered(self, outcome: HeartbeatAnswer | KafkaError, now_ms: int) -> Effects:
        if isinstance(outcome, KafkaError):
            return self._heartbeat_failed(outcome, now_ms)
        self._failures, self._warned_of, self._answered_ms = 0, None, now_ms
        if self.stage is Stage.LEAVING:
            if outcome.should_shut_down:
                return self._leave(now_ms)
            return [self._timer(now_ms + _LEAVING_INTERVAL_MS)]
        interval_ms = self._config.broker_heartbeat_interval_ms
        timer = self._timer(now_ms + interval_ms)
        if self.stage is Stage.FENCED and self._is_ready:
            if outcome.is_fenced:
                return [self._timer(now_ms + min(_SOON_MS, interval_ms))]
            self._is_unfenced = True
            return [timer, *self._serve_once_known(now_ms)]
        return [timer]

    def _serve_once_known(self, now_ms: int) -> Effects:
        """The controller has unfenced the broker; serve clients once the image, which they see, says so."""
        broker = self._image().brokers.get(self._registration.broker_id)
        if self.stage is not Stage.FENCED or broker is None or broker.fenced:
            return []
        self.stage = Stage.RUNNING
        return self._observer.broker_unfenced(now_ms)

    def _heartbeat_failed(self, problem: KafkaError, now_ms: int) -> Effects:
        """No controller answers, or it does not know this broker: retry, or the operator has to act."""
        if problem.code is Code.STALE_BROKER_EPOCH and self._is_superseded:
            if self.stage is Stage.LEAVING:
                return self._leave(now_ms)  # other brokers lead its partitions already
            # Apache Kafka 4.3.1 stays up, too (tried). Any client can unregister a broker, and no request may
            # stop a process, which may also be one of the controllers.
            interval_ms = self._config.broker_heartbeat_interval_ms
            return [*self._warn_superseded(now_ms), self._timer(now_ms + interval_ms)]
        if self.stage is Stage.LEAVING:
            silent_ms = now_ms - self._answered_ms
            if silent_ms >= self._config.broker_session_timeout_ms:
                return self._leave(now_ms)  # the next active controller has fenced this broker
            if silent_ms >= _CUT_OFF_MS and self._is_cut_off():
                return self._leave(now_ms)  # the last node of a cluster that stops as a whole
            return [self._timer(now_ms + _SOON_MS)]
        if self.stage is Stage.STARTING:
            return []
        if self.stage is Stage.REGISTERED and problem.code in _UNKNOWN:
            return [*self._warn(problem), *self._was_not_registered(now_ms)]
        pause_ms = self._pause_ms(problem, self._config.broker_heartbeat_interval_ms)
        return [*self._warn(problem), self._timer(now_ms + pause_ms)]

    def _warn_superseded(self, now_ms: int) -> Effects:
        """Warn once a minute, because only a restart helps."""
        if self._superseded_ms is not None and now_ms - self._superseded_ms < _SUPERSEDED_EVERY_MS:
            return []
        self._superseded_ms = now_ms
        return [SUPERSEDED(broker=self._registration.broker_id)]

    @property
    def _is_superseded(self) -> bool:
        """Whether the committed image has another process or none. A controller's response may be stale."""
        return self.is_registered and not self.is_in(self._image())

    def is_in(self, image: ClusterImage) -> bool:
        """Whether the broker with this node's id in `image` is this incarnation."""
        broker = image.brokers.get(self._registration.broker_id)
        return broker is not None and broker.incarnation_id == self._registration.incarnation_id

    def _timer(self, at_ms: int) -> SetTimer:
        return SetTimer(key=_HEARTBEAT, at_ms=at_ms, then=self._heartbeat)

    def _pause_ms(self, problem: KafkaError, longest_ms: int) -> int:
        if problem.code is Code.NOT_CONTROLLER:
            return min(_NOBODY_MS, longest_ms)
        self._failures += 1
        return min(longest_ms, _RETRY_MS << min(self._failures - 1, 16))

    def _warn(self, problem: KafkaError) -> Effects:
        """Warn the operator, once for each error, except while a leader is being elected."""
        if problem.code in (self._warned_of, Code.NOT_CONTROLLER):
            return []
        self._warned_of = problem.code
        if problem.code is Code.NETWORK_EXCEPTION:
            return [CONTROLLER_SILENT(reason=problem.why)]
        return [NOT_UNFENCED(error=problem)]

    # ------------------------------------------------------------------------ failed directories

    def on_directory_failed(self, now_ms: int) -> Effects:
        """Report it at once: until the controller knows, no other broker leads the partitions in it. KIP-858.

        After log.dir.failure.timeout.ms without success the node stops, so that the controller fences it.
        """
        if not self.is_registered or self.stage is Stage.STOPPED:
            return []
        at_ms = now_ms + self._config.log_dir_failure_timeout_ms
        timer = SetTimer(key=_UNREPORTED, at_ms=at_ms, then=self._check_unreported)
        effects: Effects = [] if self._is_reporting else [timer]
        self._is_reporting = True
        return effects + self._heartbeat(now_ms)

    def _check_unreported(self, now_ms: int) -> Effects:
        self._is_reporting = False
        if self.stage is Stage.STOPPED or self._reported_failed == self._failed_directories():
            return []
        why = "this broker could not report a failed log directory to the controller"
        raise StorageError(why, waited_ms=self._config.log_dir_failure_timeout_ms)

    # ----------------------------------------------------------------------------------- leaving

    def leave(self, now_ms: int) -> Effects:
        """Hand over leadership, then stop. A broker that never served stops at once."""
        if self.stage in (Stage.LEAVING, Stage.STOPPED):
            return []
        if not self.is_registered:
            return self._leave(now_ms)
        self.stage = Stage.LEAVING
        self._answered_ms = now_ms
        return self._heartbeat(now_ms)

    def _leave(self, now_ms: int) -> Effects:
        self.stage = Stage.STOPPED
        timers = [CancelTimer(key=key) for key in (_REGISTER, _HEARTBEAT, _UNREPORTED)]
        return [*timers, *self._observer.broker_released(now_ms)]


class StorageFailures:
    """Handles a failed disk for the whole node (rel-P9): the log directory goes offline, and the controller
    is informed. The code that finds the failure calls this first.

    lose  reports to the controller that a replica of this broker is lost
    """

    def __init__(
        self,
        storage: Storage,
        hosted: HostedPartitions,
        lifecycle: Lifecycle,
        lose: Callable[[PartitionKey, int], Effects],
    ) -> None:
        self._storage = storage
        self._hosted = hosted
        self._lifecycle = lifecycle
        self._lose = lose

    def partition_failed(self, partition: Partition, now_ms: int) -> Effects:
        """The files of a hosted partition have failed; a damaged replica takes no other with it."""
        if partition.is_damaged and self._storage.leave_out(partition.log):
            name = partition.topic_partition
            warning = PARTITION_NOT_SERVED(**name._asdict(), error=partition.failed_by)
            lost = self._lose((partition.topic_id, name.partition), now_ms)
            return [warning, *partition.release_all(now_ms), *lost]
        before = self._storage.failed_directories
        return self._report(
            before, self._storage.on_failure(self._hosted, partition, now_ms), now_ms
        )

    def disk_failed(self, said: StorageError, now_ms: int) -> Effects:
        """A disk has failed under a log that is not served yet."""
        before = self._storage.failed_directories
        return self._report(before, self._storage.on_refusal(self._hosted, said, now_ms), now_ms)

    def _report(self, before: tuple[Uuid, ...], effects: Effects, now_ms: int) -> Effects:
        if self._storage.failed_directories != before:
            effects += self._lifecycle.on_directory_failed(now_ms)
        return effects
