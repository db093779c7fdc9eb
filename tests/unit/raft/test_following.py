"""Copying a leader's log: what is promised, cut, refused, downloaded, and whom to ask when nobody leads."""

from typing import Any

import pytest

from firnline.base.effects import Peer, Unanswered
from firnline.base.errors import Code, StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.raft import wire
from firnline.raft.election_state import ElectionState
from firnline.raft.role import Role
from firnline.raft.settings import QuorumSettings
from firnline.raft.snapshot_serve import Chunk
from firnline.records.build import NewRecord, build_batch
from tests.worlds.raft import CLUSTER, Flight, Member, Net, directory, part, peers, vote

LEADER = wire.LeaderAndEpoch(4, 2, Peer(2, "host-2", 9002))


def following(**options: Any) -> tuple[Net, Member]:
    """A follower of node 2 in epoch 4, whose first Fetch is under way; the test plays the others."""
    net = Net(**options)
    member = net[1]
    member.disk.save(ElectionState(4, leader_id=2))
    member.start()
    assert member.stands == (Role.FOLLOWER, 4, 2)
    return net, member


def batch(base_offset: int, epoch: int, *values: bytes) -> bytes:
    """A batch as a leader sends it."""
    rows = [NewRecord(None, value, 5) for value in values]
    return bytes(build_batch(rows, base_offset=base_offset, leader_epoch=epoch))


def records(*batches: bytes, high_watermark: int = 0, start: int = 0) -> Any:
    """A leader's answer with records."""
    return wire.fetch_response(
        Code.NONE,
        LEADER,
        log_start_offset=start,
        high_watermark=high_watermark,
        records=b"".join(batches),
    )


def diverging(epoch: int, end_offset: int) -> Any:
    return wire.fetch_response(Code.NONE, LEADER, log_start_offset=0, diverging=(epoch, end_offset))


def needs(offset: int, epoch: int) -> Any:
    """A leader's answer that names a snapshot."""
    return wire.fetch_response(
        Code.NONE, LEADER, log_start_offset=0, snapshot_id=OffsetAndEpoch(offset, epoch)
    )


def chunk(offset: int, epoch: int, size: int, position: int, data: bytes) -> Any:
    """A piece of a snapshot."""
    piece = Chunk(OffsetAndEpoch(offset, epoch), size, position, data)
    return wire.fetch_snapshot_response(Code.NONE, LEADER, chunk=piece)


def answer(net: Net, member: Member, response: Any) -> None:
    """Answer the one request that is under way."""
    (flight,) = net.flights
    net.flights.clear()
    member.run(flight.send.then(response, net.now_ms))


def asked(net: Net) -> Any:
    """The one partition of the one request under way."""
    (flight,) = net.flights
    return part(flight.request)


def only(net: Net) -> Flight:
    (flight,) = net.flights
    return flight


# ------------------------------------------------------------------------------------------ fetching


def test_a_fetch_says_all_that_a_leader_of_kafka_wants_to_know() -> None:
    net, member = following(settings=QuorumSettings(fetch_max_bytes=777))
    request = only(net).request
    assert request.cluster_id == CLUSTER
    assert (request.replica_id, request.replica_state.replica_id) == (1, 1)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 0, 777)
    assert (request.session_id, request.session_epoch, request.isolation_level) == (0, -1, 0)
    wanted = part(request)
    assert (wanted.current_leader_epoch, wanted.fetch_offset, wanted.last_fetched_epoch) == (
        4,
        0,
        0,
    )
    assert (wanted.replica_directory_id, wanted.high_watermark) == (directory(1), -1)
    assert only(net).target_id == 2
    assert only(net).send.timeout_ms == 2000
    assert member.timers["raft", "fetch"].at_ms == net.now_ms + 2000


def test_a_voter_promises_nothing_that_its_own_disk_may_lose() -> None:
    """X17, Q25: the leader counts a Fetch as a copy; it must be one after a power cut too."""
    net, member = following()
    member.holds_flushes = True
    answer(net, member, records(batch(0, 4, b"a"), high_watermark=1))
    assert member.disk.end_offset == 1
    assert net.flights == []
    assert member.node.high_watermark is None
    member.sync()
    assert (asked(net).fetch_offset, asked(net).last_fetched_epoch) == (1, 4)
    assert member.node.high_watermark == 1
    assert asked(net).high_watermark == 1


def test_a_slow_disk_is_not_asked_for_the_same_again() -> None:
    """Whatever else the voter hears meanwhile: each sync would wait behind the one before."""
    net, member = following()
    member.holds_flushes = True
    answer(net, member, records(batch(0, 4, b"a"), high_watermark=1))
    for _ in range(3):
        member.ask(vote(1, 3))
    assert len(member.flushes) == 1
    member.sync()
    assert asked(net).fetch_offset == 1


def test_an_observer_asks_on_without_waiting_for_its_disk() -> None:
    net = Net(observer_ids=[9])
    observer = net[9]
    observer.disk.save(ElectionState(4, leader_id=2))
    observer.start()
    observer.holds_flushes = True
    answer(net, observer, records(batch(0, 4, b"a"), high_watermark=1))
    assert asked(net).fetch_offset == 1
    assert observer.node.high_watermark == 1
    assert observer.flushes == []


def test_one_fetch_is_under_way_at_a_time() -> None:
    net, member = following()
    for _ in range(3):
        member.ask(vote(1, 3))
        member.run(member.node.poll(net.now_ms))
    assert len(net.flights) == 1


def test_a_sync_of_what_was_cut_meanwhile_promises_nothing() -> None:
    """X17: the bytes that are synced at those offsets are others."""
    net, member = following()
    member.holds_flushes = True
    answer(net, member, records(batch(0, 4, b"a"), batch(1, 4, b"lost")))
    (early,) = member.flushes
    member.flushes.clear()
    member.node._quorum.truncate_log(1, net.now_ms)
    member.disk.append_fetched(batch(1, 4, b"b"), now_ms=1)
    member.run(early.then(None, net.now_ms))
    assert member.disk.synced_offset < 2
    assert net.flights == []
    member.sync()
    assert member.disk.synced_offset == 2
    assert asked(net).fetch_offset == 2


def test_a_disk_that_fails_stops_the_node() -> None:
    """rel-P9."""
    net, member = following()
    member.holds_flushes = True
    answer(net, member, records(batch(0, 4, b"a")))
    with pytest.raises(StorageError, match="no space"):
        member.sync(StorageError("no space"))


def test_what_is_committed_is_reported_once_and_never_beyond_the_own_log() -> None:
    net, member = following()
    answer(net, member, records(batch(0, 4, b"a"), batch(1, 4, b"b"), high_watermark=1))
    member.sync()
    assert member.listener.received == ["leader 2 of 4", "committed 1"]
    answer(net, member, records(high_watermark=1))
    answer(net, member, records(high_watermark=-1))
    answer(net, member, records(high_watermark=9))
    assert member.listener.received[1:] == ["committed 1", "committed 2"]
    answer(net, member, records(high_watermark=1))
    assert member.node.high_watermark == 2
    answer(net, member, records(batch(2, 4, b"c"), high_watermark=9))
    assert member.node.high_watermark == 2
    member.sync()
    assert member.listener.received[1:] == ["committed 1", "committed 2", "committed 3"]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(batch(0, 5, b"a"), id="of a later epoch than the leader's"),
        pytest.param(batch(0, 4, b"corrupt"), id="damaged"),
        pytest.param(batch(0, 4, b"a")[:16] + b"\x01" + bytes(60), id="not a batch"),
    ],
)
def test_records_that_cannot_be_are_not_written(data: bytes) -> None:
    net, member = following()
    answer(net, member, records(data))
    assert member.disk.batches == []
    assert len(member.warnings) == 1
    assert only(net).target_id != 2
    assert member.node._quorum.has_fetched is False


def test_a_success_puts_the_fetch_timeout_off_and_a_refusal_does_not() -> None:
    net, member = following()
    due_ms = member.timers["raft", "fetch"].at_ms
    net.now_ms += 700
    answer(net, member, records())
    assert member.timers["raft", "fetch"].at_ms == due_ms + 700
    for code in (Code.NOT_LEADER_OR_FOLLOWER, Code.BROKER_NOT_AVAILABLE, Code.UNKNOWN_SERVER_ERROR):
        net.now_ms += 50
        for flight in list(net.flights):
            net.flights.remove(flight)
            refused = wire.fetch_response(code, LEADER, log_start_offset=0)
            member.run(flight.send.then(refused, net.now_ms))
        assert member.timers["raft", "fetch"].at_ms == due_ms + 700


def test_a_leader_that_answers_for_another_log_is_named_and_rested() -> None:
    net, member = following()
    response = records()
    response.responses[0].partitions[0].partition_index = 1
    answer(net, member, response)
    [line] = member.warnings
    assert "node=2" in line
    assert "another log" in line
    assert [problem.code for problem in member.node.refusals.values()] == [
        Code.UNKNOWN_TOPIC_OR_PARTITION
    ]


# ------------------------------------------------------------------------------------------ cutting


def with_log(*batches: bytes, high_watermark: int = 0, **options: Any) -> tuple[Net, Member]:
    """A follower whose log holds these batches, synced."""
    net, member = following(**options)
    answer(net, member, records(*batches, high_watermark=high_watermark))
    member.sync()
    return net, member


def test_a_log_that_left_the_leaders_is_cut_where_they_part() -> None:
    """Spec 1.7: the smaller of the leader's end and the own end of that epoch."""
    net, member = with_log(batch(0, 1, b"a"), batch(1, 2, b"b"), batch(2, 2, b"c"))
    answer(net, member, diverging(2, 2))
    assert member.disk.end_offset == 2
    assert (asked(net).fetch_offset, asked(net).last_fetched_epoch) == (2, 2)
    answer(net, member, diverging(1, 9))
    assert member.disk.end_offset == 1
    assert member.node._quorum.has_fetched


def test_nothing_that_is_committed_is_ever_cut() -> None:
    """X8, rel-Q7: silently it would lose what was acknowledged."""
    net, member = with_log(batch(0, 1, b"a"), batch(1, 2, b"b"), high_watermark=2)
    answer(net, member, diverging(1, 1))
    assert member.disk.end_offset == 2
    assert "below what is committed" in member.warnings[-1]
    assert member.node.refusals


def test_what_was_committed_under_another_leader_is_not_cut_either() -> None:
    """X8: the high watermark is unknown while leading, what was told is not."""
    net = Net().start()
    leader = net.elect()
    leader.propose(b"a")
    net.run_for(100)
    committed = leader.node._quorum.committed
    assert committed == 2
    net.cut(leader.node_id)
    net.run_for(3_500)
    for _ in range(2):
        leader.ask(vote(9, 3, voter_id=leader.node_id))
    quorum = leader.node._quorum
    assert quorum.committed == 2
    with pytest.raises(AssertionError, match="never truncated"):
        quorum.truncate_log(1, net.now_ms)


def test_what_a_snapshot_holds_is_not_cut_after_a_restart() -> None:
    """X8: the high watermark is not saved, but a snapshot holds nothing that is not committed."""
    net = Net()
    member = net[1]
    member.disk.save(ElectionState(4, leader_id=2))
    for offset in range(3):
        member.disk.append_fetched(batch(offset, 4 if offset == 2 else 3, b"a"), now_ms=1)
    member.disk.synced_offset = 3
    member.disk.take_snapshot(2)
    member.start()
    assert member.node.high_watermark is None
    answer(net, member, diverging(3, 1))
    assert member.disk.end_offset == 3
    assert "below what is committed" in member.warnings[-1]


def test_a_divergence_that_cuts_nothing_is_not_asked_for_at_once_again() -> None:
    net, member = with_log(batch(0, 1, b"a"))
    answer(net, member, diverging(1, 9))
    assert member.disk.end_offset == 1
    assert only(net).target_id == 3


# ------------------------------------------------------------------------------------------ snapshots


def test_a_snapshot_comes_in_pieces_and_takes_the_place_of_the_log() -> None:
    """Q35, Q37, Q38, rel-Q11."""
    net, member = with_log(
        batch(0, 1, b"a"),
        high_watermark=1,
        settings=QuorumSettings(fetch_snapshot_max_bytes=4),
    )
    answer(net, member, needs(90, 3))
    request = only(net).request
    assert (request.cluster_id, request.replica_id, request.max_bytes) == (CLUSTER, 1, 4)
    wanted = part(request)
    assert (wanted.current_leader_epoch, wanted.position) == (4, 0)
    assert (wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch) == (90, 3)
    assert wanted.replica_directory_id == directory(1)
    answer(net, member, chunk(90, 3, 7, 0, b"snap"))
    assert asked(net).position == 4
    member.holds_flushes = True
    answer(net, member, chunk(90, 3, 7, 4, b"ho!"))
    assert member.disk.snapshots == {}
    assert net.flights == []
    member.sync()
    assert [bytes(data) for data, _ in member.disk.snapshots.values()] == [b"snapho!"]
    assert (asked(net).fetch_offset, asked(net).last_fetched_epoch) == (90, 3)
    assert member.node.high_watermark == 90
    assert member.listener.received[-1] == "snapshot 90-3"
    answer(net, member, records(batch(90, 4, b"b"), high_watermark=91, start=90))
    member.sync()
    assert member.listener.received[-1] == "committed 91"


def test_a_snapshot_on_its_way_counts_for_nothing_in_a_vote() -> None:
    """rel-Q12: only what is complete and named is weighed."""
    net, member = with_log(batch(0, 1, b"a"))
    answer(net, member, needs(90, 3))
    answer(net, member, chunk(90, 3, 7, 0, b"snap"))
    (granted,) = member.ask(vote(9, 3, last=(1, 1)))
    assert part(granted).vote_granted
    assert all(p.is_discarded for p in member.disk.parts)


def test_a_snapshot_that_is_gone_on_the_leader_is_not_waited_for() -> None:
    """X12, Q36: cleaning took it in the middle of the download."""
    for code in (Code.SNAPSHOT_NOT_FOUND, Code.POSITION_OUT_OF_RANGE):
        net, member = with_log(batch(0, 1, b"a"))
        answer(net, member, needs(90, 3))
        answer(net, member, chunk(90, 3, 7, 0, b"snap"))
        due_ms = member.timers["raft", "fetch"].at_ms
        net.now_ms += 10
        answer(net, member, wire.fetch_snapshot_response(code, LEADER))
        assert only(net).name == "FetchRequest"
        assert only(net).target_id == 2
        assert [p.is_discarded for p in member.disk.parts] == [True]
        assert member.timers["raft", "fetch"].at_ms == due_ms + 10
        answer(net, member, needs(95, 3))
        assert asked(net).position == 0


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(wire.FetchSnapshotResponse(error_code=-1), id="as Kafka 4.3.1 says it"),
        pytest.param(wire.fetch_snapshot_response(Code.NOT_LEADER_OR_FOLLOWER, LEADER), id="6"),
        pytest.param(wire.fetch_snapshot_response(Code.UNKNOWN_SERVER_ERROR, LEADER), id="-1"),
        pytest.param(wire.FetchSnapshotResponse(), id="nothing at all"),
    ],
)
def test_an_answer_that_is_no_piece_of_the_snapshot_ends_the_download(refused: Any) -> None:
    """X12: whoever asks for the same piece again and again waits for ever."""
    net, member = with_log(batch(0, 1, b"a"))
    answer(net, member, needs(90, 3))
    answer(net, member, chunk(90, 3, 7, 0, b"snap"))
    answer(net, member, refused)
    assert [p.is_discarded for p in member.disk.parts] == [True]
    assert only(net).name == "FetchRequest"


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param(chunk(91, 3, 7, 0, b"snap"), id="another snapshot"),
        pytest.param(chunk(90, 3, 7, 4, b"sho"), id="another position"),
        pytest.param(chunk(90, 3, 7, 0, b""), id="nothing"),
        pytest.param(chunk(90, 3, 4, 0, b"snap"), id="no footer"),
    ],
)
def test_a_piece_that_cannot_be_ends_the_download(nonsense: Any) -> None:
    """rel-Q17."""
    net, member = with_log(batch(0, 1, b"a"))
    answer(net, member, needs(90, 3))
    answer(net, member, nonsense)
    assert [p.is_discarded for p in member.disk.parts] == [True]
    assert member.disk.snapshots == {}
    assert (only(net).name, only(net).target_id) == ("FetchRequest", 3)


@pytest.mark.parametrize("half", [(-1, 3), (90, -1)])
def test_half_a_snapshot_id_is_none(half: tuple[int, int]) -> None:
    """Spec 1.7."""
    net, member = with_log(batch(0, 1, b"a"))
    answer(net, member, needs(*half))
    assert member.disk.parts == []
    assert (only(net).name, only(net).target_id) == ("FetchRequest", 3)


def test_a_snapshot_that_is_here_already_is_not_downloaded() -> None:
    net, member = with_log(batch(0, 3, b"a"))
    member.disk.take_snapshot(1)
    answer(net, member, needs(1, 3))
    assert member.disk.parts == []
    assert only(net).name == "FetchRequest"


def test_a_snapshot_that_ends_before_what_is_committed_is_not_taken() -> None:
    """X8: to install it would cut off what was acknowledged."""
    net, member = with_log(batch(0, 3, b"a"), batch(1, 3, b"b"), high_watermark=2)
    answer(net, member, needs(1, 3))
    assert member.disk.parts == []
    assert "ends before" in member.warnings[-1]


@pytest.mark.parametrize("snapshot", [(5, 5), (2**63 - 1, 3), (5, 2**31 - 1)])
def test_a_snapshot_that_cannot_be_is_not_taken(snapshot: tuple[int, int]) -> None:
    """A leader has none of a later epoch than its own, and none after which no offsets are left."""
    net, member = with_log(batch(0, 3, b"a"))
    assert member.node.epoch == 4
    answer(net, member, needs(*snapshot))
    assert member.disk.parts == []
    assert "a snapshot that cannot be" in member.warnings[-1]


def test_a_lost_piece_is_asked_for_again() -> None:
    net, member = with_log(batch(0, 1, b"a"))
    answer(net, member, needs(90, 3))
    answer(net, member, chunk(90, 3, 7, 0, b"snap"))
    answer(net, member, Unanswered(why="lost"))
    net.flights.clear()
    member.node._quorum.calls.forget()
    net.now_ms += 30
    member.run(member.node.poll(net.now_ms))
    assert (only(net).name, asked(net).position) == ("FetchSnapshotRequest", 4)


def test_half_a_snapshot_of_one_leader_is_nothing_to_the_next() -> None:
    """rel-Q17: also when the half is just being synced."""
    net, member = with_log(batch(0, 1, b"a"))
    answer(net, member, needs(90, 3))
    member.holds_flushes = True
    answer(net, member, chunk(90, 3, 4, 0, b"all!"))
    member.ask(vote(9, 3, last=(99, 8)))
    member.sync()
    assert member.disk.snapshots == {}
    assert member.disk.end_offset == 1
    assert [p.is_discarded for p in member.disk.parts] == [True]
    assert not any(said.startswith("snapshot") for said in member.listener.received)


def test_an_empty_replica_catches_up_over_a_snapshot_while_its_leader_cleans() -> None:
    """X12 in one piece: the snapshot stays while it is read, and goes then."""
    net, leader = halfway_through_a_snapshot()
    leader.disk.take_snapshot(6, data=b"the newer one!")
    leader.run(leader.timers.pop(("raft", "clean")).then(net.now_ms))
    assert leader.disk.start_offset == 0
    net.run_for(3_000)
    assert net[9].listener.received[-2:] == ["snapshot 3-1", "committed 7"]
    (line,) = [line for line in net[9].notes if "fetched" in line]
    assert f"end_offset=3 epoch=1 from_node={leader.node_id}" in line
    assert net[9].disk.values() == leader.disk.values()[3:]
    leader.run(leader.timers.pop(("raft", "clean")).then(net.now_ms))
    assert leader.disk.start_offset == 6


def test_a_snapshot_that_went_in_spite_of_that_is_not_waited_for() -> None:
    """It took longer than it is kept; a newer one is there."""
    net, leader = halfway_through_a_snapshot()
    leader.disk.take_snapshot(6, data=b"the newer one!")
    leader.disk.retire_snapshots(6, now_ms=net.now_ms)
    net.run_for(3_000)
    assert net[9].listener.received[-2:] == ["snapshot 6-1", "committed 7"]
    assert net[9].disk.values() == leader.disk.values()
    assert [bytes(data) for data, _ in net[9].disk.snapshots.values()] == [b"the newer one!"]


def halfway_through_a_snapshot() -> tuple[Net, Member]:
    """An observer has half of its leader's only snapshot."""
    net = Net(
        observer_ids=[9],
        settings=QuorumSettings(fetch_snapshot_max_bytes=3, retention_max_bytes=1),
    )
    for n in (1, 2, 3):
        net[n].start()
    leader = net.elect()
    for n in range(6):
        leader.propose(b"%d" % n)
        net.run_for(10)
    for member in (net[1], net[2], net[3]):
        member.disk.take_snapshot(3, data=b"the older one!")
    net[9].start()
    net[9].run([])
    while net[9].node._follower._transfer.position < 6:
        net.deliver(net.flights[0])
    return net, leader


# --------------------------------------------------------------------------------- looking for a leader


def test_an_answer_to_an_earlier_life_does_not_count() -> None:
    """Q22: the log may be another one meanwhile."""
    net, member = following()
    stale = only(net)
    member.ask(vote(9, 3, last=(9, 8)))
    net.flights.clear()
    member.run(stale.send.then(records(batch(0, 4, b"a"), high_watermark=1), net.now_ms))
    assert member.disk.batches == []
    assert member.node.high_watermark is None


@pytest.mark.parametrize("code", [Code.FENCED_LEADER_EPOCH, Code.NOT_LEADER_OR_FOLLOWER])
def test_a_refusal_reports_who_leads_now(code: Code) -> None:
    """Q21."""
    net, member = following()
    known = wire.LeaderAndEpoch(6, 3, Peer(3, "elsewhere", 1234))
    answer(net, member, wire.fetch_response(code, known, log_start_offset=0))
    assert member.stands == (Role.FOLLOWER, 6, 3)
    assert member.disk.saved[-1] == ElectionState(6, leader_id=3)
    assert only(net).send.peer == Peer(3, "elsewhere", 1234)
    assert asked(net).current_leader_epoch == 6
    assert member.listener.received == ["leader 2 of 4", "leader 3 of 6"]


def test_a_newer_epoch_without_a_leader_ends_the_following() -> None:
    net, member = following()
    answer(
        net,
        member,
        wire.fetch_response(Code.FENCED_LEADER_EPOCH, wire.LeaderAndEpoch(6), log_start_offset=0),
    )
    assert member.stands == (Role.UNATTACHED, 6, -1)
    assert member.listener.received == ["leader 2 of 4", "leader -1 of 6"]


@pytest.mark.parametrize(
    "known",
    [wire.LeaderAndEpoch(3, 3, Peer(3, "h", 1)), wire.LeaderAndEpoch(4, 2, Peer(2, "h", 1))],
)
def test_an_answer_that_knows_less_or_as_much_changes_nothing(known: wire.LeaderAndEpoch) -> None:
    net, member = following()
    refused = wire.fetch_response(Code.UNKNOWN_LEADER_EPOCH, known, log_start_offset=0)
    answer(net, member, refused)
    assert member.stands == (Role.FOLLOWER, 4, 2)
    assert only(net).target_id == 3, "the one that knows no better is left alone for a while"


def test_an_answer_with_records_from_an_unknown_leader_is_taken_as_it_comes() -> None:
    """Q21: follow, then process: an observer learns both with one Fetch."""
    net = Net(observer_ids=[9])
    observer = net[9].start()
    assert observer.node.role is Role.UNATTACHED
    answer(net, observer, wire.fetch_response(Code.FENCED_LEADER_EPOCH, LEADER, log_start_offset=0))
    assert observer.stands == (Role.FOLLOWER, 4, 2)
    observer.crash()
    observer.disk.saved.append(ElectionState(4))
    observer.start()
    assert observer.stands == (Role.UNATTACHED, 4, -1)
    answer(net, observer, records(batch(0, 4, b"a"), high_watermark=1))
    assert observer.stands == (Role.FOLLOWER, 4, 2)
    assert observer.node.high_watermark == 1
    assert (asked(net).fetch_offset, only(net).target_id) == (1, 2)


def test_whoever_knows_no_leader_asks_the_voters_one_after_the_other() -> None:
    net = Net(range(1, 6), observer_ids=[9])
    observer = net[9].start()
    seen = []
    for _ in range(5):
        seen.append(only(net).target_id)
        answer(net, observer, Unanswered(why="down"))
        if not net.flights:
            break
    assert sorted(seen) == [1, 2, 3, 4, 5]
    observer.fire("retry")
    assert len(net.flights) == 1
    assert net.flights[0].target_id in seen


def test_bootstrap_servers_are_asked_instead_of_the_voters_when_given() -> None:
    net = Net(observer_ids=[9])
    net[9].options = {"bootstrap": peers(net)[1:2]}
    net[9].start()
    assert only(net).send.peer == Peer(-2 - 1, "host-2", 9002)


def test_an_observer_whose_leader_is_silent_asks_others_and_stays_a_follower() -> None:
    """Q2: it elects nobody."""
    net = Net(observer_ids=[9]).start()
    leader = net.elect()
    net.run_for(1_000)
    net[9].disk.saved.clear()
    for member in (net[1], net[2], net[3]):
        member.crash()
    net.run_for(30_000)
    assert net[9].stands == (Role.FOLLOWER, 1, leader.node_id)
    assert net[9].disk.saved == []
    assert ("raft", "election") not in net[9].timers
    for n in (1, 2, 3):
        net[n].start()
    net.run_for(20_000, until=lambda: bool(net.leaders) and net.agree())
    assert net[9].node.epoch > 1


def test_an_observer_whose_leader_is_back_asks_it_alone_again() -> None:
    """Others would answer that they do not lead, and every second record would come late."""
    net = Net(range(1, 6), observer_ids=[9])
    observer = net[9]
    observer.disk.save(ElectionState(4, leader_id=2))
    observer.start()
    observer.fire("fetch")
    for _ in range(9):
        answer(net, observer, records())
        assert only(net).target_id == 2


def test_a_voter_whose_leader_is_silent_asks_for_pre_votes() -> None:
    net, member = following()
    net.flights.clear()
    member.fire("fetch")
    assert member.stands == (Role.PROSPECTIVE, 4, 2)
    assert {f.name for f in net.flights} == {"VoteRequest"}
    assert {part(f.request).pre_vote for f in net.flights} == {True}
    assert {f.send.version_min for f in net.flights} == {2}
    assert member.disk.saved == [ElectionState(4, leader_id=2)]


def test_an_answer_of_another_cluster_is_reported_to_the_operator_once() -> None:
    net, member = following()
    for _ in range(3):
        for flight in list(net.flights):
            net.flights.remove(flight)
            response = wire.FetchResponse(error_code=Code.INCONSISTENT_CLUSTER_ID)
            member.run(flight.send.then(response, net.now_ms))
        member.fire("retry")
    assert len(member.warnings) == 2
    assert "INCONSISTENT_CLUSTER_ID" in member.warnings[0]
    assert "host-2:9002" in member.warnings[0]


def test_a_peer_that_finds_our_request_invalid_is_reported_to_the_operator() -> None:
    net, member = following()
    answer(net, member, wire.fetch_response(Code.INVALID_REQUEST, LEADER, log_start_offset=0))
    assert "INVALID_REQUEST" in member.warnings[0]
    assert only(net).target_id == 3


def test_an_answer_about_another_log_is_no_answer() -> None:
    net, member = following()
    wrong = records(batch(0, 4, b"a"))
    wrong.responses[0].topic_id = b"x" * 16
    answer(net, member, wrong)
    assert member.disk.batches == []
    assert len(member.warnings) == 1


def test_the_leaders_address_is_known_to_who_forwards_to_it() -> None:
    _, member = following()
    assert member.node.leader_peer() == Peer(2, "host-2", 9002)
    member.ask(vote(9, 3))
    assert member.node.leader_peer() is None


def test_a_leader_whose_address_was_reported_wrong_is_found_again_in_the_same_epoch() -> None:
    """A broker would register and send its heartbeats nowhere for as long as that leader leads."""
    net = Net(observer_ids=[9])
    observer = net[9].start()
    wrong = wire.LeaderAndEpoch(4, 2, Peer(2, "host-2", 9003))
    answer(net, observer, wire.fetch_response(Code.FENCED_LEADER_EPOCH, wrong, log_start_offset=0))
    assert only(net).send.peer == Peer(2, "host-2", 9003)
    observer.fire("fetch")
    answer(net, observer, Unanswered(why="nobody listens there"))
    assert only(net).target_id != 2
    not_mine = wire.fetch_response(Code.NOT_LEADER_OR_FOLLOWER, LEADER, log_start_offset=0)
    answer(net, observer, not_mine)
    assert observer.node.leader_peer() == Peer(2, "host-2", 9002)
    assert observer.stands == (Role.FOLLOWER, 4, 2)
    assert observer.listener.received == ["leader 2 of 4"]
