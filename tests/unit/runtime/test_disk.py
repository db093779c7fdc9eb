"""The real file system port: what is written is where it says, and errors say what to do."""

import contextlib
import errno
import gc
import os
import queue
import threading
from pathlib import Path

import pytest

from firnline.base.errors import StorageError
from firnline.base.ports import File
from firnline.base.slices import FileSlice
from firnline.base.units import MIB
from firnline.runtime import disk
from firnline.runtime.disk import RealFs, close_off_the_loop


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


def test_appends_return_the_position_they_begin_at(root: str) -> None:
    file = RealFs().open(f"{root}/a", create=True)
    assert file.append(b"abc") == 0
    assert file.append(memoryview(bytearray(b"de"))) == 3
    assert file.append(bytearray(b"fgh")) == 5
    assert (file.size(), file.read(1, 100), file.read(3, 2)) == (8, b"bcdefgh", b"de")
    assert file.read(8, 10) == b""


def test_a_room_is_filled_up_to_the_end_of_the_file(root: str) -> None:
    file = RealFs().open(f"{root}/a", create=True)
    file.append(b"abcdefgh")
    room = bytearray(5)
    assert (file.read_into(1, memoryview(room)), room) == (5, b"bcdef")
    assert (file.read_into(6, memoryview(room)), room) == (2, b"ghdef")
    assert file.read_into(8, memoryview(room)) == 0
    file.cut_off(8)
    assert file.read_into(3, memoryview(room)) == 5
    with pytest.raises(StorageError, match="cut"):
        file.read_into(4, memoryview(room))


def test_a_reopened_file_goes_on_at_its_end(root: str) -> None:
    fs = RealFs()
    fs.open(f"{root}/a", create=True).append(b"abc")
    file = fs.open(f"{root}/a")
    assert file.append(b"d") == 3
    file.truncate(2)
    assert file.append(b"Z") == 2
    assert Path(f"{root}/a").read_bytes() == b"abZ"


def test_a_partial_write_is_not_left_behind_for_recovery(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk takes half a batch: the half must not be in the file, and the next append is whole."""
    file = RealFs().open(f"{root}/a", create=True)
    file.append(b"first")
    real, calls = os.pwrite, []

    def full(fd: int, data: bytes, position: int) -> int:
        calls.append(position)
        if len(calls) == 1:
            return real(fd, bytes(data)[:2], position)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageError) as caught:
        file.append(b"second")
    assert caught.value.facts["error"] == "ENOSPC"
    assert "free space" in str(caught.value.facts["remedy"])
    assert caught.value.facts["path"] == f"{root}/a"
    monkeypatch.undo()
    assert Path(f"{root}/a").read_bytes() == b"first"
    assert file.append(b"third") == 5


def test_a_short_write_is_finished(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFs().open(f"{root}/a", create=True)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:3], at))
    assert file.append(b"abcdefgh") == 0
    assert Path(f"{root}/a").read_bytes() == b"abcdefgh"


def test_a_failed_sync_is_never_retried_and_trusted(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rel-P9: after EIO the kernel calls the dirty pages clean; a second fdatasync would succeed."""
    file = RealFs().open(f"{root}/a", create=True)
    file.append(b"abc")

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "device")

    monkeypatch.setattr(os, "fdatasync", broken)
    with pytest.raises(StorageError, match="EIO"):
        file.sync()
    monkeypatch.undo()
    with pytest.raises(StorageError, match="earlier sync"):
        file.sync()


def test_a_removed_file_stays_readable_while_somebody_holds_it(root: str) -> None:
    fs = RealFs()
    file = fs.open(f"{root}/a", create=True)
    file.append(b"abc")
    fd = file.fileno()
    held = os.fstat(fd)
    fs.remove(f"{root}/a")
    assert not fs.exists(f"{root}/a")
    assert file.read(0, 3) == b"abc"
    del file
    gc.collect()
    # The number may be another file's by now: clients of earlier tests have threads that open sockets.
    with contextlib.suppress(OSError):
        assert not os.path.samestat(os.fstat(fd), held)


def test_a_large_file_is_closed_by_a_thread_whoever_held_it_last(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its last descriptor a removed segment gives its room back, and the loop would wait for that."""
    closed: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
    close = os.close

    def reported(fd: int) -> None:
        closed.put((fd, threading.current_thread().name))
        close(fd)

    close_off_the_loop()
    close_off_the_loop()
    monkeypatch.setattr(os, "close", reported)
    fs = RealFs()
    for size, expected in ((1000, "MainThread"), (2 * MIB, "firnline-close")):
        file = fs.open(f"{root}/a", create=True)
        file.append(bytes(size))
        fd = file.fileno()
        part = FileSlice(file, 0, size)
        fs.remove(f"{root}/a")
        del file
        assert closed.empty(), "an answer still has it"
        del part
        assert closed.get(timeout=30) == (fd, expected)


def test_names(root: str) -> None:
    fs = RealFs()
    fs.make_dir(f"{root}/x/y")
    fs.make_dir(f"{root}/x/y")
    fs.open(f"{root}/x/y/b", create=True).append(b"1")
    fs.open(f"{root}/x/y/a", create=True)
    assert fs.list_dir(f"{root}/x/y") == ["a", "b"]
    fs.rename(f"{root}/x/y/b", f"{root}/x/y/a")
    fs.sync_dir(f"{root}/x/y")
    assert fs.open(f"{root}/x/y/a").read(0, 9) == b"1"
    assert abs(fs.modified_ms(f"{root}/x/y/a") - os.stat(f"{root}/x/y/a").st_mtime * 1000) < 2
    fs.remove(f"{root}/x/y/none")
    fs.remove_dir(f"{root}/x")
    fs.remove_dir(f"{root}/x")
    with pytest.raises(StorageError, match="ENOENT"):
        fs.open(f"{root}/x/y/a")
    with pytest.raises(StorageError):
        fs.list_dir(f"{root}/x")


def test_a_second_process_is_refused_the_lock(root: str) -> None:
    fs = RealFs()
    release = fs.lock(f"{root}/.lock")
    with pytest.raises(StorageError, match="in use by another process"):
        fs.lock(f"{root}/.lock")
    release()
    release()
    fs.lock(f"{root}/.lock")()


def test_names_are_read_as_they_are_taken(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"f{number}").touch()
    found = RealFs().names(str(tmp_path))
    next(found)
    assert len(list(found)) == 4
    assert sorted(RealFs().names(str(tmp_path))) == RealFs().list_dir(str(tmp_path))
    with pytest.raises(StorageError, match="list"):
        next(RealFs().names(f"{tmp_path}/none"))


class Keeper:
    """Keeps a file open as a segment does."""

    def __init__(self, fs: RealFs, path: str) -> None:
        self.file: File | None = fs.open(path, create=True)
        fs.keep(self.file, self.let_go)

    def let_go(self) -> None:
        self.file = None


def test_without_a_descriptor_those_that_are_only_kept_give_way(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = RealFs()
    kept = Keeper(fs, f"{root}/kept")
    real = os.open

    def none_left(path: str, *options: int) -> int:
        if kept.file is not None:
            raise OSError(errno.EMFILE, "too many open files")
        return real(path, *options)

    monkeypatch.setattr(os, "open", none_left)
    assert fs.open(f"{root}/a", create=True).size() == 0
    assert kept.file is None
    kept.file = fs.open(f"{root}/a")  # not one that is told to let go
    with pytest.raises(StorageError, match="EMFILE"):
        fs.open(f"{root}/b", create=True)


def test_a_large_file_that_gives_way_is_closed_before_the_next_is_opened(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large ones are closed by a thread, and it may not have had a turn by then."""
    monkeypatch.setattr(disk, "_closing", [threading.current_thread()])
    monkeypatch.setattr(disk, "_to_close", queue.SimpleQueue())
    fs = RealFs()
    kept = Keeper(fs, f"{root}/kept")
    assert kept.file is not None
    kept.file.append(bytes(MIB))
    own, real = f"/proc/self/fd/{kept.file.fileno()}", os.open

    def none_left(path: str, *options: int) -> int:
        if os.path.exists(own):
            raise OSError(errno.EMFILE, "too many open files")
        return real(path, *options)

    monkeypatch.setattr(os, "open", none_left)
    assert fs.open(f"{root}/a", create=True).size() == 0


def test_a_thread_that_opens_a_file_takes_none_from_the_loop(root: str) -> None:
    """Whoever keeps it may be using it in this moment."""
    fs = RealFs()
    fs.kept.files_max = 1
    first = Keeper(fs, f"{root}/a")
    made: list[Keeper] = []
    thread = threading.Thread(target=lambda: made.append(Keeper(fs, f"{root}/b")))
    thread.start()
    thread.join()
    assert first.file is not None
    third = Keeper(fs, f"{root}/c")
    assert (first.file, made[0].file) == (None, None)
    assert third.file is not None
