"""A whole node whose disk fails, is full, or loses one directory of two."""

from dataclasses import replace
from typing import Any

import pytest

from firnline.base.effects import Flush
from firnline.base.errors import Code, RecordsTruncated, StorageError
from firnline.base.ids import TopicPartition
from firnline.base.ports import EnoughFiles
from firnline.base.waits import At, Wait
from firnline.broker.quorum_setup import open_directories
from firnline.broker.storage import Storage
from firnline.config.broker import BrokerConfig
from firnline.config.topic import TopicConfig
from firnline.log.recovery import at_once
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from firnline.protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.harness import CLUSTER_ID, START_MS, Harness, batch, format_disk


def test_a_full_disk_refuses_appends_and_still_serves_reads() -> None:
    harness = Harness()
    harness.create_topic()
    harness.produced("a")
    harness.fs.fail("append", "t-0", "ENOSPC")
    assert harness.produced("b").error_code == Code.KAFKA_STORAGE_ERROR
    assert harness.values() == ["a"]
    assert harness.produced("c").base_offset == 1


def test_a_failed_sync_is_no_success_and_stops_a_node_with_one_directory() -> None:
    harness = Harness()
    harness.create_topic()
    harness.fs.fail("sync", "t-0", "EIO")
    harness.holds_flushes = True
    connection = harness.produce("a")
    harness.holds_flushes = False
    harness.flush()
    with pytest.raises(StorageError, match="out of use"):
        harness.pass_time(0)
    part = connection.answers[0].responses[0].partition_responses[0]
    assert part.error_code == Code.KAFKA_STORAGE_ERROR


def test_one_failed_directory_of_two_takes_down_its_partitions_alone() -> None:
    fs, rng = CrashableFs(), SeededRng(7)
    for path in ("/one", "/two"):
        format_disk(fs, rng, path)
    harness = Harness(fs, log_dirs="/one,/two", metadata_log_dir="/one")
    harness.create_topic(partitions=2)
    paths = [p.log.path for p in harness.node.hosted]
    assert sorted(path.split("/")[1] for path in paths) == ["one", "two"]
    lost = next(p for p in harness.node.hosted if p.log.path.startswith("/two"))
    kept = next(p for p in harness.node.hosted if p.log.path.startswith("/one"))
    harness.fs.fail("append", lost.log.path, "EIO")
    index = lost.topic_partition.partition
    assert harness.produced("a", index=index).error_code == Code.KAFKA_STORAGE_ERROR
    assert harness.fetched(index=index).error_code == Code.KAFKA_STORAGE_ERROR
    assert harness.produced("a", index=kept.topic_partition.partition).error_code == 0


@pytest.mark.parametrize("keep", ["none", "all"])
@pytest.mark.parametrize("is_reported", [True, False])
@pytest.mark.parametrize("operation", ["open", "append", "sync", "sync_dir"])
def test_a_new_replica_whose_directory_fails_while_it_is_made_is_made_in_another_one(
    operation: Any, is_reported: bool, keep: Any
) -> None:
    """Kafka tries the next directory. It was told as lost, and waited for files that had never been there.

    What is left in the directory that failed takes the place of nothing, whether metadata was told or not.
    """
    fs, rng = CrashableFs(), SeededRng(7)
    both: Any = {"log_dirs": "/one,/two,/three", "metadata_log_dir": "/one"}
    for path in ("/one", "/two", "/three"):
        format_disk(fs, rng, path)
    harness = Harness(fs, **both)
    fs.fail(operation, "/two/t-", "EIO", times=1000)
    fs.fail(operation, "/two", "EIO", times=1000)
    made = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
    harness.send(CreateTopicsRequest(topics=[made]), 7)
    harness.pass_time(1_000 if is_reported else 0)
    assert len(harness.node.hosted.by_id) == 3
    assert not any(p.log.path.startswith("/two") for p in harness.node.hosted)
    [line] = [line for line in harness.warnings if "out of use" in line]
    assert "/two" in line
    assert "EIO" in line
    assert not any("not served" in line for line in harness.warnings)
    for index in range(3):
        assert harness.produced("a", index=index, acks=-1).error_code == 0
    fs.forgive()
    assert any(name.startswith("t-") for name in fs.list_dir("/two"))
    again = Harness(harness.cut_power(keep=keep), **both)
    again.pass_time(10_000)
    assert [again.values(index=index) for index in range(3)] == [["a"]] * 3
    assert not any(name in ("t-0", "t-1", "t-2") for name in again.fs.list_dir("/two"))


@pytest.mark.parametrize(("operation", "path"), [("open", "t-0/0"), ("append", "t-0/")])
def test_a_topic_that_a_full_node_could_not_make_leaves_no_files_when_it_is_deleted(
    operation: str, path: str
) -> None:
    """Until the next start they took the room that there was none of."""
    harness = Harness()
    harness.fs.fail(operation, path, "EMFILE", times=1000)  # type: ignore[arg-type]
    harness.create_topic()
    assert harness.node.hosted.by_name.get(TopicPartition("t", 0)) is None
    harness.fs.forgive()
    harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    harness.pass_time(60_000)
    assert [name for name in harness.fs.list_dir("/data") if name.startswith("t-0")] == []


def test_a_log_that_was_there_and_could_not_be_opened_goes_with_its_topic() -> None:
    harness = Harness()
    harness.create_topic()
    harness.produced("a")
    fs = harness.stop()
    fs.fail("open", "t-0/0", "EMFILE", times=1000)
    harness = Harness(fs)
    assert harness.node.hosted.by_name.get(TopicPartition("t", 0)) is None
    assert fs.exists("/data/t-0")
    harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    fs.forgive()
    harness.pass_time(60_000)
    assert [name for name in fs.list_dir("/data") if name.startswith("t-0")] == []


def test_a_produce_that_cannot_be_synced_for_want_of_a_descriptor_is_refused_and_the_node_goes_on() -> (
    None
):
    """The error left the request, and the node stopped."""
    harness = Harness()
    harness.create_topic()
    harness.fs.fail("open", "leader-epoch-checkpoint", "EMFILE")
    assert harness.produced("a", acks=-1).error_code == Code.KAFKA_STORAGE_ERROR
    assert harness.produced("b", acks=-1).base_offset == 1
    assert harness.values() == ["a", "b"]
    harness = Harness(harness.cut_power())
    assert harness.values() == ["a", "b"]


@pytest.mark.parametrize(
    ("operation", "path", "error"),
    [
        ("append", "leader-epoch-checkpoint", "ENOSPC"),  # the periodic sync writes the lineage
        ("rename", "t-0/", "EDQUOT"),
        ("open", "t-0/00000000000000000001.log", "EMFILE"),  # retention rolls what is due
    ],
)
def test_what_runs_now_and_then_takes_no_directory_offline_because_the_disk_is_full(
    operation: str, path: str, error: str
) -> None:
    """OPERATIONS: appends are refused, and reads go on. A minute later the node stopped."""
    harness = Harness(log_retention_check_interval_ms="30000")
    harness.create_topic(retention_ms="1000")
    harness.produced("a", acks=1)
    harness.fs.fail(operation, path, error, times=1000)  # type: ignore[arg-type]
    harness.pass_time(150_000)
    assert not harness.node.storage.failed_directories
    harness.fs.forgive()
    assert harness.produced("b", acks=-1).error_code == 0
    harness.pass_time(150_000)
    assert harness.fetched(offset=2).error_code == 0


def test_a_topic_is_deleted_on_a_full_disk_though_its_names_have_no_room_at_first() -> None:
    """To delete topics is how room is made; the node stopped at once."""
    harness = Harness()
    harness.create_topic()
    harness.produced("a")
    harness.fs.fail("rename", "/data/t-0", "ENOSPC", times=3)
    harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    harness.pass_time(120_000)
    assert [name for name in harness.fs.list_dir("/data") if name.startswith("t-0")] == []
    harness.create_topic()
    assert harness.produced("b").base_offset == 0
    assert harness.values() == ["b"]


def test_a_topic_that_cannot_be_deleted_because_its_disk_failed_costs_the_other_disks_nothing() -> (
    None
):
    fs, rng = CrashableFs(), SeededRng(7)
    for path in ("/one", "/two"):
        format_disk(fs, rng, path)
    harness = Harness(fs, log_dirs="/one,/two", metadata_log_dir="/one")
    harness.create_topic(partitions=2)
    harness.create_topic("kept", partitions=2)
    kept = next(
        p
        for p in harness.node.hosted
        if p.log.path.startswith("/one") and p.topic_partition.topic == "kept"
    )
    harness.fs.fail("rename", "/two/t-", "EIO", times=1000)
    harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    assert len(harness.node.storage.failed_directories) == 1
    index = kept.topic_partition.partition
    assert harness.produced("a", topic="kept", index=index).error_code == 0


def test_a_sync_without_a_descriptor_is_refused_or_tried_again_and_stops_no_node() -> None:
    """To sync a directory takes a descriptor: a node at its limit of open files stopped with it."""
    harness = Harness()
    harness.fs.fail("sync_dir", "/data", "EMFILE", times=3)
    wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    harness.send(CreateTopicsRequest(topics=[wanted]), 7)
    harness.pass_time(1_000)
    assert harness.produced("a", acks=-1).base_offset == 0
    partition = harness.node.hosted.by_name[TopicPartition("t", 0)]
    partition.log.roll(harness.now_ms)
    harness.fs.fail("sync_dir", "t-0", "EMFILE")
    assert harness.produced("b", acks=-1).error_code == Code.KAFKA_STORAGE_ERROR
    assert harness.produced("c", acks=-1).base_offset == 2
    partition.log.roll(harness.now_ms)
    assert harness.produced("d", acks=1).base_offset == 3
    harness.fs.fail("sync_dir", "t-0", "EMFILE")
    harness.pass_time(200_000)
    assert partition.log.recovery_point == 4
    assert not harness.node.storage.failed_directories


def test_a_stop_without_descriptors_comes_to_its_end_and_the_next_start_recovers() -> None:
    harness = Harness()
    harness.create_topic()
    harness.produced("a", acks=1)
    harness.fs.fail("sync_dir", "t-0", "EMFILE", times=100_000)
    harness.run(harness.node.shutdown(harness.now_ms))
    harness.pass_time(60_000)
    assert harness.stopped_ms is not None
    harness.fs.forgive()
    assert Harness(harness.fs).values() == ["a"]


def test_new_logs_wait_as_long_as_the_descriptors_are_gone_and_no_directory_fails() -> None:
    """After ten seconds the want of a descriptor passed for a failed disk, and the node ended."""
    harness = Harness()
    harness.fs.fail("sync_dir", "t-0", "EMFILE", times=100_000)
    wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    harness.send(CreateTopicsRequest(topics=[wanted]), 7)
    harness.pass_time(60_000)
    assert not harness.node.storage.failed_directories
    assert any(
        "is not served topic=t partition=0" in line and "EMFILE" in line
        for line in harness.warnings
    )
    harness.fs.forgive()
    harness.pass_time(6_000)
    assert harness.produced("a", acks=-1).base_offset == 0


def test_a_new_log_that_waited_for_descriptors_survives_a_power_cut_also_after_a_clean_stop() -> (
    None
):
    """Opened for the second time it passed for what the clean stop had left, and its name was not synced."""
    harness = Harness(Harness().stop())
    harness.fs.fail("sync_dir", "t-0", "EMFILE", times=100_000)
    wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    harness.send(CreateTopicsRequest(topics=[wanted]), 7)
    harness.pass_time(60_000)
    assert any("is not served topic=t partition=0" in line for line in harness.warnings)
    harness.fs.forgive()
    harness.pass_time(6_000)
    assert harness.produced("a", acks=-1).base_offset == 0
    assert Harness(harness.cut_power(keep="none")).values() == ["a"]


def test_a_new_log_whose_first_sync_a_stop_overtook_survives_the_next_power_cut() -> None:
    """The marker said that all was on disk: with its topic id lost the partition was refused for ever."""
    harness = Harness()
    harness.holds_work = True
    wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    harness.send(CreateTopicsRequest(topics=[wanted]), 7)
    harness.work.clear()
    harness.holds_work = False
    harness = Harness(harness.stop(), seed=1)
    assert harness.produced("a", acks=-1).base_offset == 0
    assert Harness(harness.cut_power(keep="none")).values() == ["a"]


def test_no_log_is_opened_with_the_last_descriptors_and_each_is_once_there_are_more() -> None:
    """They are for segments that roll, checkpoints and syncs."""
    files = EnoughFiles()
    files.has_room = lambda: False  # type: ignore[method-assign]
    harness = Harness(files=files)
    wanted = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    harness.send(CreateTopicsRequest(topics=[wanted]), 7)
    harness.pass_time(6_000)
    assert not harness.fs.exists("/data/t-0")
    assert any("raise the limit of open files" in line for line in harness.warnings)
    files.has_room = lambda: True  # type: ignore[method-assign]
    harness.pass_time(6_000)
    assert harness.produced("a", index=1, acks=-1).base_offset == 0
    assert not harness.node.storage.failed_directories


def test_topics_that_need_more_files_than_may_be_opened_are_refused_in_words() -> None:
    """CreateTopics answered with success, and the node ended."""
    files = EnoughFiles()
    files.logs_left = lambda logs: 3  # type: ignore[method-assign]
    harness = Harness(files=files)

    def create(name: str, partitions: int, **more: Any) -> Any:
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        [made] = harness.ask(CreateTopicsRequest(topics=[wanted], **more), 7).topics
        return made

    refused = create("large", 4)
    assert refused.error_code == Code.POLICY_VIOLATION
    assert "node 1 may have 3 more logs, and this takes 4" in refused.error_message
    assert "LimitNOFILE" in refused.error_message
    assert create("t", 3).error_code == 0
    assert create("t", 9).error_code == Code.TOPIC_ALREADY_EXISTS
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=7, assignments=None)]
    )
    [answer] = harness.ask(grown, 3).results
    assert answer.error_code == Code.POLICY_VIOLATION
    assert len(harness.node.image.topics_by_name["t"].partitions) == 3


def test_what_made_a_directory_fail_is_said() -> None:
    harness = Harness()
    harness.fs.fail("sync_dir", "t-0", "EIO", times=9)
    wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    with pytest.raises(StorageError, match=r"out of use.*cause=cannot .*EIO"):
        harness.send(CreateTopicsRequest(topics=[wanted]), 7)
    assert any("out of use" in line and "EIO" in line for line in harness.warnings)


def test_what_a_job_met_before_it_gave_a_directory_up_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that is not there the disk itself tells nobody of: it may be no failure."""
    harness = Harness(log_retention_check_interval_ms="30000")
    harness.create_topic()
    gone = StorageError("cannot rename", path="/data/t-0/7.log", error="ENOENT")

    def fails(log: object, *times: object) -> None:
        raise gone

    monkeypatch.setattr("firnline.log.log.Log.delete_due_segments", fails)
    with pytest.raises(StorageError, match="out of use"):
        harness.pass_time(40_000)
    assert f'storage failed error="{gone}"' in harness.warnings


def test_what_made_an_append_fail_after_its_sync_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness()
    harness.create_topic()
    gone = StorageError("a file of a log disappeared before its sync", path="/data/t-0/7.index")

    def fails(log: object, upto_offset: int) -> None:
        raise gone

    monkeypatch.setattr("firnline.log.log.Log.flushed", fails)
    with pytest.raises(StorageError, match=r"out of use.*7\.index"):
        harness.produced("a")


def test_what_made_an_append_fail_is_said() -> None:
    harness = Harness()
    harness.create_topic()
    harness.fs.fail("append", "t-0", "ENOENT")
    with pytest.raises(StorageError, match=r"out of use.*ENOENT"):
        harness.produced("a")


def test_a_topic_that_is_deleted_while_it_is_synced_costs_a_refusal_and_no_directory() -> None:
    """Its log was taken away under the sync: the node took that for a failed disk, and ended."""
    harness = Harness()
    harness.create_topic()
    harness.produced("a")
    log = harness.node.hosted.by_name[TopicPartition("t", 0)].log
    log.roll(harness.now_ms)
    harness.holds_flushes = True
    connection = harness.produce("b")
    log.give_up()
    harness.holds_flushes = False
    harness.flush()
    harness.pass_time(0)
    assert not harness.node.storage.failed_directories
    part = connection.answers[0].responses[0].partition_responses[0]
    assert part.error_code == Code.KAFKA_STORAGE_ERROR


def test_a_file_that_retention_removes_before_its_sync_is_no_failure() -> None:
    """It is opened when its turn comes, so that a thousand of them take one descriptor at a time."""
    harness = Harness()
    harness.create_topic(retention_ms="1000")
    harness.produced("a", acks=1)
    log = harness.node.hosted.by_name[TopicPartition("t", 0)].log
    log.roll(harness.now_ms)
    harness.produced("b", acks=1)
    files = log.dirty_files()
    assert len(log.closed_segments()) == 1
    harness.pass_time(400_000)
    assert not log.closed_segments()
    for file in files:
        file.sync()
    assert not harness.node.storage.failed_directories


def with_directories(*paths: str) -> Harness:
    fs, rng = CrashableFs(), SeededRng(7)
    for path in paths:
        format_disk(fs, rng, path)
    return Harness(fs, log_dirs=",".join(paths), metadata_log_dir=paths[0])


def test_a_topic_that_is_made_anew_after_its_disk_failed_at_the_start_is_served_from_another() -> (
    None
):
    """What lay on that disk was the old topic's: nothing of the new one can be there."""
    harness = with_directories("/one", "/two")
    harness.create_topic(partitions=2)
    fs = harness.stop()
    fs.fail("open", "/two/t-", "EIO", times=1000)
    harness = Harness(fs, seed=1, log_dirs="/one,/two", metadata_log_dir="/one")
    assert len(harness.node.storage.failed_directories) == 1
    harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    harness.create_topic(partitions=2)
    for index in range(2):
        assert harness.produced("a", index=index).error_code == 0


def test_a_new_log_goes_where_the_fewest_are_also_while_these_are_not_open_yet() -> None:
    """Topics that are made soon after a start would all go to one disk, however full, and stay there."""
    fs, rng = CrashableFs(), SeededRng(7)
    for path in ("/one", "/two"):
        format_disk(fs, rng, path)
    harness = Harness(fs, log_dirs="/one")
    harness.create_topic(partitions=3)
    fs = harness.stop()
    config = replace(harness.config, log_dirs=("/one", "/two"))
    storage = _storage(fs, config, rng)
    # Nor is one that is here taken for one that would be made where it is wanted.
    assert storage.prefer(TopicPartition("t", 0), "/two") is Code.OPERATION_NOT_ATTEMPTED
    for topic in ("u", "v", "w"):
        steps = storage.open_steps(TopicPartition(topic, 0), b"u" * 16, TopicConfig(), START_MS)
        assert at_once(steps).path.startswith("/two/")


def test_logs_that_are_made_at_the_same_time_go_to_different_disks() -> None:
    """A topic of four partitions would lie on one of four disks: none counts until a thread has made it."""
    fs, rng = CrashableFs(), SeededRng(7)
    for path in ("/one", "/two"):
        format_disk(fs, rng, path)
    harness = Harness(fs, log_dirs="/one")
    fs = harness.stop()
    config = replace(harness.config, log_dirs=("/one", "/two"))
    storage = _storage(fs, config, rng)
    under_way = []
    for index in range(4):
        name = TopicPartition("u", index)
        steps = storage.open_steps(name, b"u" * 16, TopicConfig(), START_MS)
        assert isinstance(next(steps), At)
        wait = next(steps)
        assert isinstance(wait, Wait)
        under_way.append((wait, steps))
    # Nor would one be moved: who wanted that would have the next topic of its name made there.
    assert storage.prefer(TopicPartition("u", 0), "/two") is Code.OPERATION_NOT_ATTEMPTED
    paths = []
    for wait, steps in under_way:
        wait.at_once()
        paths.append(at_once(steps).path)
    assert sum(path.startswith("/two/") for path in paths) == 2


def test_what_is_left_of_a_deleted_topic_is_not_looked_for_in_what_a_thread_makes() -> None:
    """The topic has its name again: a directory without a log would pass for one that could not be made."""
    fs, rng = CrashableFs(), SeededRng(7)
    format_disk(fs, rng, "/one")
    harness = Harness(fs, log_dirs="/one")
    fs = harness.stop()
    storage = _storage(fs, harness.config, rng)
    name = TopicPartition("u", 0)
    steps = storage.open_steps(name, b"u" * 16, TopicConfig(), START_MS)
    assert isinstance(next(steps), At)
    assert next(steps) is not None
    fs.make_dir("/one/u-0")  # so far the thread has come
    assert storage.drop_unopened(name, b"o" * 16, START_MS) == []
    assert fs.exists("/one/u-0")


def test_what_a_directory_that_failed_meanwhile_did_not_sync_is_not_acknowledged() -> None:
    """A closed segment is opened when its turn comes: without its files the log passed for synced."""
    harness = with_directories("/one", "/two")
    harness.create_topic(partitions=4)
    asked, other = (p for p in harness.node.hosted if p.log.path.startswith("/two"))
    index = asked.topic_partition.partition
    harness.produced("a", index=index)
    harness.produced("b", acks=1, index=index)
    asked.log.roll(harness.now_ms)
    harness.holds_flushes = True
    waits = harness.produce("c", index=index)
    [flush] = harness.flushes
    # Several threads sync: one has done the directory by now.
    files = [file for file in flush.files if file.path != asked.log.path]
    harness.flushes = [Flush(files=files, then=flush.then)]
    harness.fs.fail("append", other.log.path, "EIO")
    refused = harness.produced("d", index=other.topic_partition.partition)
    assert refused.error_code == Code.KAFKA_STORAGE_ERROR
    harness.pass_time(1)
    harness.flush()
    part = waits.answers[0].responses[0].partition_responses[0]
    assert part.error_code == Code.KAFKA_STORAGE_ERROR


def test_two_directories_that_fail_at_once_both_have_nothing_open() -> None:
    """The second took the turn of the first, whose files stayed open as long as the node ran."""
    harness = with_directories("/one", "/two", "/three")
    harness.create_topic(partitions=6)
    lost = [p for p in harness.node.hosted if not p.log.path.startswith("/one/")]
    assert len(lost) == 4
    for partition in lost:
        harness.produced("a", acks=1, index=partition.topic_partition.partition)
    for path in ("/two", "/three"):
        harness.fs.fail("append", path, "EIO")
    parts = [
        PartitionProduceData(index=p.topic_partition.partition, records=batch("b")) for p in lost
    ]
    topics = [TopicProduceData(name="t", partition_data=parts)]
    harness.send(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9)
    harness.pass_time(10)
    for partition in lost:
        with pytest.raises(RecordsTruncated):
            partition.log.dirty_files()


def _storage(fs: CrashableFs, config: BrokerConfig, rng: SeededRng) -> Storage:
    """The log directories of a node, in use, and no node."""
    opened = open_directories(fs, config, rng=rng, cluster_id=CLUSTER_ID)
    return Storage(
        fs, config, opened.all, opened.producers, cordoned=tuple, is_failure_known=lambda: True
    )
