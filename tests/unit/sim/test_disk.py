"""The simulated disk loses what POSIX lets it lose, and never more."""

import pytest

from firnline.base.errors import StorageError
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng


def durable(fs: CrashableFs, path: str) -> None:
    fs.open(path).sync()
    fs.sync_dir(path.rpartition("/")[0] or "/")


def test_synced_bytes_under_a_synced_name_survive_every_crash() -> None:
    for seed in range(50):
        fs = CrashableFs()
        file = fs.open("/a", create=True)
        file.append(b"x" * 3000)
        durable(fs, "/a")
        file.append(b"y" * 3000)
        after = fs.crash(SeededRng(seed))
        data = after.open("/a").read(0, 9999)
        assert data[:3000] == b"x" * 3000
        assert not data[3000:].strip(b"y\0"), "only new bytes or holes"


def test_unsynced_bytes_can_vanish_be_kept_and_tear() -> None:
    seen = set()
    for seed in range(200):
        fs = CrashableFs()
        fs.open("/a", create=True).append(b"y" * 2048)
        fs.sync_dir("/")
        data = fs.crash(SeededRng(seed)).open("/a").read(0, 9999)
        kind = "gone" if not data else "whole" if data == b"y" * 2048 else "short"
        seen.add("torn" if b"\0" in data else kind)
    assert seen == {"gone", "whole", "short", "torn"}


def test_a_name_needs_its_directory_synced() -> None:
    fs = CrashableFs()
    fs.open("/a", create=True).sync()
    assert not fs.crash(SeededRng(), keep="none").exists("/a")


def test_a_rename_that_was_not_synced_can_be_undone_but_not_halved() -> None:
    seen = set()
    for seed in range(40):
        fs = CrashableFs()
        for name in ("/old", "/new"):
            fs.open(name, create=True).append(name.encode())
            durable(fs, name)
        fs.rename("/old", "/new")
        after = fs.crash(SeededRng(seed))
        seen.add((tuple(after.list_dir("/")), after.open("/new").read(0, 9)))
    assert seen == {(("new", "old"), b"/new"), (("new",), b"/old")}


def test_an_unsynced_truncation_can_be_undone() -> None:
    seen = set()
    for seed in range(60):
        fs = CrashableFs()
        file = fs.open("/a", create=True)
        file.append(b"x" * 600)
        durable(fs, "/a")
        file.truncate(100)
        data = fs.crash(SeededRng(seed)).open("/a").read(0, 999)
        assert data == b"x" * len(data)
        seen.add(len(data))
    assert min(seen) >= 100
    assert len(seen) > 3


def test_a_killed_process_loses_nothing() -> None:
    fs = CrashableFs()
    fs.make_dir("/x/y")
    fs.open("/x/y/a", create=True).append(b"abc")
    assert fs.crash(SeededRng(), keep="all").open("/x/y/a").read(0, 9) == b"abc"


def test_after_the_cut_the_old_disk_is_off() -> None:
    fs = CrashableFs()
    file = fs.open("/a", create=True)
    fs.crash(SeededRng())
    with pytest.raises(StorageError, match="power is off"):
        file.append(b"x")


def test_a_directory_that_was_removed_or_renamed_can_be_made_again() -> None:
    fs = CrashableFs()
    fs.make_dir("/x/y")
    fs.open("/x/y/a", create=True).append(b"abc")
    fs.rename("/x/y", "/x/z")
    assert fs.open("/x/z/a").read(0, 9) == b"abc"
    assert not fs.exists("/x/y")
    fs.make_dir("/x/y")
    assert fs.list_dir("/x/y") == []
    fs.remove_dir("/x/z")
    assert fs.list_dir("/x") == ["y"]


def test_a_removed_file_stays_readable_to_its_holder() -> None:
    fs = CrashableFs()
    file = fs.open("/a", create=True)
    file.append(b"abc")
    fs.remove("/a")
    assert file.read(0, 3) == b"abc"
    assert not fs.exists("/a")


def test_injected_failures_come_when_they_are_due() -> None:
    fs = CrashableFs()
    file = fs.open("/a.log", create=True)
    fs.fail("append", ".log", "EIO", skip=1, times=2)
    file.append(b"1")
    for _ in range(2):
        with pytest.raises(StorageError, match="EIO"):
            file.append(b"2")
    file.append(b"3")
    assert file.read(0, 9) == b"13"


def test_a_failed_sync_is_final() -> None:
    fs = CrashableFs()
    file = fs.open("/a", create=True)
    file.append(b"x")
    fs.sync_dir("/")
    fs.fail("sync", "/a", "EIO")
    for _ in range(2):
        with pytest.raises(StorageError):
            file.sync()
    assert fs.crash(SeededRng(), keep="none").open("/a").size() == 0


def test_a_full_disk_takes_no_more() -> None:
    fs = CrashableFs(capacity_bytes=10)
    file = fs.open("/a", create=True)
    file.append(b"x" * 8)
    with pytest.raises(StorageError, match="ENOSPC"):
        file.append(b"xxx")
    file.append(b"xx")
    assert (file.size(), fs.used_bytes()) == (10, 10)


def test_a_lock_is_held_until_it_is_released() -> None:
    fs = CrashableFs()
    release = fs.lock("/l")
    with pytest.raises(StorageError, match="in use"):
        fs.lock("/l")
    release()
    fs.lock("/l")


def test_a_killed_process_leaves_its_bytes_in_the_page_cache_and_not_on_the_disk() -> None:
    """What survives a kill is lost by a power cut that follows: a restart has to sync what it believes."""
    fs = CrashableFs()
    file = fs.open("/a", create=True)
    fs.sync_dir("/")
    file.append(b"x" * 100)
    after = fs.kill()
    with pytest.raises(StorageError, match="power is off"):
        file.append(b"y")
    assert after.open("/a").read(0, 999) == b"x" * 100
    assert after.crash(SeededRng(), keep="none").open("/a").size() == 0
    after = after.kill()
    after.open("/a").sync()
    assert after.crash(SeededRng(), keep="none").open("/a").size() == 100


def test_only_what_any_power_cut_leaves_counts_as_surviving() -> None:
    fs = CrashableFs()
    fs.make_dir("/d")
    fs.open("/d/a", create=True).append(b"x" * 10)
    assert fs.surviving_files("/d") == {}, "neither the name nor its directory was synced"
    fs.sync_dir("/")
    fs.sync_dir("/d")
    assert fs.surviving_files("/d")["a"].surviving_bytes == 0
    file = fs.open("/d/a")
    file.sync()
    file.append(b"y" * 10)
    assert fs.surviving_files("/d")["a"].surviving_bytes == 10
    file.truncate(4)
    assert fs.surviving_files("/d")["a"].surviving_bytes == 4
    assert fs.files("/d")["a"].data == b"xxxx"
    before = fs.name_changes("/d")
    fs.rename("/d/a", "/d/b")
    assert fs.name_changes("/d") > before
    assert list(fs.surviving_files("/d")) == ["a"]
