"""The files of a new log are made by a thread: it may end before the thread does, or without an answer."""

import pytest

from firnline.base.errors import StorageError
from firnline.config.topic import TopicConfig
from firnline.log.checkpoint import format_directory
from firnline.log.directory import LogDirectory
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.log import NOW, TOPIC_ID, TP, batch


def started(fs: CrashableFs) -> LogDirectory:
    found = LogDirectory(fs, "/data", cluster_id="c", node_id=1, unique=SeededRng(2).uuid)
    found.start()
    return found


@pytest.fixture
def fs() -> CrashableFs:
    made = CrashableFs()
    format_directory(made, "/data", cluster_id="c", node_id=1, directory_id=SeededRng(1).uuid())
    started(made).close()
    return made


def is_kept(fs: CrashableFs, found: LogDirectory) -> bool:
    """Whether a record that is synced once the log is served survives a power cut."""
    log = found.open(TP, TOPIC_ID, TopicConfig(), NOW)
    files = found.unsynced(log)
    assert {"/data", log.path, f"{log.path}/partition.metadata"} == {file.path for file in files}
    for file in files:
        file.sync()
    log.flushed(log.log_end_offset)
    log.append_as_leader(batch("a"), leader_epoch=0, now_ms=NOW)
    log.sync_now()
    again = started(fs.crash(SeededRng(), keep="none"))
    return again.open(TP, TOPIC_ID, TopicConfig(), NOW).log_end_offset == 1


@pytest.mark.parametrize("is_late", [False, True])
def test_a_log_that_a_thread_made_while_the_node_stopped_survives_a_power_cut_later(
    fs: CrashableFs, is_late: bool
) -> None:
    """Nobody was there any more to sync it, and the stop was a clean one."""
    found = started(fs)
    steps = found.open_steps(TP, TOPIC_ID, TopicConfig(), NOW)
    wait = next(steps)
    assert wait is not None
    steps.close()  # type: ignore[attr-defined]
    if not is_late:
        wait.at_once()
    found.close()
    if is_late:
        wait.at_once()
    found = started(fs)
    assert found.was_clean
    assert is_kept(fs, found)


def test_a_log_that_the_loop_could_not_open_when_a_thread_had_made_it_survives_a_power_cut_later(
    fs: CrashableFs,
) -> None:
    found = started(fs)
    assert found.was_clean
    steps = found.open_steps(TP, TOPIC_ID, TopicConfig(), NOW)
    wait = next(steps)
    assert wait is not None
    wait.at_once()
    fs.fail("open", f"/data/{TP}/partition.metadata", "EMFILE")
    with pytest.raises(StorageError):
        next(steps)
    assert is_kept(fs, found)


def test_a_clean_start_syncs_no_log_that_was_served(fs: CrashableFs) -> None:
    """Ten thousand empty ones are as they were."""
    found = started(fs)
    found.open(TP, TOPIC_ID, TopicConfig(), NOW)
    found.close()
    found = started(fs)
    assert found.unsynced(found.open(TP, TOPIC_ID, TopicConfig(), NOW)) == []
    found.close()
    found = started(fs)  # and was not opened the last time
    found.close()
    found = started(fs)
    assert found.unsynced(found.open(TP, TOPIC_ID, TopicConfig(), NOW)) == []


def test_a_log_that_a_checkpoint_speaks_of_before_it_is_synced_is_synced_after_a_kill(
    fs: CrashableFs,
) -> None:
    """It is in checkpoints as soon as it is open. Only a clean stop syncs what it writes down."""
    found = started(fs)
    found.open(TP, TOPIC_ID, TopicConfig(), NOW)
    found.checkpoint()
    fs = fs.kill()
    assert is_kept(fs, started(fs))
