"""Open files: how many we may have, and how many a partition needs."""

import contextlib
import os
import random
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from firnline.base.ids import TopicPartition
from firnline.config.topic import TopicConfig
from firnline.log.checkpoint import format_directory
from firnline.log.directory import LogDirectory
from firnline.runtime.disk import RealFs
from firnline.server.main import raise_open_files_limit
from tests.log_world import NOW, append, batch


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
