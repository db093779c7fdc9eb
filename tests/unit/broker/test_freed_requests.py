"""No step frees what a large request or its answer held, however it ends."""

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from firnline.base.effects import Reply
from firnline.base.freeing import BACKLOG
from firnline.protocol.messages import k01_fetch as m01
from firnline.protocol.messages import k03_metadata as m03
from firnline.protocol.messages import k08_offset_commit as m08
from firnline.protocol.messages import k09_offset_fetch as m09
from firnline.protocol.messages import k10_find_coordinator as m10
from firnline.protocol.messages import k15_describe_groups as m15
from firnline.protocol.messages import k19_create_topics as m19
from firnline.protocol.messages import k20_delete_topics as m20
from firnline.protocol.messages import k21_delete_records as m21
from firnline.protocol.messages import k23_offset_for_leader_epoch as m23
from firnline.protocol.messages import k32_describe_configs as m32
from firnline.protocol.messages import k34_alter_replica_log_dirs as m34
from firnline.protocol.messages import k35_describe_log_dirs as m35
from firnline.protocol.messages import k37_create_partitions as m37
from firnline.protocol.messages import k42_delete_groups as m42
from firnline.protocol.messages import k43_elect_leaders as m43
from firnline.protocol.messages import k44_incremental_alter_configs as m44
from firnline.protocol.messages import k45_alter_partition_reassignments as m45
from firnline.protocol.messages import k47_offset_delete as m47
from firnline.protocol.schema import Message

from .large import NAMES, LargeNode
from .test_many_elements import MANY_NAMED

MANY = 8_000
# Blocks of memory. Each of these requests holds from 16,000 to 200,000, and so does its answer.
FREED_MAX = 8_000
NONE = [f"none-{n}" for n in range(MANY)]
NUMBERS = range(MANY)
ALL: dict[str, tuple[Message, int]] = MANY_NAMED | {
    "fetch": (
        m01.FetchRequest(
            session_epoch=-1,
            topics=[
                m01.FetchTopic(
                    topic=NAMES[0], partitions=[m01.FetchPartition(partition=n) for n in NUMBERS]
                )
            ],
        ),
        12,
    ),
    "metadata": (
        m03.MetadataRequest(
            topics=[m03.MetadataRequestTopic(name=name) for name in NONE],
            allow_auto_topic_creation=False,
        ),
        12,
    ),
    "offset_commit": (
        m08.OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                m08.OffsetCommitRequestTopic(
                    name=NAMES[0],
                    partitions=[
                        m08.OffsetCommitRequestPartition(partition_index=n) for n in NUMBERS
                    ],
                )
            ],
        ),
        8,
    ),
    "offset_fetch": (
        m09.OffsetFetchRequest(
            groups=[
                m09.OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[
                        m09.OffsetFetchRequestGroupTopic(name=name, partition_indexes=[1])
                        for name in NONE
                    ],
                )
            ]
        ),
        8,
    ),
    "find_coordinator": (m10.FindCoordinatorRequest(key_type=0, coordinator_keys=NONE), 4),
    "describe_groups": (m15.DescribeGroupsRequest(groups=NONE), 5),
    "create_topics": (
        m19.CreateTopicsRequest(
            topics=[
                m19.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in NONE
            ],
            timeout_ms=1000,
        ),
        7,
    ),
    "delete_topics": (
        m20.DeleteTopicsRequest(
            topics=[m20.DeleteTopicState(name=name) for name in NONE], timeout_ms=1000
        ),
        6,
    ),
    "delete_records": (
        m21.DeleteRecordsRequest(
            timeout_ms=1000,
            topics=[
                m21.DeleteRecordsTopic(
                    name=NAMES[0],
                    partitions=[
                        m21.DeleteRecordsPartition(partition_index=n, offset=0) for n in NUMBERS
                    ],
                )
            ],
        ),
        2,
    ),
    "offset_for_leader_epoch": (
        m23.OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                m23.OffsetForLeaderTopic(
                    topic=NAMES[0],
                    partitions=[
                        m23.OffsetForLeaderPartition(partition=n, leader_epoch=0) for n in NUMBERS
                    ],
                )
            ],
        ),
        4,
    ),
    "describe_configs": (
        m32.DescribeConfigsRequest(
            resources=[
                m32.DescribeConfigsResource(resource_type=2, resource_name=name) for name in NONE
            ]
        ),
        4,
    ),
    "alter_replica_log_dirs": (
        m34.AlterReplicaLogDirsRequest(
            dirs=[
                m34.AlterReplicaLogDir(
                    path="/data",
                    topics=[m34.AlterReplicaLogDirTopic(name=NAMES[0], partitions=list(NUMBERS))],
                )
            ]
        ),
        2,
    ),
    "describe_log_dirs": (
        m35.DescribeLogDirsRequest(
            topics=[m35.DescribableLogDirTopic(topic=name, partitions=[0]) for name in NONE]
        ),
        4,
    ),
    "create_partitions": (
        m37.CreatePartitionsRequest(
            topics=[
                m37.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in NONE
            ],
            timeout_ms=1000,
        ),
        3,
    ),
    "delete_groups": (m42.DeleteGroupsRequest(groups_names=NONE), 2),
    "elect_leaders": (
        m43.ElectLeadersRequest(
            timeout_ms=1000,
            topic_partitions=[m43.ElectionTopic(topic=NAMES[0], partitions=list(NUMBERS))],
        ),
        2,
    ),
    "incremental_alter_configs": (
        m44.IncrementalAlterConfigsRequest(
            resources=[
                m44.AlterConfigsResource(resource_type=2, resource_name=name, configs=[])
                for name in NONE
            ]
        ),
        1,
    ),
    "alter_partition_reassignments": (
        m45.AlterPartitionReassignmentsRequest(
            timeout_ms=1000,
            topics=[
                m45.ReassignableTopic(
                    name=NAMES[0],
                    partitions=[
                        m45.ReassignablePartition(partition_index=n, replicas=[1]) for n in NUMBERS
                    ],
                )
            ],
        ),
        0,
    ),
    "offset_delete": (
        m47.OffsetDeleteRequest(
            group_id="g",
            topics=[
                m47.OffsetDeleteRequestTopic(
                    name=NAMES[0],
                    partitions=[
                        m47.OffsetDeleteRequestPartition(partition_index=n) for n in NUMBERS
                    ],
                )
            ],
        ),
        0,
    ),
}


class Freeing(LargeNode):
    """A node whose answers are encoded and let go of; `freed` is what each step frees, net, in blocks."""

    def __init__(self) -> None:
        self.freed: list[int] = []
        self._answers: list[Reply] = []
        self._is_due = False
        super().__init__(NAMES[:1])

    def wake(self) -> None:
        self._is_due = True

    def serve(self, request: Message, version: int, slices_max: int = 1 << 30) -> bool:
        """Do a request to its end, or until its client hangs up; return whether it was answered."""
        connection = self.begin(request, version)
        self.freed = []
        is_answered = False
        slices = 0
        while self._one() or self._answers:
            slices += 1
            connection.closed = slices >= slices_max
            while self._answers:
                is_answered = True
                self._encode_and_drop(slices_max - slices)
        self._step(connection.answers.clear)
        while self._is_due:
            self._is_due = bool(self._step(BACKLOG.free_some))
        return is_answered

    def _one(self) -> bool:
        timer = self._next_timer(self.now_ms)
        if timer is None:
            return False
        del self.timers[timer.key]
        call = timer.then
        del timer
        effects = self._step(call, self.now_ms)
        del call
        self._step(self._carry_out, effects)
        return True

    def _carry_out(self, effects: list[Any]) -> None:
        while effects:
            self.run([effects.pop(0)])

    def _reply(self, effect: Reply) -> None:
        if effect.context.is_large and self.freed is not None:
            self._answers.append(effect)
        else:
            super()._reply(effect)

    def _encode_and_drop(self, slices_max: int) -> None:
        encoding = self.dispatcher.encoding(self._answers.pop())
        for _ in range(max(slices_max, 1)):
            try:
                self._step(next, encoding)
            except StopIteration as done:
                done.value = None
                return
        self._step(encoding.close)

    def _step(self, call: Callable[..., Any], *args: Any) -> Any:
        before = sys.getallocatedblocks()
        try:
            return call(*args)
        finally:
            self.freed.append(before - sys.getallocatedblocks())


@pytest.fixture
def node() -> Iterator[Freeing]:
    made = Freeing()
    made.fs.volume_bytes = lambda path: (1, 1)  # type: ignore[method-assign]  # looks at every file here
    BACKLOG.begin(made.wake)
    gc.collect()
    gc.disable()
    yield made
    gc.enable()
    BACKLOG.end(made.wake)


@pytest.mark.parametrize("name", ALL)
def test_no_step_frees_all_of_a_large_request(node: Freeing, name: str) -> None:
    """Goal: heartbeats of others are in time. Method: count the blocks of memory that come back.

    Nor is anything left to the collector: it would stay until it looks, and where it was frozen
    meanwhile, for ever (decision 0010).
    """
    for _ in range(2):  # the first time its classes are compiled
        gc.collect()
        assert node.serve(*ALL[name])
    assert max(node.freed) < FREED_MAX, sorted(node.freed)[-5:]
    assert gc.collect() < 100


@pytest.mark.parametrize("name", ALL)
def test_nor_of_one_whose_client_hangs_up(node: Freeing, name: str) -> None:
    node.serve(*ALL[name], slices_max=60)
    assert max(node.freed) < FREED_MAX, sorted(node.freed)[-5:]
