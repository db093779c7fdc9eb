"""Each invariant that a docstring names is asserted where it could be broken: here it is broken."""

from typing import Any

import pytest

from firnline.raft.leader import Replica
from firnline.raft.role import Role
from tests.worlds.raft import Member, Net


def member() -> Member:
    net = Net()
    return net[1].start()


def test_a_vote_is_not_forgotten_within_its_epoch() -> None:
    quorum = member().node._quorum
    with pytest.raises(AssertionError, match="I1, Q15"):
        quorum._forget_epoch(quorum.epoch)


def test_nobody_leads_who_did_not_vote_for_itself() -> None:
    quorum = member().node._quorum
    quorum.role, quorum.voted_id = Role.CANDIDATE, 2
    with pytest.raises(AssertionError, match="voted for itself"):
        quorum.transition_to_leader((1, 2), 1)


def test_what_is_not_in_the_log_is_not_committed() -> None:
    quorum = member().node._quorum
    with pytest.raises(AssertionError, match="rel-Q7"):
        quorum.commit(quorum.log.end_offset + 1, 1)


def test_who_does_not_lead_writes_no_record_of_its_own() -> None:
    leader = member().node._leader
    with pytest.raises(AssertionError, match="Q15, X1"):
        leader._append(bytearray(), 1)


def test_no_replica_is_taken_to_have_more_than_the_leader() -> None:
    with pytest.raises(AssertionError, match="Q24"):
        Replica(2, bytes(16)).fetches(5, leader_end_offset=4, now_ms=1)


def test_no_vote_is_given_where_the_leader_is_known() -> None:
    node = member().node
    node._quorum.leader_id = 3
    partition: Any = None
    with pytest.raises(AssertionError, match="needs no vote"):
        node._election._grant(partition, 1)
