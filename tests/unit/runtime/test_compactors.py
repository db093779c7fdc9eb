"""A round of compaction in a process of its own: what it brings, and what its death costs."""

import os
import queue
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firnline.base.effects import Compact, Effects
from firnline.base.errors import StorageError
from firnline.base.ids import TopicPartition
from firnline.base.log_lines.line import Log as LoggedLine
from firnline.log.compaction.cleaner import Damaged
from firnline.log.compaction.rounds import CleanedGroup, CompactionJob, RoundDone
from firnline.log.log import Log
from firnline.log.recovery import open_log
from firnline.runtime import compactors
from firnline.runtime.compactors import Compactors
from firnline.runtime.disk import RealFs
from tests.worlds.compaction import RULES, compacted, put, rows, settled
from tests.worlds.effects import said
from tests.worlds.log import NOW, TOPIC_ID

pytestmark = pytest.mark.slow

NICE = compactors._NICE


@pytest.fixture(autouse=True)
def _as_quick_as_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every CPU is busy a niced process takes minutes to load its modules."""
    monkeypatch.setattr(compactors, "_NICE", os.getpriority(os.PRIO_PROCESS, 0))


class Ground:
    """A loop that is a queue, and what came of one round."""

    def __init__(self, silence_max_s: float = 60.0) -> None:
        self.calls: queue.SimpleQueue[tuple[Callable[..., Effects], Any]] = queue.SimpleQueue()
        self.compactors = Compactors(self.ring, silence_max_s)
        self.groups: list[CleanedGroup] = []
        self.results: list[Any] = []

    def ring(self, then: Callable[..., Effects], result: Any) -> None:
        self.calls.put((then, result))

    def run(
        self, job: CompactionJob, on_group: Callable[[CleanedGroup, int], Effects | None]
    ) -> Any:
        def then(result: Any, now_ms: int) -> Effects:
            self.results.append(result)
            return []

        self.compactors.add(Compact(job=job, on_group=on_group, then=then))
        while not self.results:
            call, result = self.calls.get(timeout=60)
            call(result, NOW)
        return self.results.pop()


@pytest.fixture
def ground() -> Iterator[Ground]:
    made = Ground()
    yield made
    made.compactors.close()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    path = str(tmp_path / "t-0")
    where = TopicPartition("t", 0)
    made = open_log(
        RealFs(), path, where, topic_id=TOPIC_ID, config=compacted(), now_ms=NOW, was_clean=True
    )
    for number in range(40):
        put(made, f"k{number % 5}", f"v{number}")
    settled(made)
    return made


def job_of(log: Log) -> CompactionJob:
    return log.compaction.job(log.compaction.log_to_clean(NOW), RULES, NOW)


def test_a_process_compacts_a_log_and_the_loop_swaps_it_in(ground: Ground, log: Log) -> None:
    cuts = log.compaction.cuts
    done = ground.run(job_of(log), lambda group, now: log.compaction.put(group, cuts, now))
    assert isinstance(done, RoundDone)
    assert log.compaction.done(done, cuts)
    assert [row[0] for row in rows(log)] == list(range(35, 40))


def test_a_group_that_is_not_wanted_ends_the_round(ground: Ground, log: Log) -> None:
    found = ground.run(job_of(log), lambda group, now: None)
    assert isinstance(found, StorageError)
    assert len(rows(log)) == 40


def test_damage_is_reported_as_damage_with_its_place(ground: Ground, log: Log) -> None:
    path = Path(log.closed_segments()[0].stem_path + ".log")
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    found = ground.run(job_of(log), lambda group, now: None)
    assert isinstance(found, Damaged)
    assert found.facts["path"] == str(path)


def child_of(ground: Ground) -> int:
    """The id of the process of the only round, when there is one."""
    for _ in range(6_000):
        for one in ground.compactors._rounds.values():
            if one._process is not None:
                return one._process.pid
        time.sleep(0.01)
    raise AssertionError("no process began")


def files(log: Log) -> dict[str, bytes]:
    """What lies in the directory of the log; a broker that is killed finds it there."""
    return {path.name: path.read_bytes() for path in Path(log.path).iterdir()}


def goes_on(ground: Ground, log: Log) -> bool:
    """The cause is gone: the next round does what the last one did not."""
    cuts = log.compaction.cuts
    done = ground.run(job_of(log), lambda group, now: log.compaction.put(group, cuts, now))
    return isinstance(done, RoundDone) and len(rows(log)) == 5


def test_the_death_of_the_process_costs_its_round_alone(ground: Ground, log: Log) -> None:
    """The operator is told the same each time, and so once: no process id, no time."""
    before, reported = files(log), []
    for _ in range(2):

        def on_group(group: CleanedGroup, now_ms: int) -> Effects | None:
            assert any(name.endswith(".cleaned") for name in files(log))
            os.kill(child_of(ground), signal.SIGKILL)
            return []

        found = ground.run(job_of(log), on_group)
        assert isinstance(found, StorageError)
        reported.append(str(found))
        assert files(log) == before
    assert reported[0] == reported[1]
    for part in ("ended early", log.path, "SIGKILL", "log.cleaner.dedupe.buffer.size", "again"):
        assert part in reported[0]
    assert goes_on(ground, log)


def test_a_process_that_hangs_is_given_up(ground: Ground, log: Log) -> None:
    """Slow, and not dead: nobody waits for it for ever, and it leaves nothing behind."""
    before, stopped = files(log), []

    def on_group(group: CleanedGroup, now_ms: int) -> Effects | None:
        stopped.append(child_of(ground))
        os.kill(stopped[0], signal.SIGSTOP)
        [one] = ground.compactors._rounds.values()
        one._silence_max_s = 0.5
        return []

    found = ground.run(job_of(log), on_group)
    assert isinstance(found, StorageError)
    for part in ("says nothing any more", log.path, "the disk", "again"):
        assert part in str(found)
    assert files(log) == before
    with pytest.raises(ProcessLookupError):
        os.kill(stopped[0], 0)
    assert goes_on(ground, log)


def with_memory_limit(monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    command = f'ulimit -v {size_bytes >> 10}; exec "$@"'
    monkeypatch.setattr(compactors, "_COMMAND", ["sh", "-c", command, "sh", *compactors._COMMAND])


def test_a_table_for_which_there_is_no_memory_is_reported_with_the_setting(
    ground: Ground, log: Log, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = files(log)
    with monkeypatch.context() as patch:
        with_memory_limit(patch, 400 << 20)
        large = job_of(log)._replace(map_bytes=1 << 30, load_factor=1e-6)
        found = ground.run(large, lambda group, now: None)
    assert isinstance(found, StorageError)
    assert "there is no memory" in str(found)
    assert "lower log.cleaner.dedupe.buffer.size" in str(found)
    assert files(log) == before
    assert capfd.readouterr() == ("", "")
    assert goes_on(ground, log)


def test_a_process_that_cannot_even_begin_is_one_line_and_no_traceback(
    ground: Ground, log: Log, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = files(log)
    with monkeypatch.context() as patch:
        with_memory_limit(patch, 20 << 20)
        found = ground.run(job_of(log), lambda group, now: None)
    assert isinstance(found, StorageError)
    assert "ended early" in str(found)
    assert "said=" in str(found)
    assert "\n" not in str(found)
    assert files(log) == before
    assert capfd.readouterr() == ("", "")
    assert goes_on(ground, log)


def test_a_command_or_a_thread_that_cannot_be_started_fails_the_round_and_not_the_loop(
    ground: Ground, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(compactors, "_COMMAND", ["/not/there"])
        assert "cannot be started" in str(ground.run(job_of(log), lambda group, now: None))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        assert "cannot be started" in str(ground.run(job_of(log), lambda group, now: None))
    assert not ground.compactors._rounds
    assert goes_on(ground, log)


def test_what_a_swap_that_failed_half_way_needs_is_left_for_the_next_start(
    ground: Ground, log: Log
) -> None:
    """To a start it says that the swap is undone."""

    def on_group(group: CleanedGroup, now_ms: int) -> Effects | None:
        [name] = [name for name in files(log) if name.endswith(".index.cleaned")]
        path = Path(log.path, name)
        path.rename(path.with_suffix(".swap"))
        return None

    ground.run(job_of(log), on_group)
    left = {name.rpartition(".")[2] for name in files(log)}
    assert {"cleaned", "swap"} <= left


def test_the_process_is_niced_before_it_begins_and_beside_the_broker(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loaded its modules at the broker's priority; and in a session of its own `nice` did nothing."""
    monkeypatch.setattr(compactors, "_NICE", NICE)
    monkeypatch.setattr(compactors, "_COMMAND", ["sleep", "60"])
    ground = Ground()
    ground.compactors.add(
        Compact(job=job_of(log), on_group=lambda group, now: None, then=lambda result, now: [])
    )
    pid = child_of(ground)
    deadline = time.monotonic() + 20
    while os.getpriority(os.PRIO_PROCESS, pid) != 19:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert os.getsid(pid) == os.getsid(0)
    assert os.getpgid(pid) != os.getpgid(0), "Ctrl-C at a terminal is for the broker"
    ground.compactors.close()


def test_the_process_ends_with_the_broker(log: Log) -> None:
    ground = Ground()
    seen: list[int] = []

    def on_group(group: CleanedGroup, now_ms: int) -> Effects | None:
        seen.append(child_of(ground))
        process = next(iter(ground.compactors._rounds.values()))._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()  # as the death of the broker does
        process.wait(timeout=20)
        return []

    found = ground.run(job_of(log), on_group)
    assert len(seen) == 1
    assert isinstance(found, StorageError)


def test_a_process_that_never_reads_its_job_is_given_up(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that does not fit into the pipe held its place among the rounds until the node stopped."""
    monkeypatch.setattr(compactors, "_COMMAND", ["sleep", "60"])
    ground = Ground(silence_max_s=0.3)
    job = job_of(log)._replace(last_batches=tuple((n, n, 0) for n in range(20_000)))
    began_s = time.monotonic()
    found = ground.run(job, lambda group, now: None)
    assert isinstance(found, StorageError)
    assert "says nothing any more" in str(found)
    assert time.monotonic() - began_s < 30
    assert not ground.compactors._rounds


def test_a_large_job_arrives_in_full(ground: Ground, log: Log) -> None:
    cuts = log.compaction.cuts
    job = job_of(log)._replace(last_batches=tuple((n, n, 0) for n in range(20_000)))
    done = ground.run(job, lambda group, now: log.compaction.put(group, cuts, now))
    assert isinstance(done, RoundDone)


def test_a_node_of_many_open_files_compacts(ground: Ground, log: Log) -> None:
    """Above the first 1024 of them, `select` refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this machine allows no more open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        cuts = log.compaction.cuts
        done = ground.run(job_of(log), lambda group, now: log.compaction.put(group, cuts, now))
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(done, RoundDone)


def test_a_node_stops_beside_a_process_that_cannot_be_ended(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a disk that hangs, and no signal ends it before."""
    monkeypatch.setattr(compactors, "_END_MAX_S", 0.2)
    monkeypatch.setattr(compactors, "_COMMAND", ["sleep", "60"])
    hung = threading.Event()
    reap = compactors._Round._reap

    def reap_late(self: Any, process: Any) -> None:
        hung.wait(30)
        reap(self, process)

    monkeypatch.setattr(compactors._Round, "_reap", reap_late)
    ground = Ground()
    ground.compactors.add(
        Compact(job=job_of(log), on_group=lambda group, now: None, then=lambda result, now: [])
    )
    child_of(ground)
    [one] = ground.compactors._rounds.values()
    began_s = time.monotonic()
    ground.compactors.close()
    took_s = time.monotonic() - began_s
    hung.set()
    assert one.thread is not None
    one.thread.join()
    assert took_s < 10


def test_a_process_that_no_signal_ends_is_reported_before_it_ends(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a disk that hangs, and so do all rounds; nobody would have known why."""
    monkeypatch.setattr(compactors, "_KILL_MAX_S", 0.1)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: None)
    monkeypatch.setattr(compactors, "_COMMAND", ["sleep", "60"])
    ground = Ground(silence_max_s=0.2)
    ground.compactors.add(
        Compact(job=job_of(log), on_group=lambda group, now: None, then=lambda result, now: [])
    )
    pid = child_of(ground)
    call, result = ground.calls.get(timeout=20)
    [warn] = call(result, NOW)
    assert isinstance(warn, LoggedLine)
    assert said(warn).startswith("a process that compacts cannot be ended")
    assert f"process={pid} log={log.path}" in said(warn)
    assert ground.compactors.stuck == 1, "its place is kept until it is gone"
    os.kill(pid, signal.SIGKILL)
    call, result = ground.calls.get(timeout=20)
    call(result, NOW)
    assert not ground.compactors._rounds
