"""Whatever opening a log has to do, it is done in slices: a node that restarts is heard from meanwhile."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from firnline.base.ports import File
from firnline.formats import names
from firnline.log import producer_state, recovery, segment
from firnline.log.compaction import swap
from firnline.log.log import Log
from firnline.log.recovery import opening_steps
from firnline.records import batch as batch_format
from firnline.records import file_scan
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.log import NOW, PATH, append, batch, fill, found_headers, opened, small

# What a slice may do: some milliseconds.
CALLS_MAX = 120
HEADERS_MAX = 250
PRODUCERS_MAX = 600
MANY_SEGMENTS = 150
_ROOM = small(segment_bytes=1 << 20, segment_index_bytes=1 << 16)


class Meter:
    """A file system that counts what is asked of it, and the headers and producers that are read."""

    def __init__(self, fs: CrashableFs, monkeypatch: pytest.MonkeyPatch) -> None:
        self._fs = fs
        self.calls = self.headers = self.producers = self.syncs = 0
        check = CrashableFs.check
        parse_header, producer = batch_format.parse_header, producer_state.Producer

        def parsed(*args: Any) -> Any:
            self.headers += 1
            return parse_header(*args)

        def made(*args: Any) -> Any:
            self.producers += 1
            return producer(*args)

        def checked(fs: CrashableFs, operation: Any, path: str) -> None:
            self.syncs += operation in ("sync", "sync_dir")
            check(fs, operation, path)

        monkeypatch.setattr(CrashableFs, "check", checked)
        monkeypatch.setattr(segment, "parse_header", parsed)
        monkeypatch.setattr(file_scan, "parse_header", parsed)
        monkeypatch.setattr(producer_state, "Producer", made)

    def __getattr__(self, name: str) -> Any:
        self.calls += name != "keep"  # nothing is asked of the disk
        return getattr(self._fs, name)

    def take(self) -> tuple[int, int, int]:
        done = self.calls, self.headers, self.producers
        self.calls = self.headers = self.producers = 0
        return done


class Story(NamedTuple):
    """What a start finds: `made` fills a log, `damage` is done to its closed files."""

    made: Callable[[Log], None]
    damage: Callable[[CrashableFs, Log], None]
    options: Callable[[Log], dict[str, Any]]


def many_segments(log: Log) -> None:
    for number in range(MANY_SEGMENTS):
        append(log, batch(f"{number}", pid=number % 7, seq=number // 7))
        log.roll(NOW)


def many_batches(log: Log) -> None:
    fill(log, 1_500)


def many_producers(log: Log) -> None:
    for number in range(2_000):
        append(log, batch("v", pid=number, seq=0))


def nothing(fs: CrashableFs, log: Log) -> None:
    """The files are as they were closed."""


def files(fs: CrashableFs, *suffixes: str) -> Iterator[str]:
    return (f"{PATH}/{name}" for name in fs.list_dir(PATH) if name.endswith(suffixes))


def no_snapshots(fs: CrashableFs, log: Log) -> None:
    for path in files(fs, ".snapshot"):
        fs.remove(path)


def no_indexes(fs: CrashableFs, log: Log) -> None:
    for path in files(fs, ".index", ".timeindex"):
        fs.remove(path)


def rolled_batches(log: Log) -> None:
    many_batches(log)
    log.roll(NOW)


def no_indexes_and_no_snapshots(fs: CrashableFs, log: Log) -> None:
    no_indexes(fs, log)
    no_snapshots(fs, log)


def no_logs(fs: CrashableFs, log: Log) -> None:
    """Indexes that no log belongs to; the last one stays."""
    for path in list(files(fs, ".log"))[:-1]:
        fs.remove(path)


def no_lineage(fs: CrashableFs, log: Log) -> None:
    fs.remove(f"{PATH}/leader-epoch-checkpoint")


def a_hole(fs: CrashableFs, log: Log) -> None:
    """The first segment lost its end; all that follow lie beyond it."""
    first: File = fs.open(next(files(fs, ".log")))
    first.truncate(first.size() - 1)


def an_unfinished_swap(fs: CrashableFs, log: Log) -> None:
    """The power went when a compacted segment of all batches had been decided."""
    for suffix in (".log", ".index", ".timeindex"):
        path = next(files(fs, suffix))
        fs.rename(path, path + ".swap")


def condemned(fs: CrashableFs, log: Log) -> None:
    for number in range(300):
        fs.open(f"{PATH}/{number:020d}.log.deleted", create=True).close()


def clean(log: Log) -> dict[str, Any]:
    return {"was_clean": True, "recovery_point": log.log_end_offset}


def killed(log: Log) -> dict[str, Any]:
    return {}


def killed_late(log: Log) -> dict[str, Any]:
    return {"recovery_point": log.log_end_offset}


def below_the_start(log: Log) -> dict[str, Any]:
    return {"log_start_offset": log.log_end_offset + 5, "recovery_point": log.log_end_offset}


STORIES = {
    "many segments": Story(many_segments, nothing, clean),
    "many segments after a crash": Story(many_segments, nothing, killed),
    "many segments after a crash at their end": Story(many_segments, nothing, killed_late),
    "many segments without their lineage": Story(many_segments, no_lineage, clean),
    "many segments without producer snapshots": Story(many_segments, no_snapshots, clean),
    "all below the log start": Story(many_segments, nothing, below_the_start),
    "many segments beyond a hole": Story(many_segments, a_hole, killed),
    "indexes without a log": Story(many_segments, no_logs, clean),
    "many producers": Story(many_producers, nothing, clean),
    "many producers after a crash": Story(many_producers, nothing, killed_late),
    "batches without a producer snapshot": Story(many_batches, no_snapshots, clean),
    "a segment without indexes": Story(many_batches, no_indexes, clean),
    "a closed segment without indexes, and producers that are in it": Story(
        rolled_batches, no_indexes_and_no_snapshots, clean
    ),
    "a compaction that was decided": Story(many_batches, an_unfinished_swap, clean),
    "files that were condemned": Story(many_batches, condemned, clean),
}


def test_no_slice_reads_more_than_some_names_of_a_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And none sorts all of them, as `list_dir` does: 30 ms where there are forty thousand."""
    monkeypatch.setattr(recovery, "_NAMES_PER_SLICE", 50)
    monkeypatch.setattr(swap, "_NAMES_PER_SLICE", 50)
    fs = CrashableFs()
    log = opened(fs, _ROOM)
    many_segments(log)
    log.close()
    an_unfinished_swap(fs, log)
    wanted = found_headers(opened(fs.crash(SeededRng(), keep="all"), _ROOM, **clean(log)))
    read: list[str] = []
    parsed: list[str] = []
    real, parse = CrashableFs.names, names.parse_segment_file

    def noted(fs: CrashableFs, path: str) -> Iterator[str]:
        for name in real(fs, path):
            read.append(name)
            yield name

    def refused(fs: CrashableFs, path: str) -> list[str]:
        raise AssertionError(f"all of {path} is listed")

    monkeypatch.setattr(CrashableFs, "names", noted)
    monkeypatch.setattr(CrashableFs, "list_dir", refused)
    monkeypatch.setattr(
        names, "parse_segment_file", lambda name: parsed.append(name) or parse(name)
    )  # type: ignore[func-returns-value]
    steps = opening_steps(
        fs.crash(SeededRng(), keep="all"),
        PATH,
        log.topic_partition,
        topic_id=log.topic_id,
        config=_ROOM,
        now_ms=NOW,
        **clean(log),
    )
    most = [0, 0]
    while True:
        try:
            next(steps)
        except StopIteration as end:
            again = end.value
            break
        most = [max(most[0], len(read)), max(most[1], len(parsed))]
        read.clear()
        parsed.clear()
    assert most[0] <= 50
    assert most[1] <= 100
    assert found_headers(again) == wanted


@pytest.mark.parametrize("name", STORIES)
def test_what_a_start_finds_is_dealt_with_in_slices(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = STORIES[name]
    fs = CrashableFs()
    log = opened(fs, _ROOM)
    story.made(log)
    log.close()
    story.damage(fs, log)
    options = story.options(log)
    wanted = opened(fs.crash(SeededRng(), keep="all"), _ROOM, **options)

    meter = Meter(fs.crash(SeededRng(), keep="all"), monkeypatch)
    where = log.topic_partition
    steps = opening_steps(
        meter, PATH, where, topic_id=log.topic_id, config=_ROOM, now_ms=NOW, **options
    )
    longest = [0, 0, 0]
    for _ in range(10_000):
        try:
            wait = next(steps)
        except StopIteration as end:
            again = end.value
            break
        finally:
            longest = [max(pair) for pair in zip(longest, meter.take())]
            assert meter.syncs == 0, "it waits for a disk"
        if wait is not None:
            wait.at_once()
            meter.take()
            meter.syncs = 0
    assert longest[0] <= CALLS_MAX
    assert longest[1] <= HEADERS_MAX
    assert longest[2] <= PRODUCERS_MAX
    assert found_headers(again) == found_headers(wanted)
    assert again.epochs.entries() == wanted.epochs.entries()
    assert again.producers.entries() == wanted.producers.entries()
    assert (again.log_start_offset, again.log_end_offset) == (
        wanted.log_start_offset,
        wanted.log_end_offset,
    )
