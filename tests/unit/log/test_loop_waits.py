"""What the loop asks of the file system, by what it does: nothing there may wait for the disk.

Each call that is made in the loop's own steps is noted, and so is whether it is of the kind that gives blocks
back, waits for the disk by its nature, or grows with a directory. None of those is allowed. What is:

open, create        a new segment, and the files of indexes, which are written to the page cache; the files of
                    a new log are made off the loop
append, read        the page cache; who reads for a client waits for no cold page: `test_cold_reads`
exists, modified    names and times
remove nothing      `Segment.create` makes sure that no index of that name is left: there is none
rename              takes a handle of the journal, as an append does; how many in a step is bounded
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.effects import Effects, Flush
from firnline.base.ids import TopicPartition
from firnline.config.topic import TopicConfig
from firnline.log import retention
from firnline.log.checkpoint import format_directory
from firnline.log.compaction.rounds import compact
from firnline.log.directory import LogDirectory
from firnline.log.log import Log
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.compaction import RULES
from tests.worlds.effects import World
from tests.worlds.log import NOW, TOPIC_ID, TP, batch

MAY_WAIT = {"remove", "remove_dir", "sync", "sync_dir", "truncate", "list_dir", "names"}
OTHER = TopicPartition("other", 0)


class NotedFile:
    """A file whose calls are noted."""

    def __init__(self, fs: "NotingFs", file: Any) -> None:
        self._fs, self._file = fs, file

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._file, name)
        if name not in ("append", "read", "read_into", "truncate", "sync"):
            return found
        return self._fs.noting(name, found, self._file.path)


class NotingFs:
    """`CrashableFs` that counts what is asked of it while the loop has its turn."""

    def __init__(self) -> None:
        self.fs = CrashableFs()
        self.is_loop = False
        self.calls: Counter[str] = Counter()
        self.where: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return self.noting(name, getattr(self.fs, name), "")

    def noting(self, name: str, call: Callable[..., Any], path: str) -> Callable[..., Any]:
        def noted(*args: Any, **options: Any) -> Any:
            place = path or str(args[0])
            is_nothing = name == "remove" and not self.fs.exists(place)
            if self.is_loop and not is_nothing:
                self.calls[name] += 1
                if name in MAY_WAIT:
                    self.where.append(f"{name} {place}")
            return call(*args, **options)

        return noted

    def open(self, path: str, *, create: bool = False) -> Any:
        self.calls["open"] += self.is_loop
        self.calls["made"] += self.is_loop and create and not self.fs.exists(path)
        return NotedFile(self, self.fs.open(path, create=create))

    def keep(self, file: Any, let_go: Callable[[], None]) -> None:
        self.fs.keep(file, let_go)

    def open_to_read(self, path: str) -> Any:
        self.calls["open"] += self.is_loop
        return NotedFile(self, self.fs.open_to_read(path))


class Loop(World):
    """Carries effects out: steps of the loop are noted, what its threads do is not."""

    def __init__(self) -> None:
        super().__init__(NOW)
        self.fs = NotingFs()
        self.steps: list[Counter[str]] = []
        format_directory(self.fs, "/data", cluster_id="c", node_id=1, directory_id=bytes(16))  # type: ignore[arg-type]
        self.directory = LogDirectory(
            self.fs,  # type: ignore[arg-type]
            "/data",
            cluster_id="c",
            node_id=1,
            unique=SeededRng(1).uuid,
        )
        self.directory.start()
        self.log = self.opened(TP)

    def opened(self, name: TopicPartition, **settings: Any) -> Log:
        config = TopicConfig(segment_bytes=1_000, index_interval_bytes=100, **settings)
        return self.directory.open(name, TOPIC_ID, config, NOW)

    def fill(self, log: Log, count: int) -> None:
        for _ in range(count):
            log.append_as_leader(batch("x" * 100), leader_epoch=0, now_ms=NOW)
        log.advance_high_watermark(log.log_end_offset)

    def do(self, begin: Callable[[], Effects | None]) -> None:
        """One step of the loop, and all that follows from it, however long that takes."""
        self.run(self.call(lambda now_ms: begin() or []))
        while (timer := self.next_timer()) is not None:
            self.fire(timer.key)

    def call(self, then: Callable[..., Any], *results: Any) -> Any:
        self.fs.is_loop = True
        before = Counter(self.fs.calls)
        effects = super().call(then, *results)
        self.steps.append(self.fs.calls - before)
        self.fs.is_loop = False
        return effects


def make(loop: Loop) -> None:
    steps = loop.directory.open_steps(OTHER, TOPIC_ID, TopicConfig(), NOW)

    def go_on() -> Effects:
        wait = next(steps, None)
        return wait.begin(lambda problem, now_ms: go_on(), NOW) if wait else []

    loop.do(go_on)
    log = loop.directory.logs[OTHER]
    assert {"made", "make_dir"}.isdisjoint(name for step in loop.steps for name in step)
    named = {file.path for file in loop.directory.unsynced(log)}
    loop.fs.where.remove(f"names {log.path}")  # of a directory that was made a moment ago
    assert named == {"/data", log.path, f"{log.path}/partition.metadata"}, "it is on no disk yet"


def roll(loop: Loop) -> None:
    loop.do(lambda: loop.fill(loop.log, 30))
    assert len(loop.log.closed_segments()) > 2


def retain(loop: Loop) -> None:
    loop.fill(loop.log, 2_000)
    before = len(loop.log.closed_segments())
    assert before > 3 * retention.SEGMENTS_AT_ONCE
    loop.log.advance_log_start(loop.log.log_end_offset)
    loop.do(lambda: loop.log.delete_due_segments(NOW))
    assert not loop.log.closed_segments()
    names = [step["rename"] for step in loop.steps]
    assert max(names) <= retention.NAMES_AT_ONCE + 5 * retention.SEGMENTS_AT_ONCE
    assert sum(names) >= 3 * before


def delete_topic(loop: Loop) -> None:
    loop.fill(loop.log, 30)
    loop.log.read(0, max_bytes=1 << 20, upto_offset=30)
    loop.do(lambda: loop.directory.drop(loop.log, NOW))
    assert not [name for name in loop.fs.fs.list_dir("/data") if name.startswith(TP.topic)]


def checkpoint(loop: Loop) -> None:
    loop.fill(loop.log, 30)
    loop.do(lambda: loop.directory.checkpoint_later(NOW))
    assert loop.steps[-1]["rename"] >= 1


def truncate(loop: Loop) -> None:
    loop.fill(loop.log, 100)
    truncation = loop.log.truncation_to(20)
    assert truncation is not None
    over: list[Any] = []
    loop.do(lambda: truncation.run(lambda problem, now_ms: over.append(problem) or [], NOW))  # type: ignore[func-returns-value]
    assert over == [None]
    assert loop.log.log_end_offset == 20


def swap(loop: Loop) -> None:
    log = loop.opened(OTHER, cleanup_policy=("compact",))
    for number in range(60):
        data = batch(f"{number}" * 20, key=b"k")
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW)
    log.advance_high_watermark(log.log_end_offset)
    log.sync_now()
    job = log.compaction.job(log.compaction.log_to_clean(NOW), RULES, NOW)
    cuts = log.compaction.cuts
    running = compact(loop.fs, job)  # type: ignore[arg-type]
    group = next(running)
    loop.do(lambda: log.compaction.put(group, cuts, NOW))  # type: ignore[arg-type]
    assert sum(step["rename"] for step in loop.steps) > 3


def sync(loop: Loop) -> None:
    loop.fill(loop.log, 30)

    def listed() -> Effects:
        files = loop.log.dirty_files()
        return [Flush(files=files, then=lambda problem, now_ms: loop.log.flushed(30) or [])]  # type: ignore[func-returns-value]

    loop.do(listed)
    assert loop.log.recovery_point == 30


@pytest.mark.parametrize(
    "deed",
    [make, roll, retain, delete_topic, checkpoint, truncate, swap, sync],
    ids=lambda d: d.__name__,
)
def test_nothing_that_may_wait_for_the_disk_is_done_on_the_loop(
    deed: Callable[[Loop], None],
) -> None:
    loop = Loop()
    deed(loop)
    assert loop.steps
    assert loop.fs.where == []
