"""The words of examples/cluster/README.md, run as they stand there, on other ports and in another place."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers.ports import free_ports

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster"
# Half a minute on an idle machine.
PATIENCE_S = 600.0
PORTS = tuple(map(str, range(9291, 9300)))


def words_of(page: Path) -> str:
    """The commands of a page: its indented lines."""
    lines = page.read_text().splitlines()
    return "\n".join(line[4:] for line in lines if line.startswith("    "))


@pytest.mark.timeout(700)
def test_the_readme_loses_a_leader_and_no_message(tmp_path: Path) -> None:
    place = tmp_path / "examples" / "cluster"
    shutil.copytree(EXAMPLE, place, ignore=shutil.ignore_patterns("data"))
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS)))))
    for path in place.iterdir():
        text = path.read_text()
        path.write_text(re.sub("|".join(PORTS), lambda match: ports[match[0]], text))
    firnline = tmp_path / "firnline"
    firnline.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m firnline "$@"\n')
    firnline.chmod(0o755)
    source = str(Path(__file__).parents[2] / "src")
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", words_of(place / "README.md")],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": source},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        raise AssertionError(f"it does not end:\n{said[-4000:]}") from None
    data = place / "data"
    logs = {path.name: path.read_text(errors="replace") for path in data.glob("*.log")}
    assert process.returncode in (0, 143), said[-4000:]
    assert "all is well" in said
    assert "exit code 3: something is wrong" in said
    assert "is fenced" in said
    assert "under-replicated" in said
    assert len(logs) == 6
    assert [name for name, text in logs.items() if "Traceback" in text] == []
    read = (data / "read.txt").read_text().split()
    assert sorted(set(map(int, read))) == list(range(1, 20_001))
    assert len(read) == 20_000, "each once"
