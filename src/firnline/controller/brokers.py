"""Broker lifecycle at the controller: registration, heartbeats, fencing and controlled shutdown. PURE.

A broker registers and is FENCED, with the offset of its registration record as broker epoch. Once its
heartbeat shows that it has applied that record, it is UNFENCED and may lead. A broker that wants to stop goes
into CONTROLLED_SHUTDOWN while it leads partitions: it leaves every ISR and leads no more. Once all active
brokers have seen that, it gets SHUTDOWN_NOW. A broker without heartbeats for a session timeout is fenced. A
new incarnation replaces the registration of a dead one and never that of a live one.

Decisions are records on the newest image. The sessions are only in memory: a new controller begins every
session anew (I7). What a change means for the broker's partitions is in `sweeps`. Source: KIP-631, KIP-903;
spec I1-I7, I25, I26, I34.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from immutables import Map

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import RESERVED_DIRECTORIES, Uuid
from firnline.config.broker import BrokerConfig
from firnline.controller.ids import epoch_problem
from firnline.controller.partition_change import (
    PartitionChanges,
    Target,
)
from firnline.controller.sweeps import Newest, Sweeps, concerned
from firnline.metadata import records as r
from firnline.metadata.features import CONTROLLER_REGISTRATION_SINCE, CORDONED_SINCE
from firnline.metadata.image import (
    METADATA_VERSION,
    BrokerImage,
    ClusterImage,
    ControllerImage,
    Endpoint,
    FeatureRange,
)
from firnline.metadata.result import ControllerResult
from firnline.metadata.snapshot_records import (
    register_broker_record,
    register_controller_record,
)
from firnline.protocol.schema import Message

# PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL.
_SECURITY_PROTOCOLS = range(4)
# The newest incarnations of one broker that are remembered.
_INCARNATIONS_KEPT = 16


class Registration(NamedTuple):
    """The registration request of a starting broker."""

    broker_id: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Map[str, FeatureRange]
    rack: str | None
    log_dirs: tuple[Uuid, ...]


class Heartbeat(NamedTuple):
    """The periodic heartbeat of a broker. `metadata_offset` is the last offset it has applied."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None  # None: not in the request


class HeartbeatAnswer(NamedTuple):
    """The state that the controller decided for the broker."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


class State(Enum):
    """The state of a registered broker. See the module docstring."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled-shutdown"
    SHUTDOWN_NOW = "shutdown-now"


class Brokers:
    """Registrations and sessions. Times are milliseconds of the monotonic clock.

    All of it is only in memory and belongs to one leadership of the quorum: a new one begins anew (I7).

    _contact_ms         when each broker's session was last renewed. A broker without an entry has no session:
                        its next incarnation waits for nothing
    _waits_for          by broker: the metadata end offset at which the answer to its last heartbeat goes out.
                        Until then it is not silent, because it sends no heartbeat before the answer
    _metadata_offsets   the last offset that each broker has applied, as its last heartbeat said
    _shutdown_offsets   by broker in controlled shutdown: the end offset of the records that took all its
                        leaderships. It stops once every active broker has applied them (X28)
    _incarnations       by broker: the incarnations that tried to register, and whether a later one has
                        registered since. A late request of such a one must not replace the live one (I34)
    """

    def __init__(self, config: BrokerConfig, newest: Callable[[], Newest]) -> None:
        self._config = config
        self._newest = newest
        self._sweeps = Sweeps(config, newest)
        self._contact_ms: dict[int, int] = {}
        self._waits_for: dict[int, int] = {}
        self._metadata_offsets: dict[int, int] = {}
        self._shutdown_offsets: dict[int, int] = {}
        self._incarnations: dict[int, dict[Uuid, bool]] = {}

    def activate(self, image: ClusterImage, now_ms: int) -> None:
        """Become active: every broker's session begins now, except after a controlled shutdown (I7)."""
        there = [each for each in sorted(image.brokers) if not _has_left(image.brokers[each])]
        self._contact_ms = dict.fromkeys(there, now_ms)
        self._sweeps.begin_anew()

    def deactivate(self) -> None:
        """Stop being active: forget all that belongs to this leadership (I7)."""
        self._waits_for = {}
        self._metadata_offsets = {}
        self._shutdown_offsets = {}
        self._incarnations = {}
        self._sweeps.stop()

    @property
    def is_sweeping(self) -> bool:
        """Whether `sweep` has work left: partitions of brokers that came or went."""
        return self._sweeps.is_busy

    def sweep(self) -> ControllerResult[bool]:
        """Do a part of that work; the answer: whether more is left."""
        records = self._sweeps.part()
        return ControllerResult(records, self._sweeps.is_busy, is_atomic=False)

    # ---------------------------------------------------------------------------- registration

    def register(
        self,
        image: ClusterImage,
        next_offset: int,
        wanted: Registration,
        now_ms: int,
        *,
        replaces_dead_incarnation: bool,
    ) -> ControllerResult[int | KafkaError]:
        """Register a broker, fenced; the answer is its broker epoch, the offset of its record (I1).

        replaces_dead_incarnation  the caller holds the lock of the log directory, so the registered
                                   incarnation is dead even if its session has not expired (I34)
        """
        problem = self._registration_problem(image, wanted, now_ms, replaces_dead_incarnation)
        if problem is not None:
            return ControllerResult([], problem)
        existing = image.brokers.get(wanted.broker_id)
        if existing is not None and existing.incarnation_id == wanted.incarnation_id:
            # A retry, because the answer to its first request was lost: nothing changes (I3).
            self._contact_ms[wanted.broker_id] = now_ms
            return ControllerResult([], existing.epoch)
        records: list[Message] = []
        if existing is not None and (not existing.fenced or self._sweeps.leaves(wanted.broker_id)):
            # The partitions of the dead incarnation get a new leader epoch before anyone leads them again.
            # It may have lost an unsynced tail: otherwise two records could have one offset and epoch.
            if self._sweeps.is_much(wanted.broker_id):
                self._note_incarnation(wanted)
                return self._fence_first(existing)
            records += self._without_broker(image, wanted.broker_id)
        self._sweeps.forget(wanted.broker_id)
        epoch = next_offset + len(records)
        assert existing is None or epoch > existing.epoch, "broker epochs grow (I1, rel-R3)"
        broker = BrokerImage(
            broker_id=wanted.broker_id,
            epoch=epoch,
            incarnation_id=wanted.incarnation_id,
            endpoints=wanted.endpoints,
            features=wanted.features,
            rack=wanted.rack,
            fenced=True,
            in_controlled_shutdown=False,
            log_dirs=wanted.log_dirs,
        )
        record = register_broker_record(broker)
        if image.metadata_version >= CORDONED_SINCE:
            record.cordoned_log_dirs = ()
        records.append(record)
        self._contact_ms[wanted.broker_id] = now_ms
        self._waits_for[wanted.broker_id] = epoch + 1
        self._shutdown_offsets.pop(wanted.broker_id, None)
        self._metadata_offsets.pop(wanted.broker_id, None)
        self._replace_earlier_incarnations(wanted, existing)
        return ControllerResult(records, epoch, is_atomic=False)

    def _note_incarnation(self, wanted: Registration) -> None:
        asked = self._incarnations.setdefault(wanted.broker_id, {})
        asked.setdefault(wanted.incarnation_id, False)
        if len(asked) > _INCARNATIONS_KEPT:
            del asked[next(iter(asked))]

    def _replace_earlier_incarnations(
        self, wanted: Registration, existing: BrokerImage | None
    ) -> None:
        """Mark all earlier incarnations as replaced: a late request of theirs must fail."""
        asked = self._incarnations.pop(wanted.broker_id, {})
        asked.pop(wanted.incarnation_id, None)
        if existing is not None:
            asked[existing.incarnation_id] = True
        self._incarnations[wanted.broker_id] = dict.fromkeys(
            list(asked)[-_INCARNATIONS_KEPT:], True
        )

    def _fence_first(self, existing: BrokerImage) -> ControllerResult[int | KafkaError]:
        """Fence a dead incarnation with too many partitions for one part; the new one retries later."""
        records: list[Message] = []
        if not existing.fenced:
            records = self._transition(existing, _state_of(existing), State.FENCED)
        why = "the partitions of this broker's last incarnation are still getting other leaders"
        return ControllerResult(records, KafkaError(Code.REQUEST_TIMED_OUT, why), is_atomic=False)

    def _registration_problem(
        self, image: ClusterImage, wanted: Registration, now_ms: int, replaces: bool
    ) -> KafkaError | None:
        """The reason to refuse a registration, or None. A live incarnation keeps its registration.

        A late request of a dead incarnation must not replace the live one, whose heartbeats would fail then.
        It may even arrive after the session of the live one has expired: `_incarnations` knows it.
        """
        problem = _identity_problem(wanted.broker_id, wanted.endpoints)
        if problem is not None:
            return problem
        existing = image.brokers.get(wanted.broker_id)
        if existing is not None and existing.incarnation_id != wanted.incarnation_id:
            if self._incarnations.get(wanted.broker_id, {}).get(wanted.incarnation_id):
                why = f"a later incarnation of broker {wanted.broker_id} is registered"
                return KafkaError(Code.DUPLICATE_BROKER_REGISTRATION, why)
            if not replaces and self._is_alive(wanted.broker_id, now_ms):
                self._note_incarnation(wanted)
                why = f"another broker {wanted.broker_id} is registered and alive"
                return KafkaError(Code.DUPLICATE_BROKER_REGISTRATION, why)
        return _directory_problem(image.brokers, wanted) or _feature_problem(
            image.features, wanted.features
        )

    def register_controller(
        self, image: ClusterImage, controller: ControllerImage
    ) -> ControllerResult[KafkaError | None]:
        """Record the endpoints of a controller, if the metadata.version has a record for them."""
        problem = _identity_problem(controller.controller_id, controller.endpoints)
        if problem is not None:
            return ControllerResult([], problem)
        known = image.controllers.get(controller.controller_id)
        if image.metadata_version < CONTROLLER_REGISTRATION_SINCE or known == controller:
            return ControllerResult([], None)
        return ControllerResult([register_controller_record(controller)], None)

    def unregister(
        self, image: ClusterImage, broker_id: int
    ) -> ControllerResult[KafkaError | None]:
        """Remove the registration of a broker that will not come back."""
        broker = image.brokers.get(broker_id)
        if broker is None:
            why = f"no broker {broker_id} is registered"
            return ControllerResult([], KafkaError(Code.BROKER_ID_NOT_REGISTERED, why))
        records: list[Message] = self._without_broker(image, broker_id)
        records.append(r.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
        self._contact_ms.pop(broker_id, None)
        self._waits_for.pop(broker_id, None)
        self._incarnations.pop(broker_id, None)
        self._sweeps.forget(broker_id)
        return ControllerResult(records, None, is_atomic=False)

    # ---------------------------------------------------------------------------- sessions

    def heartbeat(
        self, image: ClusterImage, next_offset: int, heartbeat: Heartbeat, now_ms: int
    ) -> ControllerResult[HeartbeatAnswer | KafkaError]:
        """Renew the session, and move the broker to the state that it wants and may have."""
        problem = epoch_problem(
            image, broker_id=heartbeat.broker_id, broker_epoch=heartbeat.broker_epoch
        )
        if problem is not None:
            why = problem.why
            return ControllerResult([], KafkaError(Code.STALE_BROKER_EPOCH, why))
        broker = image.brokers[heartbeat.broker_id]
        self._contact_ms[heartbeat.broker_id] = now_ms
        self._metadata_offsets[heartbeat.broker_id] = heartbeat.metadata_offset
        state = _state_of(broker)
        if state is State.CONTROLLED_SHUTDOWN and not self._sweeps.leaves(heartbeat.broker_id):
            # The shutdown began under another controller, which kept its offset in memory, or it took
            # several parts. The present end is late enough: a broker that has applied less might still
            # follow the one that stops (X28).
            self._shutdown_offsets.setdefault(heartbeat.broker_id, next_offset)
        wanted = self._next_state(image, broker, heartbeat)
        records = self._transition(broker, state, wanted)
        if not records:
            # Each heartbeat repeats the directories, so a change of state can go first, alone.
            records = self._directories_changed(image, broker, heartbeat)
        if wanted is State.CONTROLLED_SHUTDOWN and state is State.UNFENCED:
            self._shutdown_offsets.pop(heartbeat.broker_id, None)
            if not self._sweeps.leaves(heartbeat.broker_id):
                self._shutdown_offsets[heartbeat.broker_id] = next_offset + len(records)
        self._waits_for[heartbeat.broker_id] = next_offset + len(records)
        if wanted is State.SHUTDOWN_NOW:
            # The next incarnation need not wait for this one.
            self._contact_ms.pop(heartbeat.broker_id)
            self._waits_for.pop(heartbeat.broker_id)
        answer = HeartbeatAnswer(
            is_caught_up=heartbeat.metadata_offset >= broker.epoch,
            is_fenced=wanted in (State.FENCED, State.SHUTDOWN_NOW),
            should_shut_down=wanted is State.SHUTDOWN_NOW,
        )
        return ControllerResult(records, answer, is_atomic=False)

    def fence_stale(
        self, image: ClusterImage, committed_end: int, now_ms: int
    ) -> ControllerResult[int | None]:
        """Fence the broker whose heartbeats are missing the longest, if its session expired (I6).

        The answer is its id; None while a sweep for an earlier broker runs. A broker that waits for an answer
        of this controller, behind slow writes, is not silent: it sends no heartbeat before the answer.
        """
        for node_id, end in self._waits_for.items():
            if end > committed_end and node_id in self._contact_ms:
                self._contact_ms[node_id] = now_ms
        if self._sweeps.is_busy:
            return ControllerResult([], None)
        waiting = sorted(
            (self._contact_ms.setdefault(node_id, now_ms), node_id)
            for node_id in sorted(image.brokers)
            if not image.brokers[node_id].fenced
        )
        if not waiting or self._is_alive(waiting[0][1], now_ms):
            return ControllerResult([], None)
        broker = image.brokers[waiting[0][1]]
        records = self._transition(broker, _state_of(broker), State.FENCED)
        return ControllerResult(records, broker.broker_id, is_atomic=False)

    def _is_alive(self, broker_id: int, now_ms: int) -> bool:
        contact_ms = self._contact_ms.get(broker_id)
        return (
            contact_ms is not None and now_ms - contact_ms < self._config.broker_session_timeout_ms
        )

    def _next_state(self, image: ClusterImage, broker: BrokerImage, heartbeat: Heartbeat) -> State:
        state = _state_of(broker)
        if state is State.FENCED:
            if heartbeat.want_shut_down:
                return State.SHUTDOWN_NOW
            may_serve = not heartbeat.want_fence and heartbeat.metadata_offset >= broker.epoch
            return State.UNFENCED if may_serve else State.FENCED
        if state is State.UNFENCED:
            if heartbeat.want_fence:
                return State.SHUTDOWN_NOW if heartbeat.want_shut_down else State.FENCED
            if not heartbeat.want_shut_down:
                return State.UNFENCED
            leads = self._newest().lookup.leads_any(broker.broker_id)
            return State.CONTROLLED_SHUTDOWN if leads else State.SHUTDOWN_NOW
        assert state is State.CONTROLLED_SHUTDOWN, "SHUTDOWN_NOW is an answer, and no state"
        is_known = (
            not self._newest().lookup.leads_any(broker.broker_id)
            and not self._sweeps.leaves(broker.broker_id)
            and self._has_everybody_seen(image, broker)
        )
        return State.SHUTDOWN_NOW if is_known else State.CONTROLLED_SHUTDOWN

    def _has_everybody_seen(self, image: ClusterImage, broker: BrokerImage) -> bool:
        """Whether all active brokers know that this one leads no partitions."""
        end_offset = self._shutdown_offsets[broker.broker_id]
        return all(
            self._metadata_offsets.get(node_id, -1) >= end_offset - 1
            for node_id in sorted(image.brokers)
            if image.brokers[node_id].is_active
        )

    # ---------------------------------------------------------------------------- consequences

    def _transition(self, broker: BrokerImage, state: State, wanted: State) -> list[Message]:
        if wanted is state:
            return []
        change = r.BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch
        )
        if wanted is State.SHUTDOWN_NOW and not broker.in_controlled_shutdown:
            # Recorded, so that the next controller knows of the shutdown and begins no session for it.
            change.in_controlled_shutdown = 1
        if state is State.FENCED and wanted is State.SHUTDOWN_NOW:
            return [change] if change.in_controlled_shutdown else []
        if wanted is State.UNFENCED:
            change.fenced = -1
            self._sweeps.gain(broker.broker_id)
            # A broker fenced during its controlled shutdown continues that when unfenced.
            after = broker._replace(fenced=False)
        else:
            if wanted is State.CONTROLLED_SHUTDOWN:
                change.in_controlled_shutdown = 1
                after = broker._replace(in_controlled_shutdown=True)
            else:
                change.fenced = 1
                after = broker._replace(fenced=True)
            self._sweeps.lose(broker.broker_id)
        return [change, *self._sweeps.part([after])]

    def _without_broker(self, image: ClusterImage, lost: int) -> list[Message]:
        """Remove a broker from every ISR and every leadership (I25)."""

        def is_active(node_id: int) -> bool:
            broker = image.brokers.get(node_id)
            return node_id != lost and broker is not None and broker.is_active

        changes = PartitionChanges(image, self._config, is_active)
        for topic_id in self._newest().lookup.topics_of(lost):
            topic = image.topics_by_id[topic_id]
            for number in concerned(topic, lost):
                isr = topic.partitions[number].isr
                rest = tuple(node_id for node_id in isr if node_id != lost)
                election = changes.election_of(topic.name)
                changes.change(topic_id, number, Target(isr=rest), election)
        return changes.records

    def _directories_changed(
        self, image: ClusterImage, broker: BrokerImage, heartbeat: Heartbeat
    ) -> list[Message]:
        """Record failed directories, with new leaders, and cordoned directories.

        A failed directory is recorded first: no replica in it is elected after that. Its partitions follow
        in parts. Source: KIP-858 (a failed directory), KIP-1066 (a cordoned one).
        """
        change = r.BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch
        )
        left = tuple(each for each in broker.log_dirs if each not in heartbeat.offline_log_dirs)
        if left and left != broker.log_dirs:  # a broker without directories shuts down
            change.log_dirs = left
            broker = broker._replace(log_dirs=left)
        cordoned = heartbeat.cordoned_log_dirs
        is_known = image.metadata_version >= CORDONED_SINCE
        if cordoned is not None and is_known and cordoned != broker.cordoned_log_dirs:
            change.cordoned_log_dirs = cordoned
        is_changed = bool(change.log_dirs) or change.cordoned_log_dirs is not None
        records: list[Message] = [change] if is_changed else []
        failed = frozenset(
            each for each in heartbeat.offline_log_dirs if not broker.has_online(each)
        )
        if broker.log_dirs and self._sweeps.lose_directories(broker.broker_id, failed):
            records += self._sweeps.part([broker])
        return records


def _state_of(broker: BrokerImage) -> State:
    if broker.fenced:
        return State.FENCED
    return State.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else State.UNFENCED


def _has_left(broker: BrokerImage) -> bool:
    """Whether it completed a controlled shutdown: its next incarnation waits for no session."""
    return broker.fenced and broker.in_controlled_shutdown


def _identity_problem(node_id: int, endpoints: Iterable[Endpoint]) -> KafkaError | None:
    """The reason why a node's id or listeners are invalid, or None.

    Apache Kafka 4.3.1 accepts negative ids, although -1 means "no broker" everywhere else. Its controller
    resigns over an unknown security protocol (tried out).
    """
    if node_id < 0:
        return KafkaError(Code.INVALID_REGISTRATION, f"node id {node_id} is negative")
    unknown = [each for each in endpoints if each.security_protocol not in _SECURITY_PROTOCOLS]
    if unknown:
        why = f"unknown security protocol {unknown[0].security_protocol} of a listener"
        return KafkaError(Code.INVALID_REGISTRATION, why)
    return None


def _directory_problem(
    brokers: Mapping[int, BrokerImage], wanted: Registration
) -> KafkaError | None:
    """I2: a log directory belongs to one broker, and every broker has one."""
    if not wanted.log_dirs:
        return KafkaError(Code.INVALID_REGISTRATION, "the broker has no log directory")
    if len(dict.fromkeys(wanted.log_dirs)) != len(wanted.log_dirs):
        return KafkaError(Code.INVALID_REGISTRATION, "a log directory occurs twice")
    for directory in wanted.log_dirs:
        if int.from_bytes(directory, "big") < RESERVED_DIRECTORIES:
            return KafkaError(Code.INVALID_REGISTRATION, "a log directory has a reserved id")
        owner = _owner(brokers.values(), directory)
        if owner not in (None, wanted.broker_id):
            why = f"a log directory belongs to broker {owner}"
            return KafkaError(Code.INVALID_REGISTRATION, why)
    return None


def _owner(brokers: Iterable[BrokerImage], directory: Uuid) -> int | None:
    return next((b.broker_id for b in brokers if directory in b.log_dirs), None)


def _feature_problem(
    finalised: Mapping[str, int], features: Mapping[str, FeatureRange]
) -> KafkaError | None:
    """I33: a broker must support every finalized feature level, and say so."""
    if METADATA_VERSION not in features:
        why = f"the broker does not name its supported levels of {METADATA_VERSION}"
        return KafkaError(Code.INVALID_REGISTRATION, why)
    for name in sorted(finalised):
        levels = features.get(name, FeatureRange(0, 0))
        if not levels.lowest <= finalised[name] <= levels.highest:
            why = (
                f"the cluster uses {name} {finalised[name]}; the broker supports"
                f" {levels.lowest} to {levels.highest}"
            )
            return KafkaError(Code.UNSUPPORTED_VERSION, why)
    return None
