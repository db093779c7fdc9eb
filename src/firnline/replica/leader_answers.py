"""Requests to the leader of one partition about where its log begins and ends. PURE.

A follower whose next records, or earlier leader epochs, only the remote tier has asks these questions.
"""

from collections.abc import Callable

from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.base.replicas import EARLIEST, EpochEnd, LeaderPort, Position


class LeaderAnswers:
    """The questions of one follower, for its position at the time.

    Each `then` gets the answer, or the error, once.
    """

    def __init__(self, port: LeaderPort, leader_id: int, position: Position) -> None:
        self._port = port
        self._leader_id = leader_id
        self._position = position

    def local_start(
        self, then: Callable[[EpochEnd | KafkaError, int], Effects], now_ms: int
    ) -> Effects:
        """Ask for (leader epoch of the first local record, its offset)."""
        return self._port.local_start(self._leader_id, self._position, then, now_ms)

    def last_tiered(
        self, then: Callable[[EpochEnd | KafkaError, int], Effects], now_ms: int
    ) -> Effects:
        """Ask for (its leader epoch, the last offset in the tier)."""
        return self._port.last_tiered(self._leader_id, self._position, then, now_ms)

    def log_start(self, then: Callable[[int | KafkaError, int], Effects], now_ms: int) -> Effects:
        """Ask for the log start offset, the tier included."""
        return self._port.list_offset(self._leader_id, self._position, EARLIEST, then, now_ms)

    def epoch_end(
        self, epoch: int, then: Callable[[EpochEnd | KafkaError, int], Effects], now_ms: int
    ) -> Effects:
        """Ask for (the largest epoch <= `epoch`, its end offset) (T45)."""
        return self._port.epoch_end(self._leader_id, self._position, epoch, then, now_ms)
