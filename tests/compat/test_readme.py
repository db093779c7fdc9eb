"""The README, run as it stands there, on other ports and in another place."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from firnline.testing import Broker
from tests.peers.ports import free_ports
from tests.transcripts import blocks, run_transcript

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text()
# What the page has in place of a port that is free.
PORT, CONTROLLER_PORT = "9092", "9093"


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def environment(place: Path, port: int) -> dict[str, str]:
    """A shell in which `firnline` is ours, and the port of the defaults another one."""
    program = place / "bin" / "firnline"
    program.parent.mkdir()
    ours = f"exec {sys.executable} -m firnline"
    program.write_text(
        f'#!/bin/sh\n[ "$1" != dev ] || {{ shift; set -- dev --port {port} "$@"; }}\n{ours} "$@"\n'
    )
    program.chmod(0o755)
    path = os.pathsep.join(
        [str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    return {**os.environ, "PATH": path, "FIRNLINE_BOOTSTRAP": f"127.0.0.1:{port}"}


@pytest.mark.spark
def test_the_first_screen(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")
    first, _ = blocks(PAGE)
    (port,) = free_ports(1)
    replaced = {PORT: str(port), "/tmp/tier": str(tmp_path / "tier")}
    run_transcript(first, tmp_path, environment(tmp_path, port), replaced=replaced, within_s=120)


def test_the_test_is_that_of_the_page_about_tests() -> None:
    """There it runs: tests/unit/testing/test_pages.py."""
    (shown,) = python_blocks(PAGE)
    assert shown == python_blocks((ROOT / "docs" / "TESTING.md").read_text())[0]


def test_what_else_a_new_user_tries(
    firnline_tier: Path, firnline_broker: Broker, tmp_path: Path
) -> None:
    (section,) = re.findall(r"^## How it works\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    words = "".join(re.findall(r"^    (.*\n)", section, re.MULTILINE))
    assert words.count("firnline ") == 5
    port = int(firnline_broker.bootstrap.rpartition(":")[2])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", words],
        env=environment(tmp_path, port),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(re.findall(r"(\w+)=\d \w+", done.stdout)) == ["alice", "bob"]


def test_a_node_of_your_own(tmp_path: Path) -> None:
    _, node = blocks(PAGE)
    port, controller_port = free_ports(2)
    replaced = {PORT: str(port), CONTROLLER_PORT: str(controller_port)}
    run_transcript(node, tmp_path, environment(tmp_path, port), replaced=replaced)
