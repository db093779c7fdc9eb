"""What the operator sees of a tiered partition: what fails, since when, and how far copies are behind."""

import pytest

from firnline.base.errors import StorageError
from firnline.tiered import status
from tests.worlds.tier import WHERE, Cluster, Node


def test_the_status_says_since_when_a_copy_fails_and_how_far_it_is_behind() -> None:
    """The first failure counts, whatever the later ones say; a success ends it."""
    node = Node(Cluster()).start().lead(0)
    node.produce(0, "a")
    node.pass_time(1000)
    began_ms = node.now_ms
    (row,) = node.tier.status()
    assert (row.problem_since_ms, row.waiting_since_ms) == (None, None)
    node.storage.fail("copy", StorageError("503"), times=1)
    node.storage.fail("copy", StorageError("403"), times=1000)
    node.produce(0, "b")
    while node.tier.status()[0].problem is None:
        node.pass_time(10)
    (row,) = node.tier.status()
    assert "503" in str(row.problem)
    since_ms = row.problem_since_ms
    assert row.waiting_since_ms is not None
    assert since_ms is not None
    assert began_ms <= row.waiting_since_ms <= since_ms <= node.now_ms
    node.pass_time(20_000)
    (row,) = node.tier.status()
    assert "403" in str(row.problem)
    assert row.problem_since_ms == since_ms
    node.storage.faults.clear()
    node.pass_time(60_000)
    (row,) = node.tier.status()
    assert (row.problem, row.problem_since_ms, row.waiting_since_ms) == (None, None, None)


def test_a_look_at_the_status_gives_the_loop_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metrics page asks for it every few seconds, and costs follow the segments."""
    monkeypatch.setattr(status, "SEGMENTS_PER_SLICE", 1)
    node = Node(Cluster()).start().lead(0)
    node.produce(0, "a")
    node.pass_time(1000)
    steps = node.tier.status_steps()
    next(steps)
    node.run(
        node.tier.on_stop(WHERE, node.cluster.now_ms)
    )  # it leaves while others have their turn
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert [row.remote_segments for row in end.value.value] == [1]
    assert node.tier.status() == []
