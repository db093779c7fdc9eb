"""Periodic work over ten thousand partitions leaves the loop to the requests. Design: slices."""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.effects import Effects, SetTimer, Warn
from firnline.base.ids import TopicPartition
from firnline.log.log import Log
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from tests.unit.broker.harness import Harness, batch

COUNT = 1000
# What each job asks of every log.
ASKS = {
    "retention": "delete_due_segments",
    "sync": "dirty_files",
    "flush.ms": "dirty_files",
    "producers": "producers",
    "checkpoint": "recovery_start",
}


def node_with_partitions() -> Harness:
    """A node with many partitions that have something to sync."""
    harness = Harness()
    harness.create_topic(partitions=COUNT, flush_ms="1")
    for partition in harness.node.hosted:
        partition.log.append_as_leader(batch("x"), leader_epoch=0, now_ms=harness.now_ms)
    return harness


def count_asks(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Note which logs of the topic are asked for `name`."""
    asked: list[str] = []

    def ask(log: Any) -> None:
        if log.topic_partition.topic == "t":
            asked.append(log.path)

    real: Any = Log.__dict__.get(name)
    if isinstance(real, property):
        getter: Callable[[Log], int] = real.fget  # type: ignore[assignment]
        monkeypatch.setattr(Log, name, property(lambda log: ask(log) or getter(log)))  # type: ignore[func-returns-value]
    elif real is None:  # an attribute of each log
        expire = "firnline.log.producer_state.ProducerStates.expire"
        monkeypatch.setattr(expire, lambda *_: asked.append("producers"))
    else:
        monkeypatch.setattr(Log, name, lambda log, *more: ask(log) or real(log, *more))  # type: ignore[func-returns-value]
    return asked


def at_once(effects: Effects, timer: SetTimer) -> list[SetTimer]:
    """The timers that are due when `timer` is: the next slice of its job."""
    return [e for e in effects if isinstance(e, SetTimer) and e.at_ms == timer.at_ms]


@pytest.mark.parametrize("job", list(ASKS))
def test_a_job_over_all_partitions_lets_requests_in_between(
    monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    harness = node_with_partitions()
    asked = count_asks(monkeypatch, ASKS[job])
    timer = harness.timers["storage", job]
    sizes, todo = [], [timer]
    while todo:
        before = len(asked)
        todo += at_once(todo.pop(0).then(timer.at_ms), timer)
        sizes.append(len(asked) - before)
    assert sum(sizes) == COUNT
    assert max(sizes) <= COUNT // 2


def test_a_partition_that_is_deleted_between_two_slices_is_left_alone() -> None:
    """Its files are gone: to touch them would look like a disk that fails."""
    harness = node_with_partitions()
    timer = harness.timers["storage", "retention"]
    [go_on] = at_once(timer.then(timer.at_ms), timer)
    harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 1)
    assert len(harness.node.hosted) == 0
    assert go_on.then(timer.at_ms) == []


def test_a_partition_that_is_deleted_while_it_is_synced_is_no_failed_disk() -> None:
    """Goal: a sync that is under way when its topic is deleted stops nothing. Method: the job that syncs what
    nobody waited for, its work done after the deletion."""
    harness = Harness(log_flush_offset_checkpoint_interval_ms="100")
    harness.create_topic()
    harness.create_topic("other")
    harness.produced("v", acks=1)
    harness.holds_work = True
    harness.pass_time(100)
    [sync] = [work for work in harness.work if work.name == "sync t-0"]
    harness.work.clear()
    harness.holds_work = False
    harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 1)
    harness.run(sync.then(None, harness.now_ms))
    assert harness.produced("v", topic="other").error_code == 0


def test_no_job_writes_to_a_log_that_is_being_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What retention renames after the last sync would be missing from the next start."""
    harness = node_with_partitions()
    jobs = [harness.timers["storage", job] for job in ASKS]
    harness.holds_work = True
    harness.run(harness.node.shutdown(harness.now_ms))
    harness.pass_time(50)
    assert harness.work
    assert harness.stopped_ms is None
    asked = count_asks(monkeypatch, "delete_due_segments")
    for job in jobs:
        harness.run(job.then(job.at_ms))
    assert asked == []


def test_what_is_put_aside_while_the_node_runs_is_named_once() -> None:
    """The condemned directory of a topic that was made anew, of which the disk refused the name."""
    harness = Harness()
    harness.create_topic()
    storage = harness.node.storage
    (directory,) = storage.directories
    log = harness.node.hosted.by_name[TopicPartition("t", 0)].log
    directory.let_go(log)
    path = directory.put_aside(log.topic_partition)
    told = [line for effect in storage._checkpoint(harness.now_ms) for line in said(effect)]
    assert len([line for line in told if path in line]) == 1
    assert [line for effect in storage._checkpoint(harness.now_ms) for line in said(effect)] == []


def said(effect: Any) -> list[str]:
    return [effect.line] if isinstance(effect, Warn) else []
