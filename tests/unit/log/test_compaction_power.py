"""Power cuts around the checkpoints of compaction: whatever order the disk kept, no key comes back."""

from collections.abc import Callable
from itertools import product

import pytest

from firnline.base.effects import Effects
from firnline.base.ids import TopicPartition
from firnline.config.topic import TopicConfig
from firnline.formats import checkpoint
from firnline.log.checkpoint import (
    CLEANER_OFFSETS,
    RECOVERY_POINTS,
    format_directory,
)
from firnline.log.directory import LogDirectory
from firnline.log.log import Log
from firnline.sim.disk import CrashableFs, Inode
from tests.worlds.chance import SeededRng
from tests.worlds.compaction import compacted, put, round_of, rows, settled
from tests.worlds.effects import World, carried_out
from tests.worlds.log import NOW, TOPIC_ID, TP, batch

HOUR = 3_600_000
CONFIG = compacted(delete_retention_ms=HOUR)


def started(fs: CrashableFs) -> LogDirectory:
    made = LogDirectory(fs, "/data", cluster_id="c", node_id=1, unique=SeededRng(2).uuid)
    made.start()
    return made


def opened(directory: LogDirectory, config: TopicConfig = CONFIG) -> Log:
    log = directory.open(TP, TOPIC_ID, config, NOW)
    for file in directory.unsynced(log):
        file.sync()
    return log


def test_a_deleted_key_stays_deleted_when_the_power_takes_a_swap_and_not_its_checkpoint() -> None:
    """The old segments were back, below what counted as compacted: the tombstone went, its value stayed."""
    fs = CrashableFs()
    format_directory(fs, "/data", cluster_id="c", node_id=1, directory_id=bytes(16))
    directory = started(fs)
    log = opened(directory)
    put(log, "k", "value")
    put(log, "k", None)
    settled(log)
    carried_out(directory.keep_for_compaction(log, lambda *_: []), NOW)
    done, _ = round_of(fs, log)
    assert done is not None
    assert [row[2] for row in rows(log)] == [None]
    carried_out(directory.checkpoint_later(NOW), NOW)
    fs.sync_dir("/data")
    fs = fs.crash(SeededRng(), keep="none")
    directory = started(fs)
    log = opened(directory)
    assert [row[2] for row in rows(log)] == [b"value", None], "the swap is undone"
    for hours in (0, 2, 4):
        put(log, f"other-{hours}", "v")
        settled(log)
        round_of(fs, log, now_ms=NOW + hours * HOUR)
    assert [row[1] for row in rows(log)] == [b"other-0", b"other-2", b"other-4"]


# -- every order in which names may reach the disk -------------------------------------------------


def left_by_a_power_cut(fs: CrashableFs) -> list[dict[str, bytes]]:
    """The files of /data after any of the changes of names that were not synced, in any order."""
    place = fs._place("/data")
    assert place is not None
    changes, before = [], place.durable
    for after in place.pending:
        gone = [name for name in before if name not in after]
        new = {name: each for name, each in after.items() if before.get(name) is not each}
        changes.append((gone, new))
        before = after
    found = []
    for chosen in product([False, True], repeat=len(changes)):
        names = dict(place.durable)
        for is_kept, (gone, new) in zip(chosen, changes):
            if is_kept:
                names = {name: each for name, each in names.items() if name not in gone} | new
        files = {name: each for name, each in names.items() if isinstance(each, Inode)}
        found.append({name: bytes(each.durable) for name, each in files.items()})
    return found


def offsets(files: dict[str, bytes], name: str) -> dict[TopicPartition, int]:
    try:
        rows = checkpoint.decode(files.get(name, b""), 3)
    except ValueError:
        return {}
    return {TopicPartition(topic, int(number)): int(offset) for topic, number, offset in rows}


class EveryOrder:
    """Carries out effects; before and after each change, every disk that a power cut may leave is judged."""

    def __init__(self, gap_offset: int) -> None:
        self.gap_offset = gap_offset
        self.fs = CrashableFs()
        self.checked = 0
        for name in ("rename", "remove", "sync_dir"):
            setattr(self.fs, name, self._checking(getattr(self.fs, name)))

    def _checking(self, change: Callable[..., None]) -> Callable[..., None]:
        def changed(*arguments: str) -> None:
            change(*arguments)
            self.check()

        return changed

    def check(self) -> None:
        for files in left_by_a_power_cut(self.fs):
            point = offsets(files, RECOVERY_POINTS).get(TP, 0)
            gaps = offsets(files, CLEANER_OFFSETS)
            assert point <= self.gap_offset or TP in gaps, "a gap that nobody expects"
            self.checked += 1


def with_a_first_gap() -> tuple[EveryOrder, LogDirectory, Log]:
    """A follower's log got its first gap, from a leader that compacts; no checkpoint was written since."""
    world = EveryOrder(gap_offset=1)
    format_directory(world.fs, "/data", cluster_id="c", node_id=1, directory_id=bytes(16))
    directory = started(world.fs)
    log = opened(directory, TopicConfig())
    directory.checkpoint()
    log.append_as_follower(batch("a"), leader_epoch=0, now_ms=NOW)
    for _ in range(2):
        log.append_as_follower(batch("b", base_offset=7), leader_epoch=0, now_ms=NOW)
    log.sync_now()
    world.checked = 0
    return world, directory, log


def begun(way: str, directory: LogDirectory, log: Log) -> Effects:
    if way == "later":
        return directory.checkpoint_later(NOW)
    return directory.keep_for_compaction(log, lambda *_: [])


@pytest.mark.parametrize("way", ["later", "keep"])
@pytest.mark.parametrize("meanwhile", ["nothing", "points", "all"])
def test_no_order_of_names_on_disk_hides_a_gap_below_a_recovery_point(
    way: str, meanwhile: str
) -> None:
    """Recovery looks for gaps above that point alone, and the tier takes the gap for damage.

    Meanwhile: what is written on the spot while the checkpoint of the gap waits for its sync.
    """
    world, directory, log = with_a_first_gap()
    other = TopicPartition("t", 1)
    loop = World(NOW)
    loop.holds_flushes = True
    loop.carry_out(begun(way, directory, log))
    assert len(loop.flushes) == 1
    expected = {TP: 0}
    if meanwhile == "points":
        directory.write_recovery_points()
    elif meanwhile == "all":
        expected |= {other: 0}
        second = directory.open(other, TOPIC_ID, TopicConfig(), NOW)
        second.compaction.expect_gaps()
        directory.checkpoint()
    loop.holds_flushes = False
    loop.flush()
    loop.pass_time(0)
    left = left_by_a_power_cut(world.fs)[-1]
    assert offsets(left, RECOVERY_POINTS)[TP] == 8
    assert offsets(left, CLEANER_OFFSETS) == expected == directory._said[CLEANER_OFFSETS]
    assert world.checked > 4
