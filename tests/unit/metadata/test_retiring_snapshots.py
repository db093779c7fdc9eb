"""A log start goes up to the end of a snapshot: what lies before goes once that is durable, off the loop."""

import pytest

from firnline.base.ids import OffsetAndEpoch
from firnline.metadata.snapshot_file import snapshot_name
from firnline.raft.settings import QuorumSettings
from firnline.raft.snapshot_rules import next_start_offset
from tests.unit.metadata.test_meta_log_snapshots import AHEAD, AT_4, AT_8, a_log
from tests.worlds.chance import SeededRng
from tests.worlds.effects import World, carried_out
from tests.worlds.meta_log import (
    DELETE_DELAY_MS,
    DIR,
    NOW,
    CuttingFs,
    a_disk,
    check,
    commit,
    extend,
    found,
    freeze,
    ids,
    install,
    opened,
    retire,
    sync,
    truncate,
)


def test_who_retires_snapshots_waits_for_no_disk_and_nothing_goes_before_the_log_start_is_durable() -> (
    None
):
    """Also where a file system does not keep the order of name changes: rel-Q14."""
    fs = a_disk(CuttingFs)
    log = a_log(fs)
    freeze(log, AT_4)
    freeze(log, AT_8)
    begun = fs.count
    effects = log.retire_snapshots(8, now_ms=NOW)
    assert ids(log) == [AT_8]
    in_the_step = {what for what, _ in fs.done[begun:]}
    assert not in_the_step & {"sync", "sync_dir", "rename", "truncate"}
    carried_out(effects, NOW)
    done = fs.done[begun:]
    temporary = "leader-epoch-checkpoint.aside.tmp"
    placed = done.index(("rename", temporary))
    assert done.index(("sync", temporary)) < placed
    kept = done.index(("sync_dir", "__cluster_metadata-0"), placed)
    others = [n for n, (what, name) in enumerate(done) if what == "rename" and name != temporary]
    assert len(others) > 1
    assert kept < min(others)


@pytest.mark.parametrize("keep", ["all", "some", "none"])
def test_a_power_cut_before_a_log_start_is_durable_takes_nothing(keep: str) -> None:
    fs = a_disk()
    log = a_log(fs)
    freeze(log, AT_4)
    freeze(log, AT_8)
    before = found(log)
    log.retire_snapshots(8, now_ms=NOW)
    again = opened(fs.crash(SeededRng(1), keep=keep))
    assert (again.start_offset, again.end_offset) == (0, 10)
    assert found(again) == before
    assert ids(again) == [AT_4, AT_8]
    retire(again, 8)
    assert ids(again) == [AT_8]


def test_a_log_start_that_goes_on_while_one_is_synced_is_durable_too() -> None:
    """Goal: one removal of all. Method: the disk takes its time for the first start; the second one comes."""
    fs = a_disk(CuttingFs)
    log = a_log(fs)
    for snapshot_id in (AT_4, AT_8, OffsetAndEpoch(10, 2)):
        freeze(log, snapshot_id)
    effects = log.retire_snapshots(8, now_ms=NOW)
    assert log.retire_snapshots(10, now_ms=NOW) == []
    assert len(carried_out(effects, NOW).notes) == 2
    assert [n for n in fs.list_dir(DIR) if n.endswith(".checkpoint")] == [
        snapshot_name(OffsetAndEpoch(10, 2))
    ]
    fs = fs.crash(SeededRng(1), keep="none")
    again = opened(fs)
    assert again.start_offset == again.end_offset == 10
    check(again, fs)


def test_no_more_snapshots_are_retired_by_size_than_before_segments_went_with_the_disk() -> None:
    """Goal: a follower that is not far behind finds its place in the log. Method: one pair is too large."""
    fs = a_disk()
    log = opened(fs)
    extend(log, *[1] * 40)
    commit(log)
    for offset in (4, 8, 20, 30):
        freeze(log, OffsetAndEpoch(offset, 1))
    sizes = [size for _, size, _ in log.snapshot_sizes()]
    settings = QuorumSettings(
        retention_max_bytes=log.size_bytes + sum(sizes[1:]) - 1, retention_max_ms=-1
    )
    starts, effects = [], []
    while (start := next_start_offset(log, settings=settings, now_ms=NOW)) is not None:
        starts.append(start)
        effects += log.retire_snapshots(start, now_ms=NOW)
    size_bytes = log.size_bytes
    carried_out(effects, NOW)
    assert starts == [8]
    assert log.size_bytes == size_bytes, "what is before the start was not counted any more"


@pytest.mark.parametrize("meanwhile", ["cut", "replaced", "extended", "closed"])
def test_old_snapshots_go_whatever_becomes_of_the_log_meanwhile(meanwhile: str) -> None:
    fs = a_disk()
    log = a_log(fs)
    freeze(log, AT_4)
    freeze(log, AT_8)
    extend(log, 3, 3)
    effects = log.retire_snapshots(8, now_ms=NOW)
    if meanwhile == "cut":
        truncate(log, 10)
    elif meanwhile == "replaced":
        install(log, AHEAD)
    elif meanwhile == "extended":
        extend(log, 4)
        sync(log)
    else:
        log.close()
    world = carried_out(effects, NOW)
    assert log.start_offset == (20 if meanwhile == "replaced" else 8)
    world.pass_time(DELETE_DELAY_MS)
    names = [n for n in fs.list_dir(DIR) if ".checkpoint" in n and n.startswith("0")]
    assert snapshot_name(AT_4) not in names
    fs = fs.crash(SeededRng(1), keep="none")
    again = opened(fs)
    assert again.start_offset == log.start_offset
    assert again.newest_snapshot_id == (AHEAD if meanwhile == "replaced" else AT_8)
    check(again, fs)


def test_who_is_being_cut_retires_its_snapshots_afterwards() -> None:
    fs = a_disk()
    log = a_log(fs)
    freeze(log, AT_4)
    freeze(log, AT_8)
    extend(log, 3, 3)
    over: list[object] = []
    cut = log.truncate_to(10, lambda problem, now_ms: over.append(problem) or [], NOW)  # type: ignore[func-returns-value]
    world = World(NOW)
    world.run(log.retire_snapshots(8, now_ms=NOW))
    carried_out(cut, NOW)
    assert over == [None]
    [again] = world.timers.values()
    world.fire(again.key)
    assert opened(fs.crash(SeededRng(1), keep="none")).start_offset == 8
    assert ids(log) == [AT_8]
