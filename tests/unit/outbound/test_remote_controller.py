"""What a broker sends to the active controller on another node, as effects."""

from typing import Any

from firnline.base.effects import Effects, Peer, Send
from firnline.base.replicas import IsrChange, IsrMember
from firnline.broker.controller_port import (
    AllocateProducerIds,
    AlterPartitions,
    BrokerHeartbeat,
)
from firnline.config.load import load
from firnline.controller.brokers import Heartbeat
from firnline.outbound.remote_controller import RemoteController
from tests.worlds.effects import only
from tests.worlds.harness import SETTINGS


def nothing(outcome: Any, now_ms: int) -> Effects:
    return []


def test_a_heartbeat_never_waits_behind_a_change_of_an_isr() -> None:
    """A controller that takes long over a change would end the session of the leader that asked for it."""
    port = RemoteController(load(SETTINGS), "cluster", lambda: Peer(9, "localhost", 9093))
    heartbeat = Heartbeat(1, 5, metadata_offset=7)
    change = IsrChange(b"t" * 16, 0, 1, 1, (IsrMember(1, 5),))
    changes = AlterPartitions(broker_id=1, broker_epoch=5, changes=[change])
    session_kept = only(port.ask(BrokerHeartbeat(heartbeat=heartbeat), nothing, 0), Send)
    changing = only(port.ask(changes, nothing, 0), Send)
    asked = AllocateProducerIds(broker_id=1, broker_epoch=5)
    numbering = only(port.ask(asked, nothing, 0), Send)
    assert session_kept.channel not in (changing.channel, numbering.channel)
