"""What a leader keeps for a replica that is on its way over a snapshot, and for how long."""

from typing import Any

from firnline.base.ids import OffsetAndEpoch
from firnline.raft.settings import OBSERVER_SILENCE_MAX_MS, QuorumSettings
from firnline.raft.snapshot_serve import HOLD_MAX_MS, HOLDS_MAX, Downloads
from tests.worlds.raft import Member, Net, describe, fetch, fetch_snapshot, part

AT_4, AT_8 = OffsetAndEpoch(4, 1), OffsetAndEpoch(8, 1)
ALONE = QuorumSettings(retention_max_bytes=1)
LAG = QuorumSettings(start_offset_lag_time_max_ms=10**15, retention_max_bytes=1)


def leading(settings: QuorumSettings) -> tuple[Net, Member]:
    """A leader of 8 records whose other voters have fetched all of them; the test plays them from now on."""
    net = Net(settings=settings).start()
    leader = net.elect(1)
    for n in range(7):
        leader.propose(b"%d" % n)
        net.run_for(10)
    net.run_for(1_000)
    for member in net.elsewhere(leader):
        member.crash(power=False)
    assert leader.disk.end_offset == 8
    leader.disk.take_snapshot(4, data=b"the first one!", at_ms=net.now_ms)
    return net, leader


def clean(net: Net, leader: Member) -> int:
    leader.run(leader.timers.pop(("raft", "clean")).then(net.now_ms))
    return leader.disk.start_offset


def fetched(leader: Member, replica_id: int, at: tuple[int, int]) -> Any:
    (answer,) = leader.ask(fetch(leader.node.epoch, replica_id, at, max_wait_ms=0))
    return part(answer)


def a_piece(leader: Member, replica_id: int, snapshot: OffsetAndEpoch = AT_4, at: int = 0) -> Any:
    (answer,) = leader.ask(fetch_snapshot(leader.node.epoch, replica_id, snapshot, at))
    return part(answer)


def test_a_snapshot_that_is_fetched_is_kept_and_so_is_the_log_behind_it() -> None:
    net, leader = leading(ALONE)
    reported = fetched(leader, 9, (0, 0)).snapshot_id
    assert (reported.end_offset, reported.epoch) == AT_4
    leader.disk.take_snapshot(8, at_ms=net.now_ms)
    assert clean(net, leader) == 0, "retention would leave the newest alone"
    assert not a_piece(leader, 9).error_code
    net.now_ms += 60_000
    assert clean(net, leader) == 0
    assert not a_piece(leader, 9, at=4).error_code
    fetched(leader, 9, (4, 1))
    assert clean(net, leader) == 0, "what it has before it may not go"
    fetched(leader, 9, (8, 1))
    assert clean(net, leader) == 8


def test_a_voter_that_was_wiped_is_as_far_as_it_says_and_lives() -> None:
    """Q51: it is waited for although it had everything once, and it shows where it is."""
    net, leader = leading(LAG)
    leader.disk.take_snapshot(8, at_ms=net.now_ms)
    assert clean(net, leader) == 8
    net, leader = leading(LAG)
    reported = fetched(leader, 2, (0, 0)).snapshot_id
    assert (reported.end_offset, reported.epoch) == AT_4
    leader.disk.take_snapshot(8, at_ms=net.now_ms)
    (answer,) = leader.ask(describe())
    ends = {row.replica_id: row.log_end_offset for row in part(answer).current_voters}
    assert ends[2] == 0
    for position in (0, 4, 8):
        net.now_ms += OBSERVER_SILENCE_MAX_MS - 1
        assert not a_piece(leader, 2, at=position).error_code
        fetched(leader, 3, (8, 1))
        assert clean(net, leader) == 4, "up to the snapshot that it fetches, and no further"
    fetched(leader, 2, (8, 1))
    assert clean(net, leader) == 8


def test_a_replica_that_fetches_a_large_snapshot_is_not_listed_as_gone() -> None:
    net, leader = leading(LAG)
    fetched(leader, 9, (0, 0))
    for position in (0, 4, 8):
        net.now_ms += OBSERVER_SILENCE_MAX_MS - 1
        assert not a_piece(leader, 9, at=position).error_code
    (answer,) = leader.ask(describe())
    assert [row.replica_id for row in part(answer).observers] == [9]


def test_an_observer_that_never_fetched_a_record_is_waited_for() -> None:
    net, leader = leading(LAG)
    fetched(leader, 9, (0, 0))
    leader.disk.take_snapshot(8, at_ms=net.now_ms)
    assert clean(net, leader) == 4
    net.now_ms += OBSERVER_SILENCE_MAX_MS
    for voter in (2, 3):
        fetched(leader, voter, (8, 1))
    assert clean(net, leader) == 8, "nothing was heard of it for five minutes"


def test_who_is_nobody_holds_nothing() -> None:
    """A consumer that reads snapshots for its own ends has no id."""
    net, leader = leading(ALONE)
    a_piece(leader, -1)
    leader.disk.take_snapshot(8, at_ms=net.now_ms)
    assert clean(net, leader) == 8


def test_a_replica_that_fetches_a_snapshot_in_vain_makes_the_leader_take_another() -> None:
    """The leader's disk damaged it after the start, when snapshots are read: nobody else would notice."""
    _, leader = leading(ALONE)
    for begun in range(1, 6):
        assert not a_piece(leader, 9).error_code
        for at in (4, 8):
            assert not a_piece(leader, 9, at=at).error_code
        said = [line for line in leader.listener.received if line.startswith("useless")]
        assert said == (["useless 4-1 to 9"] if begun >= 3 else []), "once"
    a_piece(leader, 8)
    assert [line for line in leader.listener.received if line.startswith("useless")] == said


def test_another_leader_holds_nothing_yet() -> None:
    net, leader = leading(ALONE)
    fetched(leader, 9, (0, 0))
    leader.node._leader.begin(net.now_ms)
    assert leader.node._leader.held_offset(net.now_ms) is None


# ------------------------------------------------------------------------------------ how long


def test_who_never_comes_to_an_end_is_not_waited_for_for_ever() -> None:
    """However often it begins anew: a follower that refuses every snapshot must not fill the disk."""
    downloads = Downloads()
    for now_ms in range(0, HOLD_MAX_MS, 60_000):
        downloads.needs("slow", OffsetAndEpoch(now_ms + 1, 1), now_ms)
        assert downloads.lowest(now_ms) == now_ms + 1
    downloads.needs("slow", AT_8, HOLD_MAX_MS)
    assert downloads.lowest(HOLD_MAX_MS) is None
    assert downloads.of("slow", HOLD_MAX_MS) is None
    downloads.reaches("slow", 8, newest_snapshot=8, now_ms=HOLD_MAX_MS)
    downloads.needs("slow", AT_8, HOLD_MAX_MS)
    assert downloads.lowest(HOLD_MAX_MS) == 8, "it was there, and has another hour"


def test_who_is_silent_is_forgotten() -> None:
    downloads = Downloads()
    downloads.needs("gone", AT_4, 0)
    downloads.needs("here", AT_8, 10)
    assert downloads.lowest(OBSERVER_SILENCE_MAX_MS - 1) == 4
    assert downloads.of("gone", OBSERVER_SILENCE_MAX_MS) is None
    assert downloads.lowest(OBSERVER_SILENCE_MAX_MS) == 8
    assert len(downloads) == 1


def test_who_fetches_the_log_holds_what_it_has_not_read() -> None:
    downloads = Downloads()
    downloads.reaches("never", 5, newest_snapshot=8, now_ms=0)
    assert downloads.lowest(0) is None
    downloads.needs("one", AT_4, 0)
    downloads.reaches("one", 6, newest_snapshot=8, now_ms=1)
    assert downloads.lowest(1) == downloads.of("one", 1) == 6
    downloads.reaches("one", 8, newest_snapshot=8, now_ms=2)
    assert len(downloads) == 0


def test_clients_that_make_up_ids_fill_no_memory_and_push_out_nobody_who_goes_on() -> None:
    downloads = Downloads()
    for number in range(5 * HOLDS_MAX):
        downloads.needs(("made up", number), OffsetAndEpoch(900, 1), number)
        if number % 100 == 0:
            downloads.needs("voter", OffsetAndEpoch(500, 1), number)
    assert len(downloads) == HOLDS_MAX
    assert downloads.of("voter", 5 * HOLDS_MAX) == 500
    assert downloads.lowest(5 * HOLDS_MAX) == 500


def test_a_voter_whose_own_history_is_longer_commits_nothing_on_its_way_over_a_snapshot() -> None:
    """It led before, and asks from the end of what nobody else has (rel-Q6)."""
    net, leader = leading(ALONE)
    leader.disk.take_snapshot(8, at_ms=net.now_ms)
    assert clean(net, leader) == 8
    reported = fetched(leader, 2, (50, 0)).snapshot_id
    assert (reported.end_offset, reported.epoch) == AT_8
    leader.propose(b"not committed")
    net.run_for(10)
    (answer,) = leader.ask(describe())
    found = part(answer)
    assert {row.replica_id: row.log_end_offset for row in found.current_voters}[2] <= 8
    assert found.high_watermark == 8
