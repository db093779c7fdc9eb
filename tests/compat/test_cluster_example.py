"""The page of examples/cluster, run as it stands there, on other ports and elsewhere, and what it prints."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.peers.ports import free_ports
from tests.transcripts import blocks, run_transcript

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster"
# For one command. All take half a minute on an idle machine.
PATIENCE_S = 120.0
PORTS = tuple(map(str, range(9291, 9300)))


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
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": source}
    found = "".join(blocks((place / "README.md").read_text()))
    run_transcript(found, tmp_path, environment, within_s=PATIENCE_S, are_numbers_compared=False)
    data = place / "data"
    logs = {path.name: path.read_text(errors="replace") for path in data.glob("*.log")}
    assert len(logs) == 6
    assert [name for name, text in logs.items() if "Traceback" in text] == []
    read = (data / "read.txt").read_text().split()
    assert sorted(set(map(int, read))) == list(range(1, 20_001))
    assert len(read) == 20_000, "each once"
