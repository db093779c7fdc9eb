"""A whole node whose disk fails, is full, or loses one directory of two."""

import pytest

from firnline.base.errors import Code, StorageError
from firnline.base.ids import TopicPartition
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from firnline.sim.disk import CrashableFs
from tests.unit.broker.harness import Harness, SeededRng, format_disk


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
