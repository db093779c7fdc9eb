"""A metadata log is cut, and replaced by a snapshot, while the loop waits for no disk."""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.effects import Effects, Flush, Submit
from firnline.base.errors import StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.metadata.meta_log import MetaLog
from firnline.raft.ports import SaveCallback
from tests.worlds.chance import SeededRng
from tests.worlds.effects import World, only
from tests.worlds.meta_log import (
    NOW,
    CuttingFs,
    a_disk,
    check,
    extend,
    in_use,
    opened,
    part_of,
)

AHEAD = OffsetAndEpoch(20, 5)


def then_received(received: list[StorageError | None]) -> SaveCallback:
    def then(problem: StorageError | None, now_ms: int) -> Effects:
        received.append(problem)
        return []

    return then


class Watching(World):
    """Notes what steps of the loop, and not threads, sync or name: slow disks are slow at that."""

    def __init__(self, fs: Any) -> None:
        super().__init__(NOW)
        self.disk = fs
        self.waits: list[str] = []

    def call(self, then: Callable[..., Any], *results: Any) -> Any:
        before = self.disk.count
        effects = super().call(then, *results)
        done = self.disk.done[before:]
        self.waits += [what for what, _ in done if what in ("sync", "sync_dir", "truncate")]
        return effects


def kept_log(fs: Any) -> MetaLog:
    """With what a power cut leaves, in a directory whose checkpoint says that all of it is sound."""
    directory = in_use(fs)
    log = opened(fs, directory)
    extend(log, *[1] * 4, *[2] * 6)
    log.log.sync_now()
    log.advance_high_watermark(1)
    directory.write_recovery_points()
    return log


@pytest.mark.parametrize("how", ["cut", "cut to a base", "install"])
def test_the_loop_waits_for_no_disk_while_a_log_is_cut_or_replaced(how: str) -> None:
    fs = a_disk(CuttingFs)
    log = kept_log(fs)
    received: list[StorageError | None] = []

    def begun(now_ms: int) -> Effects:
        assert (log.start_offset, log.end_offset, log.newest_snapshot_id) == (20, 20, AHEAD)
        return []

    part = part_of(log, AHEAD) if how == "install" else None
    before = fs.count
    if part is not None:
        effects = log.install(part, begun, then_received(received), NOW)
    else:
        effects = log.truncate_to(7 if how == "cut" else 8, then_received(received), NOW)
    assert received == []
    assert [what for what, _ in fs.done[before:] if what != "rename"] == []
    world = Watching(fs)
    world.carry_out(effects)
    assert world.waits == []
    assert received == [None]
    left = fs.crash(SeededRng(1), keep="none")
    check(opened(left), left)
    assert log.synced_offset == log.end_offset


def test_the_checkpoint_says_less_before_the_log_is_cut() -> None:
    """rel-P13: recovery would take what a crash leaves of the cut for damage below what was sound."""
    fs = a_disk(CuttingFs)
    log = kept_log(fs)
    submit = only(log.truncate_to(2, then_received([]), NOW), Submit)
    assert log.end_offset == 10, "not before that is on disk"
    flush = only(submit.then(submit.work(), NOW), Flush)
    assert log.end_offset == 10
    for file in flush.files:
        file.sync()
    flush.then(None, NOW)
    assert log.end_offset == 2
    again = in_use(fs.crash(SeededRng(1), keep="none"))
    assert again.recovery_point(log.log.topic_partition) <= 2


def test_a_checkpoint_that_cannot_be_written_leaves_the_log_as_it_was() -> None:
    fs = a_disk(CuttingFs)
    log = kept_log(fs)
    received: list[StorageError | None] = []
    submit = only(log.truncate_to(2, then_received(received), NOW), Submit)
    problem = StorageError("the device failed")
    submit.then(problem, NOW)
    assert received == [problem]
    assert log.end_offset == 10
