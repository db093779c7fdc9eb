"""What a replica is after it was started on the disk of an earlier life (Q15), and what it then may do."""

from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.raft import wire
from firnline.raft.election_state import ElectionState
from firnline.raft.role import Role
from firnline.raft.settings import QuorumSettings
from tests.worlds.raft import Member, Net, alone, part, peers, vote

SAVED_AND_ROLE = [
    # what quorum-state says of epoch 7              role             leader it knows, vote it holds
    (ElectionState(7), Role.UNATTACHED, -1, -1),
    (ElectionState(7, leader_id=1), Role.RESIGNED, -1, -1),
    (ElectionState(7, voted_id=1), Role.CANDIDATE, -1, 1),
    (ElectionState(7, voted_id=2), Role.UNATTACHED, -1, 2),
    (ElectionState(7, leader_id=2), Role.FOLLOWER, 2, -1),
    (ElectionState(7, leader_id=2, voted_id=2), Role.FOLLOWER, 2, 2),
    (ElectionState(7, leader_id=2, voted_id=3), Role.FOLLOWER, 2, 3),
    (ElectionState(7, leader_id=2, voted_id=1), Role.CANDIDATE, -1, 1),
    (ElectionState(7, leader_id=99), Role.UNATTACHED, 99, -1),
]


@pytest.mark.parametrize(("saved", "role", "leader_id", "voted_id"), SAVED_AND_ROLE)
def test_a_restart_resumes_what_was_saved(
    saved: ElectionState, role: Role, leader_id: int, voted_id: int
) -> None:
    """Q15, in the order of Kafka 4.3.1; nothing is written but who it does not follow any more."""
    member = Net()[1]
    member.disk.save(saved)
    member.start()
    assert member.stands == (role, 7, leader_id)
    assert member.node.voted_id == voted_id
    forgets_leader = role is Role.CANDIDATE and saved.leader_id >= 0
    assert member.disk.saved == [saved, *([saved._replace(leader_id=-1)] * forgets_leader)]
    assert member.node.high_watermark is None


@pytest.mark.parametrize(
    ("saved", "role", "leader_id"),
    [
        (ElectionState(7, leader_id=2), Role.FOLLOWER, 2),
        (ElectionState(7, voted_id=2), Role.UNATTACHED, -1),
        (ElectionState(7, leader_id=77), Role.UNATTACHED, 77),
    ],
)
def test_an_observer_resumes_without_a_wish_to_lead(
    saved: ElectionState, role: Role, leader_id: int
) -> None:
    net = Net(observer_ids=[9])
    net[9].disk.save(saved)
    net[9].start()
    assert net[9].stands == (role, 7, leader_id)
    net.run_for(20_000)
    assert net[9].node.epoch == 7
    assert net[9].disk.saved == [saved]


def test_a_lost_quorum_state_does_not_take_the_node_before_its_own_log() -> None:
    """Q15: the log's epoch is newer than the stored one."""
    net = Net().start()
    leader = net.elect()
    follower = net.elsewhere(leader)[0]
    follower.crash()
    net.cut(follower.node_id)
    follower.disk.saved.clear()
    follower.start()
    assert follower.stands == (Role.UNATTACHED, 1, -1)
    assert follower.disk.saved == [ElectionState(1)]


@pytest.mark.parametrize(
    "saved",
    [ElectionState(1, leader_id=2), ElectionState(1, voted_id=1), ElectionState(1, leader_id=1)],
)
def test_a_quorum_state_that_is_older_than_the_log_is_not_gone_back_to(
    saved: ElectionState,
) -> None:
    """Q15: put back from a copy, it names the vote and the leader of an epoch that has ended. A node in it
    would grant votes, and take a leader's place, in epochs that its own log has seen pass."""
    net = Net().start()
    leader = net.elect()
    net.run_for(100)
    leader.crash()
    newer = net.elect()
    net.run_for(2_000)
    epoch = newer.node.epoch
    (follower,) = (m for m in net.elsewhere(newer) if m is not leader)
    assert follower.disk.last_epoch == epoch > 1
    follower.crash()
    net.cut(follower.node_id)
    follower.disk.saved[:] = [saved]
    follower.start()
    assert follower.stands == (Role.UNATTACHED, epoch, -1)
    assert (follower.node.voted_id, follower.disk.saved[-1]) == (-1, ElectionState(epoch))
    (answer,) = follower.ask(vote(1, 3, last=(99, 1), voter_id=follower.node_id))
    assert not part(answer).vote_granted


def test_a_leader_that_restarts_never_gives_one_place_to_two_records() -> None:
    """X1: it lost what it had not synced, and its followers have it. As leader of the same epoch it would
    write something else there; as a follower of itself it would wait for ever."""
    net = Net().start()
    leader = net.elect()
    net.run_for(100)
    leader.holds_flushes = True
    leader.propose(b"only the others have it")
    net.settle()
    assert len(leader.disk.values()) == 2
    leader.crash(power=True)
    assert len(leader.disk.values()) == 1
    leader.holds_flushes = False
    leader.start()
    assert leader.node.role is Role.RESIGNED
    assert leader.disk.saved[-1] == ElectionState(1, leader_id=leader.node_id)
    (answer,) = leader.ask(vote(1, 2, last=(1, 0), voter_id=leader.node_id))
    assert not part(answer).vote_granted
    net.run_for(20_000, until=lambda: bool(net.leaders) and net.agree())
    net.run_for(2_000)
    assert net.leaders[0].node.epoch > 1
    (values,) = {tuple(member.disk.values()) for member in net.members.values()}
    assert (1, 1, b"only the others have it") in values
    places = [(offset, epoch) for offset, epoch, _ in values]
    assert len(set(places)) == len(places)


def test_all_nodes_killed_at_once_lose_nothing_that_was_committed() -> None:
    """rel-Q16, X17."""
    net = Net(range(1, 6), seed=4).start()
    leader = net.elect()
    place = leader.propose(b"kept")
    net.settle()
    assert leader.node.high_watermark == place.last_offset + 1
    for member in net.members.values():
        member.crash(power=True)
    for member in net.members.values():
        member.start()
    again = net.elect()
    assert (place.base_offset, 1, b"kept") in again.disk.values()


def test_a_candidate_that_restarts_asks_again_in_its_epoch() -> None:
    net = Net()
    net[1].disk.save(ElectionState(7, voted_id=1))
    net[2].start()
    net[1].start()
    net.settle()
    assert net[1].stands == (Role.LEADER, 7, 1)
    assert net[2].disk.saved[-1] == ElectionState(7, leader_id=1, voted_id=1)


def test_a_candidate_claims_nothing_that_its_disk_may_lose() -> None:
    """It got a vote for a log whose end was not synced. After a power cut it is a candidate of the same
    epoch, gets that vote again, and would lead without what was committed."""
    net = Net(settings=QuorumSettings(retry_backoff_ms=500)).start()
    leader = net.elect(1)
    leader.holds_flushes = True
    leader.propose(b"committed by the two others")
    net.run_for(600)
    assert net[2].node.high_watermark == 2
    assert leader.disk.synced_offset == 1
    net.cut(3)
    leader.fire("contacts")
    net.flights.clear()
    leader.fire("election")
    assert leader.node.role is Role.PROSPECTIVE
    leader.run(net.find("VoteRequest", 1, 2).send.then(grant(leader), net.now_ms))
    assert leader.node.role is Role.CANDIDATE
    asked = [f for f in net.flights if not part(f.request).pre_vote]
    assert asked == [], "nothing is asked before the disk has what is claimed"
    leader.crash(power=True)
    assert leader.disk.end_offset == 1
    leader.start()
    leader.sync()
    net.run_for(0)
    for flight in net.flights:
        assert part(flight.request).last_offset == 1
    assert leader.node.role is Role.CANDIDATE
    net.heal()
    net.run_for(30_000, until=lambda: bool(net.leaders) and net.agree())
    assert (1, 1, b"committed by the two others") in net.leaders[0].disk.values()


def grant(member: Member) -> Any:
    """A voter says yes."""
    return wire.vote_response(Code.NONE, wire.LeaderAndEpoch(member.node.epoch), is_granted=True)


def test_a_follower_that_restarts_learns_first_of_its_leader_then_of_commits() -> None:
    net = Net().start()
    leader = net.elect()
    leader.propose(b"a")
    net.run_for(100)
    follower = net.elsewhere(leader)[0]
    follower.crash()
    follower.start()
    net.run_for(100)
    assert follower.listener.received == [f"leader {leader.node_id} of 1", "committed 2"]


def test_a_start_alone_sends_nothing_but_fetches() -> None:
    """Who leads is asked before anybody is disturbed by an election."""
    net, _ = alone()
    assert [f.name for f in net.flights] == ["FetchRequest"]


def test_an_observer_finds_a_leader_that_is_back_and_is_no_bootstrap_server() -> None:
    """The others say only that the same one leads: it would ask them for as long as that is so."""
    net = Net(observer_ids=[9]).start()
    leader = net.elect()
    other = next(n for n in (1, 2, 3) if n != leader.node_id)
    net[9].crash()
    net[9].options = {"bootstrap": peers(net)[other - 1 : other]}
    net[9].start()
    net.run_for(1_000)
    net.cuts = {(9, leader.node_id), (leader.node_id, 9)}
    net.run_for(5_000)
    net.heal()
    behind = net[9].node.log.end_offset
    leader.propose(b"later")
    net.run_for(5_000)
    assert net[9].stands == (Role.FOLLOWER, leader.node.epoch, leader.node_id)
    assert net[9].node.log.end_offset > behind
