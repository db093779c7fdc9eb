"""What a follower makes of a long change takes its turns, and others have theirs."""

import pytest

from firnline.metadata.delta import Replay
from firnline.metadata.loader import RECORDS_PER_STEP
from firnline.protocol.schema import Message
from tests.unit.metadata.test_quorum_roles import LOAD, Node, long_log


def test_a_long_change_is_told_in_a_turn_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last records and all that follows from it in the node were one step of 14 ms."""
    node = Node()
    applied = 0
    apply = Replay.apply

    def counted(replay: Replay, record: Message) -> None:
        nonlocal applied
        applied += 1
        apply(replay, record)

    monkeypatch.setattr(Replay, "apply", counted)
    long_log(node, 1, each=RECORDS_PER_STEP // 2)
    node.commit()
    turns = [(applied, len(node.deltas))]
    while LOAD in node.loop.timers:
        applied, heard = 0, len(node.deltas)
        node.loop.fire(LOAD)
        turns.append((applied, len(node.deltas) - heard))
    assert node.value("t7") == "0"
    assert all(records <= RECORDS_PER_STEP for records, _ in turns)
    assert all(not records for records, told in turns if told)


def test_a_node_says_that_it_loads_for_as_long_as_it_does() -> None:
    """Its metrics are not counted anew with each turn of a load, and are once it is over."""
    node = Node()
    long_log(node, 1)
    node.commit()
    assert LOAD in node.loop.timers
    assert node.quorum.is_loading
    while LOAD in node.loop.timers:
        node.loop.fire(LOAD)
    assert not node.quorum.is_loading
