"""A consumer that goes back to the first record again and again, so that it reads the tier. SIM."""

from collections.abc import Callable
from typing import Any

from firnline.base.effects import Effects, SetTimer
from firnline.records.batch import headers
from firnline.sim.cluster.consumer import Consumer
from firnline.sim.cluster.ledger import PartitionKey, name


class RestartingConsumer(Consumer):
    """`Consumer`, and every few seconds one partition is read from its start again.

    complain  rel-T1: hears of records that are missing between two others
    """

    complain: Callable[[str, str], None]
    _at_start: dict[PartitionKey, None]

    def start(self, now_ms: int) -> Effects:
        self._at_start = {}
        return [*super().start(now_ms), self._back_later(now_ms)]

    def _back_later(self, now_ms: int) -> SetTimer:
        assert self.shape.tier is not None
        gap_ms = self.chance.between(1, 2 * self.shape.tier.restart_gap_ms)
        return SetTimer(key="back", at_ms=now_ms + gap_ms, then=self._back)

    def _back(self, now_ms: int) -> Effects:
        if not self.is_on:
            return []
        if self.positions:
            self.read_again(self.chance.pick(list(self.positions)))
        return [self._back_later(now_ms)]

    def read_again(self, key: PartitionKey) -> None:
        """Read the partition from its start."""
        self.positions[key] = 0
        self._epochs.pop(key, None)
        self._at_start[key] = None

    def _take(self, key: PartitionKey, row: Any, leader_epoch: int, now_ms: int) -> Effects:
        position, first = self.positions[key], next(headers(bytes(row.records or b"")), None)
        is_start = key in self._at_start
        if first is not None and not row.error_code:
            self._at_start.pop(key, None)
            if first.base_offset > position and not is_start and not self._is_wary:
                text = f"{name(key)}: asked for {position}, and got {first.base_offset}"
                self.complain("rel-T1", text)
        return super()._take(key, row, leader_epoch, now_ms)
