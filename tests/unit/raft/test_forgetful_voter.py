"""A voter whose disk lost what it had promised to have: with its vote a leader might win without it."""

import pytest

from firnline.base.ids import OffsetAndEpoch
from firnline.raft.election_state import ElectionState
from firnline.raft.role import Role
from tests.worlds.raft import Disk, Member, Net, alone, part, vote


def forget(member: Member) -> None:
    """Its log is gone; what it once had is all it knows."""
    old = member.disk
    end = OffsetAndEpoch(old.end_offset, old.last_epoch)
    member.disk = Disk()
    member.disk.saved = old.saved
    member.disk.forgot = end


def behind_by_a_record() -> tuple[Net, Member, Member, Member]:
    """A leader, a follower that has all that is committed, and one that lacks the last record."""
    net = Net().start()
    leader = net.elect()
    full, late = net.elsewhere(leader)
    net.run_for(100)
    net.cut(late.node_id)
    leader.propose(b"promised")
    net.run_for(50)
    assert leader.node.high_watermark == leader.disk.end_offset
    assert late.disk.end_offset < leader.disk.end_offset
    return net, leader, full, late


def test_no_leader_wins_by_the_vote_of_one_that_forgot() -> None:
    """The record is on the leader's disk and nowhere else: nobody leads before that is back."""
    net, leader, full, late = behind_by_a_record()
    leader.crash()
    full.crash()
    forget(full)
    net.heal()
    full.start()
    net.run_for(15_000)
    assert net.leaders == []
    leader.start()
    net.elect()
    assert full.node.log.forgotten is None
    for member in (leader, full, late):
        assert (b"promised") in [value for *_, value in member.disk.values()]


def test_who_forgot_is_reported_and_so_is_its_return() -> None:
    net, leader, full, _ = behind_by_a_record()
    full.crash()
    forget(full)
    full.start()
    (line,) = [line for line in full.warnings if "has lost metadata" in line]
    place = full.disk.forgot
    assert place is not None
    assert f"offset={place.offset} epoch={place.epoch}" in line
    net.run_for(1_000)
    assert full.disk.values() == leader.disk.values()
    assert [line for line in full.warnings if "takes part in elections again" in line]


def test_who_has_its_log_again_votes_and_stands_again() -> None:
    net, leader, full, late = behind_by_a_record()
    full.crash()
    forget(full)
    full.start()
    net.run_for(1_000)
    assert full.node.log.forgotten is None
    net.heal()
    late.crash()
    leader.crash()
    late.start()
    net.run_for(20_000, until=lambda: full.node.role is Role.LEADER)


@pytest.mark.parametrize("is_pre_vote", [True, False])
def test_who_forgot_grants_nothing_however_much_the_candidate_has(*, is_pre_vote: bool) -> None:
    _, member = alone()
    member.crash()
    member.disk.forgot = OffsetAndEpoch(5, 1)
    member.start()
    (answer,) = member.ask(vote(3, last=(1_000, 2), is_pre_vote=is_pre_vote))
    assert not part(answer).vote_granted
    member.disk.forgot = None
    (answer,) = member.ask(vote(4, last=(1_000, 2), is_pre_vote=is_pre_vote))
    assert part(answer).vote_granted


@pytest.mark.parametrize(
    ("saved", "role"),
    [
        (ElectionState(7), Role.UNATTACHED),
        (ElectionState(7, voted_id=1), Role.UNATTACHED),
        (ElectionState(7, leader_id=1), Role.RESIGNED),
        (ElectionState(7, leader_id=2), Role.FOLLOWER),
    ],
)
def test_who_forgot_never_stands_whatever_it_was(saved: ElectionState, role: Role) -> None:
    """And keeps the vote it gave."""
    net = Net()
    member = net[1]
    member.disk.save(saved)
    member.disk.forgot = OffsetAndEpoch(5, 1)
    member.start()
    assert member.node.role is role
    assert member.node.voted_id == saved.voted_id
    net.run_for(15_000)
    assert member.node.role in (Role.UNATTACHED, Role.FOLLOWER)
    assert member.node.epoch <= 8


def test_a_log_that_is_synced_while_nobody_leads_is_reason_to_stand() -> None:
    """It waited for nothing before that; nobody else may be able to win."""
    net = Net()
    member = net[1]
    member.holds_flushes = True
    member.disk.forgot = OffsetAndEpoch(1, 1)
    member.start()
    assert member.disk.append(_batch(), epoch=1, now_ms=1) == 0
    net.run_for(5_000)
    assert member.node.role is Role.UNATTACHED
    member.holds_flushes = False
    net.run_for(5_000)
    assert member.node.role is Role.PROSPECTIVE


def _batch() -> bytearray:
    from firnline.records.build import NewRecord, build_batch

    return build_batch([NewRecord(None, b"x", 1)], leader_epoch=1)
