"""The objects of a segment: written side by side, and the last of them is the last that anybody sees."""

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

from firnline.base.ports import Buffer, File
from firnline.runtime.disk import RealFs
from firnline.stores.directory import PUTTING, SYNCED_BYTES, DirectoryStore
from firnline.stores.memory import MemoryStore
from firnline.stores.port import NewObject, RemoteStorageError
from firnline.stores.side_by_side import put_last_alone

PATIENCE_S = 30.0
NAMES = ("index", "timeindex", "txnindex", "snapshot", "epochs", "log")


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(str(tmp_path / "tier"))


def objects(chunks: Callable[[str], Iterable[Buffer]] | None = None) -> list[NewObject]:
    """Six objects, each of which has its name as its bytes."""
    of = chunks or (lambda name: (name.encode(),))
    return [NewObject(f"data/t/{name}", of(name), len(name)) for name in NAMES]


def names(store: DirectoryStore) -> list[str]:
    return [info.key.rpartition("/")[2] for info in store.list_prefix("data/")]


def temporaries(store: DirectoryStore) -> list[str]:
    return os.listdir(os.path.join(store.root, PUTTING))


def test_all_objects_are_there_with_their_own_bytes(store: DirectoryStore) -> None:
    store.put_together(objects())
    assert {name: store.get(f"data/t/{name}") for name in NAMES} == {n: n.encode() for n in NAMES}
    assert temporaries(store) == []


def test_the_files_of_a_segment_are_written_at_the_same_time(store: DirectoryStore) -> None:
    """One after the other, each would wait for a commit of the file system's journal of its own."""
    met = threading.Barrier(len(NAMES))

    def chunks(name: str) -> Iterator[bytes]:
        met.wait(PATIENCE_S)
        yield name.encode()

    store.put_together(objects(chunks))
    assert sorted(names(store)) == sorted(NAMES)


def steps_of(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The list of what will be synced and renamed."""
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(file: int) -> None:
        is_folder = os.path.isdir(f"/proc/self/fd/{file}")
        fsync(file)
        steps.append("sync folder" if is_folder else "sync file")

    def noting_replace(old: str, new: str, **folders: int) -> None:
        steps.append(f"rename {new}")
        replace(old, new, **folders)

    monkeypatch.setattr("firnline.stores.directory.os.fsync", noting_fsync)
    monkeypatch.setattr("firnline.stores.directory.os.replace", noting_replace)
    return steps


def test_the_log_gets_its_name_when_all_others_survive_a_power_cut(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F6: a segment with a log has all objects. Two syncs of the folder for six objects, not six."""
    store.put("data/t/other", (b"x",), size_bytes=1)
    steps = steps_of(store, monkeypatch)
    store.put_together(objects())
    assert steps == [
        *["sync file"] * 6,
        *(f"rename {name}" for name in NAMES[:-1]),
        "sync folder",
        "rename log",
        "sync folder",
    ]


@pytest.mark.parametrize("broken", NAMES)
def test_one_that_cannot_be_written_leaves_none(store: DirectoryStore, broken: str) -> None:
    """F6."""

    def chunks(name: str) -> Iterator[bytes]:
        if name == broken:
            raise OSError(5, "Input/output error")
        yield name.encode()

    with pytest.raises(RemoteStorageError, match="Input/output error"):
        store.put_together(objects(chunks))
    assert names(store) == []
    assert temporaries(store) == []
    assert not os.path.exists(os.path.join(store.root, "data"))


@pytest.mark.parametrize("broken", NAMES)
def test_one_that_cannot_be_renamed_leaves_no_log(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    replace = os.replace

    def fails(old: str, new: str, **folders: int) -> None:
        if new == broken:
            raise OSError(5, "Input/output error")
        replace(old, new, **folders)

    monkeypatch.setattr("firnline.stores.directory.os.replace", fails)
    with pytest.raises(RemoteStorageError, match="Input/output error"):
        store.put_together(objects())
    assert names(store) == sorted(NAMES[: NAMES.index(broken)])
    assert temporaries(store) == []


def test_objects_whose_folder_vanishes_under_them_are_not_taken_for_stored(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry would put the rest, and answer that all are there."""
    replace, vanished = os.replace, []

    def beaten(old: str, new: str, **folders: int) -> None:
        if new == "snapshot" and not vanished:
            for name in NAMES[:3]:
                os.unlink(name, dir_fd=folders["dst_dir_fd"])
            os.rmdir(os.path.join(store.root, "data", "t"))
            vanished.append(new)
        replace(old, new, **folders)

    monkeypatch.setattr("firnline.stores.directory.os.replace", beaten)
    with pytest.raises(RemoteStorageError, match="directory vanished"):
        store.put_together(objects())
    assert vanished
    assert names(store) == []
    assert temporaries(store) == []


def test_a_folder_that_a_delete_took_away_before_the_first_rename_is_made_again(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, vanished = os.replace, []

    def beaten(old: str, new: str, **folders: int) -> None:
        if not vanished:
            os.rmdir(os.path.join(store.root, "data", "t"))
            vanished.append(new)
        replace(old, new, **folders)

    monkeypatch.setattr("firnline.stores.directory.os.replace", beaten)
    store.put_together(objects(lambda name: iter((name.encode(),))))
    assert vanished
    assert store.get("data/t/log") == b"log"
    assert names(store) == sorted(NAMES)


@pytest.mark.parametrize("at_once", [1, 6])
def test_where_a_put_is_visible_when_it_ends_the_last_begins_when_all_others_have_ended(
    at_once: int,
) -> None:
    ended: list[str] = []
    may_end = threading.Event()

    class Slow(MemoryStore):
        calls_at_once = at_once

        def put(self, key: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
            name = key.rpartition("/")[2]
            if name == "log":
                assert sorted(ended) == sorted(NAMES[:-1])
            if at_once > 1 and name == "index":
                assert may_end.wait(PATIENCE_S), "the others are put meanwhile"
            super().put(key, chunks, size_bytes=size_bytes)
            ended.append(name)
            if name == "epochs":
                may_end.set()

    store = Slow()
    put_last_alone(store, objects())
    assert ended[-1] == "log"
    assert sorted(store.objects) == sorted(f"data/t/{name}" for name in NAMES)


def test_where_a_put_is_visible_when_it_ends_the_last_is_not_put_after_a_failure() -> None:
    store = MemoryStore()
    short = [each._replace(size_bytes=99) if "snap" in each.key else each for each in objects()]
    with pytest.raises(RemoteStorageError):
        put_last_alone(store, short)
    assert "data/t/log" not in store.objects


def never() -> Iterator[bytes]:
    raise AssertionError("the bytes went through the process")
    yield b""


def real_file(tmp_path: Path, data: bytes) -> Callable[[], File]:
    path = tmp_path / "00.log"
    path.write_bytes(data)
    return partial(RealFs().open, str(path))


def test_the_kernel_copies_a_local_file(store: DirectoryStore, tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    open_file = real_file(tmp_path, data)
    store.put_together((NewObject("t/log", never(), len(data), open_file),))
    assert store.get("t/log") == data
    open_file().append(b"more")
    store.put_together((NewObject("t/log", never(), len(data) - 9, open_file),))
    assert store.get("t/log") == data[:-9], "no more than was announced"


@pytest.mark.parametrize("is_in_kernel", [True, False])
def test_a_large_object_is_synced_in_pieces_so_that_other_syncs_do_not_wait_for_all_of_it(
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_in_kernel: bool
) -> None:
    sizes: list[int] = []
    sync = os.fdatasync

    def noting(file: int) -> None:
        sizes.append(os.fstat(file).st_size)
        sync(file)

    monkeypatch.setattr("firnline.stores.directory.os.fdatasync", noting)
    data = bytes(3 * SYNCED_BYTES + 5)
    pieces = [data[at : at + SYNCED_BYTES] for at in range(0, len(data), SYNCED_BYTES)]
    source = real_file(tmp_path, data) if is_in_kernel else None
    store.put_together((NewObject("t/log", iter(pieces), len(data), source),))
    assert store.get("t/log") == data
    steps = [size - before for before, size in zip([0, *sizes], sizes, strict=False)]
    assert len(sizes) >= 3
    assert max(steps) <= SYNCED_BYTES


def test_a_local_file_that_is_shorter_than_announced_is_not_stored(
    store: DirectoryStore, tmp_path: Path
) -> None:
    with pytest.raises(RemoteStorageError, match="another length"):
        store.put_together((NewObject("t/log", never(), 9, real_file(tmp_path, b"12345678")),))
    assert store.list_prefix("t/") == []
    assert temporaries(store) == []


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_where_the_kernel_does_not_copy_the_chunks_are_written(
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refused(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("firnline.stores.directory._copy_file_range", refused)
    new = NewObject("t/log", (b"123", b"45"), 5, real_file(tmp_path, b"12345"))
    store.put_together((new,))
    assert store.get("t/log") == b"12345"
    monkeypatch.setattr("firnline.stores.directory._copy_file_range", None)
    store.put_together((new._replace(key="t/other"),))
    assert store.get("t/other") == b"12345"


@pytest.mark.parametrize("done", [0, 3])
def test_a_disk_that_is_full_while_the_kernel_copies_says_so(
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """Nothing is tried again with the chunks, behind what is written already."""
    left = [done] if done else []

    def full(*_: object, **__: object) -> int:
        if left:
            return left.pop()
        raise OSError(errno.EINVAL if done else errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("firnline.stores.directory._copy_file_range", full)
    with pytest.raises(RemoteStorageError, match="No space left on device"):
        store.put_together((NewObject("t/log", never(), 5, real_file(tmp_path, b"12345")),))
    assert store.list_prefix("t/") == []
    assert temporaries(store) == []


def test_a_file_without_a_descriptor_goes_in_chunks(store: DirectoryStore, tmp_path: Path) -> None:
    """One that was cut off: its records may be replaced by others."""
    open_file = real_file(tmp_path, b"12345")

    def cut() -> File:
        file = open_file()
        file.cut_off(2)
        return file

    store.put_together((NewObject("t/log", (b"abcde",), 5, cut),))
    assert store.get("t/log") == b"abcde"
