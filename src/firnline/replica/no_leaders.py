"""The leaders of a node that is alone: nobody can be reached. PURE."""

from collections.abc import Callable

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.replica.follower import FetchReply, LeaderFetch, LeaderPort, Position
from firnline.replica.tier_start import EpochEnd

_NOBODY = KafkaError(Code.BROKER_NOT_AVAILABLE, "there are no other brokers here")


class _NoLeaders:
    def fetch(
        self,
        leader_id: int,
        ask: LeaderFetch,
        then: Callable[[FetchReply | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        return then(_NOBODY, now_ms)

    def list_offset(
        self,
        leader_id: int,
        position: Position,
        which: int,
        then: Callable[[int | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        return then(_NOBODY, now_ms)

    def local_start(
        self,
        leader_id: int,
        position: Position,
        then: Callable[[EpochEnd | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        return then(_NOBODY, now_ms)

    def epoch_end(
        self,
        leader_id: int,
        position: Position,
        epoch: int,
        then: Callable[[EpochEnd | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        return then(_NOBODY, now_ms)


NO_LEADERS: LeaderPort = _NoLeaders()
