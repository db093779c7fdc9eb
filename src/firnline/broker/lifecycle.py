"""A broker's life with the controller: register, beat, serve, and leave in order. PURE.

The controller is in this process; it is asked as over the wire, and its decisions are written to the
quorum. Until the first heartbeat after registration is answered "not fenced" the node does not serve.
On the way out the controller takes away what we lead before the logs are closed (I24).
Source: KIP-631, KIP-903; spec 2.1, 2.2, 2.7.
"""

from collections.abc import Callable
from enum import Enum

from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.base.errors import Bug, ConfigError, KafkaError
from firnline.controller.brokers import Heartbeat, HeartbeatAnswer, Registration
from firnline.controller.controller import Controller
from firnline.metadata.quorum import MetadataQuorum

_BEAT = ("broker", "heartbeat")
# A controlled shutdown is a few beats long; nobody waits seconds for each.
_LEAVING_INTERVAL_MS = 10
NO_BROKER_EPOCH = -1


class Stage(Enum):
    """How far the node is."""

    STARTING = "starting"
    FENCED = "fenced"
    RUNNING = "running"
    LEAVING = "leaving"
    STOPPED = "stopped"


class Lifecycle:
    """One incarnation of this broker.

    on_registered(then, now_ms)  our registration is in the committed image: act on metadata from here on,
                                 and run `then(now_ms)` when that is done
    on_running(now_ms)           the controller counts us in: clients may be served
    on_left(now_ms)              nothing is led here any more: close
    """

    def __init__(
        self,
        *,
        controller: Controller,
        quorum: MetadataQuorum,
        registration: Registration,
        interval_ms: int,
        on_registered: Callable[[Callable[[int], Effects], int], Effects],
        on_running: Callable[[int], Effects],
        on_left: Callable[[int], Effects],
    ) -> None:
        self.stage = Stage.STARTING
        self.broker_epoch = NO_BROKER_EPOCH
        self._controller = controller
        self._quorum = quorum
        self._registration = registration
        self._interval_ms = interval_ms
        self._on_registered = on_registered
        self._on_running = on_running
        self._on_left = on_left

    @property
    def is_registered(self) -> bool:
        return self.broker_epoch != NO_BROKER_EPOCH

    def register(self, now_ms: int) -> Effects:
        """Tell the controller that a new incarnation is here. The caller holds the directories' locks."""
        assert self.stage is Stage.STARTING
        result = self._controller.register_broker(
            self._registration, now_ms, replaces_dead_incarnation=True
        )
        return self._quorum.write(result, self._registered, now_ms)

    def _registered(self, outcome: int | KafkaError, now_ms: int) -> Effects:
        if isinstance(outcome, KafkaError):
            raise ConfigError(f"this broker cannot join the cluster: {outcome}")
        self.broker_epoch = outcome
        self.stage = Stage.FENCED
        return self._on_registered(self._beat, now_ms)

    def _beat(self, now_ms: int) -> Effects:
        """Say that we live; fence who does not; come again."""
        if self.stage is Stage.STOPPED:
            return []
        timer = SetTimer(key=_BEAT, at_ms=now_ms + self._interval_ms, then=self._beat)
        beat = Heartbeat(
            self._registration.broker_id,
            self.broker_epoch,
            metadata_offset=self._quorum.image.offset,
            want_shut_down=self.stage is Stage.LEAVING,
        )
        heard = self._controller.heartbeat(beat, now_ms)
        effects: Effects = [timer, *self._quorum.write(heard, self._heard, now_ms)]
        stale = self._controller.fence_stale(now_ms)
        return effects + self._quorum.write(stale, _ignored, now_ms)

    def _heard(self, outcome: HeartbeatAnswer | KafkaError, now_ms: int) -> Effects:
        if isinstance(outcome, KafkaError):
            raise Bug("the controller does not know this broker", outcome=outcome)
        if self.stage is Stage.FENCED and not outcome.is_fenced:
            self.stage = Stage.RUNNING
            return self._on_running(now_ms)
        if self.stage is Stage.LEAVING:
            if outcome.should_shut_down:
                return self._leave(now_ms)
            return [SetTimer(key=_BEAT, at_ms=now_ms + _LEAVING_INTERVAL_MS, then=self._beat)]
        return []

    def leave(self, now_ms: int) -> Effects:
        """Hand over what we lead, then stop. A node that never served stops at once."""
        if self.stage in (Stage.LEAVING, Stage.STOPPED):
            return []
        if not self.is_registered:
            return self._leave(now_ms)
        self.stage = Stage.LEAVING
        return self._beat(now_ms)

    def _leave(self, now_ms: int) -> Effects:
        self.stage = Stage.STOPPED
        return [CancelTimer(key=_BEAT), *self._on_left(now_ms)]


def _ignored(outcome: object, now_ms: int) -> Effects:
    return []
