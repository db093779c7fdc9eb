"""Hosted partitions on lists, and a world for the few effects that the broker's calls have."""

from typing import Any

from firnline.base.effects import (
    CloseConnection,
    Effect,
    Reply,
)
from firnline.replica.hosted import HostedPartitions
from firnline.replica.partition import Partition
from tests.worlds.effects import World
from tests.worlds.list_log import partition

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


class Calls(World):
    """What the broker's calls have done: timers and flushes wait until the test lets them go; what is for a
    client, or of the test, is kept in `said`."""

    holds_flushes = True

    def __init__(self) -> None:
        super().__init__(1000)
        self.said: list[Any] = []

    def on_reply(self, effect: Reply) -> None:
        self.said.append(effect)

    def on_close(self, effect: CloseConnection) -> None:
        self.said.append(effect)

    def on_other(self, effect: Effect) -> None:
        self.said.append(effect)


__all__ = ["ELSEWHERE", "ELSEWHERE_ID", "Calls", "hosted", "partition"]
