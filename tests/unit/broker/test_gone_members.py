"""A member of a group that hangs up while it waits: its answer goes at once, its membership in its time."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from firnline.protocol.messages.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.worlds.harness import Connection, Harness

SESSION_MS, REBALANCE_MS = 10_000, 60_000


class Watched(Connection):
    """A connection that is watched while its request waits, as in `runtime.net`."""

    def __init__(self) -> None:
        super().__init__()
        self.abandon: Callable[[int], Effects] | None = None

    def when_gone(self, turn: int, abandon: Callable[[int], Effects]) -> None:
        self.abandon = abandon

    def hang_up(self, node: Harness) -> None:
        self.closed = True
        abandon, self.abandon = self.abandon, None
        assert abandon is not None
        node.run(abandon(node.now_ms))


@pytest.fixture
def node() -> Harness:
    made = Harness()
    made.send(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    made.pass_time(2_000)
    return made


def join(node: Harness, member_id: str = "", version: int = 3) -> Watched:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    connection = Watched()
    node.send(request, version, connection)
    return connection


def sync(node: Harness, member_id: str, generation: int, parts: dict[str, bytes]) -> Watched:
    request = SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=name, assignment=part)
            for name, part in parts.items()
        ],
    )
    connection = Watched()
    node.send(request, 3, connection)
    return connection


def is_forgotten(connection: Watched) -> bool:
    """Whether nothing refers to the connection but we."""
    gc.collect()
    return not [
        held for held in gc.get_referrers(connection) if type(held).__name__ == "RequestContext"
    ]


def said(connection: Connection) -> Any:
    [answer] = connection.answers
    return answer


def test_an_answer_that_is_there_at_once_watches_nobody(node: Harness) -> None:
    first = join(node, version=4)
    assert said(first).error_code == Code.MEMBER_ID_REQUIRED
    assert first.abandon is None


def test_who_hangs_up_while_it_joins_is_forgotten_at_once_and_is_a_member_all_the_same(
    node: Harness,
) -> None:
    leader = said(join(node)).member_id
    second = join(node)
    assert not second.answers
    assert second.abandon is not None
    second.hang_up(node)
    assert is_forgotten(second)
    # Both have joined, as Kafka has it: the generation begins when the first one is back.
    found = said(join(node, leader))
    assert (found.error_code, found.generation_id, len(found.members)) == (0, 2, 2)
    assert not second.answers


def test_who_hangs_up_while_it_waits_for_its_assignment_is_forgotten_at_once(node: Harness) -> None:
    leader = said(join(node)).member_id
    second = join(node)
    generation = said(join(node, leader)).generation_id
    member = said(second).member_id
    waits = sync(node, member, generation, {})
    assert not waits.answers
    waits.hang_up(node)
    assert is_forgotten(waits)
    handed_out = sync(node, leader, generation, {leader: b"a", member: b"b"})
    assert said(handed_out).assignment == b"a"
    # Its part is there when it comes again.
    assert said(sync(node, member, generation, {})).assignment == b"b"


def test_a_member_that_comes_again_while_its_old_request_waits_is_notified_on_both(
    node: Harness,
) -> None:
    leader = said(join(node)).member_id
    second = join(node)
    generation = said(join(node, leader)).generation_id
    member = said(second).member_id
    old = sync(node, member, generation, {})
    new = sync(node, member, generation, {})
    assert said(old).error_code == Code.REBALANCE_IN_PROGRESS
    assert not new.answers
    weak = weakref.ref(old)
    del old
    gc.collect()
    assert weak() is None


@pytest.mark.parametrize("hangs_up", [False, True])
def test_the_group_goes_on_the_same_whether_or_not_a_member_hangs_up(
    node: Harness, hangs_up: bool
) -> None:
    leader = said(join(node)).member_id
    others = [join(node) for _ in range(3)]
    if hangs_up:
        for other in others:
            other.hang_up(node)
    found = said(join(node, leader))
    assert (found.generation_id, len(found.members)) == (2, 4)
    node.pass_time(REBALANCE_MS * 2)
    assert len(said(join(node)).members) == 1
