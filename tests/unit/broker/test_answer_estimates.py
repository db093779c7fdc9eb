"""What an answer is taken to hold while it is made is about what it holds (decision 0026)."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.effects import Effects, Reply
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.schema import Message

from .large import NAMES, PARTITIONS, LargeNode
from .test_large_requests import LARGE, commit, fetch, fetch_offsets, produce

NOTE_CHARS = 4_000
ASKED = (
    "metadata of all topics",
    "list_offsets, end",
    "describe_log_dirs",
    "list_groups",
    "offset_fetch",
    "fetch without a session",
    "fetch, a new session",
)


class Counted:
    """Where the bytes of a connection's answers are counted: nobody waits."""

    def __init__(self) -> None:
        self.bytes = 0
        self.greatest = 0

    def grow(self, size_bytes: int) -> None:
        self.bytes += size_bytes
        self.greatest = max(self.greatest, size_bytes)

    def hold(self, size_bytes: int) -> None:
        self.grow(size_bytes)

    def give_way(self) -> None: ...

    def keeps(self, container: Any) -> None: ...

    def made(self) -> None:
        self.bytes = 0

    waits = made

    def reserve(self, size_bytes: int) -> bool:
        return True

    def release(self, size_bytes: int) -> None: ...

    def must_wait(self) -> bool:
        return False

    def must_wait_to_begin(self) -> bool:
        return False

    def wait(self, again: Callable[[int], Effects], *, to_begin: bool = False) -> None:
        raise AssertionError("there is room")


@pytest.fixture(scope="module")
def node() -> LargeNode:
    made = LargeNode(NAMES)
    made.fs.volume_bytes = lambda path: (1, 1)  # type: ignore[method-assign]  # looks at every file here
    made.send(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    made.pass_time(2_000)
    for number in range(600):
        made.send(commit(f"group-{number}", NAMES[:1], 1), 8)
    made.ask(commit("g", NAMES), 8)
    noted = commit("noted", NAMES)
    for topic in noted.topics:
        for part in topic.partitions:
            part.committed_metadata = "x" * NOTE_CHARS
    made.ask(noted, 8)
    return made


def estimated_and_held(node: LargeNode, request: Message, version: int) -> tuple[Counted, int]:
    """Ask twice: the first time its classes are compiled. Return the most that request and answer held."""
    kept: list[Any] = []
    encode = node.encode
    node.encode = lambda reply: _kept(kept, reply, encode)  # type: ignore[method-assign]
    try:
        node.ask(request, version)
        kept.clear()
        gc.collect()
        tracemalloc.start()
        memory = Counted()
        before = tracemalloc.get_traced_memory()[0]
        node.begin(request, version, memory)
        node.finish()
        held = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
        del node.encode  # type: ignore[method-assign]
    assert kept
    return memory, held


def _kept(kept: list[Any], reply: Reply, encode: Callable[[Reply], Any]) -> Any:
    kept.append(reply.message)
    return encode(reply)


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_is_taken_for_what_it_holds(node: LargeNode, name: str) -> None:
    memory, held = estimated_and_held(node, *LARGE[name])
    # What was done in the last slice is counted by what is encoded of it.
    assert held / 2 < memory.bytes + memory.greatest < 3 * held, (
        memory.bytes,
        memory.greatest,
        held,
    )


def test_notes_in_commits_are_counted(node: LargeNode) -> None:
    """500 partitions of a slice may have 4 KiB each: eight times what a slice was taken for.

    Of a group that was loaded each answer has texts of its own; of one that commits here they are shared.
    """
    memory = Counted()
    node.begin(fetch_offsets("noted"), 8, memory)
    node.finish()
    texts = len(NAMES) * PARTITIONS * NOTE_CHARS
    assert texts <= memory.bytes < 2 * texts


def test_partitions_with_records_are_counted_until_the_fetch_is_answered_or_waits() -> None:
    """Records stay in files; what is known of each partition does not."""
    node = LargeNode(NAMES)
    node.ask(produce(1), 9)
    memory, held = estimated_and_held(node, fetch(-1), 12)
    assert held / 2 < memory.bytes + memory.greatest < 3 * held, (
        memory.bytes,
        memory.greatest,
        held,
    )
    memory = Counted()
    node.begin(fetch(-1, min_bytes=50 << 20, max_wait_ms=60_000), 12, memory)
    node.finish()
    assert memory.bytes == 0, "it waits for a minute, and all is read again then"
    node.pass_time(60_000)
    assert memory.bytes > 200 * len(NAMES) * PARTITIONS
