"""What a node does while its disk has not got its vote: it tells nobody, and waits for nothing else."""

from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.raft import wire
from firnline.raft.calls import SLOW_SAVE_MS, WAITING_MAX, Gate
from firnline.raft.election_state import ElectionState
from firnline.raft.role import Role
from tests.worlds.effects import told
from tests.worlds.raft import Member, Net, alone, begin, fetch, one_record, part, vote
from tests.worlds.raft_disk import Disk

from .test_cutting import cutting
from .test_following import answer, following, only, records

FAILED = StorageError("input/output error")


def slow() -> tuple[Net, Member]:
    """One of three voters, on a disk that takes its time."""
    net, member = alone()
    member.disk.holds_saves = True
    net.flights.clear()
    return net, member


def a_candidate() -> tuple[Net, Member]:
    """Somebody would vote for it, so it stands; its disk has not got that."""
    net = Net()
    net[1].start()
    net[2].start()
    net.settle()
    net[1].disk.holds_saves = True
    net[1].fire("election")
    net.pass_on("VoteRequest", 1, 2)
    net.pass_on("VoteResponse", 1, 2)
    assert net[1].node.role is Role.CANDIDATE
    return net, net[1]


def a_leader() -> tuple[Net, Member]:
    """It won, and its disk has not got that."""
    net, member = a_candidate()
    member.end_save()
    net.pass_on("VoteRequest", 1, 2)
    net.pass_on("VoteResponse", 1, 2)
    assert member.node.role is Role.LEADER
    assert member.node.is_saving
    return net, member


def test_no_vote_is_asked_for_before_the_own_one_is_on_disk() -> None:
    """Else it is elected, forgets by a power cut that it stood, and votes for another in that epoch."""
    net, member = a_candidate()

    def asked_for() -> list[int]:
        asked = [f for f in net.flights if f.name == "VoteRequest" and f.sender is member]
        return [f.target_id for f in asked if not part(f.request).pre_vote]

    assert asked_for() == []
    member.end_save()
    assert asked_for() == [2, 3]
    assert member.disk.saved[-1] == ElectionState(1, voted_id=1)


def test_no_record_is_written_before_the_leadership_is_on_disk() -> None:
    """X1: it would come back as a candidate, and might lead the same epoch again with other records."""
    net, member = a_leader()
    net.flights.clear()
    assert member.disk.end_offset == 0
    assert member.disk.saved[-1] == ElectionState(1, voted_id=1)
    refused = member.node.propose([b"x"], epoch=1, now_ms=net.now_ms)
    assert isinstance(refused, KafkaError)
    assert refused.code is Code.NOT_CONTROLLER
    member.end_save()
    assert member.disk.end_offset == 1
    assert member.disk.saved[-1] == ElectionState(1, leader_id=1)
    assert {f.name for f in net.flights} == {"BeginQuorumEpochRequest"}


def test_what_comes_while_a_vote_is_saved_waits_and_is_answered_in_order() -> None:
    """rel-Q2: the second candidate finds the vote given; nobody is told of it before."""
    net, member = slow()
    first, second, third = (member.ask(vote(epoch, who)) for epoch, who in ((3, 2), (3, 3), (4, 3)))
    assert (first, second, third, net.flights) == ([], [], [], [])
    assert member.node.is_saving
    member.end_save()
    assert part(first[0]).vote_granted
    assert second == [], "one event in a step"
    member.fire("next")
    assert not part(second[0]).vote_granted
    member.fire("next")
    assert third == [], "a newer epoch, to be saved"
    member.end_save()
    assert part(third[0]).vote_granted
    assert member.disk.saved == [ElectionState(3, voted_id=2), ElectionState(4, voted_id=3)]


def test_who_comes_between_two_that_waited_waits_too() -> None:
    _, member = slow()
    member.ask(vote(3, 2))
    second = member.ask(vote(3, 3))
    member.end_save()
    third = member.ask(vote(3, 2))
    assert (second, third) == ([], [])
    member.fire("next")
    member.fire("next")
    assert [part(found[0]).vote_granted for found in (second, third)] == [False, True]
    assert ("raft", "next") not in member.timers


def test_after_a_power_cut_in_between_the_vote_was_given_to_nobody() -> None:
    net, member = slow()
    answers = member.ask(vote(3, 2))
    member.crash(power=True)
    member.start()
    assert (answers, net.flights, member.node.epoch) == ([], net.flights, 0)
    other = member.ask(vote(3, 3))
    member.end_save()
    assert part(other[0]).vote_granted


def test_a_vote_that_the_disk_refuses_stops_the_node_and_is_reported_to_nobody() -> None:
    net, member = slow()
    answers = member.ask(vote(3, 2))
    with pytest.raises(StorageError, match="input/output"):
        member.end_save(FAILED)
    assert (answers, net.flights) == ([], [])
    assert member.ask(vote(3, 2)) == []


def test_an_answer_that_comes_while_a_vote_is_saved_is_of_an_earlier_life() -> None:
    net, member = alone()
    (asked,) = net.flights
    member.disk.holds_saves = True
    member.ask(vote(3, 2))
    net.lose(asked)
    member.end_save()
    member.fire("next")
    assert not member.node._quorum.calls.is_resting(asked.target_id, net.now_ms)


def test_a_slow_disk_loses_no_election_for_its_own_candidate() -> None:
    """The time to be elected in begins when the others are asked."""
    net, member = a_candidate()
    timer = member.timers[("raft", "election")]
    net.now_ms = timer.at_ms + 700
    member.run(timer.then(net.now_ms))
    member.end_save()
    assert member.timers[("raft", "election")].at_ms > net.now_ms
    member.fire("next")
    assert member.node.role is Role.CANDIDATE
    net.pass_on("VoteRequest", 1, 2)
    net.pass_on("VoteResponse", 1, 2)
    assert member.node.role is Role.LEADER


def test_the_operator_learns_of_a_disk_that_hangs_in_a_vote() -> None:
    net, member = slow()
    member.ask(vote(3, 2))
    began_ms = net.now_ms
    member.fire("slow save")
    assert net.now_ms == began_ms + SLOW_SAVE_MS
    assert [line for line in member.warnings if "not on disk after_s=5" in line]
    member.end_save()
    member.ask(begin(5, 2))
    member.end_save()
    assert ("raft", "slow save") not in member.timers, "it is about one that is not done"


def test_requests_fill_no_memory_while_a_disk_hangs() -> None:
    _, member = slow()
    member.ask(vote(3, 2))
    waiting = [member.ask(fetch(3, 9, (0, 0))) for _ in range(WAITING_MAX)]
    assert [answers for answers in waiting if answers] == []
    (refused,) = member.ask(vote(3, 3))
    assert refused.error_code == Code.BROKER_NOT_AVAILABLE


@pytest.mark.parametrize("leave", [True, False])
def test_a_node_that_leaves_meanwhile_says_nothing_and_keeps_its_directory(leave: bool) -> None:
    """The file is written for another process else, which may have voted by then."""
    net, member = slow()
    answers = member.ask(vote(3, 2))
    second = member.ask(vote(3, 3))
    if leave:
        member.run(member.node.resign(net.now_ms))
    else:
        member.node.stop()
    assert member.node.is_stopped
    assert member.node.is_writing
    member.end_save()
    assert not member.node.is_writing
    assert (answers, second, net.flights) == ([], [], [])


def test_a_leader_that_nobody_knows_of_leaves_at_once() -> None:
    net, member = a_leader()
    net.flights.clear()
    member.run(member.node.resign(net.now_ms))
    member.end_save()
    assert member.node.is_stopped
    assert (member.disk.end_offset, net.flights) == (0, [])


def test_a_bad_request_that_had_to_wait_ends_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that need not wait costs its connection, which says what was wrong."""
    _, member = slow()

    def fails(request: Any, answer: Any, now_ms: int) -> Any:
        raise ValueError("a bug")

    monkeypatch.setitem(member.node._handlers, wire.FetchRequest, fails)
    with pytest.raises(ValueError, match="a bug"):
        member.ask(fetch(3, 9, (0, 0)))
    member.ask(vote(3, 2))
    answers = member.ask(fetch(3, 9, (0, 0)))
    member.end_save()
    member.fire("next")
    assert [answer.error_code for answer in answers] == [Code.UNKNOWN_SERVER_ERROR]
    assert [line for line in member.warnings if "a bug" in line]


def test_what_a_request_changed_that_failed_is_saved_before_the_next_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, member = slow()
    quorum = member.node._quorum

    def fails(request: Any, answer: Any, now_ms: int) -> Any:
        quorum.transition_to_unattached(7, now_ms)
        raise ValueError("a bug")

    monkeypatch.setitem(member.node._handlers, wire.FetchRequest, fails)
    with pytest.raises(ValueError, match="a bug"):
        member.ask(fetch(3, 9, (0, 0)))
    answers = member.ask(vote(6, 3))
    assert (answers, member.disk.is_saving) == ([], True)
    member.end_save()
    assert member.disk.saved == [ElectionState(7)]
    member.fire("next")
    assert part(answers[0]).error_code == Code.FENCED_LEADER_EPOCH


def test_what_others_learn_of_the_quorum_waits_as_well() -> None:
    """UpdateRaftVoter, which names epoch and leader, is answered beside the quorum's own requests."""
    _, member = slow()
    now, later = told("now"), told("later")
    assert member.node.send_when_saved(now) == [now]
    member.ask(vote(3, 2))
    assert member.node.send_when_saved(later) == []
    assert member.node._quorum.gate._held[-1] == later


def test_a_sync_that_ends_while_a_vote_is_saved_asks_nobody() -> None:
    """The next Fetch would tell of an epoch that the disk has not got."""
    net, member = following()
    member.holds_flushes = True
    answer(net, member, records(one_record(0, 4, b"a")))
    assert (net.flights, len(member.flushes)) == ([], 1)
    member.disk.holds_saves = True
    member.ask(vote(9, 3))
    member.sync()
    assert (net.flights, member.disk.synced_offset) == ([], 0)
    member.end_save()
    member.fire("next")
    assert member.disk.synced_offset == 1
    assert {part(f.request).current_leader_epoch for f in net.flights} == {9}


def test_a_cut_that_ends_while_a_vote_is_saved_asks_nobody() -> None:
    net, member = cutting()
    member.disk.holds_saves = True
    member.ask(vote(9, 3))
    member.end_cut()
    assert net.flights == []
    member.end_save()
    member.fire("next")
    assert {part(f.request).current_leader_epoch for f in net.flights} == {9}


@pytest.mark.parametrize("is_observer", [False, True])
def test_a_node_that_has_not_started_yet_is_nothing_to_report_to_the_operator(
    is_observer: bool,
) -> None:
    """Goal: a node that starts beside others makes them log nothing. It is left alone for a while."""
    net, member = following(observer_ids=[9])
    if is_observer:
        net.flights.clear()
        member = net[9].start()
    starting = wire.FetchResponse(error_code=Code.BROKER_NOT_AVAILABLE)
    asked = only(net).target_id
    answer(net, member, starting)
    assert member.warnings == []
    assert asked not in {flight.target_id for flight in net.flights}


def test_what_happens_as_a_part_of_an_event_is_not_saved_without_the_rest_of_it() -> None:
    """A log that is cut at once says so inside the event: an epoch would be on disk without its vote."""
    disk = Disk()
    disk.holds_saves = True
    notified: list[ElectionState] = []
    state = ElectionState(0)
    gate = Gate(disk, lambda: state, lambda by_ms: [])

    def part_of_it(_now_ms: int) -> Effects:
        notified.append(state)
        return []

    def event(now_ms: int) -> Effects:
        nonlocal state
        state = ElectionState(1)
        gate.take(part_of_it, now_ms)
        state = ElectionState(1, voted_id=2)
        return []

    gate.take(event, 0)
    assert notified == [ElectionState(1)], "in its place"
    disk.end_save(0)
    assert disk.saved == [state]
    assert not gate.is_saving
