"""What a leader says of its quorum: who is how far, who was heard of, and what was counted."""

import pytest

from firnline.base.errors import Code
from firnline.protocol.messages import k55_describe_quorum as k55
from firnline.raft.leader import _REFUSED_PER_STEP, refusing_to_describe
from firnline.raft.role import Role
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
