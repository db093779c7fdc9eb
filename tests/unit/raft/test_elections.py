"""Votes, pre-votes, epochs and leaders: what a vote may cost, and what may not cost a leader its place."""

from typing import Any

import pytest

from firnline.base.effects import Peer, Unanswered
from firnline.base.errors import Code
from firnline.base.ids import ZERO_UUID, OffsetAndEpoch
from firnline.raft import wire
from firnline.raft.election import Ballot
from firnline.raft.election_state import ElectionState
from firnline.raft.role import Role
from firnline.raft.settings import QuorumSettings
from tests.worlds.raft import (
    START_MS,
    Member,
    Net,
    alone,
    begin,
    directory,
    end,
    part,
    vote,
)


def granted(member: Member, request: Any, version: int | None = None) -> bool:
    """Ask for a vote; the answer came at once, without error."""
    (answer,) = member.ask(request, version)
    assert part(answer).error_code == Code.NONE
    return bool(part(answer).vote_granted)


def refusal(member: Member, request: Any) -> int:
    """Why a request was refused, at whatever level."""
    (answer,) = member.ask(request)
    return int(answer.error_code or part(answer).error_code)


# ------------------------------------------------------------------------------------- whole elections


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("voters", [2, 3, 5])
def test_voters_agree_on_one_leader(voters: int, seed: int) -> None:
    net = Net(range(1, voters + 1), observer_ids=[9], seed=seed).start()
    leader = net.elect()
    for member in net.members.values():
        assert member.node.leader_id == leader.node_id
        assert member.node.epoch == leader.node.epoch
        assert member.disk.values() == [(0, leader.node.epoch, b"control")]
    assert leader.listener.received == ["committed 1", f"leads {leader.node.epoch}"]


def test_every_epoch_has_one_leader_however_often_leaders_fall() -> None:
    net = Net(range(1, 6)).start()
    led: dict[int, int] = {}
    for _ in range(4):
        leader = net.elect()
        assert leader.node.epoch not in led
        led[leader.node.epoch] = leader.node_id
        leader.crash()
        net.run_for(10_000, until=lambda gone=leader: net.leaders and net.agree())  # type: ignore[arg-type, misc]
        leader.start()
    assert sorted(led) == list(led)


def test_a_crashed_leader_is_followed_soon() -> None:
    """Fetch timeout and election together: below two fetch timeouts."""
    net = Net().start()
    net.elect().crash()
    before_ms = net.now_ms
    net.run_for(10_000, until=lambda: bool(net.leaders) and net.agree())
    assert net.now_ms - before_ms < 4_000


# -------------------------------------------------------------------------------- the vote is durable


def test_a_vote_is_on_disk_before_its_answer_leaves() -> None:
    """rel-Q2: whoever counted the vote must find it again after a power cut."""
    _, member = alone()
    member.disk.holds_saves = True
    answers = member.ask(vote(3))
    assert (answers, member.disk.saved) == ([], [])
    member.end_save()
    assert part(answers[0]).vote_granted
    assert member.disk.saved == [ElectionState(3, voted_id=2)]


def test_a_new_epoch_is_on_disk_before_the_refusal_that_says_so_leaves() -> None:
    """X4: the vote is refused, its epoch is believed; both nodes would else forget it."""
    _, member = alone()
    member.disk.snapshots[OffsetAndEpoch(50, 5)] = (b"!", 1)
    member.disk.holds_saves = True
    answers = member.ask(vote(9, last=(0, 0)))
    assert (answers, member.disk.saved) == ([], [])
    member.end_save()
    assert not part(answers[0]).vote_granted
    assert part(answers[0]).leader_epoch == 9
    assert member.disk.saved == [ElectionState(9)]


def test_a_node_votes_once_an_epoch_also_after_a_power_cut() -> None:
    """rel-Q2."""
    _, member = alone()
    assert granted(member, vote(3, 2))
    assert not granted(member, vote(3, 3))
    member.crash()
    member.start()
    assert not granted(member, vote(3, 3))
    assert granted(member, vote(3, 2))
    assert granted(member, vote(4, 3))


def test_a_vote_for_a_directory_is_not_one_for_the_next_disk_of_that_node() -> None:
    """KIP-853: a candidate whose disk was replaced is another one."""
    _, member = alone()
    assert granted(member, vote(3, 2))
    assert granted(member, vote(3, 2))
    assert not granted(member, vote(3, 2, directory_id=b"x" * 16))


def test_a_candidate_has_its_own_vote_on_disk_before_it_asks() -> None:
    net, member = alone()
    member.fire("election")
    assert member.node.role is Role.PROSPECTIVE
    assert member.disk.saved == []
    flight = net.find("VoteRequest", target=2)
    flight.sender.run(flight.send.then(pre_granted(0), net.now_ms))
    assert member.node.role is Role.CANDIDATE
    assert member.disk.saved == [ElectionState(1, voted_id=1)]
    asked = [f for f in net.flights if f.name == "VoteRequest" and not part(f.request).pre_vote]
    assert {part(f.request).replica_epoch for f in asked} == {1}


def pre_granted(epoch: int, *, is_granted: bool = True, leader_id: int = -1) -> Any:
    """A voter's answer."""
    leader = Peer(leader_id, "host", 1) if leader_id >= 0 else None
    return wire.vote_response(
        Code.NONE, wire.LeaderAndEpoch(epoch, leader_id, leader), is_granted=is_granted
    )


# ------------------------------------------------------------------------------------- who is granted


@pytest.mark.parametrize(
    ("own", "candidates", "is_granted"),
    [
        ((10, 2), (10, 2), True),
        ((10, 2), (11, 2), True),
        ((10, 2), (9, 2), False),
        ((10, 2), (1, 3), True),
        ((10, 2), (99, 1), False),
    ],
)
def test_a_log_that_lacks_something_gets_no_vote(
    own: tuple[int, int], candidates: tuple[int, int], is_granted: bool
) -> None:
    """Q17: the epoch counts first, then the offset."""
    member = Net()[1]
    member.disk.snapshots[OffsetAndEpoch(*own)] = (b"!", 1)
    member.disk.start_offset = own[0]
    member.start()
    assert granted(member, vote(7, last=candidates)) is is_granted
    assert granted(member, vote(8, last=candidates, is_pre_vote=True)) is is_granted


def test_a_vote_weighs_the_newer_of_log_and_snapshot() -> None:
    """Q17, rel-Q12: an older log may still be there beside the snapshot that replaces it."""
    net = Net().start()
    leader = net.elect()
    for n in range(3):
        leader.propose(b"%d" % n)
    net.run_for(100)
    member = net.elsewhere(leader)[0]
    member.disk.snapshots[OffsetAndEpoch(50, 5)] = (b"snapshot!", 1)
    mine = member.node_id
    assert not granted(member, vote(9, last=(49, 5), voter_id=mine))
    assert not granted(member, vote(10, last=(99, 4), voter_id=mine))
    assert granted(member, vote(11, last=(50, 5), voter_id=mine))
    net.flights.clear()
    member.fire("election")
    for flight in net.flights:
        assert (part(flight.request).last_offset, part(flight.request).last_offset_epoch) == (50, 5)
    assert len(net.flights) == 2


def test_a_candidate_nobody_knows_is_answered_like_any_other() -> None:
    """X5: this node's voters may be old; the candidate's may be newer."""
    _, member = alone()
    assert granted(member, vote(3, 77))


def test_an_observer_gives_its_vote() -> None:
    """X5: it may have become a voter in a configuration it has not read."""
    net = Net(observer_ids=[9])
    observer = net[9].start()
    assert granted(observer, vote(3, 2, voter_id=9))
    assert observer.disk.saved[-1] == ElectionState(3, voted_id=2)
    assert ("raft", "election") not in observer.timers


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_of_vote_is_answered(version: int) -> None:
    _, member = alone()
    assert granted(member, vote(3), version)


def test_a_known_leader_keeps_the_vote_of_those_who_cannot_reach_it() -> None:
    """Unattached with a leader whose address is unknown (spec 1.3)."""
    net = Net()
    member = net[1]
    member.disk.save(ElectionState(4, leader_id=88))
    member.start()
    assert member.stands == (Role.UNATTACHED, 4, 88)
    assert not granted(member, vote(4, 2))
    assert granted(member, vote(5, 2))


def test_a_lower_epoch_a_lower_place_and_a_wrong_key_are_refused_in_kafkas_order() -> None:
    """Spec 1.5 Vote, as Kafka 4.3.1 checks."""
    net, member = alone()
    member.ask(vote(5, 3))
    other = vote(9)
    other.topics[0].topic_name = "other"
    beside = vote(9)
    beside.topics[0].partitions[0].partition_index = 1
    twice = vote(9)
    twice.topics = [*twice.topics, *twice.topics]
    assert refusal(member, vote(9, cluster_id="other")) == Code.INCONSISTENT_CLUSTER_ID
    for request in (other, beside, twice):
        assert refusal(member, request) == Code.INVALID_REQUEST
    assert refusal(member, vote(9, last=(-1, 0))) == Code.INVALID_REQUEST
    assert refusal(member, vote(9, last=(0, -1))) == Code.INVALID_REQUEST
    assert refusal(member, vote(9, last=(1, 9))) == Code.INVALID_REQUEST
    assert refusal(member, vote(4, last=(1, 4))) == Code.INVALID_REQUEST
    assert refusal(member, vote(9, last=(1, 10), is_pre_vote=True)) == Code.INVALID_REQUEST
    assert refusal(member, vote(4)) == Code.FENCED_LEADER_EPOCH
    assert refusal(member, vote(4, -1)) == Code.FENCED_LEADER_EPOCH
    assert refusal(member, vote(9, -1)) == Code.INVALID_REQUEST
    assert member.node.epoch == 5
    assert refusal(member, vote(6, voter_id=2)) == Code.INVALID_VOTER_KEY
    assert member.node.epoch == 6
    wrong = vote(7, voter_directory_id=b"x" * 16)
    assert refusal(member, wrong) == Code.INVALID_VOTER_KEY
    assert member.disk.saved[-1] == ElectionState(7)
    assert granted(member, vote(9, voter_directory_id=directory(1), cluster_id=None))
    assert granted(member, vote(10, last=(1, 9)))
    assert granted(member, vote(10, last=(1, 10), is_pre_vote=True))
    assert net.flights


def test_a_vote_meant_for_another_disk_has_raised_the_epoch_all_the_same() -> None:
    """X4: the candidate is in that epoch; refusing the key must not hide it."""
    _, member = alone()
    assert refusal(member, vote(8, voter_id=3)) == Code.INVALID_VOTER_KEY
    assert member.stands == (Role.UNATTACHED, 8, -1)
    assert member.disk.saved == [ElectionState(8)]


# ------------------------------------------------------------------------------------------ pre-votes


def test_a_voter_that_comes_back_from_a_partition_deposes_nobody() -> None:
    """Q46: without pre-votes it would bring a higher epoch with it."""
    net = Net().start()
    leader = net.elect()
    lonely = net.elsewhere(leader)[0]
    net.cut(lonely.node_id)
    net.run_for(30_000)
    assert lonely.node.epoch == leader.node.epoch
    net.heal()
    net.run_for(5_000)
    assert leader.stands == (Role.LEADER, 1, leader.node_id)
    assert lonely.stands == (Role.FOLLOWER, 1, leader.node_id)
    assert lonely.listener.received.count(f"leader {leader.node_id} of 1") == 1


def test_a_pre_vote_binds_nobody_and_raises_nothing() -> None:
    _, member = alone()
    assert granted(member, vote(0, 2, is_pre_vote=True))
    assert granted(member, vote(0, 3, is_pre_vote=True))
    assert member.stands == (Role.UNATTACHED, 0, -1)
    assert member.disk.saved == []
    assert granted(member, vote(3, 2))
    assert granted(member, vote(3, 3, is_pre_vote=True))


def test_a_follower_that_fetches_refuses_a_pre_vote_and_one_that_does_not_yet_grants_it() -> None:
    net = Net().start()
    leader = net.elect()
    follower = net.elsewhere(leader)[0]
    ask = {"last": (9, 1), "is_pre_vote": True, "voter_id": follower.node_id}
    assert not granted(follower, vote(1, 3, **ask))  # type: ignore[arg-type]
    follower.crash()
    net.cut(follower.node_id)
    follower.start()
    assert follower.node.role is Role.FOLLOWER
    assert granted(follower, vote(1, 3, **ask))  # type: ignore[arg-type]


def test_a_leader_refuses_a_pre_vote() -> None:
    net = Net().start()
    leader = net.elect()
    request = vote(1, 3, last=(9, 1), voter_id=leader.node_id, is_pre_vote=True)
    assert not granted(leader, request)


def test_a_candidate_and_one_that_has_resigned_grant_a_pre_vote() -> None:
    """Else two candidates of one failed round could not get out of it."""
    member = Net()[1]
    member.disk.save(ElectionState(3, voted_id=1))
    member.start()
    assert member.node.role is Role.CANDIDATE
    assert granted(member, vote(3, 2, is_pre_vote=True))
    assert not granted(member, vote(3, 2))
    resigned = Net()[1]
    resigned.disk.save(ElectionState(3, leader_id=1))
    resigned.start()
    assert resigned.node.role is Role.RESIGNED
    assert granted(resigned, vote(3, 2, is_pre_vote=True))
    assert not granted(resigned, vote(3, 2))


def test_who_would_stand_votes_for_nobody_once_it_learns_of_a_leader_it_cannot_find() -> None:
    """Somebody leads that epoch: with a vote there could be two who do."""
    member = Net()[1]
    member.disk.save(ElectionState(4))
    member.start().fire("election")
    assert member.node.role is Role.PROSPECTIVE
    member.ask(end(4, 77))
    assert member.stands == (Role.UNATTACHED, 4, 77)
    assert not granted(member, vote(4, 2))


def test_a_prospective_voter_gives_its_real_vote_and_begins_its_own_round_anew() -> None:
    net, member = alone()
    member.fire("election")
    assert member.node.role is Role.PROSPECTIVE
    assert granted(member, vote(0, 2, last=(0, 0), is_pre_vote=True))
    member.node._quorum.epoch = 3
    net.now_ms += 500
    assert granted(member, vote(3, 2))
    assert member.disk.saved[-1] == ElectionState(3, voted_id=2)
    assert member.node.role is Role.PROSPECTIVE
    assert member.timers["raft", "election"].at_ms >= net.now_ms + 1000


def test_a_peer_that_knows_no_pre_votes_is_asked_for_its_vote() -> None:
    """A pre-vote in version 1 would be a vote in an epoch that is over."""
    net = Net()
    net.versions[52] = 1
    net.start()
    leader = net.elect()
    net.run_for(1_000)
    assert net.agree()
    for member in net.elsewhere(leader):
        assert member.disk.saved[-1].leader_id == leader.node_id


def test_refused_pre_votes_bring_a_voter_back_to_its_leader() -> None:
    net = Net().start()
    leader = net.elect()
    follower, other = net.elsewhere(leader)
    follower.fire("fetch")
    assert follower.node.role is Role.PROSPECTIVE
    net.settle()
    assert follower.stands == (Role.FOLLOWER, 1, leader.node_id)
    assert follower.disk.saved[-1].leader_id == leader.node_id
    assert other.stands == (Role.FOLLOWER, 1, leader.node_id)


# --------------------------------------------------------------------------------- timers and rounds


def test_election_timeouts_lie_between_one_and_two_and_differ() -> None:
    """Q18."""
    at_ms = [Net(seed=seed)[1].start().timers["raft", "election"].at_ms for seed in range(30)]
    assert all(START_MS + 1000 <= at < START_MS + 2000 for at in at_ms)
    assert len(set(at_ms)) > 20


def test_a_stream_of_higher_epochs_does_not_postpone_the_own_election() -> None:
    """X6, Q19: else one disruptive peer keeps everybody from ever quorum."""
    net, member = alone()
    due_ms = member.timers["raft", "election"].at_ms
    member.disk.snapshots[OffsetAndEpoch(9, 1)] = (b"!", 1)  # newer than theirs: no vote is given
    for epoch in range(3, 9):
        net.now_ms += 100
        assert not granted(member, vote(epoch))
        assert member.timers["raft", "election"].at_ms == due_ms
    member.fire("election")
    net.now_ms += 10
    due_ms = member.timers["raft", "election"].at_ms
    assert not granted(member, vote(99))
    assert member.node.role is Role.UNATTACHED
    assert member.timers["raft", "election"].at_ms == due_ms


def test_a_vote_that_was_given_gets_the_time_of_a_full_election() -> None:
    net, member = alone()
    net.now_ms += 900
    assert granted(member, vote(3))
    assert member.timers["raft", "election"].at_ms >= net.now_ms + 1000


def candidate(retries: int = 1, seed: int = 3) -> tuple[Net, Member]:
    """A candidate that failed before, with its requests on their way."""
    net = Net(seed=seed, settings=QuorumSettings(election_backoff_max_ms=60_000))
    member = net[1]
    member.disk.save(ElectionState(3, voted_id=1))
    member.start()
    member.node._election._candidacies = retries
    return net, member


@pytest.mark.parametrize("retries", [1, 2, 5])
def test_a_refused_candidate_backs_off_at_once_and_longer_each_time(retries: int) -> None:
    """Q18: no use in waiting for the timeout, but not all losers at the same moment."""
    waits = set()
    for seed in range(60):
        net, member = candidate(retries, seed)
        for _ in range(2):
            flight = net.flights.pop(0)
            member.run(flight.send.then(pre_granted(3, is_granted=False), net.now_ms))
        waits.add(member.timers["raft", "election"].at_ms - net.now_ms)
    assert waits <= {100 * n for n in range(2**retries)}
    assert len(waits) > min(2**retries, 30) * 0.6


def test_the_back_off_has_its_limit() -> None:
    net, member = candidate(retries=10_000)
    for _ in range(2):
        flight = net.flights.pop(0)
        member.run(flight.send.then(pre_granted(3, is_granted=False), net.now_ms))
    assert member.timers["raft", "election"].at_ms - net.now_ms <= 60_000


def test_after_the_back_off_the_next_round_begins_with_pre_votes() -> None:
    net, member = candidate()
    for _ in range(2):
        flight = net.flights.pop(0)
        member.run(flight.send.then(pre_granted(3, is_granted=False), net.now_ms))
    member.fire("election")
    assert member.stands == (Role.PROSPECTIVE, 3, -1)


def test_votes_of_an_earlier_round_elect_nobody() -> None:
    """Q22: granted in epoch 3, heard as a candidate of epoch 4."""
    net, member = candidate()
    stale = list(net.flights)
    member.fire("election")
    pre = [f for f in net.flights if f not in stale]
    member.run(pre[0].send.then(pre_granted(3), net.now_ms))
    assert member.stands == (Role.CANDIDATE, 4, -1)
    for flight in stale:
        member.run(flight.send.then(pre_granted(4), net.now_ms))
    assert member.node.role is Role.CANDIDATE


def test_a_voter_that_does_not_answer_is_asked_again() -> None:
    net, member = candidate()
    member.run(net.flights.pop(0).send.then(Unanswered(why="lost"), net.now_ms))
    assert len(net.flights) == 1
    member.fire("retry")
    assert len(net.flights) == 2
    assert net.now_ms == START_MS + 20


def test_a_ballot_counts_each_voter_once() -> None:
    ballot = Ballot((1, 2, 3, 4, 5), 1)
    for _ in range(3):
        ballot.record(2, is_granted=True, names_leader=True)
    assert not ballot.is_won
    ballot.record(77, is_granted=True, names_leader=True)
    assert not ballot.is_won
    ballot.record(4, is_granted=True, names_leader=True)
    assert ballot.is_won
    assert ballot.granting_ids == (1, 2, 4)
    lost = Ballot((1, 2, 3, 4), 1)
    lost.record(2, is_granted=False, names_leader=True)
    assert not lost.is_lost
    lost.record(3, is_granted=False, names_leader=True)
    assert lost.is_lost
    assert not lost.is_won


def test_a_ballot_knows_that_a_majority_has_no_leader() -> None:
    """Who grants has none, and so has who refuses without naming one; strangers do not count."""
    ballot = Ballot((1, 2, 3, 4, 5), 1)
    ballot.record(2, is_granted=False, names_leader=True)
    ballot.record(3, is_granted=False, names_leader=False)
    ballot.record(77, is_granted=False, names_leader=False)
    assert not ballot.is_leaderless
    ballot.record(4, is_granted=True, names_leader=True)
    assert ballot.is_leaderless


# ------------------------------------------------------------------------------ hearing of a leader


def test_a_leader_that_makes_itself_known_is_followed_whatever_disk_it_meant() -> None:
    """Spec 1.5: first the transition, then the key."""
    _, member = alone()
    (answer,) = member.ask(begin(4, 2, voter_directory_id=b"x" * 16))
    assert part(answer).error_code == Code.INVALID_VOTER_KEY
    assert member.stands == (Role.FOLLOWER, 4, 2)
    assert member.disk.saved == [ElectionState(4, leader_id=2)]
    (answer,) = member.ask(begin(4, 2))
    assert (part(answer).error_code, part(answer).leader_id) == (Code.NONE, 2)
    (endpoint,) = answer.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (2, "host-2", 9002)


def test_begin_and_end_of_another_cluster_log_or_epoch_are_refused() -> None:
    _, member = alone()
    member.ask(begin(4, 2))
    for make in (begin, end):
        wrong = make(5, 3)  # type: ignore[operator]
        wrong.cluster_id = "other"
        assert refusal(member, wrong) == Code.INCONSISTENT_CLUSTER_ID
        wrong = make(5, 3)  # type: ignore[operator]
        wrong.topics[0].topic_name = "t"
        assert refusal(member, wrong) == Code.INVALID_REQUEST
        assert refusal(member, make(3, 3)) == Code.FENCED_LEADER_EPOCH  # type: ignore[operator]
        assert refusal(member, make(5, -1)) == Code.INVALID_REQUEST  # type: ignore[operator]
    assert member.stands == (Role.FOLLOWER, 4, 2)


def fetched_from(net: Net, member: Member, leader_id: int, known: wire.LeaderAndEpoch) -> None:
    """An answer to the open Fetch of `leader_id` comes, which says `known`."""
    flight = [each for each in net.flights if each.target_id == leader_id][-1]
    net.flights.remove(flight)
    said = wire.fetch_response(Code.NONE, known, log_start_offset=0)
    member.run(flight.send.then(said, net.now_ms))


LEADER_2 = wire.LeaderAndEpoch(4, 2, Peer(2, "host-2", 9002))
LEADER_3 = wire.LeaderAndEpoch(4, 3, Peer(3, "host-3", 9003))


def test_a_second_leader_of_an_epoch_is_not_believed_and_said_once() -> None:
    """Q21: a voter forgot its vote, or somebody made it up: Kafka's node would end, by one request."""
    net, member = alone()
    member.ask(begin(4, 2))
    fetched_from(net, member, 2, LEADER_2)
    for make in (begin, begin, end):
        assert refusal(member, make(4, 3)) == Code.INVALID_REQUEST  # type: ignore[operator]
    assert member.stands == (Role.FOLLOWER, 4, 2)
    (line,) = [each for each in member.warnings if "answered" not in each]
    assert "a message names a second leader of this epoch leader=2 other=3 epoch=4" in line


def test_a_leader_that_was_made_up_gives_way_to_one_that_answers() -> None:
    """Else one forged request keeps a voter from its leader for as long as that leads."""
    net, member = alone()
    assert refusal(member, begin(4, 77)) == Code.NONE
    assert member.stands == (Role.FOLLOWER, 4, 77)
    assert refusal(member, begin(4, 2)) == Code.NONE
    assert member.stands == (Role.FOLLOWER, 4, 2)
    fetched_from(net, member, 2, LEADER_2)
    assert refusal(member, begin(4, 77)) == Code.INVALID_REQUEST
    member.fire("fetch")  # it is silent: another may be believed
    assert refusal(member, begin(4, 3)) == Code.NONE
    assert member.stands == (Role.FOLLOWER, 4, 3)


def test_a_leader_that_learns_of_another_in_its_epoch_goes_on() -> None:
    net = Net().start()
    leader = net.elect()
    other = net.elsewhere(leader)[0]
    request = begin(1, other.node_id, voter_id=leader.node_id)
    assert refusal(leader, request) == Code.INVALID_REQUEST
    assert leader.stands == (Role.LEADER, 1, leader.node_id)
    leader.propose(b"a")
    net.run_for(100)
    assert leader.node.high_watermark == 2


def test_an_answer_that_names_a_second_leader_is_not_believed() -> None:
    net, member = alone()
    member.ask(begin(4, 2))
    fetched_from(net, member, 2, LEADER_2)
    fetched_from(net, member, 2, LEADER_3)
    assert member.stands == (Role.FOLLOWER, 4, 2)
    assert (
        "a message names a second leader of this epoch leader=2 other=3 epoch=4"
        in member.warnings[-1]
    )


def appointed(net: Net, member: Member, epoch: int) -> None:
    """Its fetch is answered by one that takes it for the leader."""
    known = wire.LeaderAndEpoch(epoch, 1, Peer(1, "host-1", 9001))
    refused = wire.fetch_response(Code.FENCED_LEADER_EPOCH, known, log_start_offset=0)
    member.run(net.flights[0].send.then(refused, net.now_ms))


def test_a_disk_that_forgot_it_led_neither_leads_nor_votes_in_that_epoch() -> None:
    """The node led epoch 6, its disk was replaced, and the others still follow it."""
    net, member = alone()
    appointed(net, member, epoch=6)
    assert (member.node.role, member.node.epoch) == (Role.RESIGNED, 6)
    assert member.disk.saved[-1] == ElectionState(6, leader_id=1)
    assert not granted(member, vote(6, 3))
    member.crash()
    member.start()
    assert not granted(member, vote(6, 3))
    assert granted(member, vote(7, 3))


@pytest.mark.parametrize(
    ("saved", "role"),
    [(ElectionState(6), Role.RESIGNED), (ElectionState(6, voted_id=3), Role.UNATTACHED)],
)
def test_a_disk_that_knows_the_epoch_forgot_that_it_led_there_unless_it_voted_for_another(
    saved: ElectionState, role: Role
) -> None:
    """Who voted for another cannot have led: a vote that was given is not taken back for hearsay."""
    net = Net()
    member = net[1]
    member.disk.save(saved)
    member.start()
    appointed(net, member, epoch=6)
    assert (member.node.role, member.node.epoch) == (role, 6)
    assert member.node.voted_id == saved.voted_id
    assert granted(member, vote(6, 3)) == (role is Role.UNATTACHED)


@pytest.mark.parametrize(
    ("successors", "wait_ms"),
    [
        ([1, 2, 3], 0),
        ([2, 1, 3], 250),
        ([2, 3, 1], 500),
        ([4, 2, 3, 1], 500),
        ([2, 3], 1000),
        ([], 0),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_the_best_successor_stands_first(successors: list[int], wait_ms: int, version: int) -> None:
    """Q28: the leader ordered them by what they have; those it does not name wait longest."""
    net, member = alone()
    member.ask(begin(4, 2))
    net.now_ms += 100
    member.ask(end(4, 2, [(n, ZERO_UUID) for n in successors]), version)
    assert member.timers["raft", "fetch"].at_ms == net.now_ms + wait_ms
    assert member.node.role is Role.FOLLOWER


def test_a_successor_is_a_disk_not_a_name() -> None:
    net, member = alone()
    member.ask(begin(4, 2))
    member.ask(end(4, 2, [(1, b"x" * 16)]))
    assert member.timers["raft", "fetch"].at_ms == net.now_ms + 1000
    member.ask(end(4, 2, [(1, directory(1))]))
    assert member.timers["raft", "fetch"].at_ms == net.now_ms


def test_a_leader_is_asked_where_it_says_it_listens() -> None:
    """A voter that moved is found before everybody's configuration says where it is."""
    net, member = alone()
    request = begin(4, 2)
    request.leader_endpoints[0].host = "elsewhere"
    member.ask(request)
    assert member.stands == (Role.FOLLOWER, 4, 2)
    hosts = [each.send.peer.host for each in net.flights if each.name == "FetchRequest"]
    assert hosts[-1] == "elsewhere"


def test_an_end_that_comes_before_anything_else_still_reports_the_epoch() -> None:
    _, member = alone()
    member.ask(end(4, 2))
    assert member.stands == (Role.FOLLOWER, 4, 2)
