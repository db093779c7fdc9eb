"""Answers whose bytes the disk has to read first: nobody else waits for them, and they arrive whole."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from firnline.base.effects import Effects, Submit
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.slices import FileSlice
from firnline.base.units import MIB
from firnline.log.log import Log
from firnline.runtime import disk as real_disk
from firnline.runtime.bounds.connections import Limits
from firnline.runtime.disk import Pages, RealFs, in_memory
from firnline.runtime.loop import _PAGE_READERS
from tests.unit.runtime.echo import Running
from tests.unit.runtime.test_gone_peers import until
from tests.unit.runtime.test_truncated_answers import ask, log, node, slices

__all__ = ["log", "node"]


class Disk:
    """A disk whose first read takes as long as the test likes; nothing of it is in memory."""

    def __init__(self) -> None:
        self.may_read = threading.Event()
        self.reads = 0

    def bring_in(self, part: FileSlice, size: int) -> None:
        self.reads += 1
        assert self.may_read.wait(60)  # each of 40 peers has its first byte 200 ms later


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(real_disk, "in_memory", lambda fd, position, size: False)
    monkeypatch.setattr(real_disk, "_bring_in", disk.bring_in)
    yield disk
    disk.may_read.set()


def rest_of(peer: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        data = peer.recv(1 << 20)
        assert data
        found += data
    return bytes(found)


def test_others_are_answered_while_the_disk_reads_what_one_peer_asked_for(
    node: Running, log: Log, disk: Disk
) -> None:
    wanted = slices(log)
    size = sum(part.size_bytes for part in wanted)
    with ask(node, wanted) as slow:
        with ask(node, []) as other:
            assert rest_of(other, 3) == bytes(3)
        disk.may_read.set()
        data = rest_of(slow, 3 + size)[3:]
    assert data == b"".join(bytes(part.read()) for part in wanted)
    assert disk.reads > 1, "each step of a long answer is looked at"


def test_a_peer_that_goes_while_the_disk_reads_for_it_leaves_nothing(
    node: Running, log: Log, disk: Disk
) -> None:
    ask(node, slices(log)).close()
    disk.may_read.set()
    with ask(node, []) as other:
        assert rest_of(other, 3) == bytes(3)
    assert node.server.connection_count <= 2


def test_those_who_ask_for_cold_records_and_hang_up_do_not_keep_the_disk_from_others(
    node: Running, log: Log, disk: Disk
) -> None:
    """Each of them had a MiB read for nobody, before whoever came next had his."""
    node.limits = Limits(total=1_000)
    wanted = slices(log)
    for _ in range(40):
        ask(node, wanted).close()
    until(node, lambda: not node.server.connection_count)
    reads_before = disk.reads
    with ask(node, wanted) as patient:
        disk.may_read.set()
        size = sum(part.size_bytes for part in wanted)
        assert len(rest_of(patient, 3 + size)) == 3 + size
    steps = sum(1 + part.size_bytes // MIB for part in wanted)
    assert reads_before <= _PAGE_READERS
    assert disk.reads <= reads_before + steps, "all that is read now is for who is there"


def part_of(path: Path) -> FileSlice:
    path.write_bytes(bytes(1 << 20))
    return FileSlice(RealFs().open(str(path)), 0, 1 << 20)


def test_what_the_page_cache_has_not_is_known_without_a_read(tmp_path: Path) -> None:
    part = part_of(tmp_path / "file")
    fd = part.file.fileno()
    assert in_memory(fd, 0, 1 << 20)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if in_memory(fd, 0, 1 << 20):
        pytest.skip("this file system keeps its pages, or cannot say")
    part.file.read(0, 1 << 20)
    assert in_memory(fd, 0, 1 << 20)


def test_what_was_read_once_is_sent_even_if_memory_was_too_short_to_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an answer would be read again and again, and never leave."""
    monkeypatch.setattr(real_disk, "in_memory", lambda fd, position, size: False)
    part, found, effects = part_of(tmp_path / "file"), Pages(), []
    told: list[str] = []

    def here(at: int) -> bool:
        rest = FileSlice(part.file, at, part.size_bytes - at)
        return found.are_here(rest, 4096, effects.extend, lambda: told.append("go on"))

    assert not here(0)
    assert not here(0), "not before the disk has done it"
    [submit] = effects
    assert isinstance(submit, Submit)
    done: Effects = submit.then(submit.work(), 0)
    assert (done, told) == ([], ["go on"])
    assert here(0)
    assert here(4095)
    assert not here(4096)


@pytest.mark.parametrize(
    "outcome", [StorageError("EIO"), KafkaError(Code.THROTTLING_QUOTA_EXCEEDED, "full")]
)
def test_who_cannot_have_the_pages_read_sends_all_the_same(
    outcome: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with the file is then found and told; a full pool makes the loop wait once."""
    monkeypatch.setattr(real_disk, "in_memory", lambda fd, position, size: False)
    part, found, effects = part_of(tmp_path / "file"), Pages(), []
    assert not found.are_here(part, 4096, effects.extend, lambda: None)
    effects[0].then(outcome, 0)
    assert found.are_here(part, 4096, effects.extend, lambda: None)
