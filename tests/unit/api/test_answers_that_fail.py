"""No API has an answer that stops the node where it cannot be made, whatever step it comes in.

The rule stands in runtime/failed_requests; each handler whose answer waits has to keep it.
"""

from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from firnline.api.context import RequestContext
from firnline.api.dispatch import Dispatcher
from firnline.api.handlers.k20_delete_topics import handle as delete_topics
from firnline.base.effects import CloseConnection, Effects, SetTimer
from firnline.broker.fetch import Fetching
from firnline.broker.produce import Producing
from firnline.coordinator.groups import GroupCoordinator
from firnline.coordinator.producer_ids import ProducerIds
from firnline.metadata.quorum import MetadataQuorum
from firnline.metadata.snapshotter import Snapshotter
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from firnline.protocol.versions import (
    CONTROLLER_PRIVATE,
    CONTROLLER_SERVED,
    PRIVATE,
    PRODUCE_VERSION_MIN,
    SERVED,
    ServedApi,
)
from tests.fuzz.shapes import Plan, frame
from tests.worlds.effects import only
from tests.worlds.harness import CLUSTER_ID, Connection, Harness

KNOWN = "known"
PLANS = [
    Plan("known", KNOWN, named=(("cluster_id", CLUSTER_ID),)),
    Plan("null", None),
    Plan("nothing", "", count=0),
]
# What handlers hand their answer to, to be made when something is committed, synced or there.
WHERE_ANSWERS_WAIT: list[tuple[type, str]] = [
    (MetadataQuorum, "write"),
    (Snapshotter, "take"),
    (Producing, "produce"),
    (Fetching, "fetch"),
    (ProducerIds, "init"),
    *((GroupCoordinator, name) for name in ("join", "sync", "heartbeat", "commit")),
    (GroupCoordinator, "delete_group"),
]
# APIs whose answers are made there.
WAITING = {
    "clients": {0, 1, 8, 11, 12, 14, 19, 20, 22, 33, 37, 42, 43, 44, 45, 46, 57, 64, 32012},
    "controllers": {19, 20, 33, 37, 43, 44, 45, 46, 56, 57, 62, 63, 64, 67, 70, 73, 32012},
}
DELETE_TOPICS = 20


class NoAnswer(Exception):
    """What is told cannot be made an answer."""


class Node(Harness):
    """A node that keeps the problems of requests; what a step raises beside is the test's."""

    def __init__(self) -> None:
        self.problems: list[Exception] = []
        super().__init__()

    def on_close(self, effect: CloseConnection) -> None:
        if effect.problem is not None:
            self.problems.append(effect.problem)
        else:
            super().on_close(effect)


@pytest.fixture(scope="module")
def node() -> Node:
    made = Node()
    made.create_topic(KNOWN)
    made.ask(FindCoordinatorRequest(coordinator_key=KNOWN, key_type=0), 3)
    made.pass_time(1_000)
    return made


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no answer made, and those that wait asked for in a step of their own."""

    def reply(self: RequestContext, message: Any) -> Any:
        raise NoAnswer

    def begin(call: Callable[..., Effects], *args: Any, **more: Any) -> Effects:
        def then(_: int) -> Effects:
            return call(*args, **more)

        return [SetTimer(key=("in another step", next(serial)), at_ms=0, then=then)]

    serial = count()
    monkeypatch.setattr(RequestContext, "reply", reply)
    for where, name in WHERE_ANSWERS_WAIT:
        call = getattr(where, name)
        # A function, as a partial would not be a method.
        monkeypatch.setattr(
            where, name, lambda *args, call=call, **more: begin(call, *args, **more)
        )


def requests(rows: tuple[ServedApi, ...]) -> Iterator[tuple[int, memoryview]]:
    for row in sorted(rows, key=lambda row: row.key == DELETE_TOPICS):
        first = PRODUCE_VERSION_MIN if row.key == 0 else row.advertised_min
        for version in sorted({first, row.advertised_max}):
            for plan in PLANS:
                data = frame(row.key, version, plan, None)
                yield row.key, memoryview(bytearray(data))[4:]


@pytest.mark.parametrize("listener", ["clients", "controllers"])
@pytest.mark.usefixtures("fails")
def test_no_answer_that_cannot_be_made_stops_the_node(node: Node, listener: str) -> None:
    """Goal: one connection pays. What a step raises here `Runtime.resume` would take for a broken node."""
    controller = node.node.controller_node
    assert controller is not None
    asked, rows = Dispatcher(node.node), (*SERVED, *PRIVATE)
    if listener == "controllers":
        rows = (*CONTROLLER_SERVED, *CONTROLLER_PRIVATE)
        asked = Dispatcher(controller, rows)
    waited = set()
    for key, data in requests(rows):
        node.problems = []
        node.run(asked.on_frame(Connection(), data, node.now_ms))
        at_once = len(node.problems)
        try:
            node.pass_time(5_000)
        except NoAnswer:
            pytest.fail(f"the handler of API {key} stops the node")
        assert all(isinstance(each, NoAnswer) for each in node.problems), node.problems
        if len(node.problems) > at_once:
            waited.add(key)
    assert waited >= WAITING[listener], "the test no longer sees what waits"


def waiting_broker() -> tuple[Any, RequestContext]:
    """A broker that knows of no active controller, and a client of it."""
    raft = SimpleNamespace(leader_peer=lambda: None)
    node = SimpleNamespace(forwards=True, quorum=SimpleNamespace(raft=raft))
    connection = SimpleNamespace(principal="User:a", peer_host="127.0.0.1", closed=False)
    return node, RequestContext(connection, DELETE_TOPICS, 6, 1, None, 0)


@pytest.mark.usefixtures("fails")
def test_a_refusal_that_cannot_be_made_after_a_wait_for_a_controller_does_not_either() -> None:
    """Goal: as above, of one that waits at a broker. Method: nobody is the active controller in time."""
    node, context = waiting_broker()
    now_ms = 0
    effects = delete_topics(node, context, DeleteTopicsRequest(timeout_ms=100), now_ms)
    while type(effects[0]) is SetTimer:
        now_ms = effects[0].at_ms
        effects = effects[0].then(now_ms)
    [reported] = effects
    assert isinstance(reported, CloseConnection)
    assert isinstance(reported.problem, NoAnswer)
    assert now_ms == 100


def test_a_request_that_waits_for_a_controller_is_kept_for_nobody_who_has_hung_up() -> None:
    """Goal: bounded memory while no controller is active: a request may have a hundred megabytes."""
    node, context = waiting_broker()
    [timer] = delete_topics(node, context, DeleteTopicsRequest(timeout_ms=30_000), 0)
    assert isinstance(timer, SetTimer)
    timer = only(timer.then(timer.at_ms), SetTimer)
    context.connection.closed = True  # type: ignore[attr-defined]
    assert timer.then(timer.at_ms) == []
