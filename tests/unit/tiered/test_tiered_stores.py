"""The directory tier and the storage on it: durable, whole or not there, clear when it fails."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from crc32c import crc32c

from firnline.base.errors import ConfigError
from firnline.runtime.disk import RealFs
from firnline.stores.directory import MARK, PUTTING, DirectoryStore
from firnline.stores.port import ObjectMissing, RemoteStorageError
from firnline.stores.registry import open_store, path_of
from firnline.tiered.objects.fingerprint import Fingerprint, ObjectSum, encode_fingerprint
from firnline.tiered.objects.layout import (
    LOG,
    HeadName,
    TopicName,
    head_key,
    name_key,
    parse_catalog_partition,
    parse_head,
    parse_name,
    parse_written_epoch,
    part_key,
)
from firnline.tiered.objects.storage import ObjectStorage
from firnline.tiered.spi import (
    DamagedObject,
    IndexKind,
    RemoteSegment,
    SegmentData,
    bytes_source,
)

TOPIC = bytes(15) + b"\x07"


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(str(tmp_path / "tier"))


def put(store: DirectoryStore, key: str, data: bytes) -> None:
    store.put(key, (data,), size_bytes=len(data))


def test_what_was_put_is_got_in_full_or_in_ranges(store: DirectoryStore) -> None:
    store.put("a/b/c.log", (b"01", b"234", b"", memoryview(b"56789")), size_bytes=10)
    assert store.get("a/b/c.log") == b"0123456789"
    assert store.get("a/b/c.log", 3) == b"3456789"
    assert store.get("a/b/c.log", 3, 2) == b"34"
    assert store.get("a/b/c.log", 8, 100) == b"89", "the end of a range clamps to the file (T58)"
    assert store.get("a/b/c.log", 50, 1) == b""
    put(store, "empty", b"")
    assert store.get("empty") == b""


def test_listing_knows_folders_and_not_beginnings_of_names(store: DirectoryStore) -> None:
    for key in ("t/1/x", "t/1/y", "t/10/z", "u/1/x"):
        put(store, key, b"12")
    assert [(i.key, i.size_bytes) for i in store.list_prefix("t/1/")] == [
        ("t/1/x", 2),
        ("t/1/y", 2),
    ]
    assert [i.key for i in store.list_prefix("t/")] == ["t/1/x", "t/1/y", "t/10/z"]
    assert store.list_prefix("none/") == []


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not listed is taken for deleted."""
    put(store, "a/b/1", b"x")

    def broken(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "scandir", broken)
    with pytest.raises(RemoteStorageError, match="cannot list the tier: Input/output error"):
        store.list_prefix("a/")


@pytest.mark.parametrize("link", ["data", "data/t", "data/t/x", "data/t/loop"])
def test_no_symbolic_link_in_a_tier_is_followed(
    store: DirectoryStore, tmp_path: Path, link: str
) -> None:
    """Who may write into the tier's directory would have the node read, write and delete elsewhere."""
    outside = tmp_path / "outside"
    for folder in ("t", "."):
        (outside / folder).mkdir(parents=True, exist_ok=True)
        (outside / folder / "x").write_bytes(b"secret")
    if link != "data":
        put(store, "data/t/y" if link.count("/") == 2 else "data/y", b"1")
    at = Path(store.root, link)
    to = {"data": outside, "data/t": outside / "t", "data/t/x": outside / "x"}.get(link, at)
    at.symlink_to(to)
    key = link if link.count("/") == 2 else "data/t/x"
    for call in (
        lambda: store.get(key),
        lambda: store.get(key, 1, 2),
        lambda: store.list_prefix("data/"),
        lambda: store.list_prefix("data/t/"),
    ):
        with pytest.raises(RemoteStorageError, match="symbolic link inside the tier"):
            call()
    with contextlib.suppress(RemoteStorageError):
        put(store, key, b"overwritten")
    with contextlib.suppress(RemoteStorageError):
        store.delete(key)
    assert (outside / "t" / "x").read_bytes() == (outside / "x").read_bytes() == b"secret"
    assert sorted(os.listdir(outside)) == ["t", "x"]


def test_the_folder_of_what_is_being_put_is_no_link_either(
    store: DirectoryStore, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / f"{socket.gethostname()}@999999999-0.tmp").write_bytes(b"not of the tier")
    Path(store.root, PUTTING).rmdir()
    Path(store.root, PUTTING).symlink_to(outside)
    with pytest.raises(RemoteStorageError, match="symbolic link inside the tier"):
        DirectoryStore(store.root)
    with pytest.raises(RemoteStorageError, match="symbolic link inside the tier"):
        put(store, "t/x", b"1")
    assert len(os.listdir(outside)) == 1


def test_the_directory_of_a_tier_may_itself_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").symlink_to(tmp_path / "there")
    store = DirectoryStore(str(tmp_path / "here"))
    put(store, "t/x", b"1")
    assert DirectoryStore(str(tmp_path / "there")).get("t/x") == b"1"
    store.delete("t/x")
    assert store.list_prefix("t/") == []


def test_deleting_is_idempotent_and_leaves_no_empty_folders(store: DirectoryStore) -> None:
    put(store, "t/1/x", b"1")
    store.delete("t/1/x")
    store.delete("t/1/x")
    store.delete("never/was")
    assert sorted(os.listdir(store.root)) == [PUTTING, MARK]
    put(store, "t/1/x", b"2")
    assert store.get("t/1/x") == b"2"


def test_what_is_missing_is_distinguished_from_what_fails(store: DirectoryStore) -> None:
    with pytest.raises(ObjectMissing):
        store.get("t/1/x")
    put(store, "t/1/x", b"1")
    with pytest.raises(ObjectMissing):
        store.get("t/1/x/y")
    with pytest.raises(RemoteStorageError, match="cannot read"):
        store.get("t/1")


def test_a_put_that_is_shorter_than_declared_leaves_nothing(store: DirectoryStore) -> None:
    with pytest.raises(RemoteStorageError, match="another length"):
        store.put("t/x", (b"abc",), size_bytes=4)
    assert store.list_prefix("t/") == []
    assert not os.path.exists(os.path.join(store.root, "t"))


def test_a_put_that_fails_half_way_leaves_nothing_and_the_old_object_stays(
    store: DirectoryStore,
) -> None:
    """F5: the source breaks in the middle of the body."""
    put(store, "t/x", b"old")

    def breaks() -> Iterator[bytes]:
        yield b"ne"
        raise OSError(5, "Input/output error")

    with pytest.raises(RemoteStorageError, match="Input/output error"):
        store.put("t/x", breaks(), size_bytes=3)
    assert store.get("t/x") == b"old"
    assert os.listdir(os.path.join(store.root, "t")) == ["x"]
    assert temporaries(store) == []


@pytest.mark.parametrize("times", [1, 2])
def test_a_folder_that_a_delete_next_door_took_away_is_made_again_or_the_put_fails(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Never is a put answered that stored nothing; what is copied can be read only once."""
    replace, left = os.replace, [*range(times)]

    def beaten(old: str, new: str, **folders: int) -> None:
        if left:
            left.pop()
            raise FileNotFoundError(2, "No such file or directory", new)
        replace(old, new, **folders)

    monkeypatch.setattr("firnline.stores.directory.os.replace", beaten)
    if times == 1:
        store.put("t/x", iter((b"2", b"3")), size_bytes=2)
        assert store.get("t/x") == b"23"
    else:
        with pytest.raises(RemoteStorageError, match="directory vanished"):
            store.put("t/x", iter((b"2", b"3")), size_bytes=2)
    assert not left
    assert temporaries(store) == []


def test_a_full_disk_says_so_and_leaves_nothing(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) > 4:
            return write(file, data[:4])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("firnline.stores.directory.os.write", full)
    with pytest.raises(RemoteStorageError, match="No space left on device"):
        put(store, "t/x", b"0123456")
    monkeypatch.undo()
    assert store.list_prefix("t/") == []
    assert not os.path.exists(os.path.join(store.root, "t"))


def test_an_object_is_synced_before_its_name_and_its_name_before_the_answer(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rel-P3, P10: the order that survives a power cut."""
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(file: int) -> None:
        is_folder = os.path.isdir(f"/proc/self/fd/{file}")
        done.append("sync folder" if is_folder else "sync file")
        fsync(file)

    def noting_replace(old: str, new: str, **folders: int) -> None:
        done.append("rename")
        replace(old, new, **folders)

    monkeypatch.setattr("firnline.stores.directory.os.fsync", noting_fsync)
    monkeypatch.setattr("firnline.stores.directory.os.replace", noting_replace)
    put(store, "a/b/x", b"1")
    assert done == ["sync folder", "sync folder", "sync file", "rename", "sync folder"]


def temporaries(store: DirectoryStore) -> list[str]:
    return sorted(os.listdir(os.path.join(store.root, PUTTING)))


@pytest.mark.slow
def test_what_a_killed_process_was_putting_goes_with_the_next_start(store: DirectoryStore) -> None:
    """As large as a segment, and no listing shows it."""
    program = (
        "import sys, time\n"
        "from firnline.stores.directory import DirectoryStore\n"
        "def chunks():\n"
        "    yield b'x' * 1000\n"
        "    print('half', flush=True)\n"
        "    time.sleep(60)\n"
        "DirectoryStore(sys.argv[1]).put('data/t/x', chunks(), size_bytes=2000)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, store.root], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        DirectoryStore(store.root)
        [name] = temporaries(store)
        assert f"@{process.pid}-" in name, "it lives, and goes on"
    finally:
        process.kill()
        process.wait()
    DirectoryStore(store.root)
    assert temporaries(store) == []
    assert store.list_prefix("data/") == []


def test_what_another_machine_is_putting_stays_until_it_is_old(store: DirectoryStore) -> None:
    for name in ("elsewhere@1-0.tmp", "elsewhere@2-0.tmp", "notes.txt"):
        Path(store.root, PUTTING, name).write_bytes(b"x")
    old_s = time.time() - 3700
    for name in ("elsewhere@2-0.tmp", "notes.txt"):
        os.utime(os.path.join(store.root, PUTTING, name), (old_s, old_s))
    DirectoryStore(store.root)
    assert temporaries(store) == ["elsewhere@1-0.tmp", "notes.txt"]


def test_a_node_that_runs_for_long_checks_again(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(store.root, PUTTING, "elsewhere@1-0.tmp").write_bytes(b"x")
    put(store, "t/x", b"1")
    assert temporaries(store) == ["elsewhere@1-0.tmp"]
    later_s = time.time() + 3700
    monkeypatch.setattr("firnline.stores.directory.time.time", lambda: later_s)
    put(store, "t/x", b"1")
    assert temporaries(store) == []


def test_an_unmounted_tier_is_not_taken_for_an_empty_one(store: DirectoryStore) -> None:
    put(store, "t/1/x", b"1")
    os.rename(store.root, store.root + ".away")
    for call in (
        lambda: store.get("t/1/x"),
        lambda: store.list_prefix("t/"),
        lambda: put(store, "t/1/y", b"1"),
        lambda: store.delete("t/1/x"),
    ):
        with pytest.raises(RemoteStorageError, match="is not there"):
            call()
    os.mkdir(store.root)  # the mount point without the mount
    with pytest.raises(RemoteStorageError, match="right file system"):
        put(store, "t/1/y", b"1")


@pytest.fixture
def is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is put lies on another file system than the folders of objects."""

    def refused(old: str, new: str, **_: int) -> None:
        raise OSError(18, "Invalid cross-device link", old, None, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refused)
        yield


def test_a_tier_whose_data_lies_on_another_disk_is_refused_at_the_start(
    store: DirectoryStore, request: pytest.FixtureRequest
) -> None:
    """Each put would fail, for ever: what was put is renamed from the tier's own disk."""
    put(store, "data/t", b"1")
    request.getfixturevalue("is_elsewhere")
    with pytest.raises(RemoteStorageError) as found:
        DirectoryStore(store.root)
    assert "another file system than its directory" in str(found.value)
    assert f"{store.root}/data" in str(found.value)
    assert "mount the file system at the tier's directory itself" in str(found.value)
    assert os.listdir(os.path.join(store.root, "data")) == ["t"]
    assert temporaries(store) == []
    reader = DirectoryStore(store.root, is_writer=False)
    assert reader.get("data/t") == b"1"


def test_a_folder_that_is_on_another_disk_later_fails_with_what_to_do(
    store: DirectoryStore, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("is_elsewhere")
    with pytest.raises(RemoteStorageError, match="mount the file system at the tier's directory"):
        put(store, "data/t/0/x.log", b"1")
    assert temporaries(store) == []


def test_a_start_leaves_nothing_in_the_folders_it_tries(store: DirectoryStore) -> None:
    put(store, "data/t/0/x.log", b"1")
    DirectoryStore(store.root)
    assert [path.name for path in Path(store.root, "data").iterdir()] == ["t"]


def test_a_reader_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(RemoteStorageError, match="no such tier directory"):
        DirectoryStore(str(tmp_path / "none"), is_writer=False)
    assert os.listdir(tmp_path) == []


def test_a_directory_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        RemoteStorageError, match=r"cannot be created or written: (Not a|File exists)"
    ):
        DirectoryStore(str(tmp_path / "file" / "tier"))


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/etc/passwd", "a//b", "a/./b", "", "a\0b"])
def test_no_name_leads_out_of_the_tier(store: DirectoryStore, key: str) -> None:
    """rel-X3: names come out of catalog objects, which others may write."""
    with pytest.raises(RemoteStorageError, match="not the name of an object"):
        store.get(key)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/var/tier", "/var/tier"),
        ("file:///var/tier", "/var/tier"),
        ("file:/var/tier", "/var/tier"),
        ("file://localhost/var/tier", "/var/tier"),
        ("tier", "tier"),
        ("s3://bucket", None),
    ],
)
def test_a_place_is_a_path_or_a_file_uri(uri: str, path: str | None) -> None:
    assert path_of(uri) == path


def test_other_places_are_refused_with_what_would_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no store for ftp://"):
        open_store("ftp://host/x")
    with pytest.raises(ConfigError, match="no settings of a store"):
        open_store(str(tmp_path), {"region": "x"})
    for uri in ("s3://", "s3://key:secret-word@bucket/x", "hdfs://host:8020", "hdfs:///x"):
        with pytest.raises(ConfigError, match=r"a tier .*is written") as refused:
            open_store(uri)
        assert "secret-word" not in str(refused.value)
    with pytest.raises(RemoteStorageError, match="path of this machine"):
        open_store("file://elsewhere/tier")
    with pytest.raises(ConfigError, match="needs a location"):
        ObjectStorage().configure({})
    storage = ObjectStorage()
    storage.configure({"uri": str(tmp_path / "t")})
    put(storage.store, "a/b", b"1")  # type: ignore[arg-type]
    assert (tmp_path / "t" / "a" / "b").read_bytes() == b"1"


# ----------------------------------------------------------------------------------------- segments


SEGMENT = RemoteSegment(
    topic_id=TOPIC,
    topic="t",
    partition=3,
    segment_id=bytes(15) + b"\x01",
    base_offset=40,
    end_offset=49,
    size_bytes=10,
    max_timestamp_ms=1,
    epochs=((0, 40),),
    broker_id=1,
    event_timestamp_ms=1,
)


def data(txn: bytes | None = b"txn") -> SegmentData:
    return SegmentData(
        bytes_source(b"0123456789"),
        bytes_source(b"index"),
        bytes_source(b"time"),
        bytes_source(b"snapshot"),
        bytes_source(b"epochs"),
        None if txn is None else bytes_source(txn),
    )


def test_a_segment_is_six_objects_and_each_is_found_by_kind(store: DirectoryStore) -> None:
    storage = ObjectStorage(store)
    storage.copy_segment(SEGMENT, data())
    names = [info.key.rpartition("/")[2] for info in store.list_prefix("data/")]
    stem = "00000000000000000040-AAAAAAAAAAAAAAAAAAAAAQ"
    assert names == [
        stem + suffix
        for suffix in (
            ".index",
            ".leader_epoch_checkpoint",
            ".log",
            ".snapshot",
            ".timeindex",
            ".txnindex",
        )
    ]
    assert [storage.fetch_index(SEGMENT, kind) for kind in IndexKind] == [
        b"index",
        b"time",
        b"snapshot",
        b"txn",
        b"epochs",
    ]
    assert storage.fetch_segment(SEGMENT, 8, 100) == b"89"
    assert storage.fetch_segment(SEGMENT, 10, 100) == b""


def test_a_segment_without_aborted_transactions_has_no_such_index(store: DirectoryStore) -> None:
    storage = ObjectStorage(store)
    storage.copy_segment(SEGMENT, data(None))
    with pytest.raises(ObjectMissing):
        storage.fetch_index(SEGMENT, IndexKind.TRANSACTION)


def test_the_log_is_put_last_and_a_repeat_overwrites_a_broken_copy(store: DirectoryStore) -> None:
    """F6: one of six objects fails."""
    storage = ObjectStorage(store)
    broken = data()._replace(producer_snapshot=bytes_source(b"x")._replace(size_bytes=9))
    with pytest.raises(RemoteStorageError):
        storage.copy_segment(SEGMENT, broken)
    assert not [i for i in store.list_prefix("data/") if i.key.endswith(".log")]
    storage.copy_segment(SEGMENT, data())
    assert storage.fetch_index(SEGMENT, IndexKind.PRODUCER_SNAPSHOT) == b"snapshot"
    storage.delete_segment(SEGMENT)
    storage.delete_segment(SEGMENT)
    assert store.list_prefix("data/") == []


def on_disk(tmp_path: Path, log: bytes) -> SegmentData:
    """A segment whose log a store may have the kernel copy, with the fingerprint of b"0123456789"."""
    path = tmp_path / "40.log"
    path.write_bytes(log)
    sums = [(LOG, ObjectSum(10, crc32c(b"0123456789")))]
    known = Fingerprint(may_have_gaps=False, first_crc=0, heads_crc=0, sums=tuple(sums))
    given = data()
    source = given.log._replace(open_file=partial(RealFs().open, str(path)))
    return given._replace(log=source, fingerprint=encode_fingerprint(known))


def test_a_byte_that_flips_while_the_kernel_copies_the_log_is_found(
    store: DirectoryStore, tmp_path: Path
) -> None:
    storage = ObjectStorage(store)
    storage.copy_segment(SEGMENT, on_disk(tmp_path, b"0123456789"))
    assert storage.fetch_segment(SEGMENT, 0, 10) == b"0123456789"
    with pytest.raises(DamagedObject, match="other bytes than those that were put"):
        storage.copy_segment(SEGMENT, on_disk(tmp_path, b"0123456x89"))


def test_a_log_without_a_fingerprint_goes_through_the_chunks_which_are_checked(
    store: DirectoryStore, tmp_path: Path
) -> None:
    storage = ObjectStorage(store)
    unknown = on_disk(tmp_path, b"0123456x89")._replace(fingerprint=None)
    storage.copy_segment(SEGMENT, unknown)
    assert storage.fetch_segment(SEGMENT, 0, 10) == b"0123456789"


def test_keys_are_taken_apart_as_they_were_built() -> None:
    name = HeadName(5, 1234567890123)
    key = head_key(TOPIC, 12, name)
    assert parse_head(key) == name
    assert parse_catalog_partition(key) == (TOPIC, 12)
    assert parse_written_epoch(key) == parse_written_epoch(part_key(TOPIC, 12, name, 7)) == 5
    entry = TopicName("my.topic-1", 99, TOPIC, is_deleted=True)
    assert parse_name(name_key(entry)) == entry
    no_id = f"names/t/{0:019d}-{'!' * 22}.live"
    for other in ("heads/x", "catalog/a/b/heads/1-2.jsonl", key + ".tmp", "names/t/x.live", no_id):
        assert parse_head(other) is None
        assert parse_catalog_partition(other) is None
        assert parse_name(other) is None
