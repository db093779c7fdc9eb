"""Answers whose bytes the disk has to read first: nobody else waits for them, and they arrive whole."""

import errno
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firnline.base.cold_pages import ColdPages, PagesCold
from firnline.base.effects import Effects, Submit
from firnline.base.errors import Code, KafkaError, RecordsTruncated, StorageError
from firnline.base.slices import FileSlice
from firnline.base.units import MIB
from firnline.log.log import Log
from firnline.log.segment import IndexRules, Segment
from firnline.records.build import NewRecord, build_batch
from firnline.runtime import disk as real_disk
from firnline.runtime.bounds.connections import Limits
from firnline.runtime.disk import Pages, RealFile, RealFs, in_memory
from firnline.runtime.loop import _PAGE_READERS
from tests.page_cache import was_missed
from tests.unit.runtime.echo import Running
from tests.unit.runtime.test_gone_peers import until
from tests.unit.runtime.test_truncated_answers import ask, log, node, slices
from tests.worlds.effects import only

pytestmark = pytest.mark.slow

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
    assert was_missed(lambda: not in_memory(fd, 0, 1 << 20), tmp_path / "file")
    part.file.read(0, 1 << 20)
    assert in_memory(fd, 0, 1 << 20)


def test_what_was_read_once_is_sent_even_if_memory_was_too_short_to_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an answer would be read again and again, and never leave."""
    monkeypatch.setattr(real_disk, "in_memory", lambda fd, position, size: False)
    part, found, effects = part_of(tmp_path / "file"), Pages(), []
    notified: list[str] = []

    def here(at: int) -> bool:
        rest = FileSlice(part.file, at, part.size_bytes - at)
        return found.are_here(rest, 4096, effects.extend, lambda: notified.append("go on"))

    assert not here(0)
    assert not here(0), "not before the disk has done it"
    [submit] = effects
    assert isinstance(submit, Submit)
    done: Effects = submit.then(submit.work(), 0)
    assert (done, notified) == ([], ["go on"])
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


# ------------------------------------------------------------------- reads that never wait


def test_what_the_page_cache_has_not_is_not_read_by_who_does_not_wait(tmp_path: Path) -> None:
    part = part_of(tmp_path / "file")
    assert part.file.read_ready(5, 100_000) == bytes(100_000)
    assert was_missed(lambda: part.file.read_ready(5, 100) is None, tmp_path / "file")
    part.file.read(0, 1 << 20)
    assert part.file.read_ready(4000, 4096) == bytes(4096)


def test_a_part_of_which_only_the_beginning_is_in_memory_is_not_read_by_who_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first page is in memory, as `preadv` tells it: by a short read, and then by an error.

    A real kernel may have read the second page by itself by then.
    """
    real = os.preadv

    def first_page_only(fd: int, rooms: Any, position: int, flags: int) -> int:
        if position >= 4096:
            raise BlockingIOError
        with memoryview(rooms[0])[: 4096 - position] as room:
            return real(fd, [room], position, flags)

    part = part_of(tmp_path / "file")
    with monkeypatch.context() as patched:
        patched.setattr(real_disk, "_preadv", first_page_only)
        assert part.file.read_ready(0, 4096) == bytes(4096)
        assert part.file.read_ready(4000, 4096) is None, "half of it is not all of it"
    assert part.file.read_ready(4000, 4096) == bytes(4096)


def test_the_end_of_a_file_is_not_taken_for_pages_that_are_missing(tmp_path: Path) -> None:
    part = part_of(tmp_path / "file")
    assert part.file.read_ready((1 << 20) - 7, 100) == bytes(7)
    assert part.file.read_ready(1 << 20, 100) == b""


def test_what_was_cut_off_is_not_read_by_who_does_not_wait(tmp_path: Path) -> None:
    part = part_of(tmp_path / "file")
    part.file.cut_off(100)
    with pytest.raises(RecordsTruncated):
        part.file.read_ready(50, 100)


def test_a_file_system_that_cannot_say_what_is_in_memory_is_read_from_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    real = os.preadv

    def refused(fd: int, rooms: Any, position: int, flags: int) -> int:
        if not flags:
            return real(fd, rooms, position)
        asked.append(flags)
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(real_disk, "_nowait", [os.RWF_NOWAIT])
    monkeypatch.setattr(real_disk, "_preadv", refused)
    part = part_of(tmp_path / "file")
    assert [part.file.read_ready(0, 100) for _ in range(3)] == [bytes(100)] * 3
    assert len(asked) == 1, "it is asked once"


def test_a_log_of_real_files_is_read_without_a_wait(tmp_path: Path) -> None:
    """The pages of a closed segment are dropped, and brought in by a thread."""
    fs, directory = RealFs(), str(tmp_path / "t-0")
    os.mkdir(directory)
    rules = IndexRules(100, 1 << 20, 1 << 20)
    segment = Segment.create(fs, directory, 0, rules=rules, now_ms=0)
    for offset in range(2_000):
        data = build_batch([NewRecord(None, bytes(300), 1)], base_offset=offset)
        segment.note(segment.append(data), len(data), offset, 1)
    segment.finish()
    sound = segment.locate(1_500)
    segment.release()

    def is_brought_by_threads() -> bool:
        pages, brought, found = ColdPages(), list[str](), -1
        while found < 0:
            assert len(brought) < 10
            try:
                with pages:
                    found = segment.locate(1_500)
            except PagesCold as cold:
                brought.append(cold.place.path.rpartition(".")[2])
                submit = only(pages.bring(cold.place, "who", None), Submit)
                assert submit.then(submit.work(), 0) == []
        assert found == sound
        segment.release()
        return set(brought) == {"index", "log"}

    assert was_missed(is_brought_by_threads, *(tmp_path / "t-0").iterdir())


def test_small_answers_are_read_by_a_thread_where_the_disk_has_them(
    node: Running, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were read in the step that sends them."""
    part = slices(log)[0]
    loop_reads: list[int] = []
    cold = [True]
    brought: list[int] = []
    real_read, real_ready = RealFile.read, RealFile.read_ready

    def read(self: RealFile, position: int, size: int) -> bytes:
        if threading.current_thread().name.startswith("firnline-pages"):
            cold[0] = False
        elif cold[0]:
            loop_reads.append(size)
        return real_read(self, position, size)

    def ready(self: RealFile, position: int, size: int) -> object:
        return None if cold[0] else real_ready(self, position, size)

    real_bring_in = real_disk._bring_in

    def bring_in(part: FileSlice, size: int) -> None:
        brought.append(size)
        real_bring_in(part, size)

    monkeypatch.setattr(RealFile, "read", read)
    monkeypatch.setattr(RealFile, "read_ready", ready)
    monkeypatch.setattr(real_disk, "_bring_in", bring_in)
    monkeypatch.setattr(real_disk, "in_memory", lambda fd, position, size: not cold[0])
    small = FileSlice(part.file, part.position, 1_000)
    with ask(node, [small]) as peer:
        data = rest_of(peer, 3 + 1_000)[3:]
    assert loop_reads == []
    assert brought == [1_000]
    assert data == bytes(small.read())
