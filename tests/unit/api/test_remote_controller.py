"""What a broker sends to the active controller on another node, as effects."""

from typing import Any

from firnline.api.remote_controller import RemoteController
from firnline.base.effects import Effects, Peer, Send
from firnline.config.load import load
from firnline.controller.brokers import Heartbeat
from firnline.replica.isr import IsrChange
from tests.worlds.harness import SETTINGS


def nothing(outcome: Any, now_ms: int) -> Effects:
    return []


def test_a_heartbeat_never_waits_behind_a_change_of_an_isr() -> None:
    """A controller that takes long over a change would end the session of the leader that asked for it."""
    port = RemoteController(load(SETTINGS), "cluster", lambda: Peer(9, "localhost", 9093))
    beat = Heartbeat(1, 5, metadata_offset=7)
    change = IsrChange(b"t" * 16, 0, 1, 1, ((1, 5),))
    [beating] = port.heartbeat(beat, nothing, 0)
    [changing] = port.alter_partition([change], broker_id=1, broker_epoch=5, then=nothing, now_ms=0)
    [numbering] = port.allocate_producer_ids(broker_id=1, broker_epoch=5, then=nothing, now_ms=0)
    for each in (beating, changing, numbering):
        assert isinstance(each, Send)
    assert beating.channel not in (changing.channel, numbering.channel)
