"""What large messages held is freed in portions, and never what somebody else still has."""

import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from firnline.api.context import RequestContext
from firnline.base.units import MIB
from firnline.protocol.schema import Message, Struct, f
from firnline.runtime.bounds.freeing import CHECKS_MAX, ROWS_PER_PORTION, Freeing
from tests.unit.runtime.test_answers import Loop, World

MANY = 10 * ROWS_PER_PORTION


class Leaf(Struct):
    number = f("int32", "0+", "Nothing.")


class Branch(Struct):
    leaves = f([Leaf], "0+", "Few or many.")


class Tree(Message, key=9_999, valid="0", flexible="none"):
    branches = f([Branch], "0+", "Few or many.")
    leaves = f([Leaf], "0+", "Some more.")


class Node:
    """A loop whose turns are counted by what each of them frees."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.freed = 0
        self.freeing = Freeing(self.loop, self._reported)  # type: ignore[arg-type]
        self.alive = 0

    def _reported(self) -> None:
        self.freed += 1

    def leaves(self, count: int) -> list[Any]:
        rows = [Leaf(number=number) for number in range(count)]
        self.alive += count
        for row in rows:
            weakref.finalize(row, self._died).atexit = False
        return rows

    def _died(self) -> None:
        self.alive -= 1

    def turns(self) -> list[int]:
        """Do what is due; how many rows each turn freed."""
        found = []
        while self.loop.calls:
            before = self.alive
            self.loop.calls.pop(0)()
            found.append(before - self.alive)
        return found


@pytest.fixture
def node() -> Iterator[Node]:
    gc.disable()  # nothing is to need it
    yield Node()
    gc.enable()


def over(node: Node, *containers: Any) -> None:
    kept = node.freeing.begin()
    for each in containers:
        kept.add(each)
    node.freeing.end(kept, 1_000)


@pytest.mark.parametrize("branches", [1, 40, MANY // 16, MANY])
def test_no_turn_frees_more_than_a_portion_however_the_rows_are_nested(
    node: Node, branches: int
) -> None:
    each = MANY // branches
    over(node, Tree(branches=[Branch(leaves=node.leaves(each)) for _ in range(branches)]))
    freed = node.turns()
    assert node.alive == 0
    assert max(freed) <= 2 * ROWS_PER_PORTION + 16
    assert len(freed) >= MANY // ROWS_PER_PORTION // 2
    assert not node.freeing.is_busy


@pytest.mark.parametrize("kind", ["list", "dict", "set", "dict of lists"])
def test_tables_that_were_made_of_the_rows_are_freed_in_portions_too(node: Node, kind: str) -> None:
    rows = node.leaves(MANY)
    made: dict[str, Any] = {
        "list": lambda: rows,
        "dict": lambda: dict(enumerate(rows)),
        "set": lambda: {(number,) for number in range(MANY)},
        "dict of lists": lambda: {"a": rows},
    }
    table = made[kind]()
    over(node, table)
    del table
    rows = []
    del made
    freed = node.turns()
    assert node.alive == 0
    assert len(freed) >= MANY // ROWS_PER_PORTION
    if kind != "set":
        assert max(freed) <= ROWS_PER_PORTION


def test_a_container_that_a_waiter_still_has_is_left_alone_and_freed_when_it_has_gone(
    node: Node,
) -> None:
    tree = Tree(leaves=node.leaves(MANY))
    waits: Any = (row.number for row in tree.leaves)
    next(waits)
    over(node, tree)
    del tree
    assert sum(node.turns()) == 0
    node.loop.seconds(1)
    assert sum(node.turns()) == 0
    assert next(waits) == 1
    waits.close()
    assert node.alive == MANY, "it is kept, so that nobody frees it in one step"
    for _ in range(2):
        node.loop.timers, due = [], node.loop.timers
        for each in due:
            each()
    assert max(node.turns()) <= ROWS_PER_PORTION
    assert node.alive == 0


def test_the_rows_that_somebody_has_are_complete(node: Node) -> None:
    """One of them is remembered, as a member of a group or a session may be: nothing of it changes."""
    tree = Tree(branches=[Branch(leaves=node.leaves(100)) for _ in range(50)])
    mine = tree.branches[7]
    over(node, tree)
    del tree
    node.turns()
    assert [leaf.number for leaf in mine.leaves] == list(range(100))
    assert node.alive == 100


def test_what_is_held_for_ever_is_let_go_of_in_the_end(node: Node) -> None:
    rows = node.leaves(MANY)
    over(node, rows)
    for _ in range(CHECKS_MAX + 2):
        node.turns()
        node.loop.seconds(1)
    assert not node.freeing.is_busy
    assert len(rows) == MANY
    assert node.freeing.held_bytes == 0


def test_a_container_that_is_kept_twice_is_freed_once(node: Node) -> None:
    kept = node.freeing.begin()
    rows = node.leaves(MANY)
    for _ in range(3):
        kept.add(rows)
    del rows
    node.freeing.end(kept, 0)
    node.freeing.end(kept, 0)
    assert max(node.turns()) <= ROWS_PER_PORTION
    assert node.alive == 0


def test_one_more_of_very_many_containers_is_kept_as_soon_as_the_first(node: Node) -> None:
    """A request names 10,000 directories, and each has a table. Method: count lines."""
    kept = node.freeing.begin()
    lines = 0

    def trace(frame: object, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    for _ in range(10_000):
        kept.add([1])
    usual = sys.gettrace()
    sys.settrace(trace)
    try:
        kept.add([1])
    finally:
        sys.settrace(usual)
    assert 0 < lines < 20
    node.freeing.end(kept, 0)
    node.turns()
    assert not node.freeing.is_busy


def test_a_list_that_is_kept_and_is_in_a_message_too_is_nobody_elses(node: Node) -> None:
    rows = node.leaves(MANY)
    over(node, rows, Tree(leaves=rows))
    del rows
    assert max(node.turns()) <= ROWS_PER_PORTION
    assert node.alive == 0


def test_nothing_is_freed_while_its_request_is_under_way(node: Node) -> None:
    kept = node.freeing.begin()
    kept.add(node.leaves(MANY))
    node.turns()
    node.loop.seconds(1)
    assert node.alive == MANY
    assert node.freeing.is_busy


def test_a_node_that_ends_waits_for_none_of_this(node: Node) -> None:
    over(node, node.leaves(MANY))
    node.freeing.close()
    node.turns()
    assert node.alive == 0


def test_what_is_to_be_freed_counts_until_it_is() -> None:
    """Goal: large requests, one after the other, cannot outrun it. Method: the next answer waits."""
    world = World()
    first, second = world.peer("first"), world.peer("second")
    first.response_memory.hold(4 * MIB)
    first.response_memory.keeps([Leaf() for _ in range(MANY)])
    second.response_memory.grow(1)
    first.response_memory.made()
    world.wait(second)
    assert world.answers.held_bytes == 4 * MIB + 1
    assert world.peer("third").response_memory.must_wait() is False, "one always goes on"
    assert second.response_memory.must_wait()
    for _ in range(MANY // ROWS_PER_PORTION - 1):
        world.loop.calls.pop(0)()
    assert world.answers.held_bytes == 4 * MIB + 1
    world.loop.run()
    assert world.answers.held_bytes == 1
    assert world.went_on == ["second"]


def test_what_waits_for_minutes_does_not_count_and_is_freed_after_its_answer() -> None:
    world = World()
    peer = world.peer("a")
    rows = [Leaf() for _ in range(MANY)]
    peer.response_memory.hold(4 * MIB)
    peer.response_memory.keeps(rows)
    connection: Any = peer
    context = RequestContext(connection, 1, 12, 0, None, 0)
    context.when_gone(lambda now_ms: [])
    world.loop.run()
    assert world.answers.held_bytes == 0
    assert world.answers.freeing.is_busy
    last = weakref.ref(rows[0])
    del rows
    world.loop.run()
    assert last() is not None
    peer.response_memory.made()
    world.loop.run()
    assert last() is None
    assert not world.answers.freeing.is_busy


def test_a_change_that_goes_on_after_its_client_hung_up_is_freed_in_portions_too() -> None:
    world = World()
    peer = world.peer("a")
    rows: list[Any] = [Leaf() for _ in range(MANY)]
    more: list[Any] = [Leaf() for _ in range(MANY)]
    peer.response_memory.hold(4 * MIB)
    peer.response_memory.keeps(rows)
    peer.response_memory.keeps(more)
    peer.response_memory.close()
    world.loop.run()
    for _ in range(3):
        peer.response_memory.keeps(more)
    last = weakref.ref(more[0])
    del rows, more
    assert last() is not None
    world.loop.seconds(3)
    assert last() is None
    assert not world.answers.freeing.is_busy


def test_young_objects_are_looked_at_while_more_is_freed_than_made(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector counts what is made less what is freed: it would go over all of it at the end."""
    collections: list[int] = []
    monkeypatch.setattr("firnline.runtime.bounds.freeing.gc.collect", collections.append)
    kept = node.freeing.begin()
    node.loop.seconds(3)
    assert collections == [], "it is off while metadata is loaded"
    gc.enable()
    node.loop.seconds(3)
    gc.disable()
    assert collections == [1, 1, 1]
    node.freeing.end(kept, 0)
    node.loop.seconds(2)
    assert node.loop.timers == [], "an idle node has no such timer"


def test_a_request_of_a_thousand_rows_has_nothing_kept() -> None:
    """It would pay for it, and is freed in no time."""
    world = World()
    peer = world.peer("a")
    peer.response_memory.hold(300_000)
    peer.response_memory.keeps([Leaf() for _ in range(1_000)])
    assert not world.answers.freeing.is_busy
