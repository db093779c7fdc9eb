"""No step frees all that a large request or its answer held, however it ends."""

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from firnline.base.effects import Reply
from firnline.protocol.messages import k00_produce as m00
from firnline.protocol.messages import k01_fetch as m01
from firnline.protocol.messages import k02_list_offsets as m02
from firnline.protocol.messages import k03_metadata as m03
from firnline.protocol.messages import k08_offset_commit as m08
from firnline.protocol.messages import k09_offset_fetch as m09
from firnline.protocol.messages import k10_find_coordinator as m10
from firnline.protocol.messages import k13_leave_group as m13
from firnline.protocol.messages import k14_sync_group as m14
from firnline.protocol.schema import Message
from firnline.runtime.bounds.answers import Answers
from tests.unit.runtime.test_answers import Loop
from tests.worlds.harness import Connection

from .large import NAMES, LargeNode

pytestmark = pytest.mark.slow

MANY = 20_000
# Blocks of memory. Each of these requests holds from 40,000 to 200,000, and so does its answer.
FREED_MAX = 12_000
NUMBERS = range(MANY)
NONE = [f"none-{n}" for n in NUMBERS]
ALL: dict[str, tuple[Message, int]] = {
    "produce": (
        m00.ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                m00.TopicProduceData(
                    name=NAMES[0],
                    partition_data=[m00.PartitionProduceData(index=n) for n in NUMBERS],
                )
            ],
        ),
        9,
    ),
    "list_offsets": (
        m02.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                m02.ListOffsetsTopic(
                    name=NAMES[0],
                    partitions=[
                        m02.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in NUMBERS
                    ],
                )
            ],
        ),
        7,
    ),
    "metadata": (
        m03.MetadataRequest(
            topics=[m03.MetadataRequestTopic(name=name) for name in NONE],
            allow_auto_topic_creation=False,
        ),
        12,
    ),
    "metadata that would make them": (
        m03.MetadataRequest(topics=[m03.MetadataRequestTopic(name=name) for name in NONE]),
        12,
    ),
    "metadata of one name": (
        m03.MetadataRequest(
            topics=[m03.MetadataRequestTopic(name="none") for _ in NUMBERS],
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
    "leave_group": (
        m13.LeaveGroupRequest(
            group_id="g", members=[m13.MemberIdentity(member_id=name) for name in NONE]
        ),
        5,
    ),
    "sync_group": (
        m14.SyncGroupRequest(
            group_id="g",
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                m14.SyncGroupRequestAssignment(member_id=name, assignment=name.encode())
                for name in NONE
            ],
        ),
        5,
    ),
    "find_coordinator": (m10.FindCoordinatorRequest(key_type=0, coordinator_keys=NONE), 4),
}
# Of a Fetch, only while it is read: the rows of its answer go in one step.
READ = {
    **ALL,
    "fetch": (
        m01.FetchRequest(
            session_epoch=-1,
            max_bytes=1,
            topics=[
                m01.FetchTopic(
                    topic=NAMES[0],
                    partitions=[m01.FetchPartition(partition=n) for n in NUMBERS[:14_000]],
                )
            ],
            forgotten_topics_data=[
                m01.ForgottenTopic(topic=name, partitions=list(range(500))) for name in NONE[:40]
            ],
        ),
        12,
    ),
}


class Client:
    def close_slow(self) -> None: ...


class Freeing(LargeNode):
    """A node whose answers are encoded and let go of; `freed` is what each step frees, net, in blocks."""

    def __init__(self) -> None:
        self.freed: list[int] = []
        self._answers: list[Reply] = []
        self.loop = Loop()
        self.bound = Answers(
            self.loop,  # type: ignore[arg-type]
            lambda again: self.run(again(self.now_ms)),
            1 << 30,
        )
        super().__init__(NAMES[:1])

    def serve(self, request: Message, version: int, slices_max: int = 1 << 30) -> bool:
        """Do a request to its end, or until its client hangs up; return whether it was answered."""
        memory = self.bound.memory_of(Client())
        connection = self.begin(request, version, memory)
        self.freed = []
        is_answered = False
        slices = 0
        while self._one() or self._answers:
            slices += 1
            if slices == slices_max:
                self._hang_up(connection)
            if self._answers:
                is_answered = True
                self._step(self._encode_and_drop, slices_max - slices)
                memory.made()
        while self.bound.freeing.is_busy:
            while self.loop.calls:
                self._step(self.loop.calls.pop(0))
            due, self.loop.timers = self.loop.timers, []
            for each in due:
                each()
        return is_answered

    def _hang_up(self, connection: Connection) -> None:
        connection.closed = True
        connection.response_memory.close()

    def _one(self) -> bool:
        timer = self.due_timer()
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

    def on_reply(self, effect: Reply) -> None:
        if effect.context.is_large:
            effect.context.connection.response_memory.keeps(effect.message)
            self._answers.append(effect)
        else:
            super().on_reply(effect)

    def _encode_and_drop(self, slices_max: int) -> None:
        encoding = self.dispatcher.encoding(self._answers.pop())
        for _ in range(max(slices_max, 1)):
            if next(encoding, None) is None:
                return

    def _step(self, call: Callable[..., Any], *args: Any) -> Any:
        before = sys.getallocatedblocks()
        try:
            return call(*args)
        finally:
            self.freed.append(before - sys.getallocatedblocks())


@pytest.fixture(scope="module", autouse=True)
def nothing_of_others() -> Iterator[None]:
    """Take what earlier tests of this process have left out of the collector's sight.

    Each of hundreds of looks at it would take most of a second.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def node() -> Iterator[Freeing]:
    made = Freeing()
    gc.collect()
    gc.disable()
    yield made
    gc.enable()


@pytest.mark.parametrize("name", ALL)
def test_no_step_frees_all_of_a_large_request(node: Freeing, name: str) -> None:
    """Goal: heartbeats of others are in time. Method: count the blocks of memory that come back.

    Nor is anything left to the collector: it would stay until it looks.
    """
    for _ in range(2):  # the first time its classes are compiled
        gc.collect()
        assert node.serve(*ALL[name])
    assert max(node.freed) < FREED_MAX, sorted(node.freed)[-5:]
    assert gc.collect() < 100


@pytest.mark.parametrize(
    ("name", "slices"),
    [(name, n) for name in READ for n in (30, 60, 130, 270) if name in ALL or n < 270],
)
def test_nor_of_one_whose_client_hangs_up(node: Freeing, name: str, slices: int) -> None:
    """While it is read, while it is handled, while it is answered."""
    node.serve(*READ[name], slices_max=slices)
    assert max(node.freed) < FREED_MAX, sorted(node.freed)[-5:]
    assert node.bound.held_bytes == 0
