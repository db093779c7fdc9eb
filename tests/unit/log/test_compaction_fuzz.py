"""A log of one directory lives through appends, rounds, truncations, checkpoints, stops and power cuts.

After each step a reader finds the last value of each key, no record but those that were written, and no key
that was deleted; and after a power cut the log is what it was up to some offset, with nothing out of its
middle. What was synced is below that offset.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.errors import StorageError
from firnline.log.checkpoint import format_directory
from firnline.log.compaction.rounds import Round, compact
from firnline.log.directory import LogDirectory
from firnline.records.build import NewRecord, build_batch
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.clock import FakeClock
from tests.worlds.compaction import RULES, compacted, rows
from tests.worlds.effects import World
from tests.worlds.log import NOW, TOPIC_ID, TP, append, flush

DELAY_MS = 60_001  # of the removal of files
STEPS = {
    "append": 100,
    "roll": 30,
    "sync": 40,
    "begin_round": 40,
    "go_on": 60,
    "cut": 10,
    "half_cut": 3,
    "checkpoint": 30,
    "time": 20,
    "remove": 20,
    "power_cut": 7,
    "stop": 4,
}


class PowerCut(BaseException):
    """The power goes."""


class Loop(World):
    """A start of the process; `chance` is how likely it is to live through each step of what is done."""

    def __init__(self, clock: FakeClock, dice: random.Random) -> None:
        super().__init__(clock)
        self.dice = dice
        self.chance = 1.0

    def call(self, then: Callable[..., Any], *results: Any) -> Any:
        self.may_end()
        return super().call(then, *results)

    def result_of(self, effect: Any) -> Any:
        self.may_end()
        return super().result_of(effect)

    def may_end(self) -> None:
        if self.dice.random() > self.chance:
            raise PowerCut


class Life:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.rng = SeededRng(seed)
        self.fs = CrashableFs()
        self.clock = FakeClock(NOW)
        self.written: list[tuple[int, bytes, bytes | None]] = []
        self.committed = self.epoch = 0
        identity = {"cluster_id": "c", "node_id": 1}
        format_directory(self.fs, "/data", directory_id=self.rng.uuid(), **identity)  # type: ignore[arg-type]
        self.start()

    def start(self) -> None:
        self.directory = LogDirectory(
            self.fs, "/data", cluster_id="c", node_id=1, unique=self.rng.uuid
        )
        self.directory.start()
        config = compacted(delete_retention_ms=5, segment_bytes=300)
        self.log = self.directory.open(TP, TOPIC_ID, config, self.now_ms)
        for file in self.directory.unsynced(self.log):
            file.sync()
        self.loop = Loop(self.clock, self.dice)
        self.round: tuple[Round, int] | None = None
        end = self.log.log_end_offset
        lost = {row[1]: row for row in self.written if row[0] < self.committed}
        assert all(row[0] < end or row[2] is None for row in lost.values()), "what was synced"
        self.written = [row for row in self.written if row[0] < end]
        self.committed = min(self.committed, end)
        self.epoch += 1
        self.look()

    def look(self) -> None:
        found = {row[0]: row for row in rows(self.log)}
        assert found.items() <= {row[0]: row for row in self.written}.items()
        last = {row[1]: row for row in self.written}
        assert all(row[0] in found or row[2] is None for row in last.values()), "a last value"
        seen = {row[1]: row for row in found.values()}
        assert all(row[2] is None or last[row[1]][2] is not None for row in seen.values() if row[1])

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms

    def carry_out(self, effects: Effects, chance: float = 1.0) -> bool:
        """Do what is due now; False when the power goes in between."""
        self.loop.chance = chance
        try:
            self.loop.carry_out(effects)
        except PowerCut:
            return False
        self.loop.chance = 1.0
        return True

    def append(self) -> None:
        base, keys = (
            self.log.log_end_offset,
            self.dice.choices(range(6), k=self.dice.randrange(1, 4)),
        )
        values = [None if self.dice.random() < 0.25 else b"%d" % base for _ in keys]
        pairs = [(b"k%d" % key, value) for key, value in zip(keys, values)]
        data = build_batch([NewRecord(key, value, self.now_ms) for key, value in pairs])
        append(self.log, data, epoch=self.epoch, now_ms=self.now_ms)
        self.written += [(base + n, *pair) for n, pair in enumerate(pairs)]

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def sync(self) -> None:
        flush(self.log)
        if self.log.recovery_point == self.log.log_end_offset:
            self.committed = self.log.log_end_offset
            self.log.advance_high_watermark(self.committed)

    def begin_round(self) -> None:
        log, kept = self.log, self.log.recovery_start
        if self.round is not None:
            return
        if not self.carry_out(self.directory.keep_for_compaction(log, lambda *_: []), 0.995):
            self.power_cut()
            return
        due = log.compaction.log_to_clean(self.now_ms, limit_offset=kept)
        if log.compaction.is_due(due):
            slots = self.dice.choice([5, 20, 2000])
            job = log.compaction.job(due, RULES._replace(map_bytes=24 * slots), self.now_ms)
            self.round = compact(self.fs, job), log.compaction.cuts

    def go_on(self) -> None:
        if self.round is None:
            return
        (running, cuts), log = self.round, self.log
        try:
            group = next(running)
        except StopIteration as stop:
            log.compaction.done(stop.value, cuts)
            self.round = None
            return
        except StorageError as problem:  # the log changed, or a batch has more keys than the table
            if cuts == log.compaction.cuts and "fit" not in problem.why:
                raise
            self.round = None
            return
        if self.dice.random() < 0.05:
            self.fs.fail("rename", "t-0", "EIO", skip=self.dice.randrange(12), times=1000)
        try:
            put_in = log.compaction.put(group, cuts, self.now_ms)
        except StorageError:
            self.fs.forgive()
            self.power_cut()
            return
        self.fs.forgive()
        if put_in is None:
            running.close()
            self.round = None
        else:
            self.carry_out(put_in)

    def cut(self, chance: float = 1.0) -> None:
        log = self.log
        place = self.dice.randrange(min(self.committed, log.log_end_offset), log.log_end_offset + 1)
        truncation = log.truncation_to(place)
        if truncation is None:
            return
        if not self.carry_out(truncation.run(lambda *_: [], self.now_ms), chance):
            self.power_cut()
            return
        self.written = [row for row in self.written if row[0] < log.log_end_offset]
        self.epoch += 1

    def half_cut(self) -> None:
        self.cut(0.7)

    def checkpoint(self) -> None:
        self.carry_out(self.directory.checkpoint_later(self.now_ms))

    def time(self) -> None:
        self.clock.now_ms += self.dice.choice([1, 4, 10])

    def remove(self) -> None:
        self.loop.pass_time(DELAY_MS)

    def power_cut(self) -> None:
        keep = self.dice.choice(["some", "none", "all"])
        self.fs = self.fs.crash(self.rng, keep=keep)  # type: ignore[arg-type]
        self.start()

    def stop(self) -> None:
        self.directory.close()
        self.start()
        assert self.directory.was_clean


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_nothing_is_lost_and_nothing_comes_back(first: int) -> None:
    for seed in range(first, first + 10):
        world = Life(seed)
        for step in world.dice.choices([*STEPS], [*STEPS.values()], k=200):
            getattr(world, step)()
            world.look()
