"""The loop frees what large messages held a portion in a turn, and looks for cycles meanwhile."""

import gc
from typing import Any

from firnline.base.freeing import BACKLOG, Rows
from tests.unit.runtime.echo import Running

MANY = 100_000


class Row:
    alive = 0

    def __init__(self) -> None:
        Row.alive += 1

    def __del__(self) -> None:
        Row.alive -= 1


def test_others_are_served_while_a_large_message_is_freed(node: Running) -> None:
    held = [Rows(Row() for _ in range(MANY))]
    node.on_loop(held.clear)
    alive = []
    while Row.alive:
        node.on_loop(lambda: alive.append(Row.alive))
    assert len(alive) > MANY // 10_000, "in a few steps"


def test_what_is_made_while_much_is_freed_is_looked_at_in_portions(node: Running) -> None:
    """Nothing was, as long as no more was made than freed; then all of it at once, in 60 ms."""
    made: list[Any] = []
    looks: list[int] = []

    def make() -> None:
        made.extend([number] for number in range(800))
        if len(BACKLOG):
            node.runtime.loop.call_soon(make)

    def note(phase: str, facts: dict[str, int]) -> None:
        if (
            phase == "start" and facts["generation"] < 2
        ):  # those are the server's (server/collector)
            looks.append(sum(len(gc.get_objects(n)) for n in range(facts["generation"] + 1)))

    rows = Rows([[number], [number]] for number in range(MANY))
    gc.collect()
    held = [rows]
    del rows
    gc.callbacks.append(note)
    before = gc.get_threshold()
    gc.set_threshold(2_000, 2, 1_000_000)
    try:
        node.on_loop(lambda: (held.clear(), make()))
        while len(BACKLOG):
            node.on_loop(lambda: None)
        node.on_loop(lambda: None)
        made.extend([number] for number in range(10_000))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)
    assert len(made) > 50_000
    assert max(looks) < 15_000


def test_what_is_left_is_freed_when_the_node_stops(node: Running) -> None:
    held = [Rows(Row() for _ in range(MANY))]
    node.on_loop(held.clear)
    node.on_loop(lambda: BACKLOG.end(node.runtime._wake_to_free))
    assert Row.alive == 0
