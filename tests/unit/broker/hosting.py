"""Hosted partitions on lists, and an executor of the few effects that the broker's calls have."""

from typing import Any

from firnline.base.effects import CancelTimer, Effects, Flush, SetTimer
from firnline.base.errors import StorageError
from firnline.replica.hosted import HostedPartitions
from firnline.replica.partition import Partition
from tests.unit.replica.list_log import partition

ELSEWHERE = ("elsewhere", 0)
ELSEWHERE_ID = b"\x09" * 16


def hosted(*partitions: Partition, **more: Any) -> HostedPartitions:
    """Host `partitions`; topic "elsewhere" exists on another node."""
    names = {ELSEWHERE_ID: "elsewhere"} | {p.topic_id: p.topic_partition.topic for p in partitions}
    made = HostedPartitions(
        exists=lambda topic, index: (topic, index) == ELSEWHERE, name_of=names.get, **more
    )
    for p in partitions:
        made.add(p)
    return made


class World:
    """Carries effects out by hand: timers and flushes wait until the test lets them go."""

    def __init__(self) -> None:
        self.now_ms = 1000
        self.timers: dict[Any, SetTimer] = {}
        self.flushes: list[Flush] = []
        self.said: list[Any] = []

    def run(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timers[effect.key] = effect
            elif isinstance(effect, CancelTimer):
                del self.timers[effect.key]
            elif isinstance(effect, Flush):
                self.flushes.append(effect)
            else:
                self.said.append(effect)

    def flush(self, error: StorageError | None = None) -> None:
        due, self.flushes = self.flushes, []
        for effect in due:
            self.run(effect.then(error, self.now_ms))

    def pass_time(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        due = [t for t in self.timers.values() if t.at_ms <= self.now_ms]
        for timer in due:
            del self.timers[timer.key]
            self.run(timer.then(self.now_ms))


__all__ = ["ELSEWHERE", "ELSEWHERE_ID", "World", "hosted", "partition"]
