"""While a log is cut, or a snapshot takes its place, a node goes by nothing that a power cut could undo."""

from typing import Any

import pytest

from firnline.base.effects import Unanswered
from firnline.base.errors import StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.raft.election_state import ElectionState
from firnline.raft.role import Role
from firnline.raft.settings import QuorumSettings
from tests.unit.raft.test_following import (
    answer,
    asked,
    batch,
    chunk,
    diverging,
    needs,
    only,
    records,
)
from tests.worlds.raft import Member, Net, begin, part, vote

TAIL = (batch(0, 1, b"a"), batch(1, 2, b"b"), batch(2, 2, b"c"))


def cutting(**options: Any) -> tuple[Net, Member]:
    """A follower of node 2 in epoch 4 that was told to give up all from offset 1 on; its disk is at it."""
    net = Net(**options)
    member = net[1]
    member.disk.save(ElectionState(4, leader_id=2))
    for data in TAIL:
        member.disk.append_fetched(data, now_ms=1)
    member.disk.synced_offset = 3
    member.start()
    assert asked(net).fetch_offset == 3
    member.disk.holds_cuts = True
    answer(net, member, diverging(1, 1))
    return net, member


def test_nothing_is_fetched_from_a_place_that_a_power_cut_would_undo() -> None:
    """X17: a Fetch promises that the log ends there, as a prefix of the leader's."""
    net, member = cutting()
    member.run(member.node.poll(net.now_ms))
    assert net.flights == []
    member.end_cut()
    assert (asked(net).fetch_offset, asked(net).last_fetched_epoch) == (1, 1)


def test_a_power_cut_in_the_middle_brings_the_old_log_back_and_nobody_was_notified_of_the_new() -> (
    None
):
    net, member = cutting()
    member.crash()
    member.start()
    assert member.disk.end_offset == 3
    assert (asked(net).fetch_offset, asked(net).last_fetched_epoch) == (3, 2)


def test_a_sync_that_began_before_the_cut_vouches_for_nothing() -> None:
    net = Net()
    member = net[1]
    member.disk.save(ElectionState(4, leader_id=2))
    member.start()
    member.holds_flushes = True
    answer(net, member, records(*TAIL))
    (early,) = member.flushes
    member.flushes.clear()
    member.disk.holds_cuts = True
    member.run(member.node._quorum.truncate_log(1, net.now_ms))
    member.run(early.then(None, net.now_ms))
    assert net.flights == []
    assert member.flushes == [], "files are being cut: what is left of them is synced afterwards"
    member.end_cut()
    assert net.flights == []
    member.sync()
    assert member.disk.synced_offset == 1
    assert asked(net).fetch_offset == 1


@pytest.mark.parametrize("is_pre_vote", [False, True])
def test_no_vote_is_given_away_while_it_is_not_known_what_this_node_has(is_pre_vote: bool) -> None:
    _, member = cutting()
    member.node._quorum.has_fetched = False  # it has no leader that lives, as far as it knows
    wanted = vote(9, 3, last=(1, 1), is_pre_vote=is_pre_vote)
    (answered,) = member.ask(wanted)
    assert not part(answered).vote_granted
    member.end_cut()
    (answered,) = member.ask(wanted)
    assert part(answered).vote_granted


def test_a_vote_that_was_given_stays_given_while_the_log_is_cut() -> None:
    """I2: it is on disk; a candidate that asks again must not take it for lost."""
    _, member = cutting()
    quorum = member.node._quorum
    quorum.transition_to_unattached(9, member.net.now_ms)
    quorum.grant(3, bytes(16))
    (answered,) = member.ask(vote(9, 3, last=(3, 2)))
    assert part(answered).vote_granted


def test_nobody_is_asked_for_a_vote_before_the_disk_knows_where_the_log_ends() -> None:
    """It would win by records that it is about to lose, or lead a log that it cannot append to."""
    net, member = cutting()
    member.fire("fetch")
    assert member.node.role is Role.PROSPECTIVE
    assert net.flights == []
    member.run(member.node._quorum.transition_to_candidate(net.now_ms))
    assert member.node.role is Role.CANDIDATE
    assert (net.flights, member.flushes) == ([], [])
    member.end_cut()
    asked_for = [part(flight.request) for flight in net.flights]
    assert {(one.last_offset, one.last_offset_epoch) for one in asked_for} == {(1, 1)}
    assert len(asked_for) == 2


def test_elections_go_on_in_time_where_a_cut_lasts_long_and_raise_no_epoch() -> None:
    net, member = cutting()
    member.fire("fetch")
    for _ in range(3):
        member.fire("election" if member.node.role is not Role.FOLLOWER else "fetch")
    assert member.node.epoch == 4
    assert net.flights == []


def test_a_new_leader_is_followed_at_once_and_asked_when_the_cut_is_on_disk() -> None:
    net, member = cutting()
    member.ask(begin(5, 3))
    assert member.stands == (Role.FOLLOWER, 5, 3)
    assert net.flights == []
    member.end_cut()
    assert (only(net).target_id, asked(net).fetch_offset) == (3, 1)


def test_what_is_unattached_asks_nobody_either() -> None:
    net, member = cutting()
    member.ask(vote(9, 3, last=(0, 0)))
    assert member.node.role is Role.UNATTACHED
    assert net.flights == []
    member.end_cut()
    assert asked(net).fetch_offset == 1


def test_an_observer_waits_for_its_disk_too() -> None:
    net = Net((2, 3), observer_ids=(1,))
    member = net[1]
    member.disk.save(ElectionState(4, leader_id=2))
    for data in TAIL:
        member.disk.append_fetched(data, now_ms=1)
    member.start()
    member.disk.holds_cuts = True
    answer(net, member, diverging(1, 1))
    assert net.flights == []
    member.end_cut()
    assert asked(net).fetch_offset == 1


def test_a_disk_that_cannot_cut_stops_the_node() -> None:
    """rel-P9."""
    _, member = cutting()
    with pytest.raises(StorageError, match="the device failed"):
        member.end_cut(StorageError("the device failed"))


def test_a_node_that_stops_meanwhile_says_nothing_more_and_is_not_closed_before_the_end() -> None:
    net, member = cutting()
    member.node.stop()
    assert member.node.is_writing
    member.end_cut()
    assert net.flights == []
    assert not member.node.is_writing


def test_no_snapshot_is_retired_from_a_log_that_is_being_cut() -> None:
    settings = QuorumSettings(retention_max_bytes=1)
    net, member = cutting(settings=settings)
    member.disk.snapshots = {OffsetAndEpoch(end, 1): (b"s" * 100, 1) for end in (0, 1)}
    member.fire("clean")
    assert len(member.disk.snapshots) == 2
    member.end_cut()
    net.flights.clear()
    member.fire("clean")
    assert len(member.disk.snapshots) == 1


def test_the_log_is_asked_for_from_a_snapshots_end_once_nothing_brings_the_old_one_back() -> None:
    """rel-Q11: the image is loaded meanwhile, which the snapshot alone is needed for."""
    net = Net()
    member = net[1]
    member.disk.save(ElectionState(4, leader_id=2))
    member.start()
    answer(net, member, needs(90, 3))
    member.disk.holds_cuts = True
    answer(net, member, chunk(90, 3, 7, 0, b"snapho!"))
    member.sync()
    assert member.listener.received[-1] == "snapshot 90-3"
    assert member.node.high_watermark == 90
    assert net.flights == []
    (answered,) = member.ask(vote(9, 3, last=(95, 3)))
    assert not part(answered).vote_granted
    member.end_cut()
    assert (asked(net).fetch_offset, asked(net).last_fetched_epoch) == (90, 3)


def test_a_part_of_a_log_without_its_beginning_goes_before_the_records_of_a_leader_come() -> None:
    """It is kept until a leader answers: others might have had to be mended by it."""
    net = Net()
    member = net[1]
    member.disk.save(ElectionState(4, leader_id=2))
    member.disk.lost_beginning = True
    member.start()
    member.disk.holds_cuts = True
    answer(net, member, Unanswered(why="down"))
    assert not member.node.is_writing
    net.now_ms += 1_000
    member.run(member.node.poll(net.now_ms))
    answer(net, member, records(batch(0, 4, b"a"), high_watermark=1))
    assert member.node.is_writing
    assert (member.disk.end_offset, net.flights) == (0, [])
    member.disk.lost_beginning = False
    member.end_cut()
    answer(net, member, records(batch(0, 4, b"a"), high_watermark=1))
    assert member.disk.end_offset == 1


def test_nobody_takes_office_while_the_log_is_cut() -> None:
    """What asks nobody is elected by nobody; were it otherwise, it would append to files that are cut."""
    _, member = cutting()
    quorum = member.node._quorum
    quorum.transition_to_prospective(member.net.now_ms)
    quorum.transition_to_candidate(member.net.now_ms)
    with pytest.raises(AssertionError, match="asks for no votes"):
        quorum.transition_to_leader((1, 2), member.net.now_ms)
