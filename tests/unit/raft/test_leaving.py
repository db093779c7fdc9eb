"""A leader that resigns, and nodes that leave: what they hand over, and how long they wait for it."""

from firnline.base.effects import Unanswered
from firnline.raft.election_state import ElectionState
from firnline.raft.role import Role
from tests.worlds.raft import Net, alone, fetch, vote


def test_a_leader_that_leaves_hands_over_to_the_best_voter_at_once() -> None:
    """Q28."""
    net = Net(seed=2).start()
    leader = net.elect()
    best, behind = net.elsewhere(leader)
    net.cuts = {(behind.node_id, leader.node_id), (leader.node_id, behind.node_id)}
    leader.propose(b"a")
    net.settle()
    before_ms = net.now_ms
    leader.run(leader.node.resign(net.now_ms))
    assert leader.node.role is Role.RESIGNED
    assert leader.node.leader_id == -1
    net.run_for(10_000, until=lambda: bool(net.leaders))
    assert net.leaders == [best]
    assert net.now_ms - before_ms < 500
    assert leader.node.is_stopped
    assert leader.timers == {}


def test_a_leader_that_nobody_follows_leaves_after_its_time() -> None:
    """One voter is there and lacks what the leader has, so it cannot win: a third one may come back."""
    net = Net().start()
    leader = net.elect()
    _, gone = net.elsewhere(leader)
    net.cut(leader.node_id)
    leader.propose(b"a")
    net.settle()
    net.heal()
    net.cut(gone.node_id)
    leader.run(leader.node.resign(net.now_ms))
    net.run_for(4_900)
    assert net.leaders == []
    assert not leader.node.is_stopped
    net.run_for(200)
    assert leader.node.is_stopped


def test_a_leader_that_reaches_too_few_for_an_election_leaves_at_once() -> None:
    """The last of three that are stopped one after the other: nobody is there to hand over to."""
    net = Net(voter_ids=[1, 2, 3, 4, 5]).start()
    leader = net.elect()
    one, *others = net.elsewhere(leader)
    net.cut(*(each.node_id for each in others))
    leader.run(leader.node.resign(net.now_ms))
    net.run_for(200)
    assert leader.node.is_stopped
    assert leader.timers == {}
    assert not one.node.is_stopped


def test_one_lost_answer_is_no_reason_to_leave_without_handing_over() -> None:
    """A connection that was closed for being idle fails once; the voter behind it is there."""
    net = Net(voter_ids=[1, 2]).start()
    leader = net.elect()
    (other,) = net.elsewhere(leader)
    leader.run(leader.node.resign(net.now_ms))
    for _ in range(2):
        net.lose(net.find("EndQuorumEpochRequest", leader.node_id))
        assert not leader.node.is_stopped
        net.now_ms += net.settings.retry_backoff_ms
        leader.fire("retry")
    net.run_for(1_000, until=lambda: leader.node.is_stopped)
    assert net.leaders == [other]


def test_a_leader_whose_voters_were_away_one_after_the_other_hands_over_all_the_same() -> None:
    """A rolling restart: what it asked them while they were away says nothing of now."""
    net = Net().start()
    leader = net.elect()
    for member in net.elsewhere(leader):
        net.cut(member.node_id)
        net.run_for(5_000)
        net.heal()
        net.run_for(5_000)
    assert net.leaders == [leader]
    leader.run(leader.node.resign(net.now_ms))
    assert not leader.node.is_stopped
    net.run_for(1_000)
    assert leader.node.is_stopped
    (successor,) = net.leaders
    assert successor is not leader


def test_whoever_does_not_lead_leaves_at_once_and_a_sole_voter_too() -> None:
    net = Net().start()
    leader = net.elect()
    follower = net.elsewhere(leader)[0]
    follower.run(follower.node.resign(net.now_ms))
    assert follower.node.is_stopped
    assert follower.ask(vote(99, voter_id=follower.node_id)) == []
    sole = Net([1]).start()
    sole.settle()
    sole[1].run(sole[1].node.resign(sole.now_ms))
    assert (sole[1].node.role, sole[1].node.is_stopped) == (Role.RESIGNED, True)
    assert sole.flights == []


def test_nothing_is_sent_after_a_stop() -> None:
    net, member = alone()
    timers, flights = dict(member.timers), list(net.flights)
    member.node.stop()
    for timer in timers.values():
        assert timer.then(net.now_ms + 9_999) == []
    for flight in flights:
        assert flight.send.then(Unanswered(why="lost"), net.now_ms) == []
    assert member.ask(fetch(0, 2, (0, 0))) == []


def test_a_sync_that_ends_after_a_stop_commits_nothing() -> None:
    """Whoever hears of commits is closed by then."""
    net = Net([1]).start()
    net.settle()
    sole = net[1]
    sole.holds_flushes = True
    sole.propose(b"a")
    received, synced_offset = list(sole.listener.received), sole.disk.synced_offset
    sole.node.stop()
    sole.sync()
    assert (sole.listener.received, sole.disk.synced_offset) == (received, synced_offset)


def test_a_resigned_leader_takes_part_again_in_the_next_epoch_only() -> None:
    """X1: as a voter that has led an epoch it must not stand in it again."""
    net = Net().start()
    leader = net.elect()
    net.cut(leader.node_id)
    net.run_for(3_100)
    assert leader.node.role is Role.RESIGNED
    assert leader.disk.saved[-1] == ElectionState(1, leader_id=leader.node_id)
    leader.fire("election")
    assert (leader.node.role, leader.node.epoch) == (Role.PROSPECTIVE, 2)
    assert leader.disk.saved[-1] == ElectionState(2)
