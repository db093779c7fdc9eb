"""What a leader says of its quorum: who is how far, who was heard of, and what was counted."""

import pytest

from firnline.base.errors import Code
from firnline.protocol.messages import k55_describe_quorum as k55
from firnline.raft.election_state import NOBODY
from firnline.raft.leader import _REFUSED_PER_STEP, refusing_to_describe
from firnline.raft.role import Role
from tests.unit.raft.test_forgetful_voter import forget
from tests.unit.raft.test_leading import leading
from tests.worlds.raft import Net, describe, directory, fetch, part


def test_the_quorum_is_described_as_kafka_does() -> None:
    """KIP-595, KIP-836: ends and times of every replica, and where the voters listen."""
    net, leader = leading()
    epoch = leader.node.epoch
    leader.propose(b"a")
    leader.sync()
    net.now_ms += 50
    leader.ask(fetch(epoch, 2, (2, epoch)))
    caught_up_ms = net.now_ms
    net.now_ms += 50
    leader.ask(fetch(epoch, 9, (1, epoch)))
    leader.propose(b"b")
    leader.sync()
    net.now_ms += 50
    leader.ask(fetch(epoch, 2, (2, epoch)))
    (answer,) = leader.ask(describe())
    found = part(answer)
    assert (found.error_code, found.leader_id, found.leader_epoch) == (0, 1, epoch)
    assert found.high_watermark == 2
    own, second, third = found.current_voters
    assert (own.replica_id, own.log_end_offset) == (1, 3)
    assert own.last_fetch_timestamp == own.last_caught_up_timestamp == net.now_ms
    assert (second.replica_id, second.log_end_offset) == (2, 2)
    assert second.last_fetch_timestamp == net.now_ms
    assert second.last_caught_up_timestamp == caught_up_ms
    assert (third.replica_id, third.log_end_offset) == (3, 1)
    (observer,) = found.observers
    assert (observer.replica_id, observer.replica_directory_id) == (9, directory(9))
    assert [(n.node_id, n.listeners[0].name, n.listeners[0].port) for n in answer.nodes] == [
        (1, "CONTROLLER", 9001),
        (2, "CONTROLLER", 9002),
        (3, "CONTROLLER", 9003),
    ]


def test_a_replica_that_keeps_pace_is_caught_up_as_of_its_last_fetch() -> None:
    """KIP-836: it reached what was the end when it last asked."""
    net, leader = leading()
    epoch = leader.node.epoch
    leader.ask(fetch(epoch, 2, (1, epoch)))
    asked_ms = net.now_ms
    for n in range(2):
        leader.propose(b"%d" % n)
        leader.sync()
    net.now_ms += 70
    leader.ask(fetch(epoch, 2, (1, epoch)))
    net.now_ms += 70
    leader.ask(fetch(epoch, 2, (2, epoch)))
    (answer,) = leader.ask(describe())
    assert part(answer).current_voters[1].last_caught_up_timestamp == asked_ms
    asked_ms = net.now_ms
    leader.propose(b"2")
    leader.sync()
    net.now_ms += 70
    leader.ask(fetch(epoch, 2, (3, epoch)))
    (answer,) = leader.ask(describe())
    assert part(answer).current_voters[1].last_caught_up_timestamp == asked_ms
    leader.ask(fetch(epoch, 2, (4, epoch)))
    (answer,) = leader.ask(describe())
    assert part(answer).current_voters[1].last_caught_up_timestamp == net.now_ms


def test_an_observer_that_is_silent_for_five_minutes_is_forgotten() -> None:
    net, leader = leading()
    epoch = leader.node.epoch
    leader.ask(fetch(epoch, 9, (1, epoch)))
    leader.run(leader.timers.pop(("raft", "clean")).then(net.now_ms))
    net.now_ms += 299_999
    assert leader.node.counters().observers == 1
    (answer,) = leader.ask(describe())
    assert len(part(answer).observers) == 1
    net.now_ms += 1
    (answer,) = leader.ask(describe())
    assert part(answer).observers == []
    leader.ask(fetch(epoch, 9, (1, epoch)))
    net.now_ms += 300_000
    leader.run(leader.timers.pop(("raft", "clean")).then(net.now_ms))
    assert leader.node.counters().observers == 0


def test_a_leader_that_leads_again_says_nothing_of_how_far_others_were() -> None:
    """They may have cut since what it did not commit."""
    net, leader = leading()
    leader.ask(fetch(leader.node.epoch, 9, (1, leader.node.epoch)))
    leader.ask(fetch(leader.node.epoch, 2, (1, leader.node.epoch)))
    leader.node._leader.begin(net.now_ms)
    (answer,) = leader.ask(describe())
    assert part(answer).observers == []
    assert [row.log_end_offset for row in part(answer).current_voters[1:]] == [-1, -1]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_others_describe_nothing(version: int) -> None:
    net, leader = leading()
    follower = net[2].start()
    (answer,) = follower.ask(describe(), version)
    assert part(answer).error_code == Code.NOT_LEADER_OR_FOLLOWER
    wrong = describe()
    wrong.topics[0].topic_name = "t"
    (answer,) = leader.ask(wrong, version)
    assert part(answer).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.topics[0].topic_name == "t"


@pytest.mark.parametrize(
    ("topics", "partitions"), [(1, 10), (1, 2_000), (2_000, 0), (2_000, 1), (40, 50)]
)
def test_a_request_about_very_many_partitions_is_refused_in_steps(
    topics: int, partitions: int
) -> None:
    """Each step does its share: neither all at once, nor a turn of the loop for each of them."""
    wanted = k55.DescribeQuorumTopic(
        topic_name="t",
        partitions=[
            k55.DescribeQuorumPartition(partition_index=number) for number in range(partitions)
        ],
    )
    steps = refusing_to_describe(k55.DescribeQuorumRequest(topics=[wanted] * topics))
    taken = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer = end.value
            break
        taken += 1
    assert taken == topics * (partitions + 1) // _REFUSED_PER_STEP
    assert [len(topic.partitions) for topic in answer.topics] == [partitions] * topics


def test_what_happened_is_counted() -> None:
    net = Net().start()
    leader = net.elect()
    leader.propose(b"a", b"b")
    net.run_for(100)
    counters = leader.node.counters()
    assert counters.role is Role.LEADER
    assert (counters.leader_id, counters.voted_id, counters.epoch) == (leader.node_id, -1, 1)
    assert (counters.high_watermark, counters.log_end_offset, counters.log_end_epoch) == (3, 3, 1)
    assert (counters.appended_records, counters.fetched_records) == (3, 0)
    assert (counters.commits, counters.elections) == (2, 1)
    follower = net.elsewhere(leader)[0].node.counters()
    assert (follower.fetched_records, follower.appended_records) == (3, 0)
    assert (follower.elections, follower.voters) == (0, 3)


# ------------------------------------------------------------------------- what operators are told


def test_a_leader_that_died_with_the_majority_is_nobody_for_operators() -> None:
    """As in Kafka it stays the leader of its epoch on the wire: nobody has voted."""
    net = Net().start()
    leader = net.elect()
    rest = [member for member in net.members.values() if member is not leader]
    gone, left = rest
    leader.crash()
    gone.crash()
    net.run_for(20_000)
    assert left.node.leader_id == leader.node_id
    assert left.node.answering_leader_id == NOBODY
    said = [line for line in left.logged if "controller changed" in line]
    assert f"controller=none was={leader.node_id}" in said[-1]
    assert len([line for line in said if "controller=none" in line]) == 1, "it is said once"
    leader.start()
    net.run_for(20_000, until=lambda: left.node.answering_leader_id != NOBODY)
    assert "was=none" in [line for line in left.logged if "controller changed" in line][-1]


def test_a_leader_that_was_only_cut_off_is_named_again() -> None:
    """The pre-votes of the others changed no epoch, so it leads on in its own."""
    net = Net().start()
    leader = net.elect()
    left = next(member for member in net.members.values() if member is not leader)
    net.cut(left.node_id)
    net.run_for(20_000)
    assert left.node.answering_leader_id == NOBODY
    net.heal()
    net.run_for(20_000, until=lambda: left.node.answering_leader_id == leader.node_id)
    said = [line for line in left.logged if "controller changed" in line]
    assert [f"controller={leader.node_id} was=none" in line for line in said] == [True, False, True]


def test_a_leader_that_only_this_voter_does_not_reach_is_named_when_a_majority_answers() -> None:
    """Goal: `none` is said of a quorum, not of one link. Method: all links come back but that one."""
    net = Net((1, 2, 3, 4, 5)).start()
    leader = net.elect()
    left = next(member for member in net.members.values() if member is not leader)
    net.cut(left.node_id)
    net.run_for(20_000)
    assert left.node.answering_leader_id == NOBODY
    net.cuts = {(left.node_id, leader.node_id), (leader.node_id, left.node_id)}
    net.run_for(20_000)
    assert left.node.answering_leader_id == leader.node_id


def test_a_dead_leader_is_nobody_for_a_majority_that_elects_none() -> None:
    """Goal: a controller that is dead is not named because others answer.

    Method: of the two that are left one has lost records that it once had, so it grants no vote.
    """
    net = Net().start()
    leader = net.elect()
    full, late = net.elsewhere(leader)
    net.run_for(100)
    net.cut(late.node_id)
    leader.propose(b"a")
    net.run_for(50)
    leader.crash()
    full.crash()
    forget(full)
    net.heal()
    full.start()
    net.run_for(20_000)
    assert net.leaders == []
    for member in (full, late):
        assert member.node.answering_leader_id == NOBODY
        said = [line for line in member.logged if "controller changed" in line]
        assert f"controller=none was={leader.node_id}" in said[-1]
    leader.start()
    net.elect()
    for member in (full, late):
        assert member.node.answering_leader_id == net.leaders[0].node_id


def test_a_broker_names_no_dead_controller_either() -> None:
    """Goal: an observer says that nobody leads, once, and says who does when it is told.

    Method: two of three voters die, and one comes back.
    """
    net = Net((1, 2, 3), observer_ids=(9,)).start()
    leader = net.elect()
    observer = net[9]
    rest = [member for member in net.members.values() if member not in (leader, observer)]
    net.run_for(1_000)
    assert observer.node.answering_leader_id == leader.node_id
    leader.crash()
    rest[0].crash()
    net.run_for(2 * observer.node._quorum.settings.fetch_timeout_ms + 100)
    assert observer.node.leader_id == leader.node_id
    assert observer.node.answering_leader_id == NOBODY
    net.run_for(20_000)
    said = [line for line in observer.logged if "controller changed" in line]
    assert f"controller=none was={leader.node_id}" in said[-1]
    assert len([line for line in said if "controller=none" in line]) == 1
    rest[0].start()
    found = net.elect().node_id
    net.run_for(20_000, until=lambda: observer.node.answering_leader_id == found)
    said = [line for line in observer.logged if "controller changed" in line]
    assert f"controller={found} was=none" in said[-1]


def test_a_broker_that_misses_one_timeout_says_nothing() -> None:
    """The leader may have paused; and there is time to be told of another one."""
    net = Net((1, 2, 3), observer_ids=(9,)).start()
    leader = net.elect()
    observer = net[9]
    net.run_for(1_000)
    net.cut(9)
    net.run_for(int(1.5 * observer.node._quorum.settings.fetch_timeout_ms))
    assert observer.node.answering_leader_id == leader.node_id
    net.heal()
    net.run_for(3 * observer.node._quorum.settings.fetch_timeout_ms)
    assert not [line for line in observer.logged if "controller=none" in line]
