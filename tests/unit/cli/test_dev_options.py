"""Options that `firnline dev` shares with `firnline server`: how its log looks."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from firnline.cli.main import cli
from tests.unit.cli.tree import ALL, options_of


def test_dev_has_every_option_of_server_but_the_file() -> None:
    missing = options_of(ALL["server"]).keys() - options_of(ALL["dev"]).keys()
    assert missing == {"-c", "--config"}, "dev needs no configuration"


@pytest.mark.slow
def test_the_log_of_dev_is_json_from_its_first_line(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "firnline", "dev", "--port", "0", "--dir", str(tmp_path / "data"),
         "--log-level", "info", "--log-format", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert "ready at" in process.stdout.readline()
    process.terminate()
    _, log = process.communicate(timeout=60)
    lines = [json.loads(line) for line in log.splitlines()]
    assert len(lines) > 2
    assert all("level" in line and "message" in line for line in lines)


@pytest.mark.parametrize(("words", "form"), [(("--log-format", "json"), "json"), ((), None)])
def test_the_nodes_of_a_cluster_log_alike(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], form: str | None
) -> None:
    got: list[Mapping[str, str]] = []

    def run_cluster(*_: Any, stated: Mapping[str, str], **__: Any) -> int:
        got.append(stated)
        return 0

    monkeypatch.setattr("firnline.cli.dev.run_cluster", run_cluster)
    done = CliRunner().invoke(cli, ["dev", "--nodes", "3", "--dir", str(tmp_path), *words])
    assert done.exit_code == 0, done.output
    assert got[0].get("firnline.log.format") == form
