"""`firnline doctor` on the Python that Spark would start."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from firnline.cli.main import cli

pytestmark = pytest.mark.slow


def findings(*words: str) -> tuple[int, list[dict[str, str]]]:
    done = CliRunner().invoke(cli, ["doctor", *words, "--format", "json"])
    return done.exit_code, json.loads(done.stdout)["findings"]


def fake_python(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("variable", ["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"])
def test_a_python_without_firnline_is_named_with_the_command_that_mends_it(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fears "Failed to find the data source: firnline", which does not say where Spark has looked."""
    python = fake_python(tmp_path / "python", "echo pyarrow firnline")
    monkeypatch.setenv(variable, python)
    code, (found,) = findings("--spark")
    assert (code, found["kind"], found["where"]) == (3, "spark-python", variable)
    assert f"{python} cannot import pyarrow, firnline" in found["what"]
    assert found["remedy"].startswith(f"{python} -m pip install 'firnline[spark]'")
    # It is looked at whatever else is asked for.
    code, (found,) = (
        findings("--data-dir", str(tmp_path))[0],
        findings("--data-dir", str(tmp_path))[1][:1],
    )
    assert (code, found["kind"]) == (3, "spark-python")


def test_a_pyspark_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 4.0 Spark says the same as without Firnline."""
    old = tmp_path / "lib" / "pyspark"
    (old / "sql" / "worker").mkdir(parents=True)
    for folder in (old, old / "sql", old / "sql" / "worker"):
        (folder / "__init__.py").touch()
    python = fake_python(tmp_path / "python", f'PYTHONPATH={old.parent} exec {sys.executable} "$@"')
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    code, (found,) = findings("--spark")
    assert code == 3
    assert f"{python} cannot import pyspark>=4.1" in found["what"]


def test_a_python_that_does_not_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "none"))
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", fake_python(tmp_path / "broken", "exit 3"))
    code, found = findings("--spark")
    assert code == 3
    assert ["does not run" in each["what"] for each in found] == [True, True]
    assert [each["remedy"] for each in found] == [
        "unset PYSPARK_PYTHON",
        "unset PYSPARK_DRIVER_PYTHON",
    ]


def test_our_own_python_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real probe, in a real interpreter; and nothing is said where nothing is named."""
    pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")
    source_tree = str(Path(__file__).parents[3] / "src")
    monkeypatch.setenv("PYTHONPATH", source_tree)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert findings("--spark") == (0, [])
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert findings("--spark") == (0, [])
