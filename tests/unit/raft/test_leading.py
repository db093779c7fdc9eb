"""What a leader may call committed, whom it answers when, and when it has to stop being one."""

from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.errors import Bug, CannotGoOn, Code, ConfigError, KafkaError, StorageError
from firnline.base.ids import METADATA_TOPIC_ID, OffsetAndEpoch
from firnline.raft import wire
from firnline.raft.role import Role
from firnline.raft.settings import QuorumSettings
from firnline.records.batch import headers
from firnline.records.control import LeaderChangeMessage, decode_value
from firnline.records.record import records
from tests.worlds.raft import (
    CLUSTER,
    Member,
    Net,
    begin,
    fetch,
    fetch_snapshot,
    part,
    vote,
)


def leading(voters: int = 3, **options: Any) -> tuple[Net, Member]:
    """A leader of epoch 1 with one committed record, whose followers the test plays from now on."""
    net = Net(range(1, voters + 1), **options)
    net.start()
    leader = net.elect(1)
    net.run_for(50)
    assert leader.stands == (Role.LEADER, leader.node.epoch, 1)
    for member in net.elsewhere(leader):
        member.crash(power=False)
    while ("raft", "parked") in leader.timers:
        leader.fire("parked")
    leader.run(leader.node._leader._watch_contacts(net.now_ms))
    net.flights.clear()
    return net, leader


def high_watermark(leader: Member, replica_id: int, offset: int) -> int | None:
    """Let a follower fetch from `offset`; return what is committed then."""
    end = leader.disk.end_offset_for(99)
    epoch = leader.disk.end_offset_for(99).epoch if offset else 0
    assert offset <= end.offset
    leader.ask(fetch(leader.node.epoch, replica_id, (offset, epoch)))
    return leader.node.high_watermark


# ----------------------------------------------------------------------------------- high watermark


@pytest.mark.parametrize(
    ("problem", "reported"),
    [
        (KeyError("t"), Bug),
        (ConfigError("no", path="p"), CannotGoOn),
        (StorageError("no"), StorageError),
    ],
)
def test_a_leader_that_cannot_apply_what_is_committed_stops_whoever_asked(
    problem: Exception, reported: type[Exception]
) -> None:
    """A follower's Fetch commits it; a failed request alone would cost that follower its connection, and
    the leader would lead on without what it committed. What is told here stops a node in any step."""
    _, leader = leading()
    leader.propose(b"a")
    leader.sync()

    def on_committed(end_offset: int, now_ms: int) -> Effects:
        raise problem

    leader.listener.on_committed = on_committed  # type: ignore[method-assign]
    with pytest.raises(reported):
        high_watermark(leader, 2, leader.disk.end_offset)


def test_the_first_record_of_an_epoch_names_leader_voters_and_who_voted() -> None:
    """Q23."""
    net = Net(range(1, 6)).start()
    net[5].crash()
    leader = net.elect()
    (header,) = headers(leader.disk.batches[0])
    (row,) = records(leader.disk.batches[0], header)
    assert header.is_control
    message = decode_value(2, row.value)
    assert isinstance(message, LeaderChangeMessage)
    assert message.leader_id == leader.node_id
    assert [v.voter_id for v in message.voters] == [1, 2, 3, 4, 5]
    granting = [v.voter_id for v in message.granting_voters]
    assert leader.node_id in granting
    assert len(granting) >= 3
    assert 5 not in granting


@pytest.mark.parametrize(
    ("voters", "ends", "committed"),
    [
        (2, {2: 5}, 5),
        (2, {2: 4}, 4),
        (3, {2: 5}, 5),
        (3, {2: 3, 3: 4}, 4),
        (4, {2: 5}, 1),
        (4, {2: 5, 3: 4}, 4),
        (5, {2: 5}, 1),
        (5, {2: 5, 3: 3}, 3),
        (5, {2: 5, 3: 3, 4: 4, 5: 2}, 4),
    ],
)
def test_committed_is_what_a_majority_of_voters_has(
    voters: int, ends: dict[int, int], committed: int
) -> None:
    """Q24: sorted, the middle; the leader's own disk is one of them."""
    _, leader = leading(voters)
    for n in range(4):
        leader.propose(b"%d" % n)
    leader.sync()
    for replica_id, offset in ends.items():
        high_watermark(leader, replica_id, offset)
    assert leader.node.high_watermark == committed
    assert leader.disk.high_watermark == committed


def test_observers_commit_nothing_however_many_there_are() -> None:
    """rel-Q6."""
    _, leader = leading()
    leader.propose(b"a")
    leader.sync()
    for observer_id in (8, 9, 10):
        assert high_watermark(leader, observer_id, 2) == 1
    assert high_watermark(leader, 2, 2) == 2


def test_a_leader_does_not_count_what_its_own_disk_may_lose() -> None:
    """rel-Q6, Q25: two of five have it for sure, and the leader's page cache is no third."""
    _, leader = leading(5)
    leader.holds_flushes = True
    leader.propose(b"a")
    high_watermark(leader, 2, 2)
    assert high_watermark(leader, 3, 2) == 1
    leader.sync()
    assert leader.node.high_watermark == 2


def test_followers_alone_commit_before_the_leaders_disk_does() -> None:
    """Q25: a majority has it; the leader's own sync is not waited for."""
    _, leader = leading()
    leader.holds_flushes = True
    leader.propose(b"a")
    high_watermark(leader, 2, 2)
    assert high_watermark(leader, 3, 2) == 2


def granting(member: Member) -> Any:
    """A voter that says yes."""
    return wire.vote_response(Code.NONE, wire.LeaderAndEpoch(member.node.epoch), is_granted=True)


def second_epoch() -> tuple[Net, Member]:
    """A leader of a second epoch over an uncommitted record of the first; both followers are played."""
    net, old = leading()
    old.propose(b"old")
    old.sync()
    net[2].disk.batches = list(old.disk.batches)
    net[2].disk.synced_offset = 2
    old.crash(power=False)
    leader = net[2].start()
    leader.holds_flushes = True
    leader.fire("fetch")
    for _ in range(2):
        flight = net.find("VoteRequest", 2, 3)
        net.flights.clear()
        leader.run(flight.send.then(granting(leader), net.now_ms))
    assert leader.node.role is Role.LEADER
    assert leader.node.epoch_start_offset == 2
    return net, leader


def test_counting_replicas_of_an_earlier_epoch_commits_nothing() -> None:
    """X2, X3, Q23: all have everything before the epoch's start, which is not one record of it."""
    _, leader = second_epoch()
    epoch = leader.node.epoch
    leader.sync()
    assert leader.node.high_watermark is None
    leader.ask(fetch(epoch, 1, (2, 1)))
    leader.ask(fetch(epoch, 3, (2, 1)))
    assert leader.node.high_watermark is None
    assert leader.listener.received[-1] == "leader -1 of 2"
    leader.ask(fetch(epoch, 3, (3, epoch)))
    assert leader.node.high_watermark == 3


def test_the_controller_learns_that_it_leads_after_everything_before_its_epoch() -> None:
    """X16: it would decide on a state that lacks what the last controller did."""
    _, leader = second_epoch()
    epoch = leader.node.epoch
    assert not any(said.startswith("leads") for said in leader.listener.received)
    leader.sync()
    leader.ask(fetch(epoch, 3, (3, epoch)))
    assert leader.listener.received[-2:] == ["committed 3", f"leads {epoch}"]
    leader.propose(b"b")
    leader.ask(fetch(epoch, 3, (4, epoch)))
    leader.sync()
    assert leader.listener.received[-1] == "committed 4"


def test_what_is_committed_stays_so_when_a_disk_is_replaced() -> None:
    """Q24: a voter that begins again at 0 takes nothing back."""
    _, leader = leading()
    leader.propose(b"a")
    leader.sync()
    assert high_watermark(leader, 2, 2) == 2
    assert high_watermark(leader, 2, 0) == 2
    leader.propose(b"b")
    leader.sync()
    assert leader.node.high_watermark == 2
    assert high_watermark(leader, 2, 1) == 2
    assert high_watermark(leader, 3, 3) == 3


# -------------------------------------------------------------------------------------------- fetch


def test_a_fetch_is_refused_in_kafkas_order() -> None:
    """Spec 1.5 Fetch."""
    net, leader = leading()
    follower = net[2].start()
    net.flights.clear()

    def code(member: Member, request: Any) -> tuple[int, int]:
        (answer,) = member.ask(request)
        inner = part(answer).error_code if answer.responses else 0
        return answer.error_code, inner

    epoch = leader.node.epoch
    request = fetch(epoch + 5, 2, (0, 0))
    request.cluster_id = "other"
    assert code(leader, request) == (Code.INCONSISTENT_CLUSTER_ID, 0)
    for change in ({"topic_id": b"x" * 16}, {"partitions": []}):
        request = fetch(epoch + 5, 2, (0, 0))
        request.topics[0].__dict__.update(change)
        assert code(leader, request) == (Code.INVALID_REQUEST, 0)
    for request in (
        fetch(epoch - 1, 2, (0, 0), max_wait_ms=-1),
        fetch(epoch - 1, 2, (-1, 0)),
        fetch(epoch - 1, 2, (0, -1)),
        fetch(epoch - 1, 2, (0, epoch)),
    ):
        assert code(leader, request) == (0, Code.INVALID_REQUEST)
    assert code(leader, fetch(epoch - 1, 2, (0, 0))) == (0, Code.FENCED_LEADER_EPOCH)
    assert code(leader, fetch(epoch + 1, 2, (0, 0))) == (0, Code.UNKNOWN_LEADER_EPOCH)
    assert code(follower, fetch(epoch, 3, (0, 0))) == (0, Code.NOT_LEADER_OR_FOLLOWER)
    (answer,) = follower.ask(fetch(epoch, 3, (0, 0)))
    leader_said = part(answer).current_leader
    assert (leader_said.leader_id, leader_said.leader_epoch) == (1, epoch)
    (endpoint,) = answer.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (1, "host-1", 9001)


def test_a_fetch_by_name_is_refused() -> None:
    """Version 12, as Kafka 4.3.1 does: the metadata topic has an id."""
    _, leader = leading()
    (answer,) = leader.ask(fetch(leader.node.epoch, 2, (0, 0)), 12)
    assert answer.error_code == Code.INVALID_REQUEST


@pytest.mark.parametrize("version", range(13, 19))
def test_every_version_a_quorum_uses_is_served(version: int) -> None:
    _, leader = leading()
    (answer,) = leader.ask(fetch(leader.node.epoch, 2, (0, 0)), version)
    found = part(answer)
    assert found.error_code == Code.NONE
    assert bytes(found.records) == leader.disk.batches[0]
    topic = answer.responses[0]
    assert topic.topic_id == METADATA_TOPIC_ID
    assert bool(answer.node_endpoints) == (version >= 16)


def test_uncommitted_records_are_served_and_a_fetch_at_the_end_waits_for_them() -> None:
    """Q27: else nothing would ever be committed."""
    _, leader = leading()
    epoch = leader.node.epoch
    leader.holds_flushes = True
    waiting = leader.ask(fetch(epoch, 2, (1, epoch)))
    assert waiting == []
    leader.propose(b"a")
    (answer,) = waiting
    assert part(answer).high_watermark == 1
    assert bytes(part(answer).records) == leader.disk.batches[-1]
    assert leader.ask(fetch(epoch, 3, (1, epoch)))
    assert leader.ask(fetch(epoch, 3, (2, epoch))) == []


def test_a_fetch_that_waited_in_vain_is_answered_empty_in_time() -> None:
    net, leader = leading()
    epoch = leader.node.epoch
    began_ms = net.now_ms
    first = leader.ask(fetch(epoch, 2, (1, epoch)))
    net.now_ms += 100
    second = leader.ask(fetch(epoch, 3, (1, epoch), max_wait_ms=300))
    leader.fire("parked")
    assert net.now_ms == began_ms + 400
    assert (len(first), len(second)) == (0, 1)
    leader.fire("parked")
    assert net.now_ms == began_ms + 500
    (answer,) = first
    assert (part(answer).error_code, len(part(answer).records)) == (0, 0)
    assert ("raft", "parked") not in leader.timers
    assert leader.ask(fetch(epoch, 2, (1, epoch), max_wait_ms=0))


def test_those_who_wait_are_notified_when_the_leader_is_no_more() -> None:
    """Q27: they would else wait where nothing comes any more."""
    _, leader = leading()
    epoch = leader.node.epoch
    waiting = leader.ask(fetch(epoch, 2, (1, epoch)))
    leader.ask(vote(epoch + 3, 3, last=(0, 0)))
    (answer,) = waiting
    assert part(answer).error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert part(answer).current_leader.leader_epoch == epoch + 3
    assert leader.listener.received[-1] == f"leader -1 of {epoch + 3}"


def test_a_follower_that_knows_less_of_what_is_committed_is_answered_at_once() -> None:
    """KIP-1166: the high watermark does not wait for the next record."""
    _, leader = leading()
    epoch = leader.node.epoch
    for known in (None, 0):
        (answer,) = leader.ask(fetch(epoch, 2, (1, epoch), high_watermark=known))
        assert part(answer).high_watermark == 1
    waiting = leader.ask(fetch(epoch, 2, (1, epoch), high_watermark=1))
    assert waiting == []
    old = leader.ask(fetch(epoch, 2, (1, epoch), high_watermark=None), 17)
    assert old == []
    leader.holds_flushes = True
    leader.propose(b"a")
    waiting = leader.ask(fetch(epoch, 3, (2, epoch), high_watermark=1))
    assert waiting == []
    leader.ask(fetch(epoch, 2, (2, epoch)))
    assert part(waiting[0]).high_watermark == 2


def test_a_fetch_that_waited_is_no_sign_of_life_when_it_is_answered() -> None:
    """Its sender may be long gone: it would keep a lonely leader in office, and pass for caught up."""
    net, leader = leading()
    epoch = leader.node.epoch
    leader.ask(fetch(epoch, 2, (1, epoch)))
    due_ms = leader.timers["raft", "contacts"].at_ms
    net.now_ms += 400
    leader.propose(b"a")
    leader.sync()
    assert leader.timers["raft", "contacts"].at_ms == due_ms


def test_a_place_that_diverges_or_needs_a_snapshot_is_no_position() -> None:
    """Neither commits anything, nor keeps the leader in office: the follower has to come back."""
    _, leader = leading()
    epoch = leader.node.epoch
    leader.propose(b"a")
    leader.sync()
    due_ms = leader.timers["raft", "contacts"].at_ms
    (answer,) = leader.ask(fetch(epoch, 2, (2, 0)))
    assert part(answer).diverging_epoch.epoch == 0
    assert leader.node.high_watermark == 1
    leader.disk.take_snapshot(1)
    (answer,) = leader.ask(fetch(epoch, 2, (0, 0)))
    assert (part(answer).snapshot_id.end_offset, part(answer).snapshot_id.epoch) == (1, epoch)
    assert len(part(answer).records) == 0
    assert leader.timers["raft", "contacts"].at_ms == due_ms


def test_offset_0_gets_the_snapshot_though_the_log_still_begins_there() -> None:
    """X10."""
    _, leader = leading()
    leader.disk.take_snapshot(1)
    assert leader.disk.start_offset == 0
    (answer,) = leader.ask(fetch(leader.node.epoch, 2, (0, 0)))
    assert part(answer).snapshot_id.end_offset == 1


@pytest.mark.parametrize("epoch", [0, 2])
def test_the_log_start_with_an_epoch_that_is_not_the_snapshots_is_not_valid(epoch: int) -> None:
    """X9: records of two histories would meet there. The snapshot ends at 2 in epoch 1."""
    _, leader = second_epoch()
    leader.disk.take_snapshot(2)
    leader.disk.retire_snapshots(2, now_ms=1)
    (answer,) = leader.ask(fetch(2, 1, (2, 1)))
    assert bytes(part(answer).records) == leader.disk.batches[0]
    (answer,) = leader.ask(fetch(2, 1, (2, epoch)))
    assert (part(answer).snapshot_id.end_offset, part(answer).snapshot_id.epoch) == (2, 1)
    assert len(part(answer).records) == 0


def test_a_consumer_reads_but_counts_for_nothing() -> None:
    net, leader = leading()
    due_ms = leader.timers["raft", "contacts"].at_ms
    net.now_ms += 1
    assert leader.ask(fetch(leader.node.epoch, -1, (0, 0)))
    assert leader.timers["raft", "contacts"].at_ms == due_ms
    assert leader.node.counters().observers == 0


# ---------------------------------------------------------------------------------------- snapshots


def test_snapshots_are_refused_in_kafkas_order_and_served_in_pieces() -> None:
    """Spec 1.5 FetchSnapshot; X10, X11."""
    net, leader = leading()
    epoch = leader.node.epoch
    leader.disk.take_snapshot(1, data=b"abcdefghij")
    leader.disk.snapshots[OffsetAndEpoch(1, epoch)] = (b"abcdefghij", 1)

    def code(request: Any, member: Member = leader) -> tuple[int, int]:
        (answer,) = member.ask(request)
        return answer.error_code, part(answer).error_code if answer.topics else 0

    wrong = fetch_snapshot(epoch, 2, (1, epoch), 0)
    wrong.cluster_id = "other"
    assert code(wrong) == (Code.INCONSISTENT_CLUSTER_ID, 0)
    wrong = fetch_snapshot(epoch, 2, (1, epoch), 0)
    wrong.topics = []
    assert code(wrong) == (Code.INVALID_REQUEST, 0)
    wrong = fetch_snapshot(epoch - 1, 2, (1, epoch), 0)
    wrong.topics[0].name = "t"
    assert code(wrong) == (0, Code.UNKNOWN_TOPIC_OR_PARTITION)
    assert code(fetch_snapshot(epoch - 1, 2, (9, 9), 0)) == (0, Code.FENCED_LEADER_EPOCH)
    assert code(fetch_snapshot(epoch + 1, 2, (9, 9), 0)) == (0, Code.UNKNOWN_LEADER_EPOCH)
    follower = net[2].start()
    assert code(fetch_snapshot(epoch, 3, (1, epoch), 0), follower) == (
        0,
        Code.NOT_LEADER_OR_FOLLOWER,
    )
    assert code(fetch_snapshot(epoch, 2, (2, epoch), 0)) == (0, Code.SNAPSHOT_NOT_FOUND)
    assert code(fetch_snapshot(epoch, 2, (0, 0), 0)) == (0, Code.SNAPSHOT_NOT_FOUND)
    for position in (-1, 10, 11):
        request = fetch_snapshot(epoch, 2, (1, epoch), position)
        assert code(request) == (0, Code.POSITION_OUT_OF_RANGE)
    taken = b""
    while len(taken) < 10:
        (answer,) = leader.ask(fetch_snapshot(epoch, 2, (1, epoch), len(taken)))
        found = part(answer)
        assert (found.size, found.position) == (10, len(taken))
        assert (found.snapshot_id.end_offset, found.snapshot_id.epoch) == (1, epoch)
        taken += bytes(found.unaligned_records)
    assert taken == b"abcdefghij"


# ----------------------------------------------------------------------------------------- contact


def test_a_leader_that_nobody_fetches_from_resigns() -> None:
    """X7, Q26: it would go on answering clients while the others have another leader."""
    net, leader = leading()
    assert leader.timers["raft", "contacts"].at_ms <= net.now_ms + 3000
    leader.fire("contacts")
    assert (leader.node.role, leader.node.leader_id) == (Role.RESIGNED, -1)
    assert leader.listener.received[-1] == f"leader -1 of {leader.node.epoch}"
    assert {f.name for f in net.flights} == {"EndQuorumEpochRequest"}
    assert isinstance(leader.node.propose([b"a"], epoch=1, now_ms=1), KafkaError)


def test_a_new_leader_that_nobody_ever_fetches_from_resigns() -> None:
    """X7: also one that was never heard by anybody but those who voted for it."""
    net, leader = second_epoch()
    began_ms = net.now_ms
    leader.fire("contacts")
    assert net.now_ms == began_ms + 3000
    assert leader.node.role is Role.RESIGNED


@pytest.mark.parametrize(("voters", "needed"), [(2, 1), (3, 1), (4, 2), (5, 2)])
@pytest.mark.parametrize("kind", ["fetch", "snapshot"])
def test_a_majority_that_fetches_keeps_its_leader(voters: int, needed: int, kind: str) -> None:
    """X7: downloading a snapshot is fetching too."""
    net, leader = leading(voters)
    epoch = leader.node.epoch
    leader.disk.take_snapshot(1)
    net.now_ms += 100
    due_ms = leader.timers["raft", "contacts"].at_ms
    for replica_id in range(2, 2 + needed):
        assert leader.timers["raft", "contacts"].at_ms == due_ms
        for _ in range(3):
            if kind == "fetch":
                leader.ask(fetch(epoch, replica_id, (1, epoch)))
            else:
                leader.ask(fetch_snapshot(epoch, replica_id, (1, epoch), 0))
    assert leader.timers["raft", "contacts"].at_ms == net.now_ms + 3000


def test_a_refused_piece_of_a_snapshot_is_no_sign_that_one_is_read() -> None:
    net, leader = leading()
    due_ms = leader.timers["raft", "contacts"].at_ms
    net.now_ms += 100
    leader.ask(fetch_snapshot(leader.node.epoch, 2, (9, 9), 0))
    leader.ask(fetch(leader.node.epoch, 9, (1, leader.node.epoch)))
    assert leader.timers["raft", "contacts"].at_ms == due_ms


def test_a_sole_voter_needs_no_contact() -> None:
    net = Net([1]).start()
    net.run_for(100_000)
    assert net[1].node.role is Role.LEADER


def test_a_new_leader_makes_itself_known_at_once_with_its_address() -> None:
    _, leader = second_epoch()
    begins = [f for f in leader.net.flights if f.name == "BeginQuorumEpochRequest"]
    assert {f.target_id for f in begins} == {1, 3}
    for flight in begins:
        (endpoint,) = flight.request.leader_endpoints
        assert (endpoint.name, endpoint.host, endpoint.port) == ("CONTROLLER", "host-2", 9002)
        assert flight.request.cluster_id == CLUSTER
        assert flight.request.voter_id == flight.target_id
        assert (part(flight.request).leader_id, part(flight.request).leader_epoch) == (2, 2)


def test_those_who_fetch_are_not_notified_again_and_silent_ones_are_for_ever() -> None:
    net, leader = leading()
    epoch = leader.node.epoch
    leader.fire("begin")
    at_ms = net.now_ms
    net.now_ms += 300
    leader.ask(fetch(epoch, 2, (1, epoch)))
    for flight in list(net.flights):
        net.lose(flight)
    reported = []
    for _ in range(4):
        net.now_ms = at_ms + 300
        leader.ask(fetch(epoch, 2, (1, epoch)))
        leader.fire("begin")
        at_ms += 1000
        assert net.now_ms == at_ms
        reported.append({f.target_id for f in net.flights})
        for flight in list(net.flights):
            net.lose(flight)
    assert reported == [{3}] * 4
    leader.fire("begin")
    assert {f.target_id for f in net.flights} == {2, 3}
    leader.fire("begin")
    assert len(net.flights) == 2, "whoever has not answered is not asked twice"


def test_a_begin_of_the_own_leadership_changes_nothing() -> None:
    _, leader = leading()
    epoch = leader.node.epoch
    (answer,) = leader.ask(begin(epoch, 1))
    assert part(answer).error_code == Code.NONE
    assert leader.stands == (Role.LEADER, epoch, 1)


def test_a_voter_that_will_not_learn_who_leads_is_named_once_and_asked_again() -> None:
    """Its operator has to know; and nobody is left alone who only did not know it yet."""
    net, leader = leading(2)

    def reported(code: Code) -> None:
        net.now_ms += net.settings.fetch_timeout_ms
        leader.fire("begin")
        flight = net.find("BeginQuorumEpochRequest")
        net.flights.remove(flight)
        known = leader.node._quorum.leader_and_epoch
        leader.run(flight.send.then(wire.begin_response(code, known), net.now_ms))

    for code in (Code.UNKNOWN_SERVER_ERROR, Code.UNKNOWN_SERVER_ERROR):
        reported(code)
        assert list(leader.node.refusals) == [2]
    assert len([line for line in leader.warnings if "node=2" in line]) == 1
    reported(Code.NONE)
    assert leader.node.refusals == {}


# ---------------------------------------------------------------------------------------- cleaning


def test_old_snapshots_go_every_minute_and_the_last_one_stays() -> None:
    """Q40, X15."""
    net, leader = leading(settings=QuorumSettings(retention_max_bytes=1))
    for n in range(4):
        leader.propose(b"%d" % n)
        leader.sync()
    high_watermark(leader, 2, 5)
    for offset in (1, 2, 4):
        leader.disk.take_snapshot(offset)
    for _ in range(2):
        leader.run(leader.timers.pop(("raft", "clean")).then(net.now_ms))
        assert [one.offset for one in leader.disk.snapshots] == [4]
        assert leader.disk.start_offset == 4
    assert leader.timers["raft", "clean"].at_ms == net.now_ms + 60_000


@pytest.mark.parametrize(
    ("fetched", "start"), [({}, 0), ({2: 5}, 0), ({2: 5, 3: 1}, 1), ({2: 5, 3: 4}, 4)]
)
def test_with_the_lag_option_a_leader_waits_for_the_slowest(
    fetched: dict[int, int], start: int
) -> None:
    """Q51: a voter that was not heard of yet may be as far back as 0."""
    lag = QuorumSettings(start_offset_lag_time_max_ms=10**15, retention_max_bytes=1)
    net, leader = leading(settings=lag)
    for n in range(4):
        leader.propose(b"%d" % n)
        leader.sync()
    leader.node._leader.begin(net.now_ms)
    for replica_id, offset in fetched.items():
        high_watermark(leader, replica_id, offset)
    for offset in (1, 2, 4):
        leader.disk.take_snapshot(offset)
    leader.run(leader.timers.pop(("raft", "clean")).then(net.now_ms))
    assert leader.disk.start_offset == start


def test_with_the_lag_option_a_follower_goes_no_further_than_its_leader() -> None:
    """Q51."""
    lag = QuorumSettings(start_offset_lag_time_max_ms=10**15, retention_max_bytes=1)
    net = Net(settings=lag).start()
    leader = net.elect()
    follower = net.elsewhere(leader)[0]
    for n in range(4):
        leader.propose(b"%d" % n)
        net.run_for(10)
    for offset in (1, 2, 4):
        follower.disk.take_snapshot(offset)
    leader.disk.take_snapshot(2)
    follower.run(follower.timers.pop(("raft", "clean")).then(net.now_ms))
    assert follower.disk.start_offset == 0
    leader.disk.retire_snapshots(2, now_ms=1)
    net.run_for(600)
    follower.run(follower.timers.pop(("raft", "clean")).then(net.now_ms))
    assert follower.disk.start_offset == 2
    assert [one.offset for one in follower.disk.snapshots] == [2, 4]
