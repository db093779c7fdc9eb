"""A stop and the start after it cost what was written since, not what is there. rel-P5, P7."""

from typing import Any

import pytest

from firnline.base.errors import Code, StorageError
from firnline.log.recovery import RecoveryReport
from firnline.protocol.messages.k03_metadata import MetadataRequest
from firnline.sim.disk import CrashableFile, CrashableFs
from tests.worlds.harness import Harness

MARKER = "/data/.kafka_cleanshutdown"


def syncs_of(harness: Harness) -> int:
    """Stop, start, stop: how many syncs that takes."""
    fs = harness.fs
    before = fs.syncs
    Harness(harness.stop(), seed=2).stop()
    return fs.syncs - before


def stopped_once(partitions: int, *, written: bool) -> Harness:
    """A node whose partitions were made, and perhaps written to, in an earlier run."""
    harness = Harness()
    harness.create_topic(partitions=partitions)
    for index in range(partitions if written else 0):
        assert harness.produced("x", index=index).error_code == 0
    return Harness(harness.stop(), seed=1)


@pytest.mark.parametrize("written", [False, True], ids=["empty", "with records"])
def test_ten_thousand_idle_partitions_are_not_synced_one_by_one(written: bool) -> None:
    few, many = (syncs_of(stopped_once(count, written=written)) for count in (2, 60))
    assert many == few


def test_a_partition_that_was_written_since_is_synced_and_kept() -> None:
    harness = stopped_once(3, written=True)
    harness.produced("late", acks=1, index=1)
    again = Harness(harness.stop().crash(harness.rng, keep="none"), seed=2)
    assert again.values(index=1) == ["x", "late"]
    report = again.node.partitions["t", 1].log.recovery
    assert isinstance(report, RecoveryReport)
    assert report.segments_scanned == 0


def test_a_node_that_stops_answers_while_it_syncs() -> None:
    """The syncs of a stop run in the pool; a client that asks meanwhile is told who leads."""
    harness = Harness()
    harness.create_topic(partitions=40)
    for index in range(40):
        harness.produce("x", acks=1, index=index)
    harness.holds_work = True
    harness.run(harness.node.shutdown(harness.now_ms))
    harness.pass_time(50)
    turns = 0
    while harness.work:
        assert harness.stopped_ms is None
        assert not harness.fs.exists(MARKER)
        assert harness.ask(MetadataRequest(topics=None), 12).topics
        harness.work_once()
        harness.pass_time(0)
        turns += 1
    assert turns >= 3, "some at a time"
    assert harness.stopped_ms is not None
    assert harness.fs.exists(MARKER)


def test_a_leader_that_nobody_took_over_from_takes_nothing_while_it_closes_its_logs() -> None:
    """What came then was in a log that was closed, and the node died of it."""
    harness = Harness()
    harness.create_topic(partitions=2)
    for index in range(2):
        assert harness.produced("x", index=index).error_code == 0
    harness.holds_work = True
    harness.run(harness.node.broker_released(harness.now_ms))  # no controller answered in time
    while harness.work:
        harness.work_once()
        if harness.stopped_ms is None:
            assert harness.produced("late", acks=1).error_code == Code.NOT_LEADER_OR_FOLLOWER
        harness.pass_time(0)
    assert harness.fs.exists(MARKER)
    assert Harness(harness.fs, seed=1).values() == ["x"]


def test_a_node_that_stops_while_a_log_is_cut_waits_for_it() -> None:
    """A mark of a clean stop would vouch for files of which half are gone."""
    harness = Harness()
    harness.create_topic()
    for value in "abc":
        harness.produced(value)
    harness.holds_work = True
    log = harness.node.partitions["t", 0].log
    truncation = log.truncation_to(1)
    assert truncation is not None
    harness.run(truncation.run(lambda problem, now_ms: [], harness.now_ms))
    while not harness.work[0].name.startswith("truncate"):
        harness.work_once()
    [held] = harness.work
    harness.work.clear()
    harness.holds_work = False
    harness.run(harness.node.shutdown(harness.now_ms))
    harness.pass_time(1000)
    assert harness.stopped_ms is None
    assert not harness.fs.exists(MARKER)
    harness.run(held.then(held.work(), harness.now_ms))
    harness.pass_time(1000)
    assert harness.stopped_ms is not None
    assert harness.fs.exists(MARKER)
    assert Harness(harness.fs, seed=1).values() == ["a"]


def test_a_sync_that_fails_while_stopping_leaves_no_mark_of_a_clean_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = Harness()
    harness.create_topic()
    harness.produced("x")
    real = CrashableFile.sync

    def sync(self: Any) -> None:
        if self.path.startswith("/data/t-0/") and self.path.endswith(".snapshot"):
            raise StorageError("cannot sync", path=self.path)
        real(self)

    monkeypatch.setattr(CrashableFile, "sync", sync)
    fs = harness.stop()
    assert not fs.exists(MARKER)
    monkeypatch.undo()
    assert Harness(fs, seed=1).values() == ["x"]


def test_indexes_that_were_built_again_are_on_disk_before_the_next_clean_stop() -> None:
    """Otherwise the power takes half of one that a clean start would believe."""
    harness = Harness()
    harness.create_topic(index_interval_bytes="1")
    for _ in range(20):
        harness.produced("x")
    fs: CrashableFs = harness.stop()
    index = "/data/t-0/00000000000000000000.index"
    size = fs.open(index).size()
    assert size > 0
    fs.remove(index)
    after = Harness(fs, seed=1).stop().crash(harness.rng, keep="none")
    assert after.open(index).size() == size


def test_a_cut_that_fails_while_stopping_leaves_no_mark_of_a_clean_stop() -> None:
    """The files are half gone, half there: what memory says of them is not what the next start finds."""
    harness = Harness()
    harness.create_topic()
    for value in "abc":
        harness.produced(value)
    harness.holds_work = True
    log = harness.node.partitions["t", 0].log
    truncation = log.truncation_to(1)
    assert truncation is not None
    harness.run(truncation.run(lambda problem, now_ms: [], harness.now_ms))
    while not harness.work[0].name.startswith("truncate"):
        harness.work_once()
    [held] = harness.work
    harness.work.clear()
    harness.holds_work = False
    harness.run(harness.node.shutdown(harness.now_ms))
    harness.pass_time(1000)
    harness.run(held.then(StorageError("cannot truncate", error="EIO"), harness.now_ms))
    harness.pass_time(1000)
    assert harness.stopped_ms is not None
    assert not harness.fs.exists(MARKER)
