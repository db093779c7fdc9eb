"""A broker's life with the controller: register, beat, serve, and leave in order. PURE.

The active controller may be in this process or in another one, may change, and may not be there for a while:
what it did not answer is asked again. A broker registers once in its life as a process; until the image has
that registration, and what it says is open, each heartbeat asks to stay fenced. On the way out the controller
takes away what we lead before the logs are closed. Source: KIP-631, KIP-903; spec 2.1, 2.2, 2.7, I4.
"""

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from firnline.base.effects import CancelTimer, Effects, SetTimer, Warn
from firnline.base.errors import Code, ConfigError, KafkaError, StorageError
from firnline.base.ids import NO_BROKER_EPOCH, Uuid
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
_BEAT = ("broker", "heartbeat")
_UNTOLD = ("broker", "untold failure")
# Kafka's own: after a failure 100 ms, twice as long each time.
_RETRY_MS = 100
# Nobody leads yet: a look is cheap, and the quorum is about to tell.
_NOBODY_MS = 20
# While the controller waits for us to catch up, or we for it to let us go.
_SOON_MS = 50
# So long without a majority of controllers within reach, and nobody will answer a broker that leaves.
_CUT_OFF_MS = 1_000
# A controlled shutdown is a few beats long; nobody waits seconds for each.
_LEAVING_INTERVAL_MS = 10
# What no other attempt changes: the operator has to. All else is asked again, for as long as Kafka does: a
# session of a dead incarnation of ours, a controller that shuts down, or an answer that nobody can mean.
_FINAL = (
    Code.CLUSTER_AUTHORIZATION_FAILED,
    Code.INCONSISTENT_CLUSTER_ID,
    Code.INVALID_REGISTRATION,
)
# What a controller says that has no registration of ours.
_UNKNOWN = (Code.STALE_BROKER_EPOCH, Code.BROKER_ID_NOT_REGISTERED)

_SUPERSEDED = (
    "broker {0} is registered anew by another process, or unregistered: the controllers refuse this one for"
    " good, and it leads nothing and follows nobody until it is started again; if two nodes have"
    " node.id={0}, give one of them an id and log directories of its own"
)
_SUPERSEDED_EVERY_MS = 60_000


class Stage(Enum):
    """How far the node is."""

    STARTING = "starting"
    REGISTERED = "registered"
    FENCED = "fenced"
    RUNNING = "running"
    LEAVING = "leaving"
    STOPPED = "stopped"


class LifecycleObserver(Protocol):
    """Who acts on what the controller says of this broker: the node. `Lifecycle` alone calls it, on the loop.

    Each is called once in the life of a process, in this order; it returns what is to be done.
    """

    def broker_registered(self, then: Callable[[int], Effects], now_ms: int) -> Effects:
        """Our registration is in the committed image: act on metadata from here on, all of it first, and
        run `then(now_ms)` when that is done. It may raise ConfigError for what the operator must mend."""
        ...

    def broker_unfenced(self, now_ms: int) -> Effects:
        """The controller counts us in: clients may be served."""
        ...

    def broker_released(self, now_ms: int) -> Effects:
        """The controller let us go, or there is none to ask: lead nothing any more, and close."""
        ...


class Lifecycle:
    """One incarnation of this broker.

    image()                      what was applied of the metadata here
    is_cut_off()                 too few voters are within reach for anybody to lead
    stranger_problem()           why the voters take this node for none of theirs, if they do
    observer                     is told that we are registered, counted in, and let go
    failed_directories()         the ids of those of our log directories that failed
    cordoned_directories()       of those that take nothing new; None where the cluster knows no such thing
    """

    def __init__(
        self,
        *,
        port: ControllerPort,
        image: Callable[[], ClusterImage],
        is_cut_off: Callable[[], bool],
        stranger_problem: Callable[[], KafkaError | None],
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
        self._stranger_problem = stranger_problem
        self._registration = registration
        self._config = config
        self._observer = observer
        self._failed_directories = failed_directories
        self._cordoned_directories = cordoned_directories
        # Those that the controller was told of.
        self._told_failed: tuple[Uuid, ...] = ()
        self._is_telling = False
        self._started_ms = 0
        self._failures = 0
        self._is_registering = False
        self._is_beating = False
        # What the image gives us is open.
        self._is_ready = False
        self._is_unfenced = False
        self._heard_ms = 0
        self._said: Code | None = None
        self._superseded_ms: int | None = None  # when the operator was told last

    @property
    def is_registered(self) -> bool:
        """Whether metadata is acted on: the image has the registration of this incarnation."""
        return self.stage not in (Stage.STARTING, Stage.REGISTERED)

    # ------------------------------------------------------------------------------ registration

    def start(self, now_ms: int) -> Effects:
        """Tell the controller that a new incarnation is here, as soon as there is one."""
        assert self.stage is Stage.STARTING
        self._started_ms = now_ms
        return self.register(now_ms)

    def register(self, now_ms: int) -> Effects:
        """Ask to be registered; again later when that cannot be. The directories' locks are held."""
        if self.stage is not Stage.STARTING or self._is_registering:
            return []
        self._is_registering = True
        command = RegisterBroker(registration=self._registration)
        return self._port.ask(command, self._registered, now_ms)

    def _registered(self, outcome: int | KafkaError, now_ms: int) -> Effects:
        self._is_registering = False
        if self.stage is not Stage.STARTING:
            return []  # told to stop meanwhile
        if isinstance(outcome, KafkaError):
            return self._register_again(outcome, now_ms)
        self.broker_epoch = outcome
        self.stage = Stage.REGISTERED
        self._failures = 0
        self._heard_ms = now_ms
        return [CancelTimer(key=_REGISTER), *self.on_metadata(now_ms), *self._beat(now_ms)]

    def _register_again(self, problem: KafkaError, now_ms: int) -> Effects:
        stranger = self._stranger_problem()
        if stranger is not None or problem.code in _FINAL:
            raise refusal_to_join("broker", stranger or problem)
        waited_ms = now_ms - self._started_ms
        if waited_ms >= self._config.initial_broker_registration_timeout_ms:
            raise ConfigError(
                f"this broker could not register within {waited_ms} ms"
                f" (initial.broker.registration.timeout.ms): {with_remedy(problem)}"
            )
        # What our last incarnation led is settled first, after every crash.
        is_settling = problem.code is Code.REQUEST_TIMED_OUT
        effects = [] if is_settling else self._say(problem)
        at_ms = now_ms + self._pause_ms(problem, self._config.broker_session_timeout_ms)
        return [*effects, SetTimer(key=_REGISTER, at_ms=at_ms, then=self.register)]

    def on_metadata(self, now_ms: int) -> Effects:
        """The image moved on: once it has our registration, act on all of it (rel-R4)."""
        image = self._image()
        if self.is_in(image):
            # Metadata has the last word: with the epoch of an answer that was wrong nobody would count us in.
            self.broker_epoch = image.brokers[self._registration.broker_id].epoch
            if self.stage is Stage.REGISTERED:
                self.stage = Stage.FENCED
                return self._observer.broker_registered(self._taken, now_ms)
        elif self.stage is Stage.REGISTERED and image.offset >= self.broker_epoch:
            return self._was_not_registered(now_ms)
        return self._serve_once_known(now_ms) if self._is_unfenced else []

    def _was_not_registered(self, now_ms: int) -> Effects:
        """The answer was wrong, or another took our place since: ask again, and hear which (I3)."""
        self.stage = Stage.STARTING
        self._started_ms = now_ms
        timer = SetTimer(key=_REGISTER, at_ms=now_ms + _SOON_MS, then=self.register)
        return [CancelTimer(key=_BEAT), timer]

    def _taken(self, now_ms: int) -> Effects:
        """What the image gives us is open: ask to be counted in."""
        self._is_ready = True
        return self._beat(now_ms)

    # -------------------------------------------------------------------------------- heartbeats

    def _beat(self, now_ms: int) -> Effects:
        """Say that we live; one at a time, the next one when this one is answered."""
        if self.stage in (Stage.STARTING, Stage.STOPPED) or self._is_beating:
            return []
        self._is_beating = True
        is_ready, is_leaving = self._is_ready, self.stage is Stage.LEAVING
        failed = self._failed_directories()
        beat = Heartbeat(
            self._registration.broker_id,
            self.broker_epoch,
            metadata_offset=self._image().offset,
            want_fence=not is_ready and not is_leaving,
            want_shut_down=is_leaving,
            offline_log_dirs=failed,
            cordoned_log_dirs=self._cordoned_directories(),
        )

        def heard(outcome: HeartbeatAnswer | KafkaError, at_ms: int) -> Effects:
            self._is_beating = False
            if self.stage is Stage.STOPPED:
                return []
            effects = self._heard(outcome, at_ms)
            if not isinstance(outcome, KafkaError):
                self._told_failed = failed
                if self._failed_directories() != failed:
                    return effects + self._beat(at_ms)
            if (self._is_ready, self.stage is Stage.LEAVING) != (is_ready, is_leaving):
                return effects + self._beat(at_ms)  # that answer is to another question
            return effects

        return self._port.ask(BrokerHeartbeat(beat=beat), heard, now_ms)

    def _heard(self, outcome: HeartbeatAnswer | KafkaError, now_ms: int) -> Effects:
        if isinstance(outcome, KafkaError):
            return self._not_heard(outcome, now_ms)
        self._failures, self._said, self._heard_ms = 0, None, now_ms
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
        """Counted in by the controller; clients come once the image here says so, for they are told by it."""
        broker = self._image().brokers.get(self._registration.broker_id)
        if self.stage is not Stage.FENCED or broker is None or broker.fenced:
            return []
        self.stage = Stage.RUNNING
        return self._observer.broker_unfenced(now_ms)

    def _not_heard(self, problem: KafkaError, now_ms: int) -> Effects:
        """The controller is away, or does not know us: it will be, or will, or the operator must act."""
        if problem.code is Code.STALE_BROKER_EPOCH and self._is_superseded:
            if self.stage is Stage.LEAVING:
                return self._leave(now_ms)  # what we led is with others
            # Apache Kafka 4.3.1 stays up, too (asked). Whoever reaches a listener may unregister a broker:
            # no request is to end a process, which may be one of the controllers as well.
            interval_ms = self._config.broker_heartbeat_interval_ms
            return [*self._say_superseded(now_ms), self._timer(now_ms + interval_ms)]
        if self.stage is Stage.LEAVING:
            silent_ms = now_ms - self._heard_ms
            if silent_ms >= self._config.broker_session_timeout_ms:
                return self._leave(now_ms)  # whoever decides then has fenced us
            if silent_ms >= _CUT_OFF_MS and self._is_cut_off():
                return self._leave(now_ms)  # the last of a cluster that is stopped as a whole
            return [self._timer(now_ms + _SOON_MS)]
        if self.stage is Stage.STARTING:
            return []
        if self.stage is Stage.REGISTERED and problem.code in _UNKNOWN:
            return [*self._say(problem), *self._was_not_registered(now_ms)]
        pause_ms = self._pause_ms(problem, self._config.broker_heartbeat_interval_ms)
        return [*self._say(problem), self._timer(now_ms + pause_ms)]

    def _say_superseded(self, now_ms: int) -> Effects:
        """Again every minute: nothing but a start mends it."""
        if self._superseded_ms is not None and now_ms - self._superseded_ms < _SUPERSEDED_EVERY_MS:
            return []
        self._superseded_ms = now_ms
        return [Warn(line=_SUPERSEDED.format(self._registration.broker_id))]

    @property
    def _is_superseded(self) -> bool:
        """Whether committed metadata has another in our place, or nobody: a controller's word may be old."""
        return self.is_registered and not self.is_in(self._image())

    def is_in(self, image: ClusterImage) -> bool:
        """Whether the broker that `image` has under our id is this incarnation."""
        broker = image.brokers.get(self._registration.broker_id)
        return broker is not None and broker.incarnation_id == self._registration.incarnation_id

    def _timer(self, at_ms: int) -> SetTimer:
        return SetTimer(key=_BEAT, at_ms=at_ms, then=self._beat)

    def _pause_ms(self, problem: KafkaError, longest_ms: int) -> int:
        if problem.code is Code.NOT_CONTROLLER:
            return min(_NOBODY_MS, longest_ms)
        self._failures += 1
        return min(longest_ms, _RETRY_MS << min(self._failures - 1, 16))

    def _say(self, problem: KafkaError) -> Effects:
        """Tell the operator, once while it stays the same, what is no mere waiting for a leader."""
        if problem.code in (self._said, Code.NOT_CONTROLLER):
            return []
        self._said = problem.code
        if problem.code is Code.NETWORK_EXCEPTION:
            return [Warn(line=f"the active controller does not answer: {problem.why}")]
        return [Warn(line=f"the controller does not count this broker in: {problem}")]

    # ------------------------------------------------------------------------ failed directories

    def on_directory_failed(self, now_ms: int) -> Effects:
        """Say so at once: until the controller knows, nobody else leads what was in it. KIP-858.

        A node that cannot say so for log.dir.failure.timeout.ms is better dead: then it is fenced.
        """
        if not self.is_registered or self.stage is Stage.STOPPED:
            return []
        at_ms = now_ms + self._config.log_dir_failure_timeout_ms
        timer = SetTimer(key=_UNTOLD, at_ms=at_ms, then=self._look_untold)
        effects: Effects = [] if self._is_telling else [timer]
        self._is_telling = True
        return effects + self._beat(now_ms)

    def _look_untold(self, now_ms: int) -> Effects:
        self._is_telling = False
        if self.stage is Stage.STOPPED or self._told_failed == self._failed_directories():
            return []
        why = "the controller could not be told that a log directory failed"
        raise StorageError(why, waited_ms=self._config.log_dir_failure_timeout_ms)

    # ----------------------------------------------------------------------------------- leaving

    def leave(self, now_ms: int) -> Effects:
        """Hand over what we lead, then stop. A node that never served stops at once."""
        if self.stage in (Stage.LEAVING, Stage.STOPPED):
            return []
        if not self.is_registered:
            return self._leave(now_ms)
        self.stage = Stage.LEAVING
        self._heard_ms = now_ms
        return self._beat(now_ms)

    def _leave(self, now_ms: int) -> Effects:
        self.stage = Stage.STOPPED
        timers = [CancelTimer(key=key) for key in (_REGISTER, _BEAT, _UNTOLD)]
        return [*timers, *self._observer.broker_released(now_ms)]


class StorageFailures:
    """What a failed disk means for the whole node (rel-P9): its log directory is offline from then on, and
    the controller is told. Whoever finds the failure calls this, before it does anything else."""

    def __init__(self, storage: Storage, hosted: HostedPartitions, lifecycle: Lifecycle) -> None:
        self._storage = storage
        self._hosted = hosted
        self._lifecycle = lifecycle

    def partition_failed(self, partition: Partition, now_ms: int) -> Effects:
        """Files of a hosted partition failed."""
        before = self._storage.failed_directories
        return self._tell(before, self._storage.on_failure(self._hosted, partition, now_ms), now_ms)

    def disk_failed(self, said: StorageError, now_ms: int) -> Effects:
        """A disk failed under a log that is not served yet."""
        before = self._storage.failed_directories
        return self._tell(before, self._storage.on_refusal(self._hosted, said, now_ms), now_ms)

    def _tell(self, before: tuple[Uuid, ...], effects: Effects, now_ms: int) -> Effects:
        if self._storage.failed_directories != before:
            effects += self._lifecycle.on_directory_failed(now_ms)
        return effects
