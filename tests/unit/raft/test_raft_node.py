"""One voter: it leads at once, tells a commit after the sync, and never uses an epoch twice."""

from typing import Any

import pytest

from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import Bug, Code, ConfigError, KafkaError, StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.raft.calls import Gate, Timers
from firnline.raft.election_state import (
    ElectionState,
    decode_election_state,
    encode_election_state,
)
from firnline.raft.node import RaftNode
from firnline.raft.role import TRANSITIONS, Cause, Role, next_role
from firnline.raft.voters import Voter, VoterSet, parse_voters
from firnline.records.batch import headers
from firnline.records.control import ControlType, LeaderChangeMessage, decode_key, decode_value
from firnline.records.record import records
from tests.worlds.chance import CountingRng
from tests.worlds.effects import only, told
from tests.worlds.quorum import Loop, MemoryLog


class RecordingListener:
    """A listener that writes down what it hears."""

    def __init__(self) -> None:
        self.received: list[tuple[str, int]] = []

    def on_leader(self, epoch: int, now_ms: int) -> Effects:
        self.received.append(("leader", epoch))
        return []

    def on_useless_snapshot(
        self, snapshot_id: OffsetAndEpoch, replica_id: int, now_ms: int
    ) -> Effects:
        return []

    def on_leader_change(self, leader_id: int, epoch: int, now_ms: int) -> Effects:
        self.received.append(("leader-change", leader_id))
        return []

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> Effects:
        raise AssertionError("nobody sends one")

    def on_committed(self, end_offset: int, now_ms: int) -> Effects:
        self.received.append(("committed", end_offset))
        return []


def a_node(log: MemoryLog, voters: VoterSet | None = None) -> tuple[RaftNode, RecordingListener]:
    reported = RecordingListener()
    own = voters or VoterSet([Voter(1, "localhost", 9093)])
    node = RaftNode(
        node_id=1,
        cluster_id="c",
        directory_id=bytes(16),
        voters=own,
        log=log,  # type: ignore[arg-type]
        elections=log,
        listener=reported,
        rng=CountingRng(1_001),
    )
    return node, reported


def proposed(node: RaftNode, loop: Loop, *values: bytes) -> Any:
    outcome = node.propose(values, epoch=node.epoch, now_ms=1)
    assert not isinstance(outcome, KafkaError), outcome
    place, effects = outcome
    loop.run(effects)
    return place


def test_a_sole_voter_leads_with_no_timer_and_no_network() -> None:
    """Q16, Q4: the first epoch is 1."""
    log, loop = MemoryLog(), Loop()
    node, reported = a_node(log)
    loop.run(node.start(5))
    assert (node.role, node.epoch, node.leader_id) == (Role.LEADER, 1, 1)
    assert set(loop.timers) == {("raft", "clean")}
    assert (loop.work, loop.sends, loop.others) == ([], [], [])
    loop.sync()
    assert reported.received == [("committed", 1), ("leader", 1)]


def test_the_leadership_is_on_disk_before_the_first_record() -> None:
    log = MemoryLog()
    append = log.append

    def checked(batch: bytearray, *, epoch: int, now_ms: int) -> int:
        assert log.saved == [ElectionState(1, leader_id=1)]
        return append(batch, epoch=epoch, now_ms=now_ms)

    log.append = checked  # type: ignore[method-assign]
    a_node(log)[0].start(5)
    assert len(log.batches) == 1


def test_the_first_record_of_an_epoch_says_who_leads() -> None:
    """Q23: one control batch with leader, voters and granting voters."""
    log = MemoryLog()
    a_node(log)[0].start(77)
    (header,) = headers(log.batches[0])
    assert header.is_control
    assert (header.base_offset, header.leader_epoch, header.max_timestamp) == (0, 1, 77)
    (row,) = records(log.batches[0], header)
    assert decode_key(row.key) == ControlType.LEADER_CHANGE
    message = decode_value(ControlType.LEADER_CHANGE, row.value)
    assert isinstance(message, LeaderChangeMessage)
    assert message.leader_id == 1
    assert [v.voter_id for v in message.voters] == [1]
    assert [v.voter_id for v in message.granting_voters] == [1]


def test_nothing_is_committed_before_the_disk_has_it() -> None:
    """Q25: with one voter nobody else can bring a record back."""
    log, loop = MemoryLog(), Loop()
    node, reported = a_node(log)
    loop.run(node.start(5))
    assert node.high_watermark is None
    assert reported.received == []
    loop.sync()
    assert node.high_watermark == 1
    place = proposed(node, loop, b"a", b"b")
    assert place == (1, 2)
    assert node.high_watermark == 1
    loop.sync()
    assert node.high_watermark == 3
    assert log.high_watermark == 3


def test_the_high_watermark_is_unknown_until_the_own_epoch_is_committed() -> None:
    """Q20, Q23: records of an earlier epoch are committed by the first record of the own one."""
    log, loop = MemoryLog(), Loop()
    first, _ = a_node(log)
    loop.run(first.start(5))
    loop.sync()
    proposed(first, loop, b"a")
    loop.sync()
    again, reported = a_node(log)
    loop.run(again.start(6))
    assert again.high_watermark is None
    assert again.epoch_start_offset == 2
    loop.sync()
    assert reported.received == [("committed", 3), ("leader", 2)]


def test_syncs_reported_out_of_order_never_take_a_commit_back() -> None:
    log, loop = MemoryLog(), Loop()
    node, reported = a_node(log)
    loop.run(node.start(5))
    loop.sync()
    proposed(node, loop, b"a")
    proposed(node, loop, b"b")
    early, late = loop.flushes
    late.then(None, 6)
    assert node.high_watermark == 3
    early.then(None, 7)
    assert node.high_watermark == 3
    assert reported.received[2:] == [("committed", 3)]


def test_a_failed_sync_is_never_believed_afterwards() -> None:
    """rel-P9: the node stops; what it did not commit it does not commit later either."""
    log, loop = MemoryLog(), Loop()
    node, reported = a_node(log)
    loop.run(node.start(5))
    with pytest.raises(StorageError, match="no space"):
        loop.sync(StorageError("no space"))
    assert node.high_watermark is None
    assert reported.received == []


@pytest.mark.parametrize(
    "saved",
    [
        ElectionState(7, leader_id=1),
        ElectionState(7, voted_id=1),
        ElectionState(7, voted_id=2),
        ElectionState(7, leader_id=2),
        ElectionState(7),
    ],
)
def test_a_restart_never_leads_an_epoch_twice(saved: ElectionState) -> None:
    """Q15: two leaderships of one epoch could give one (offset, epoch) to two records."""
    log, loop = MemoryLog(), Loop()
    log.saved.append(saved)
    node, reported = a_node(log)
    loop.run(node.start(5))
    loop.sync()
    assert node.epoch == 8
    assert log.last_epoch == 8
    assert reported.received == [("committed", 1), ("leader", 8)]


def test_a_lost_quorum_state_does_not_lead_the_logs_last_epoch_again() -> None:
    """Q15: the stored epoch is older than the log's."""
    log, loop = MemoryLog(), Loop()
    node, _ = a_node(log)
    for _ in range(3):
        node, _ = a_node(log)
        loop.run(node.start(5))
        loop.sync()
    assert log.last_epoch == 3
    log.saved.clear()
    node, _ = a_node(log)
    node.start(6)
    assert node.epoch == 4


def test_a_proposal_of_another_epoch_is_refused() -> None:
    """Q29."""
    log, loop = MemoryLog(), Loop()
    node, _ = a_node(log)
    assert node.propose([b"a"], epoch=0, now_ms=1) == KafkaError(
        Code.NOT_CONTROLLER, "this node does not lead the metadata quorum"
    )
    loop.run(node.start(5))
    assert isinstance(node.propose([b"a"], epoch=2, now_ms=1), KafkaError)
    loop.run(node.resign(6))
    assert node.role is Role.RESIGNED
    assert isinstance(node.propose([b"a"], epoch=1, now_ms=1), KafkaError)
    assert len(log.batches) == 1


def test_a_proposal_is_one_batch_or_none() -> None:
    """Q29: too much for one batch is refused whole."""
    log, loop = MemoryLog(), Loop()
    node, _ = a_node(log)
    loop.run(node.start(5))
    refused = node.propose([b"x" * 5_000_000, b"y" * 5_000_000], epoch=1, now_ms=1)
    assert isinstance(refused, KafkaError)
    assert refused.code == Code.RECORD_LIST_TOO_LARGE
    assert len(log.batches) == 1
    proposed(node, loop, b"x" * 4_000_000, b"y")
    assert [header.record_count for header in headers(log.batches[1])] == [2]


def test_the_role_table_has_no_way_for_two_leaders_of_one_epoch() -> None:
    assert {next_role(role, Cause.NEWER_EPOCH) for role in Role} == {Role.UNATTACHED}
    assert [role for role in Role if TRANSITIONS[role][Cause.MAJORITY] is Role.LEADER] == [
        Role.CANDIDATE
    ]
    with pytest.raises(Bug):
        next_role(Role.LEADER, Cause.LEADER_FOUND)
    with pytest.raises(Bug):
        next_role(Role.FOLLOWER, Cause.MAJORITY)


def test_quorum_state_is_kafkas_line_byte_for_byte() -> None:
    """Q10, as a node of Kafka 4.3.1 with static voters wrote it."""
    line = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    assert encode_election_state(ElectionState(2, leader_id=1), (1,)) == line
    assert decode_election_state(line, path="p") == ElectionState(2, leader_id=1)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"3",
        b"\xff\xfe",
        b'{"leaderEpoch":-2,"leaderId":1,"votedId":1,"data_version":0}',
    ],
)
def test_a_damaged_quorum_state_is_not_taken_for_an_empty_one(line: bytes) -> None:
    """Whoever forgets its vote may vote twice."""
    with pytest.raises(StorageError, match="quorum-state is damaged"):
        decode_election_state(line, path="/d/quorum-state")


def test_a_directory_with_dynamic_voters_is_refused_by_name() -> None:
    line = b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"x","data_version":1}'
    with pytest.raises(ConfigError, match="dynamic voters"):
        decode_election_state(line, path="p")


def test_voters_are_read_as_kafka_spells_them() -> None:
    found = parse_voters(["3@[::1]:9093", " 1@a.example:9093"])
    assert found.voters == (Voter(1, "a.example", 9093), Voter(3, "::1", 9093))
    assert found.majority == 2
    assert 3 in found
    assert 2 not in found


@pytest.mark.parametrize(
    "entry", ["", "1", "1@host", "1@:9093", "x@h:1", "1@h:x", "1@h:0", "1@h:65536", "-1@h:1"]
)
def test_a_voter_that_cannot_be_read_is_named(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"controller\.quorum\.voters"):
        parse_voters([entry])


def test_a_voter_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        parse_voters(["1@a:1", "1@b:2"])


def test_a_moment_that_was_moved_or_dropped_meanwhile_is_none() -> None:
    """Its timer may be on its way already when it is moved."""
    timers, said = Timers(a_gate()), list[int]()

    def then(now_ms: int) -> Effects:
        said.append(now_ms)
        return [told("now")]

    early = only(timers.set("election", 5, then), SetTimer)
    late = only(timers.set("election", 9, then), SetTimer)
    assert early.then(5) == []
    assert late.then(9) == [told("now")]
    dropped = only(timers.set("election", 20, then), SetTimer)
    timers.cancel("election")
    assert dropped.then(20) == []
    assert said == [9]


def test_a_moment_that_came_while_a_vote_was_saved_comes_as_much_later() -> None:
    """Nobody is late because this node heard nobody: else each election on a slow disk would be lost."""
    timers, said = Timers(a_gate()), list[int]()

    def then(now_ms: int) -> Effects:
        said.append(now_ms)
        return []

    come = only(timers.set("election", 5, then), SetTimer)
    timers.set("clean", 6, then)
    moved = only(timers.postpone(3, "election", "fetch"), SetTimer)
    assert (moved.at_ms, timers.at_ms("election"), timers.at_ms("clean")) == (8, 8, 6)
    come.then(7)
    assert said == []
    moved.then(8)
    assert said == [8]
    assert timers.postpone(3, "election", "fetch") == []


def a_gate() -> Gate:
    """A gate where nothing changes."""
    return Gate(MemoryLog(), lambda: ElectionState(0), lambda by_ms: [])
