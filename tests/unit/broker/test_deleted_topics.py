"""What a node deletes is given back: descriptors, memory and room, whether Python collects cycles or not."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firnline.base.errors import RecordsTruncated, StorageError
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from firnline.runtime.disk import RealFs
from tests.open_files import open_files
from tests.worlds.chance import SeededRng
from tests.worlds.harness import Harness, format_disk, values_of
from tests.worlds.log import offset_at_time

ROUNDS = 100
DELAY_MS = 60_000


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Python's collector of cycles finds nothing: what is in one stays for ever."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def node(tmp_path: Path, no_collector: None, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """A node on real files; that they are on disk is waited for by nobody."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    disk: Any = RealFs()
    format_disk(disk, SeededRng(), str(tmp_path))
    return Harness(disk, log_dirs=str(tmp_path))


def removed_but_open(root: Path) -> list[str]:
    """Files without a name that still take room."""
    return [path for path in open_files(root) if path.endswith("(deleted)") or "-delete/" in path]


def delete(node: Harness, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
    [said] = node.ask(request, 6).responses
    assert said.error_code == 0, said


def come_and_go(node: Harness, rounds: int, word: str) -> None:
    """Make topics, write to them, read from them, delete them."""
    for number in range(rounds):
        name = f"{word}-{number}"
        node.create_topic(name, partitions=2)
        assert node.produced("one", "two", topic=name).error_code == 0
        assert node.values(topic=name) == ["one", "two"]
        delete(node, name)


def test_topics_that_come_and_go_leave_nothing_open(node: Harness, tmp_path: Path) -> None:
    come_and_go(node, 1, "warm")
    before = len(open_files(tmp_path))
    come_and_go(node, ROUNDS, "short-lived")
    assert 0 < len(open_files(tmp_path)) <= before
    node.pass_time(DELAY_MS)
    assert removed_but_open(tmp_path) == []


def test_topics_that_come_and_go_leave_nothing_in_memory(node: Harness) -> None:
    """Not in cycles either, which nobody looks for here."""
    come_and_go(node, 5, "warm")
    node.pass_time(2 * DELAY_MS)
    before = len(gc.get_objects())
    come_and_go(node, ROUNDS, "short-lived")
    node.pass_time(2 * DELAY_MS)
    assert len(gc.get_objects()) < before + ROUNDS


def log_of(node: Harness, name: str) -> Any:
    partition: Any = node.node.hosted.find(name, 0)
    return partition.log


def test_a_consumer_gets_what_it_was_promised_of_a_topic_that_is_deleted_meanwhile(
    node: Harness, tmp_path: Path
) -> None:
    """Its answer waits in a socket: no descriptor is closed that somebody still sends from."""
    node.create_topic("slow")
    node.produced("one", topic="slow")
    log = log_of(node, "slow")
    waiting = log.read(0, max_bytes=1000, upto_offset=1)
    number = waiting.slices[0].file.fileno()
    delete(node, "slow")
    for n in range(20):
        node.create_topic(f"later-{n}")
        assert log_of(node, f"later-{n}").dirty_files() == []
    found = os.readlink(f"/proc/self/fd/{number}")
    assert "slow-0" in found, "nobody else has its number"
    assert list(values_of(waiting.read())) == ["one"]
    node.pass_time(2 * DELAY_MS)
    assert list(values_of(waiting.read())) == ["one"]
    assert removed_but_open(tmp_path)
    del waiting
    assert removed_but_open(tmp_path) == []


def test_who_still_holds_a_deleted_log_never_sees_its_namesake(node: Harness) -> None:
    """A load, or a sync, that goes on after the deletion finds no file by the old name."""
    node.create_topic("twice")
    node.produced("old", topic="twice")
    log = log_of(node, "twice")
    delete(node, "twice")
    node.create_topic("twice")
    node.produced("new", topic="twice")
    with pytest.raises(RecordsTruncated):
        log.read_batches(0, max_bytes=1000)
    with pytest.raises(RecordsTruncated):
        offset_at_time(log, 0)
    log.log_end_offset += 1
    with pytest.raises(RecordsTruncated):
        log.dirty_files()
    with pytest.raises(RecordsTruncated):
        log.roll(node.now_ms)
    assert node.values(topic="twice") == ["new"]
    assert removed_but_open(Path(node.config.directories[0])) == []


def test_a_directory_that_failed_has_nothing_open(tmp_path: Path, node: Harness) -> None:
    """What is open there keeps the disk from being unmounted, and repaired."""
    node.node.storage._is_failure_known = lambda: True
    for n in range(5):
        node.create_topic(f"t-{n}")
        node.produced("x", topic=f"t-{n}")
    partition: Any = node.node.hosted.find("t-0", 0)
    node.run(node.node.storage.on_failure(node.node.hosted, partition, node.now_ms))
    with pytest.raises(StorageError, match="out of use"):  # it was the only one
        node.pass_time(0)
    node.pass_time(0)
    assert [path for path in open_files(tmp_path) if f"{tmp_path}/t-" in path] == []


def test_a_node_that_stops_in_this_process_has_nothing_open(tmp_path: Path, node: Harness) -> None:
    node.create_topic("t", partitions=5)
    node.produced("x")
    node.stop()
    assert [path for path in open_files(tmp_path) if f"{tmp_path}/t-" in path] == []
