"""What the operators' table is shown with: nodes on copies of one filled directory, and how they end. WORLD.

Every row of the table in docs/OPERATIONS.md is a test in a test_operator_*.py, by the name it gives.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firnline.records.build import NewRecord, build_batch
from firnline.testing.plugin import Broker
from tests.chaos.workload import append, make_topic, read_all

HERE = Path(__file__).parent
RECORDS = 20
DAY_S = 86_400


def produce(broker: Broker, topic: str, first: int, count: int = RECORDS) -> None:
    """Write numbered records, each a batch of its own, with the time of now."""
    for number in range(first, first + count):
        record = NewRecord(None, b"%d %s" % (number, b"x" * 1000), int(time.time() * 1000))
        answer = append(broker, topic, build_batch([record]))
        assert answer.error_code == 0, answer


def numbers(broker: Broker, topic: str) -> list[int]:
    """Read a topic of one partition from its beginning."""
    return [number for _, number in read_all(broker.bootstrap, topic, 1)[0]]


@contextlib.contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    """A broker that is stopped in order, without a traceback in its log."""
    broker.start()
    try:
        yield broker
    finally:
        code = broker.stop()
    assert code == 0
    assert "Traceback" not in broker.log_text()


def with_shim(patch: pytest.MonkeyPatch, name: str, **environment: str) -> None:
    """Have the processes that are started from now on import tests/chaos/NAME/sitecustomize.py."""
    path = os.pathsep.join([str(HERE / name), os.environ.get("PYTHONPATH", "")])
    patch.setenv("PYTHONPATH", path)
    for key, value in environment.items():
        patch.setenv(key, value)


def fill(broker: Broker, *topics: str) -> None:
    """Make topics of one partition and several segments, and fill them."""
    for topic in topics:
        make_topic(broker.bootstrap, topic, 1, internal_segment_bytes="8192")
        produce(broker, topic, 0)


def copy_of(directory: Path, to: Path) -> Path:
    """What was put away: a backup, or the snapshot of a disk."""
    return Path(shutil.copytree(directory, to))


def doctor(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    """The exit code of `firnline doctor`, and what it found."""
    command = [sys.executable, "-m", "firnline", "doctor", "--format", "json", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout or "{}")
