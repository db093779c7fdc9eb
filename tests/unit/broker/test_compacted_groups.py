"""The real coordinator over the real cleaner: what it forgot stays forgotten, what it knows is kept.

Groups commit, are deleted, lose single offsets, expire; `__consumer_offsets` is rolled and compacted beyond
delete.retention.ms; the node stops, or loses its power, and loads what is left.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from firnline.log.log import Log
from firnline.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from firnline.protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from firnline.protocol.messages.k13_leave_group import LeaveGroupRequest
from firnline.protocol.messages.k16_list_groups import ListGroupsRequest
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from firnline.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from firnline.sim.disk import CrashableFs
from tests.worlds.harness import Harness
from tests.worlds.log import found_records

SETTINGS: dict[str, Any] = {
    "offsets_retention_minutes": "1",
    "offsets_retention_check_interval_ms": "5000",
    "group_initial_rebalance_delay_ms": "0",
    "log_cleaner_backoff_ms": "500",
    "log_cleaner_min_cleanable_ratio": "0.01",
    "log_cleaner_delete_retention_ms": "2000",
    "log_flush_offset_checkpoint_interval_ms": "100",
    "log_segment_delete_delay_ms": "1000",
}
RETENTION_MS = 60_000
GROUPS = [f"g{number}" for number in range(8)]
TOPICS = ["t", "u"]
STEPS = {
    "commit": 60,
    "member": 5,
    "delete_group": 8,
    "delete_topic": 4,
    "compact": 15,
    "expire": 3,
    "stop": 3,
    "power_cut": 3,
}


class World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.harness = Harness(seed=seed, **SETTINGS)
        for topic in TOPICS:
            self.harness.create_topic(topic)
        self.harness.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        self.next_offset = 0
        # (group, topic) -> what was committed, and when; until it is gone, or was deleted.
        self.reported: dict[tuple[str, str], tuple[int, int]] = {}
        self.joined: set[str] = set()
        self.tombstones_gone = 0

    @property
    def logs(self) -> list[Log]:
        return [p.log for p in self.harness.node.hosted if p.log.topic_partition.topic[0] == "_"]

    def fetched(self) -> Any:
        wanted = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in GROUPS]
        self.harness.pass_time(0)  # what is loaded is loaded in slices
        return self.harness.ask(OffsetFetchRequest(groups=wanted), 8).groups

    def known(self) -> dict[tuple[str, str], int]:
        """Every offset that the coordinator has, as clients see it."""
        found = self.fetched()
        assert [group.error_code for group in found] == [0] * len(GROUPS)
        return {
            (group.group_id, topic.name): part.committed_offset
            for group in found
            for topic in group.topics
            for part in topic.partitions
        }

    def groups(self) -> set[str]:
        return {group.group_id for group in self.harness.ask(ListGroupsRequest(), 4).groups}

    def commit(self) -> None:
        group, topic = self.dice.choice(GROUPS), self.dice.choice(TOPICS)
        self.next_offset += 1
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=self.next_offset)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        assert self.harness.ask(request, 8).topics[0].partitions[0].error_code == 0
        self.reported[group, topic] = self.next_offset, self.harness.now_ms

    def member(self) -> None:
        """One joins and leaves: the group has records of its own."""
        group = self.dice.choice(GROUPS)
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[protocol],
        )
        answer = self.harness.ask(request, 3)
        assert answer.error_code == 0
        self.joined.add(group)
        leave = LeaveGroupRequest(group_id=group, member_id=answer.member_id)
        assert self.harness.ask(leave, 2).error_code == 0

    def delete_group(self) -> None:
        group = self.dice.choice(GROUPS)
        [done] = self.harness.ask(DeleteGroupsRequest(groups_names=[group]), 2).results
        assert (done.error_code == 0) == (group in self.known_groups)
        for topic in TOPICS:
            self.reported.pop((group, topic), None)

    def delete_topic(self) -> None:
        """Its offsets go with it; one of the same name has none."""
        topic = self.dice.choice(TOPICS)
        [done] = self.harness.ask(
            DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5
        ).responses
        assert done.error_code == 0
        self.harness.create_topic(topic)
        for group in GROUPS:
            self.reported.pop((group, topic), None)

    def compact(self) -> None:
        """Some rounds, some of them beyond delete.retention.ms."""
        for log in self.logs:
            if self.dice.random() < 0.7:
                log.roll(self.harness.now_ms)
        before = self.tombstones()
        self.harness.pass_time(self.dice.choice([600, 1500, 4000]))
        self.tombstones_gone += max(0, before - self.tombstones())

    def tombstones(self) -> int:
        return sum(record.value is None for log in self.logs for record in found_records(log))

    def expire(self) -> None:
        self.harness.pass_time(RETENTION_MS + 10_000)
        assert not self.known()

    def stop(self) -> None:
        self.again(self.harness.stop)

    def power_cut(self) -> None:
        keep, seed = self.dice.choice(["some", "none"]), self.dice.randrange(1000)
        self.again(lambda: self.harness.cut_power(seed, keep=keep))

    def again(self, end: Callable[[], CrashableFs]) -> None:
        """The next start knows the same offsets and groups, but for groups of which no record speaks."""
        before, groups = self.known(), self.groups()
        self.start(end())
        assert self.known() == before
        stay = {group for group, _ in before} | (self.joined & groups)
        assert stay <= self.groups() <= groups

    def start(self, fs: CrashableFs) -> None:
        seed, now_ms = self.dice.randrange(1 << 30), self.harness.now_ms
        self.harness = Harness(fs, seed=seed, now_ms=now_ms, **SETTINGS)
        for _ in range(100):
            if not any(group.error_code for group in self.fetched()):
                break
            self.harness.pass_time(100)

    def step(self, name: str) -> None:
        self.known_groups = self.groups()
        getattr(self, name)()
        known = self.known()
        for key, (offset, at_ms) in self.reported.items():
            is_due = self.harness.now_ms >= at_ms + RETENTION_MS
            assert known.get(key) == offset or (is_due and key not in known), "an offset is lost"
        assert known.keys() <= self.reported.keys(), "an offset came back"
        self.reported = {key: self.reported[key] for key in known}
        self.joined &= self.groups()


@pytest.mark.parametrize("seed", range(6))
def test_no_offset_comes_back_from_the_dead_and_none_is_lost(seed: int) -> None:
    world = World(seed)
    for name in world.dice.choices([*STEPS], [*STEPS.values()], k=150):
        world.step(name)
    world.expire()
    assert world.known() == {}
    assert world.groups() == set()
    for _ in range(4):
        world.compact()
    world.stop()
    assert world.known() == {}
    facts = world.harness.node.parts.compacting.facts
    assert facts.failed == 0
    assert world.tombstones_gone > 20
