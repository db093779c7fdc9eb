"""Open files: how many we may have, and how many a partition needs."""

import contextlib
import os
import random
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from firnline.base.errors import ConfigError
from firnline.base.ids import TopicPartition
from firnline.config.broker import BrokerConfig
from firnline.config.topic import TopicConfig
from firnline.log.checkpoint import format_directory
from firnline.log.directory import LogDirectory
from firnline.runtime.disk import RealFs
from firnline.server.main import check_open_files, raise_open_files_limit
from tests.worlds.log import NOW, append, batch


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_of_open_files_is_raised_as_far_as_we_may(limits: tuple[int, int]) -> None:
    """Many distributions give a process 1024 and would give it more if it asked."""
    hard = limits[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
    raise_open_files_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


def test_a_limit_that_must_not_be_raised_stops_nobody(
    limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(what: int, pair: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    with monkeypatch.context() as patched:
        patched.setattr(resource, "setrlimit", refuse)
        raise_open_files_limit()


class Given:
    """Descriptors of a process that uses 40 and keeps 25 back."""

    reserved = 25

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def used(self) -> int:
        return 40


@pytest.mark.parametrize(
    ("limit", "logs", "needed"),
    [(90, 91, 110), (128, 90, 129), (200, 201, 201), (129, 129, 0), (129, 90, 0), (66, 1, 0)],
)
def test_a_start_is_refused_where_the_node_would_have_no_descriptor_left(
    tmp_path: Path, limit: int, logs: int, needed: int
) -> None:
    """Logs share half of all. What the process has open itself and keeps back comes on top."""
    for number in range(logs):
        (tmp_path / f"t-{number}").mkdir()
    config = BrokerConfig(log_dirs=(str(tmp_path),))
    if not needed:
        check_open_files(config, Given(limit))  # type: ignore[arg-type]
        return
    reported = f"is {limit}, and this node has {logs} logs: it needs {needed} at least"
    with pytest.raises(ConfigError, match=reported):
        check_open_files(config, Given(limit))  # type: ignore[arg-type]


def files_below(path: str) -> int:
    """Count this process's open files below `path`; others come and go with the collector."""
    targets = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            targets.append(os.readlink(f"/proc/self/fd/{number}"))
    return sum(target.startswith(path) for target in targets)


def test_a_partition_holds_one_file_open(tmp_path: Path) -> None:
    """Written, flushed and idle; ten thousand of them are what a machine has to give."""
    unique = random.Random(1).randbytes
    path = str(tmp_path)
    format_directory(RealFs(), path, cluster_id="c", node_id=1, directory_id=unique(16))
    directory = LogDirectory(RealFs(), path, cluster_id="c", node_id=1, unique=lambda: unique(16))
    directory.start()
    before = files_below(path)
    for index in range(20):
        log = directory.open(TopicPartition("t", index), bytes(16), TopicConfig(), NOW)
        for file in directory.unsynced(log):
            file.sync()
        append(log, batch("x"))
        log.sync_now()
        log.read(0, max_bytes=100, upto_offset=1).read()
    del file, log
    assert files_below(path) - before == 20
    directory.close()
    assert files_below(path) == 0
