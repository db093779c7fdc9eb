"""The room that records leave on a disk: a full one does not end the node, whose metadata is there, too."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from firnline.base.counting.machine import DiskSpace, MachineFacts
from firnline.base.counting.room import KEPT_BYTES, Room, kept_bytes
from firnline.base.errors import StorageError
from firnline.base.units import MIB
from firnline.runtime.compact_main import _Throttler
from firnline.runtime.disk import RealFs
from firnline.runtime.machine import MachineWatch
from firnline.runtime.poll import PollLoop
from tests.unit.runtime.test_machine import until

ROWS = ("t-0/00000000000000000000.log", "__remote_log_metadata-1/00000000000000000000.log")


def test_what_is_kept_is_a_part_of_a_small_disk_and_little_of_a_large_one() -> None:
    assert kept_bytes(50 * MIB) == MIB
    assert kept_bytes(10**13) == KEPT_BYTES


def test_appends_are_counted_between_two_measurements() -> None:
    room = Room()
    assert room.take(10**15)
    room.measured(DiskSpace(free_bytes=3 * MIB, total_bytes=50 * MIB))
    assert room.take(2 * MIB)
    assert not room.take(1)
    assert room.take(0)
    room.measured(DiskSpace(free_bytes=MIB + 1, total_bytes=50 * MIB))
    assert room.take(1)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("slash", ["", "/"])
def test_records_are_refused_and_the_metadata_log_is_written_on(
    tmp_path: Path, row: str, slash: str
) -> None:
    fs = RealFs()
    (room,) = fs.keep_room([f"{tmp_path}{slash}"]).values()
    for name in (row, "__cluster_metadata-0/0.log", "t-0/0.index"):
        fs.make_dir(str((tmp_path / name).parent))
    records = fs.open(f"{tmp_path}{slash}/{row}", create=True)
    records.append(b"before")
    room.measured(DiskSpace(MIB, 50 * MIB))
    with pytest.raises(StorageError) as caught:
        records.append(b"x")
    assert caught.value.is_passing
    assert caught.value.facts["remedy"] == (
        "free space on this disk, or shorten retention; its last 1 MiB are kept for the metadata"
    )
    assert (records.size(), records.read(0, 10)) == (6, b"before")
    for name in ("__cluster_metadata-0/0.log", "t-0/0.index", "recovery-point-offset-checkpoint"):
        fs.open(str(tmp_path / name), create=True).append(b"x")
    room.measured(DiskSpace(MIB + 6, 50 * MIB))
    assert records.append(b"after") == 6


def test_directories_of_one_disk_share_its_room(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    a, b = (
        RealFs()
        .keep_room([str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "gone")])
        .values()
    )
    assert a is b


def test_a_disk_with_little_room_is_measured_often(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another node may fill the same disk."""
    real, asked = os.statvfs, []

    def small(path: str) -> Any:
        asked.append(path)
        found = [*real(path)]
        found[1], found[2], found[4] = 4096, 1000 * MIB // 4096, 300 * MIB // 4096
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", small)
    loop, facts, room = PollLoop(), MachineFacts(), Room()
    watch = MachineWatch(loop, facts, [str(tmp_path)], lambda: 1_000, {str(tmp_path): room})
    until(lambda: len(asked) > 3)
    watch.close()
    loop.close()
    assert room.kept_bytes == 20 * MIB
    assert room.take(280 * MIB)
    assert not room.take(1)


def full_room() -> Room:
    room = Room()
    room.measured(DiskSpace(free_bytes=MIB, total_bytes=50 * MIB))
    assert not room.take(1)
    return room


def test_a_disk_that_cannot_be_measured_limits_nothing(tmp_path: Path) -> None:
    """What retention frees would not be counted, and appends would be refused for ever."""
    loop, room, gone = PollLoop(), full_room(), str(tmp_path / "gone")
    watch = MachineWatch(loop, MachineFacts(), [gone], lambda: 1_000, {gone: room})
    until(lambda: room.take(1))
    watch.close()
    loop.close()


def test_a_disk_that_hangs_does_not_have_the_others_refuse(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are asked after it, so they are not measured any more."""
    answers = threading.Event()

    def hang(path: str) -> None:
        answers.wait(20)
        raise OSError

    monkeypatch.setattr(os, "statvfs", hang)
    loop, facts, room = PollLoop(), MachineFacts(), full_room()
    now_ms = [1_000]
    rooms = {"/other": room}
    watch = MachineWatch(loop, facts, ["/hangs", "/other"], lambda: now_ms[0], rooms)
    until(lambda: facts.silent_disk)
    for later_ms, is_limited in ((1_000, True), (5_000, False)):
        now_ms[0] += later_ms
        loop.call_later(0.6, loop.stop)
        loop.run()
        assert room.take(1) is not is_limited
    watch.close()
    loop.close()
    monkeypatch.undo()
    answers.set()


def test_a_round_of_compaction_does_not_take_what_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free = [2 * MIB]
    monkeypatch.setattr(RealFs, "volume_bytes", lambda _, path: (100 * MIB, free[0]))
    pace = _Throttler(1e9, str(tmp_path))
    pace(2 * MIB)
    free[0] = MIB - 1
    with pytest.raises(StorageError) as caught:
        pace(2 * MIB)
    assert caught.value.is_passing


def test_a_metadata_log_without_room_says_how_the_node_starts_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody can shorten retention at a node that has stopped."""
    (tmp_path / "__cluster_metadata-0").mkdir()
    file = RealFs().open(f"{tmp_path}/__cluster_metadata-0/0.log", create=True)

    def full(fd: int, data: bytes, position: int) -> int:
        raise OSError(28, "full")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageError) as caught:
        file.append(b"x")
    assert "retention" not in str(caught.value.facts["remedy"])
    assert "When a disk is full" in str(caught.value.facts["remedy"])
