"""Epochs that are refused, how a quorum lives near the last of them, and that no message ends a node."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.base.effects import Peer, Unanswered
from firnline.base.errors import Code, StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.protocol.messages.k55_describe_quorum import DescribeQuorumRequest
from firnline.raft import wire
from firnline.raft.election_state import (
    EPOCH_FREE_MAX,
    EPOCH_MAX,
    ElectionState,
    decode_election_state,
    encode_election_state,
    highest_to_take,
    is_epoch,
)
from firnline.raft.role import Role
from firnline.raft.snapshot_serve import Chunk
from tests.worlds.raft import (
    Member,
    Net,
    alone,
    begin,
    end,
    fetch,
    fetch_snapshot,
    one_record,
    part,
    vote,
)

PAUSE_MS = 1000  # the election timeout of the rig


def refusal(member: Member, request: Any) -> int:
    (answer,) = member.ask(request)
    return int(answer.error_code or part(answer).error_code)


def near_the_end(epoch: int, voters: int = 3, **behind: int) -> Net:
    """A quorum that is in `epoch`; `n1=5`: but for node 1, which is in 5."""
    net = Net(range(1, voters + 1))
    for node_id in net.members:
        net[node_id].disk.save(ElectionState(behind.get(f"n{node_id}", epoch)))
    return net.start()


# ------------------------------------------------------------------------------------------ the rule


def test_any_lower_epoch_is_taken_at_once() -> None:
    for own in (0, 5, EPOCH_FREE_MAX - 1):
        assert highest_to_take(own, since_risen_ms=0, pause_ms=PAUSE_MS) == EPOCH_FREE_MAX


def test_above_the_bound_an_epoch_rises_by_one_and_not_twice_in_a_pause() -> None:
    for own in (EPOCH_FREE_MAX, EPOCH_MAX - 1):
        assert highest_to_take(own, since_risen_ms=None, pause_ms=PAUSE_MS) == own + 1
        assert highest_to_take(own, since_risen_ms=PAUSE_MS, pause_ms=PAUSE_MS) == own + 1
        assert highest_to_take(own, since_risen_ms=PAUSE_MS - 1, pause_ms=PAUSE_MS) == own
    assert highest_to_take(EPOCH_MAX, since_risen_ms=None, pause_ms=PAUSE_MS) == EPOCH_MAX


# ---------------------------------------------------------------------------------------- requests


@pytest.mark.parametrize("epoch", [EPOCH_FREE_MAX + 1, EPOCH_MAX - 1, EPOCH_MAX])
@pytest.mark.parametrize("make", [vote, begin, end])
def test_an_epoch_that_leaves_no_room_for_elections_is_refused(make: Any, epoch: int) -> None:
    """Three Votes of the last epoch ended two of three nodes, and their quorum-state could not be read."""
    _, member = alone()
    member.ask(begin(4, 2))
    saved = list(member.disk.saved)
    for _ in range(3):
        assert refusal(member, make(epoch, 3)) == Code.INVALID_REQUEST
    assert member.stands == (Role.FOLLOWER, 4, 2)
    assert member.disk.saved == saved
    said = [line for line in member.warnings if f"refused_epoch={epoch} " in line]
    assert len(said) == 1


@pytest.mark.parametrize("make", [vote, begin, end])
def test_the_highest_epoch_that_is_believed_is_taken(make: Any) -> None:
    _, member = alone()
    assert refusal(member, make(EPOCH_FREE_MAX, 3)) == Code.NONE
    assert member.node.epoch == EPOCH_FREE_MAX


def test_a_fetch_of_any_epoch_moves_no_leader() -> None:
    net = Net().start()
    leader = net.elect()
    for epoch in (EPOCH_FREE_MAX, EPOCH_MAX):
        (answer,) = leader.ask(fetch(epoch, 2, (1, 1)))
        assert part(answer).error_code == Code.UNKNOWN_LEADER_EPOCH
        (answer,) = leader.ask(fetch_snapshot(epoch, 2, (1, 1), 0))
        assert part(answer).error_code == Code.UNKNOWN_LEADER_EPOCH
    assert leader.stands == (Role.LEADER, 1, leader.node_id)


def test_votes_of_the_last_epoch_cost_a_quorum_nothing() -> None:
    """Apache Kafka 4.3.1 grants them and never elects a leader again (asked)."""
    net = Net().start()
    leader = net.elect()
    for member in net.members.values():
        assert refusal(member, vote(EPOCH_MAX, 77, last=(10**6, 9), voter_id=member.node_id))
    leader.propose(b"a")
    net.run_for(10_000)
    assert leader.stands == (Role.LEADER, 1, leader.node_id)
    assert leader.node.high_watermark == 2


# ----------------------------------------------------------------------------------------- answers


def test_a_leader_that_lies_about_the_epoch_is_not_followed_there() -> None:
    net, member = alone()
    member.ask(begin(4, 2))
    flight = [each for each in net.flights if each.target_id == 2][-1]
    for _ in range(5):
        known = wire.LeaderAndEpoch(EPOCH_MAX, 2, Peer(2, "host-2", 9002))
        lie = wire.fetch_response(Code.NONE, known, log_start_offset=0)
        member.run(flight.send.then(lie, net.now_ms))
        net.now_ms += PAUSE_MS
        flight = net.flights[-1]
    assert EPOCH_FREE_MAX <= member.node.epoch <= EPOCH_FREE_MAX + 5
    assert not any(state.leader_id == 2 and state.epoch > 4 for state in member.disk.saved)


# ------------------------------------------------------------------------------- near the last epoch


@pytest.mark.parametrize("voters", [1, 2, 3])
@pytest.mark.parametrize("epoch", [EPOCH_FREE_MAX - 1, EPOCH_FREE_MAX + 999])
def test_a_quorum_near_the_end_elects_leaders_again_and_again(epoch: int, voters: int) -> None:
    net = near_the_end(epoch, voters)
    for turn in range(2):
        leader = net.elect()
        leader.propose(b"%d" % turn)
        net.run_for(2_000)
        leader.crash()
        net.run_for(3_000)
        leader.start()
    net.elect()
    assert net.members[1].node.epoch <= epoch + 30


def test_a_node_that_was_away_comes_up_to_a_quorum_near_the_end() -> None:
    """One epoch for each answer: twelve epochs behind are twelve election timeouts."""
    epoch = EPOCH_FREE_MAX + 12
    net = near_the_end(epoch, n1=5)
    net.run_for(30_000, until=net.agree)
    assert net[1].node.epoch >= epoch


def test_a_majority_that_is_behind_comes_up_too() -> None:
    epoch = EPOCH_FREE_MAX + 8
    net = near_the_end(epoch, n1=5, n2=7)
    net.run_for(30_000, until=net.agree)
    assert net[1].node.epoch >= epoch


@pytest.mark.parametrize("make", [vote, begin, end])
def test_whoever_asks_without_a_pause_takes_an_epoch_a_second_above_the_bound(make: Any) -> None:
    net, member = alone()
    began = EPOCH_FREE_MAX
    member.ask(make(began, 3))
    for _ in range(200):
        net.now_ms += 50
        member.ask(make(member.node.epoch + 1, 3))
    assert member.node.epoch == began + 10
    assert sum("near the last possible epoch" in line for line in member.warnings) == 1


def test_at_the_last_epoch_a_leader_goes_on_and_nobody_follows_it_in_office() -> None:
    net = near_the_end(EPOCH_MAX - 1)
    leader = net.elect()
    assert leader.node.epoch == EPOCH_MAX
    leader.propose(b"a")
    net.run_for(5_000)
    assert leader.node.high_watermark == 2
    leader.crash()
    net.run_for(10_000)
    leader.start()
    net.run_for(10_000)
    assert not net.leaders
    for member in net.members.values():
        assert member.node.epoch == EPOCH_MAX
        assert decode_election_state(
            encode_election_state(member.disk.saved[-1], (1, 2, 3)), path="quorum-state"
        )
    said = [line for m in net.members.values() for line in m.warnings if "no epoch after" in line]
    assert 1 <= len(said) <= 3


def test_a_sole_voter_at_the_last_epoch_starts_and_says_what_is_wrong() -> None:
    net = near_the_end(EPOCH_MAX, voters=1)
    net.run_for(10_000)
    assert net[1].node.role is not Role.LEADER
    assert any("no epoch after" in line for line in net[1].warnings)


def test_a_quorum_at_the_end_begins_again_below_as_operations_says() -> None:
    """Stop all, give each the epoch of the last record of all logs, start all."""
    net = Net(observer_ids=[9]).start()
    leader = net.elect()
    leader.propose(b"kept")
    net.run_for(2_000)
    for member in net.members.values():
        member.crash()
        member.disk.save(ElectionState(EPOCH_MAX))
        member.start()
    net.run_for(10_000)
    assert not net.leaders
    for member in net.members.values():
        member.crash()
    last = max(member.disk.last_epoch for member in net.members.values())
    for member in net.members.values():
        member.disk.save(ElectionState(last))
        member.start()
    leader = net.elect()
    leader.propose(b"new")
    net.run_for(2_000)
    assert leader.node.epoch < 10
    for member in net.members.values():
        assert [value for _, _, value in member.disk.values() if value in (b"kept", b"new")] == [
            b"kept",
            b"new",
        ]


# ----------------------------------------------------------------------------------------- at a start


@pytest.mark.parametrize("epoch", [-1, EPOCH_MAX + 1, 2**63])
def test_what_is_no_epoch_in_quorum_state_is_damage_with_a_remedy(epoch: int) -> None:
    data = encode_election_state(ElectionState(epoch), (1, 2, 3))
    with pytest.raises(StorageError, match=r"quorum-state is damaged.*restore it"):
        decode_election_state(data, path="/a/quorum-state")


def test_what_the_own_log_says_is_believed_at_a_start() -> None:
    net = Net()
    net[1].disk.batches.append(one_record(0, EPOCH_MAX - 3, b"a"))
    net[1].disk.synced_offset = 1
    net[1].start()
    assert net[1].node.epoch == EPOCH_MAX - 3
    assert any("near the last possible epoch" in line for line in net[1].warnings)


# ---------------------------------------------------------------------------------------- properties

NUMBERS = st.sampled_from(
    [-(2**31), -1, 0, 1, 4, 5, EPOCH_FREE_MAX, EPOCH_FREE_MAX + 1, EPOCH_MAX - 1, EPOCH_MAX]
)
OFFSETS = st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 10**6, 2**62, 2**63 - 1])
IDS = st.sampled_from([-1, 1, 2, 3, 77])
EPOCHS = st.one_of(NUMBERS, st.sampled_from(["own", "own+1", "own+2"]))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["vote", "pre-vote", "begin", "end", "fetch", "snapshot", "describe"]
            + ["answer"] * 6
            + ["silence", "time", "restart"]
        ),
        EPOCHS,
        IDS,
        OFFSETS,
        EPOCHS,
        st.integers(0, 7),
    ),
    min_size=1,
    max_size=25,
)


class Attacked:
    """One node of three, and somebody who says whatever is drawn, to it and in the others' place."""

    def __init__(self, epoch: int) -> None:
        self.net = Net()
        self.member = self.net[1]
        for offset in range(2):
            self.member.disk.batches.append(one_record(offset, min(1, epoch), b"a"))
        self.member.disk.synced_offset = 2
        self.member.disk.save(ElectionState(epoch))
        self.member.start()

    def _epoch(self, drawn: Any) -> int:
        if isinstance(drawn, int):
            return drawn
        return min(self.member.node.epoch + int(drawn[3:] or 0), EPOCH_MAX)

    def do(self, step: tuple[Any, ...]) -> None:
        what, drawn, node_id, offset, other, kind = step
        epoch, other_epoch = self._epoch(drawn), self._epoch(other)
        member, net = self.member, self.net
        place = (offset, other_epoch)
        if what in ("vote", "pre-vote"):
            member.ask(vote(epoch, node_id, last=place, is_pre_vote=what == "pre-vote"))
        elif what == "begin":
            member.ask(begin(epoch, node_id))
        elif what == "end":
            member.ask(end(epoch, node_id, [(kind, bytes(16))]))
        elif what == "fetch":
            member.ask(fetch(epoch, node_id, place, high_watermark=None, max_wait_ms=kind - 1))
        elif what == "snapshot":
            member.ask(fetch_snapshot(epoch, node_id, place, offset))
        elif what == "describe":
            member.ask(DescribeQuorumRequest(topics=[]))
        elif what == "time":
            net.now_ms += 300 * kind
            for key in [k for k, t in member.timers.items() if t.at_ms <= net.now_ms]:
                timer = member.timers.pop(key, None)
                if timer is not None:
                    member.run(timer.then(net.now_ms))
        elif what == "restart":
            net.flights.clear()
            member.crash(power=False)
            member.start()
        elif net.flights:
            flight = net.flights[kind % len(net.flights)]
            net.flights.remove(flight)
            known = wire.LeaderAndEpoch(epoch, max(node_id, -1), Peer(node_id, "host", 1))
            answer = Unanswered(why="gone") if what == "silence" else None
            answer = answer or self._answer(flight.request, known, offset, other_epoch, kind)
            member.run(flight.send.then(answer, net.now_ms))
        member.sync()

    def _answer(self, request: Any, known: Any, offset: int, epoch: int, kind: int) -> Any:
        code = (Code.NONE, Code.NONE, Code.NONE, Code.FENCED_LEADER_EPOCH)[kind % 4]
        if isinstance(request, wire.VoteRequest):
            return wire.vote_response(code, known, is_granted=kind % 2 == 0)
        if isinstance(request, wire.BeginQuorumEpochRequest):
            return wire.begin_response(code, known)
        if isinstance(request, wire.EndQuorumEpochRequest):
            return wire.end_response(code, known)
        if isinstance(request, wire.FetchSnapshotRequest):
            wanted = request.topics[0].partitions[0].snapshot_id
            here = OffsetAndEpoch(wanted.end_offset, wanted.epoch)
            data = (b"all!", b"", b"half")[kind % 3]
            chunk = Chunk(here, 4 if kind < 6 else offset, 0, data)
            return wire.fetch_snapshot_response(code, known, chunk=chunk)
        options: dict[str, Any] = {}
        if kind == 1:
            options["diverging"] = (epoch, offset)
        elif kind == 2:
            options["snapshot_id"] = OffsetAndEpoch(offset, epoch)
        elif kind > 3:
            end_offset = self.member.disk.end_offset
            options["records"] = one_record(end_offset, max(epoch, -1), b"forged")
        return wire.fetch_response(
            code, known, log_start_offset=offset, high_watermark=offset, **options
        )

    def check(self) -> None:
        """Every epoch of its disk can be read again, and none falls; what it wants to say can be written."""
        epochs = [state.epoch for state in self.member.disk.saved]
        assert epochs == sorted(epochs)
        assert all(map(is_epoch, epochs))
        assert self.member.node.epoch in (epochs[-1], 0)
        state = self.member.disk.saved[-1]
        assert decode_election_state(encode_election_state(state, (1, 2, 3)), path="") == state
        for flight in self.net.flights:
            flight.request.write(type(flight.request).valid.last)


@settings(max_examples=250, deadline=None)
@given(
    start=st.sampled_from(
        [0, 4, EPOCH_FREE_MAX - 1, EPOCH_FREE_MAX, EPOCH_MAX - 2, EPOCH_MAX - 1, EPOCH_MAX]
    ),
    steps=STEPS,
)
def test_no_request_and_no_answer_ends_a_node_or_makes_an_epoch_that_cannot_be(
    start: int, steps: list[tuple[Any, ...]]
) -> None:
    attacked = Attacked(start)
    for step in steps:
        attacked.do(step)
        attacked.check()


@settings(max_examples=12, deadline=None)
@given(
    start=st.sampled_from([1, EPOCH_FREE_MAX - 1, EPOCH_FREE_MAX + 7]),
    asked=st.lists(
        st.tuples(st.sampled_from([vote, begin, end]), EPOCHS, st.integers(1, 3), st.booleans()),
        max_size=20,
    ),
)
def test_a_quorum_that_was_attacked_elects_a_leader_when_it_is_over(
    start: int, asked: list[tuple[Any, Any, int, bool]]
) -> None:
    net = near_the_end(start)
    for make, drawn, target, is_late in asked:
        member = net[target]
        own = member.node.epoch
        epoch = drawn if isinstance(drawn, int) else min(own + int(drawn[3:] or 0), EPOCH_MAX)
        request = make(epoch, 77)
        if make is vote:
            request.topics[0].partitions[0].last_offset = 10**6
        member.ask(request)
        net.run_for(700 if is_late else 1)
    leader = net.elect()
    leader.propose(b"after")
    net.run_for(1_000)
    assert leader.node.high_watermark is not None
