"""A voter whose disk hangs in its vote: it tells nobody, and serves its partitions as before."""

from typing import Any

import pytest

from firnline.base.effects import Submit
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k52_vote import VoteRequest
from firnline.raft import wire
from tests.worlds.cluster import CONTROLLER_PORT, Member, Rig
from tests.worlds.harness import batch, values_of
from tests.worlds.raft import part

BOTH = dict.fromkeys((1, 2, 3), "broker,controller")
EPOCH = 50


def a_voter_that_follows(rig: Rig) -> tuple[Member, int]:
    """A combined node that does not lead the quorum, and the partition of `t` that it leads."""
    assert rig.create_topic(1, "t", partitions=3).error_code == 0
    led: dict[int, int] = {}

    def all_lead() -> bool:
        for node_id in BOTH:
            for (_, index), partition in rig[node_id].broker.partitions.items():
                if partition.is_leader:
                    led[node_id] = index
        return len(led) == len(BOTH)

    rig.until(all_lead)
    node_id = next(n for n in BOTH if n != rig.active())
    return rig[node_id], led[node_id]


def ask_for_a_vote(rig: Rig, asked: Member) -> list[Any]:
    candidate_id = next(n for n in BOTH if n not in (asked.node_id, rig.active()))
    request: VoteRequest = wire.vote_request(
        asked.controller.cluster_id,
        epoch=EPOCH,
        candidate_id=candidate_id,
        directory_id=bytes(16),
        voter_id=asked.node_id,
        last=asked.controller.quorum.raft._quorum.last._replace(offset=10_000, epoch=EPOCH - 1),
        is_pre_vote=False,
    )
    answers: list[Any] = []
    rig._deliver(candidate_id, CONTROLLER_PORT, request, 2, answers.append, [])(asked.node_id)
    return answers


def with_a_vote_that_hangs() -> tuple[Rig, Member, int, list[Any]]:
    """The rig, a voter whose vote its disk does not take, the partition it leads, who hears of the vote."""
    rig = Rig(BOTH).start()
    member, index = a_voter_that_follows(rig)
    member.held = lambda effect: isinstance(effect, Submit) and effect.pool == "votes"
    return rig, member, index, ask_for_a_vote(rig, member)


def test_partitions_are_served_while_a_vote_waits_for_its_disk_and_it_is_reported_to_nobody() -> (
    None
):
    rig, member, index, answers = with_a_vote_that_hangs()
    rig.pass_time(1_000)
    assert len(member.on_hold) == 1, "one save, and no second before it is done"

    for number in range(3):
        data = TopicProduceData(
            name="t",
            partition_data=[PartitionProduceData(index=index, records=batch(f"v{number}"))],
        )
        before_ms = rig.now_ms
        produced = rig.ask(
            member.node_id, ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data]), 9
        )
        assert produced.responses[0].partition_responses[0].error_code == 0
        fetch = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[
                FetchTopic(
                    topic="t",
                    partitions=[
                        FetchPartition(
                            partition=index, fetch_offset=number, partition_max_bytes=1 << 20
                        )
                    ],
                )
            ],
        )
        fetched = rig.ask(member.node_id, fetch, 12)
        (found,) = fetched.responses[0].partitions
        assert list(values_of(found.records)) == [f"v{number}"]
        assert rig.now_ms - before_ms < 100
    assert answers == []
    assert member.controller.quorum.raft.is_saving
    assert all(m.controller.quorum.epoch < EPOCH for m in rig.members.values() if m is not member)

    member.release()
    rig.until(lambda: answers)
    assert part(answers[0]).vote_granted
    rig.until(lambda: rig.active() is not None and rig[1].controller.quorum.epoch >= EPOCH)


def test_a_hang_that_never_ends_costs_the_quorum_one_voter_and_is_said() -> None:
    rig, member, _, answers = with_a_vote_that_hangs()
    rig.pass_time(8_000)
    assert rig.active() not in (None, member.node_id)
    assert answers == []
    (line,) = [line for line in member.warnings if "not on disk after_s=5" in line]
    assert "look at the disk" in line


@pytest.mark.parametrize("role", ["controller", "broker,controller"])
def test_a_controller_that_leaves_keeps_its_directory_until_its_vote_is_written(role: str) -> None:
    """A process started meanwhile would vote, lose that to the older vote, and vote again in the epoch."""
    rig = Rig(dict.fromkeys(BOTH, role)).start()
    rig.until(lambda: rig.active() is not None)
    member = rig[next(n for n in BOTH if n != rig.active())]
    member.held = lambda effect: isinstance(effect, Submit) and effect.pool == "votes"
    ask_for_a_vote(rig, member)
    rig.pass_time(1_000)
    node = member.node
    assert node is not None
    member.run(node.shutdown(rig.now_ms))
    rig.pass_time(60_000)
    assert len(member.on_hold) == 1
    assert not member.is_stopped
    member.release()
    rig.until(lambda: member.is_stopped)
