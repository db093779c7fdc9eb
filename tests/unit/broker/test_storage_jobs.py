"""Periodic work over ten thousand partitions leaves the loop to the requests. Design: slices."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from firnline.base.effects import Effects, SetTimer, Submit
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import TopicPartition
from firnline.base.log_lines.line import Log as LoggedLine
from firnline.base.units import INT64_MAX
from firnline.broker.storage import _SYNCS_MAX, _UNSYNCED_MAX
from firnline.log.file_syncs import DirSync
from firnline.log.log import Log
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from firnline.replica.hosted import Permits
from tests.worlds.effects import only
from tests.worlds.effects import said as text
from tests.worlds.harness import Harness, batch

pytestmark = pytest.mark.slow

COUNT = 1000
NEVER = str(INT64_MAX)  # flush.ms of who has none
# What each job asks of every log.
ASKS = {
    "retention": "delete_due_segments",
    "sync": "dirty_files",
    "flush.ms": "dirty_files",
    "producers": "producers",
    "checkpoint": "recovery_start",
}


def node_with_partitions(flush_ms: str = "1") -> Harness:
    """A node with many partitions that have something to sync."""
    harness = Harness()
    harness.create_topic(partitions=COUNT, flush_ms=flush_ms)
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
        effects = todo.pop(0).then(timer.at_ms)
        sizes.append(len(asked) - before)
        done = [e.then(None, timer.at_ms) for e in effects if isinstance(e, Submit)]
        todo += at_once(sum(done, effects), timer)
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


def syncs(harness: Harness) -> list[Submit]:
    """Those of the jobs that wait for the disk."""
    return [work for work in harness.work if work.name.startswith("sync t-")]


def unsynced(harness: Harness) -> list[Log]:
    logs = [partition.log for partition in harness.node.hosted]
    return [log for log in logs if log.recovery_point < log.log_end_offset]


def ended(harness: Harness, work: Submit, result: object = None) -> None:
    """A sync that waits is done, or refused."""
    harness.work.remove(work)
    harness.run(work.then(work.work() if result is None else result, harness.now_ms))
    harness.pass_time(0)


@pytest.mark.parametrize("flush_ms", ["1", NEVER])
def test_a_disk_that_hangs_holds_the_files_of_some_logs_and_not_of_all(flush_ms: str) -> None:
    """Goal: connections and appends find a descriptor while syncs of very many logs wait for the disk.
    Method: a thousand logs with something to sync, minutes of jobs, and a pool that ends nothing."""
    harness = node_with_partitions(flush_ms)
    harness.holds_work = True
    for _ in range(5):
        harness.pass_time(60_000)
    held = [file for work in syncs(harness) for file in work.work.args[0]]  # type: ignore[attr-defined]
    assert len(syncs(harness)) == _SYNCS_MAX
    assert sum(not isinstance(file, DirSync) for file in held) <= 2 * _SYNCS_MAX
    assert harness.produced("v", acks=-1).error_code == 0, "who waits has its own"
    while syncs(harness):
        assert len(syncs(harness)) <= _SYNCS_MAX
        ended(harness, syncs(harness)[0])
    assert unsynced(harness) == []


@pytest.mark.parametrize("is_fast", [True, False])
def test_a_log_that_rolls_fast_is_synced_before_its_closed_segments_are_very_many(
    is_fast: bool,
) -> None:
    """A topic with segment.ms=1: to list the files of a minute's segments was 0.4 s of the loop."""
    harness = Harness()
    harness.create_topic(partitions=1)
    [partition] = harness.node.hosted
    harness.holds_work = True
    harness.pass_time(0)
    for _ in range(_UNSYNCED_MAX - (not is_fast)):
        partition.log.append_as_leader(batch("x"), leader_epoch=0, now_ms=harness.now_ms)
        partition.log.roll(harness.now_ms)
    harness.pass_time(1_000)
    assert len(syncs(harness)) == is_fast
    if is_fast:
        ended(harness, syncs(harness)[0])
        assert partition.log.unsynced_segments == 0


def test_a_slow_disk_comes_to_each_log_though_the_first_are_written_to_all_the_time() -> None:
    """Each log is synced every minute, but the disk takes longer for all of them."""
    harness = node_with_partitions(NEVER)
    harness.holds_work = True
    first = list(harness.node.hosted)[: 2 * _SYNCS_MAX]
    left = {partition.log.path for partition in harness.node.hosted}
    harness.pass_time(60_000)
    for turn in range(COUNT):
        work = syncs(harness)[0]
        left.discard(work.work.args[0][0].path.rpartition("/")[0])  # type: ignore[attr-defined]
        ended(harness, work)
        log = first[turn % len(first)].log
        log.append_as_leader(batch("x"), leader_epoch=0, now_ms=harness.now_ms)
        harness.pass_time(1_000)
    assert left == set()


def test_syncs_that_a_full_pool_refuses_are_asked_for_again_later() -> None:
    harness = node_with_partitions(NEVER)
    harness.holds_work = True
    harness.pass_time(60_000)
    refusal = KafkaError(Code.THROTTLING_QUOTA_EXCEEDED, "too much work waits")
    for work in syncs(harness):
        ended(harness, work, refusal)
    assert syncs(harness) == [], "not in the same moment"
    harness.pass_time(1_000)
    assert len(syncs(harness)) == _SYNCS_MAX


def test_a_partition_that_is_deleted_while_its_sync_waits_for_room_is_left_alone() -> None:
    harness = node_with_partitions(NEVER)
    harness.holds_work = True
    harness.pass_time(60_000)
    begun = syncs(harness)
    harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 1)
    for work in begun:
        ended(harness, work)
    assert syncs(harness) == []


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


def test_what_is_renamed_to_stray_while_the_node_runs_is_named_once() -> None:
    """The condemned directory of a topic that was made anew, of which the disk refused the name."""
    harness = Harness()
    harness.create_topic()
    storage = harness.node.storage
    (directory,) = storage.directories
    log = harness.node.hosted.by_name[TopicPartition("t", 0)].log
    directory.let_go(log)
    path = directory.rename_to_stray(log.topic_partition)
    write = partial(storage._checkpoint, harness.node.parts.failures.disk_failed)
    reported = [line for effect in write(harness.now_ms) for line in said(effect)]
    assert len([line for line in reported if path in line]) == 1
    assert [line for effect in write(harness.now_ms) for line in said(effect)] == []


def said(effect: Any) -> list[str]:
    return [text(effect)] if isinstance(effect, LoggedLine) else []


def test_whoever_waits_for_room_goes_on_though_the_one_before_needs_none() -> None:
    """What was under way ends at the same moment, and nothing more does that would wake the second."""
    room, went_on = Permits("test", 2), []
    for key in ("a", "b"):
        room.take(key)
    for name in ("first", "second"):
        room.wait(name, lambda now_ms, name=name: went_on.append(name) or [])  # type: ignore[misc,func-returns-value]
    effects = [*room.give_back("a", 5), *room.give_back("b", 5)][-1:]
    while effects:
        effects = only(effects, SetTimer).then(5)
    assert went_on == ["first", "second"]
