"""Local logs beyond local.retention.*: the operator hears of a disk that fills before it is full."""

import pytest

from firnline.base.errors import StorageError
from firnline.base.units import HOUR_MS
from firnline.tiered import local_audit
from firnline.tiered.settings import TierSettings
from tests.worlds.tier import Cluster, Node, topic_config

INTERVAL_MS = TierSettings().local_audit_interval_ms


def beyond(node: Node) -> list[str]:
    return [line for line in node.warnings if "beyond local.retention" in line]


def ended(node: Node) -> list[str]:
    return [line for line in node.notes if "beyond local.retention any more" in line]


def led(**limits: int) -> Node:
    limits = limits or {"local_retention_bytes": 1}
    config = topic_config(**limits)
    node = Node(Cluster(), config=config, task_interval_ms=30_000, retry_backoff_max_ms=30_000)
    node.start().lead(0)
    node.produce(0, "a")
    node.pass_time(1000)
    return node


def pass_rounds(node: Node, count: int, *, is_deleting: bool = True) -> None:
    """Pass so many rounds; the local deletion has its turn before each of them."""
    for _ in range(count):
        if is_deleting:
            node.expire_local()
        node.pass_time(INTERVAL_MS)


@pytest.mark.parametrize("limit", [{"local_retention_bytes": 1}, {"local_retention_ms": 1000}])
def test_a_disk_that_fills_while_copies_fail_is_named_once_until_they_succeed(
    limit: dict[str, int],
) -> None:
    """F33. Three hours of failures are one line, and their end another one."""
    node = led(**limit)
    node.storage.fail("copy", StorageError("503"), times=10_000)
    for text in "bcd":
        node.produce(0, text)
    pass_rounds(node, 1)
    assert node.tier.problem is None
    pass_rounds(node, 2)
    (line,) = beyond(node)
    assert f'reason="not copied" partitions=t-0 bytes={node.log.size_bytes}' in line
    assert node.tier.problem is not None
    assert node.tier.problem.startswith("segments of t-0 stay on the disk beyond local.retention")
    pass_rounds(node, 3 * HOUR_MS // INTERVAL_MS)
    assert len(beyond(node)) == 1
    node.storage.faults.clear()
    pass_rounds(node, 3)
    assert node.tier.problem is None
    assert ended(node) == [
        'no local segments stay beyond local.retention any more reason="not copied"'
    ]
    assert len(beyond(node)) == 1


def test_a_local_deletion_that_stands_still_is_named_within_two_intervals() -> None:
    """F35: the tier has the segments, and the files stay."""
    node = led()
    for text in "bc":
        node.produce(0, text)
    pass_rounds(node, 3, is_deleting=False)
    (line,) = beyond(node)
    assert 'reason="not deleted"' in line
    pass_rounds(node, 3)
    assert node.tier.problem is None
    assert ended(node) == [
        'no local segments stay beyond local.retention any more reason="not deleted"'
    ]


def test_a_partition_that_is_written_all_the_time_is_not_taken_for_one_that_stands_still() -> None:
    """In each round some segment is due, but never the same."""
    node = led()
    for _ in range(10):
        node.produce(0, "x", "y")
        node.pass_time(INTERVAL_MS)
        node.expire_local()
    assert beyond(node) == []


def test_what_waits_for_its_epochs_to_be_synced_is_in_the_tier() -> None:
    """The files stay until then, but not because the tier lacks them."""
    node = led()
    node.produce(0, "b")
    node.produce(0, "c")
    node.pass_time(60_000)
    node.log.epochs.unkept_from = 0
    found = node.log.overdue(node.now_ms)
    assert found is not None
    assert found.is_copied


def test_local_segments_without_a_limit_or_without_copies_are_as_wanted() -> None:
    for limit_ms in (-1, HOUR_MS):
        node = led(local_retention_bytes=-1, local_retention_ms=limit_ms)
        node.storage.fail("copy", StorageError("503"), times=100)
        for text in "bcd":
            node.produce(0, text)
        pass_rounds(node, 4)
        assert beyond(node) == []
    node = led()
    node.log.config = topic_config(remote_log_copy_disable=True, local_retention_bytes=-2)
    node.produce(0, "b", "c")
    pass_rounds(node, 4)
    assert beyond(node) == []


def test_a_round_gives_the_loop_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_audit, "PARTITIONS_PER_SLICE", 1)
    node = led()
    steps = node.tier.local_audit._round(node.now_ms)
    assert next(steps) == []
    assert next(steps) == []
    with pytest.raises(StopIteration):
        next(steps)
