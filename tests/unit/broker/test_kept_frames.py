"""A request of more than a mebibyte is not copied: it has its buffer until it is read, and not for longer."""

import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from firnline.base.errors import Code, ProtocolError
from firnline.protocol.messages import k00_produce as m00
from firnline.protocol.messages import k01_fetch as m01
from firnline.protocol.messages import k11_join_group as m11
from firnline.protocol.messages import k14_sync_group as m14
from firnline.protocol.messages import k20_delete_topics as m20
from firnline.protocol.messages.headers import RequestHeader
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.schema import Message
from tests.worlds.harness import Connection, Harness, batch

LARGE = 1 << 20
MANY = 60_000
NONE = [f"none-{n:020}" for n in range(MANY)]
DELETION = m20.DeleteTopicsRequest(topics=[m20.DeleteTopicState(name=name) for name in NONE])


@pytest.fixture
def node() -> Iterator[Harness]:
    made = Harness(group_initial_rebalance_delay_ms="60000")
    made.create_topic("t", 2, flush_messages="1")
    made.send(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    made.pass_time(2_000)
    yield made
    tracemalloc.stop()


def framed(request: Message, version: int) -> bytearray:
    """The frame of a request, without its size."""
    header = RequestHeader(
        request_api_key=request.key, request_api_version=version, client_id="large"
    )
    is_flexible = version in type(request).flexible
    return bytearray(header.write(2 if is_flexible else 1) + request.write(version))


class Owning:
    """A request that owns its frame; `most_bytes` is what its first step allocated at most."""

    def __init__(self, node: Harness, frame: bytearray) -> None:
        self._node = node
        self.connection = Connection()
        self.frame = frame
        tracemalloc.start()
        effects = node.dispatcher.on_frame(
            self.connection, memoryview(self.frame), node.now_ms, owns_bytes=True
        )
        self.most_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        node.run(effects)

    def one_more(self) -> bool:
        due = self._node.due_timer()
        if due is not None:
            del self._node.timers[due.key]
            self._node.run(due.then(self._node.now_ms))
        return due is not None

    @property
    def is_free(self) -> bool:
        """Whether nobody has a view of the frame."""
        try:
            self.frame.append(0)
        except BufferError:
            return False
        self.frame.pop()
        return True

    def finish(self) -> None:
        while self.one_more():
            pass


def test_a_large_request_is_not_copied_and_gives_its_buffer_back_when_it_is_read(
    node: Harness,
) -> None:
    asked = Owning(node, framed(DELETION, 6))
    assert len(asked.frame) > LARGE
    assert asked.most_bytes < len(asked.frame) // 2
    assert not asked.is_free
    slices = 0
    while not asked.is_free:
        assert asked.one_more()
        slices += 1
    assert slices >= MANY // 500 - 2
    assert asked.connection.answers == []
    asked.finish()
    [answer] = asked.connection.answers
    assert [row.name for row in answer.responses] == NONE


def test_a_client_that_hangs_up_while_its_request_is_read_leaves_no_buffer(node: Harness) -> None:
    asked = Owning(node, framed(DELETION, 6))
    asked.one_more()
    asked.connection.closed = True
    asked.one_more()
    assert asked.is_free
    assert asked.connection.answers == []


def test_what_cannot_be_read_leaves_no_buffer(node: Harness) -> None:
    frame = framed(DELETION, 6)
    frame[frame.rindex(NONE[-1].encode())] = 0xFF
    asked = Owning(node, frame)
    with suppress(ProtocolError):
        asked.finish()
        raise AssertionError
    assert asked.is_free


def join(member_id: str, size: int) -> Message:
    return m11.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[m11.JoinGroupRequestProtocol(name="range", metadata=b"s" * size)],
    )


def produce(size: int, partitions: Iterable[int]) -> Message:
    return m00.ProduceRequest(
        acks=-1,
        timeout_ms=60_000,
        topic_data=[
            m00.TopicProduceData(
                name="t",
                partition_data=[
                    m00.PartitionProduceData(index=n, records=batch("x" * size)) for n in partitions
                ],
            )
        ],
    )


FETCH = m01.FetchRequest(
    max_wait_ms=60_000,
    min_bytes=1,
    max_bytes=1 << 20,
    topics=[
        m01.FetchTopic(
            topic="t", partitions=[m01.FetchPartition(partition=0, partition_max_bytes=1 << 20)]
        )
    ],
    rack_id="r" * 30_000,
)
WAITING: dict[str, tuple[Message, int]] = {
    "join": (join("", 2 * LARGE), 2),
    "produce": (produce(900_000, [0]), 9),
    "produce, in slices": (produce(900_000, [0, 1, 0]), 9),
    "fetch": (FETCH, 12),
}


@pytest.mark.parametrize("name", WAITING)
def test_a_request_that_waits_keeps_no_buffer(node: Harness, name: str) -> None:
    """For its group, for the disk, for records: a hundred megabytes each, for minutes."""
    node.holds_flushes = True
    asked = Owning(node, framed(*WAITING[name]))
    asked.finish()
    assert asked.connection.answers == []
    assert asked.is_free


def test_a_member_that_waits_for_its_share_keeps_no_buffer(node: Harness) -> None:
    joined = node.send(join("", 10), 2)
    node.pass_time(60_000)
    [answer] = joined.answers
    rows = [m14.SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"a" * 1000)]
    sync = m14.SyncGroupRequest(
        group_id="g",
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        assignments=rows,
    )
    asked = Owning(node, framed(sync, 2))
    asked.finish()
    [reported] = asked.connection.answers
    assert (reported.error_code, reported.assignment) == (0, b"a" * 1000)
    reported.assignment = b""
    assert asked.is_free


def test_batches_that_wait_for_their_slice_are_not_copied(node: Harness) -> None:
    """Of partitions that are not there: a log of the test would copy what it keeps."""
    asked = Owning(node, framed(produce(900_000, range(10, 14)), 9))
    assert asked.most_bytes < 900_000
    asked.finish()
    [answer] = asked.connection.answers
    rows: list[Any] = answer.responses[0].partition_responses
    assert [row.error_code for row in rows] == [Code.UNKNOWN_TOPIC_OR_PARTITION] * 4
    assert asked.is_free
