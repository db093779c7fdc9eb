"""Fetches that wait at a leader: one of each replica, and no more than a bound of those who are no voters."""

from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.raft.leader import OBSERVERS_MAX, OTHERS_MAX
from tests.unit.raft.test_leading import leading
from tests.worlds.raft import Member, directory, fetch, part


def waiting_fetch(leader: Member, replica_id: int, of: int) -> list[Any]:
    """Ask for what follows the end of the log, for as long as it takes; in the directory of node `of`."""
    end = leader.disk.end_offset_for(99)
    request = fetch(
        leader.node.epoch, replica_id, (end.offset, end.epoch), directory_id=directory(of)
    )
    partition = request.topics[0].partitions[0]
    partition.high_watermark = leader.node.high_watermark
    request.max_wait_ms = 2**31 - 1
    return leader.ask(request)


def test_a_replica_that_asks_again_has_one_fetch_that_waits() -> None:
    """It lost its connection: nobody reads the answer to the older one."""
    _, leader = leading()
    older, other = waiting_fetch(leader, 2, 2), waiting_fetch(leader, 3, 3)
    newer = waiting_fetch(leader, 2, 2)
    assert [part(response).error_code for response in older] == [Code.NONE]
    assert (len(other), len(newer), len(leader.node._leader._parked)) == (0, 0, 2)
    leader.propose(b"news")
    assert (len(older), len(other), len(newer)) == (1, 1, 1)


def test_a_broker_that_asks_again_has_one_fetch_that_waits_and_consumers_have_each_their_own() -> (
    None
):
    """Consumers have no ids: one would else be answered whenever another asks, and ask again at once."""
    _, leader = leading()
    older, newer = waiting_fetch(leader, 77, 77), waiting_fetch(leader, 77, 77)
    consumers = [waiting_fetch(leader, -1, 1) for _ in range(3)]
    assert (len(older), len(newer), [len(each) for each in consumers]) == (1, 0, [0, 0, 0])
    leader.propose(b"news")
    assert (len(older), len(newer), [len(each) for each in consumers]) == (1, 1, [1, 1, 1])


@pytest.mark.parametrize("kind", ["ids", "directories", "consumers"])
def test_a_client_that_claims_many_ids_fills_no_memory_and_keeps_no_voter_out(kind: str) -> None:
    _, leader = leading()
    voter, broker = waiting_fetch(leader, 2, 2), waiting_fetch(leader, 77, 77)
    claims = [
        waiting_fetch(leader, {"ids": 100 + n, "directories": 99, "consumers": -1}[kind], n)
        for n in range(1, OTHERS_MAX + 500)
    ]
    duties = leader.node._leader
    assert len(duties._parked) == OTHERS_MAX + 1
    assert len(duties._observers) <= OBSERVERS_MAX
    assert (len(voter), len(broker)) == (0, 1), "who waited longest made room, with an empty answer"
    assert [len(claim) for claim in claims] == [1] * 499 + [0] * (OTHERS_MAX - 0)
    leader.propose(b"news")
    assert len(voter) == 1
