"""Requests that name very many things: each step of them is short, and the answer is whole."""

import pytest

from firnline.base.errors import Code
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.protocol.schema import Message

from .large import NAMES, LargeNode
from .test_large_requests import codes, produce

MANY = 20_000
MANY_NAMED: dict[str, tuple[Message, int]] = {
    "list_offsets": (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=NAMES[0],
                    partitions=[
                        ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(MANY)
                    ],
                )
            ],
        ),
        7,
    ),
    "produce": (
        ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name=NAMES[0],
                    partition_data=[
                        PartitionProduceData(index=n, records=b"none") for n in range(MANY)
                    ],
                )
            ],
        ),
        9,
    ),
}


@pytest.mark.parametrize("name", MANY_NAMED)
def test_no_step_of_a_request_that_names_very_many_things_holds_up_the_node(
    name: str,
) -> None:
    """A request of 6 MB held the loop for half a second. Method: count the calls of each step."""
    small = LargeNode(NAMES[:1])
    for _ in range(2):  # the first time its classes are compiled
        answer = small.ask(*MANY_NAMED[name])
    assert max(small.steps) < 10_000, small.steps
    [row] = answer.topics if name == "list_offsets" else answer.responses
    rows = row.partitions if name == "list_offsets" else row.partition_responses
    assert [
        each.partition_index if name == "list_offsets" else each.index for each in rows
    ] == list(range(MANY))


@pytest.fixture
def small() -> LargeNode:
    return LargeNode(NAMES[:6])


def test_what_is_appended_in_slices_is_acknowledged_when_all_of_it_is_synced(
    small: LargeNode,
) -> None:
    small.holds_flushes = True
    connection = small.begin(produce(-1, NAMES[:6]), 9)
    small.finish()
    assert connection.answers == []
    small.flush()
    small.finish()
    [answer] = connection.answers
    assert codes(answer) == {name: {Code.NONE} for name in NAMES[:6]}
