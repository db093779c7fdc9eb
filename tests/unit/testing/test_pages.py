"""The examples of docs/TESTING.md and of examples/testing run as they stand there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from firnline.testing import plugin
from tests.pages import rows_of
from tests.transcripts import blocks, run_transcript

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "TESTING.md").read_text()
BLOCK = re.compile(r"^```(python|ini)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_blocks_of_the_page_run(tmp_path: Path) -> None:
    """Tests by pytest, with the settings of the page; those of unittest by unittest; programs as they are."""
    tests, others = [], []
    for number, (kind, text) in enumerate(BLOCK.findall(PAGE)):
        if kind == "ini":
            (tmp_path / "pytest.ini").write_text(text)
        elif text.startswith("def test_") or "\ndef test_" in text:
            tests.append(f"test_{number}.py")
            (tmp_path / tests[-1]).write_text(text)
        else:
            name = f"block_{number}"
            (tmp_path / f"{name}.py").write_text(text)
            others.append(["-m", "unittest", name] if "import unittest" in text else [f"{name}.py"])
    assert (len(tests), len(others)) == (2, 2)
    for arguments in (["-m", "pytest", "-q", *tests], *others):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if "pytest" in arguments:
            assert "4 passed" in done.stdout


def test_the_page_has_every_fixture_and_every_marker() -> None:
    found = {n for n in vars(plugin) if n.startswith("firnline_")}
    assert found == {row[0].strip("`") for row in rows_of(PAGE, "| fixture |")}
    markers = {each.partition(":")[0].partition("(")[0] for each in plugin._MARKERS}
    assert markers == {row[0].strip("`") for row in rows_of(PAGE, "| marker |")}


def test_the_shortest_test_has_six_lines() -> None:
    text = next(text for kind, text in BLOCK.findall(PAGE) if kind == "python")
    assert len([line for line in text.splitlines() if line]) == 6


def test_the_example_project_runs_as_its_page_says(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "testing", project)
    (transcript,) = blocks((project / "README.md").read_text())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    outer = ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_ADDOPTS")
    environment = {k: v for k, v in os.environ.items() if k not in outer}
    run_transcript(transcript, project, {**environment, "PATH": path}, within_s=120)
