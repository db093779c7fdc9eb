"""A large request that no controller decides on: who refuses it holds up nobody by naming all of its rows."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from firnline.base.effects import Effects, Reply, Send, SetTimer, Unanswered
from firnline.base.errors import Code
from firnline.protocol.messages import k19_create_topics as m19
from firnline.protocol.messages import k20_delete_topics as m20
from firnline.protocol.messages import k33_alter_configs as m33
from firnline.protocol.messages import k37_create_partitions as m37
from firnline.protocol.messages import k43_elect_leaders as m43
from firnline.protocol.messages import k44_incremental_alter_configs as m44
from firnline.protocol.messages.k58_envelope import EnvelopeResponse
from firnline.protocol.schema import Message
from tests.worlds.cluster import CLIENT_PORT, Rig

from .test_large_forwarding import BROKER, MANY, NAMES, OF_BROKER, OF_TOPIC, Turns, rig

__all__ = ["rig"]

# Calls of functions in a slice of 500 rows, and some; all rows are from 18,000 on.
CALLS_MAX = 6_000
LATE_MS = 60_000
Found = list[tuple[Any, int]]  # what a row of an answer names, and its code


def alter_configs(kinds: tuple[int, ...]) -> Message:
    rows = [
        m33.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
        for kind, name in zip(kinds, NAMES, strict=True)
    ]
    return m33.AlterConfigsRequest(resources=rows)


def incremental(kinds: tuple[int, ...]) -> Message:
    rows = [
        m44.AlterConfigsResource(
            resource_type=kind, resource_name="99" if kind == OF_BROKER else name, configs=[]
        )
        for kind, name in zip(kinds, NAMES, strict=True)
    ]
    return m44.IncrementalAlterConfigsRequest(resources=rows)


def named(field: str, name: str = "name") -> Callable[[Any], Found]:
    return lambda answer: [(getattr(row, name), row.error_code) for row in getattr(answer, field)]


def elected(answer: Any) -> Found:
    return [
        ((topic.topic, row.partition_id), row.error_code)
        for topic in answer.replica_election_results
        for row in topic.partition_result
    ]


TOPICS = (OF_TOPIC,) * MANY
# Every tenth is of another broker, and refused before anybody is asked.
MIXED = (OF_TOPIC,) * 9 + (OF_BROKER,)
CASES: dict[str, tuple[Message, int, Callable[[Any], Found]]] = {
    "create topics": (
        m19.CreateTopicsRequest(
            topics=[m19.CreatableTopic(name=name) for name in (*NAMES, *NAMES[:9])]
        ),
        7,
        named("topics"),
    ),
    "delete topics": (
        m20.DeleteTopicsRequest(topics=[m20.DeleteTopicState(name=name) for name in NAMES]),
        6,
        named("responses"),
    ),
    "create partitions": (
        m37.CreatePartitionsRequest(
            topics=[m37.CreatePartitionsTopic(name=name, count=9) for name in (*NAMES, NAMES[0])]
        ),
        3,
        named("results"),
    ),
    "elect leaders": (
        m43.ElectLeadersRequest(
            topic_partitions=[m43.ElectionTopic(topic=name, partitions=[0]) for name in NAMES]
        ),
        2,
        elected,
    ),
    "alter configs": (alter_configs(TOPICS), 2, named("responses", "resource_name")),
    "alter configs, some": (
        incremental(MIXED * (MANY // 10)),
        1,
        named("responses", "resource_name"),
    ),
}


class Counted(Turns):
    """`calls` of functions of each slice."""

    def __init__(self, rig: Rig, request: Message, version: int) -> None:
        self.calls: list[int] = []
        request.timeout_ms = 1_000  # type: ignore[attr-defined]
        super().__init__(rig, BROKER, CLIENT_PORT, request, version)

    def go_on(self, then: Callable[..., Effects], *found: Any) -> None:
        """Do what an answer or a timer leads to."""
        self.found.clear()
        self.take(self.call(then, *found))

    def call(self, then: Callable[..., Effects], *arguments: Any) -> Effects:
        count = 0

        def seen(frame: FrameType, event: str, arg: Any) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(seen)
        try:
            return then(*arguments)
        finally:
            sys.setprofile(before)
            self.calls.append(count)

    def sent(self) -> Send:
        [send] = self.until().found
        assert isinstance(send, Send)
        return send

    def later(self) -> SetTimer:
        [timer] = self.until().found
        assert isinstance(timer, SetTimer)
        return timer


def no_controller(turns: Counted) -> Code:
    """None is known until the time of the request is over."""
    turns.rig[BROKER].broker.quorum.raft.leader_peer = lambda: None
    turns.go_on(turns.later().then, turns.rig.now_ms)
    turns.go_on(turns.later().then, turns.rig.now_ms + LATE_MS)
    return Code.REQUEST_TIMED_OUT


def no_answer(turns: Counted) -> Code:
    turns.go_on(turns.sent().then, Unanswered(why="silence"), turns.rig.now_ms)
    turns.go_on(turns.later().then, turns.rig.now_ms + LATE_MS)
    return Code.REQUEST_TIMED_OUT


def refused(turns: Counted) -> Code:
    answer = EnvelopeResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED)
    turns.go_on(turns.sent().then, answer, turns.rig.now_ms)
    return Code.UNKNOWN_SERVER_ERROR


def unsupported(turns: Counted) -> Code:
    answer = EnvelopeResponse(error_code=Code.UNSUPPORTED_VERSION)
    turns.go_on(turns.sent().then, answer, turns.rig.now_ms)
    return Code.UNSUPPORTED_VERSION


def not_understood(turns: Counted) -> Code:
    turns.go_on(turns.sent().then, EnvelopeResponse(response_data=b"?"), turns.rig.now_ms)
    return Code.UNKNOWN_SERVER_ERROR


def large_and_not_understood(turns: Counted) -> Code:
    answer = EnvelopeResponse(response_data=b"?" * 100_000)
    turns.go_on(turns.sent().then, answer, turns.rig.now_ms)
    return Code.UNKNOWN_SERVER_ERROR


OUTCOMES = (no_controller, no_answer, refused, unsupported, not_understood)


@pytest.mark.parametrize("outcome", [*OUTCOMES, large_and_not_understood])
@pytest.mark.parametrize("name", CASES)
def test_a_large_request_that_nobody_decides_on_is_refused_in_slices(
    rig: Rig, name: str, outcome: Callable[[Counted], Code]
) -> None:
    """Goal: every row is named once, in order, and no step names all. Method: count calls of functions."""
    request, version, rows_of = CASES[name]
    if outcome is no_controller:
        rig[BROKER].broker.quorum.raft.leader_peer = lambda: None
    Counted(rig, request, version).until()  # the first time its classes are compiled
    turns = Counted(rig, request, version)
    code = outcome(turns)
    [reply] = turns.until().found
    assert isinstance(reply, Reply)
    names = [(name, 0) for name in NAMES] if name == "elect leaders" else NAMES
    if name == "alter configs, some":
        codes = [Code.INVALID_REQUEST if n % 10 == 9 else code for n in range(MANY)]
        names = ["99" if n % 10 == 9 else each for n, each in enumerate(NAMES)]
    else:
        codes = [code] * MANY
    assert rows_of(reply.message) == list(zip(names, codes, strict=True))
    assert max(turns.calls) < CALLS_MAX, sorted(turns.calls)[-5:]
    assert turns.calls


def test_a_client_that_hangs_up_while_it_is_refused_costs_no_more_slices(rig: Rig) -> None:
    request, version, _ = CASES["delete topics"]
    turns = Counted(rig, request, version)
    unsupported(turns)
    turns.one_more()
    turns.line.closed = True
    slices = len(turns.calls)
    assert turns.until().found == []
    assert len(turns.calls) <= slices + 1


def test_a_small_request_is_refused_in_the_step_of_its_answer(rig: Rig) -> None:
    states = [m20.DeleteTopicState(name=name) for name in NAMES[:900]]
    turns = Counted(rig, m20.DeleteTopicsRequest(topics=states), 6)
    unsupported(turns)
    [reply] = turns.found
    assert isinstance(reply, Reply)
    assert len(reply.message.responses) == 900  # type: ignore[attr-defined]


def test_a_large_answer_is_read_in_slices_where_the_broker_refused_some_itself(rig: Rig) -> None:
    """Goal: each row has its own answer. Method: the controller says of each row its number."""
    request, version, _ = CASES["alter configs, some"]
    turns = Counted(rig, request, version)
    send = turns.sent()
    rows = [
        m44.AlterConfigsResourceResponse(
            error_code=n % 90, error_message=None, resource_type=OF_TOPIC, resource_name=name
        )
        for n, name in enumerate(each for n, each in enumerate(NAMES) if n % 10 != 9)
    ]
    body = m44.IncrementalAlterConfigsResponse(responses=rows).write(version)
    data = (7).to_bytes(4, "big") + b"\0" + body
    turns.go_on(send.then, EnvelopeResponse(response_data=data), rig.now_ms)
    [reply] = turns.until().found
    assert isinstance(reply, Reply)
    found = [
        (row.resource_name, row.error_code)
        for row in reply.message.responses  # type: ignore[attr-defined]
        if row.resource_type == OF_TOPIC
    ]
    assert found == [(row.resource_name, row.error_code) for row in rows]
    assert len(reply.message.responses) == MANY  # type: ignore[attr-defined]
    assert max(turns.calls) < CALLS_MAX, sorted(turns.calls)[-5:]
    assert len(turns.calls) >= 2 * MANY // 500 - 3


def test_what_is_left_for_the_controller_is_sorted_out_in_slices(rig: Rig) -> None:
    """Goal: no step goes over all resources. Method: count the slices of 500, then of 5,000."""
    request, version, _ = CASES["alter configs, some"]
    turns = Turns(rig, BROKER, CLIENT_PORT, request, version).until()
    assert turns.count("_forward of") == MANY // 500 + MANY // 5_000 - 1
