"""Completion, as the shell itself runs it."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from firnline.cli.main import cli
from firnline.cli.terminal.completion import ANSWER_S, SHELLS, VARIABLE
from firnline.protocol.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from firnline.protocol.messages.k16_list_groups import ListedGroup, ListGroupsResponse
from tests.unit.cli.fake_broker import FakeBroker
from tests.unit.cli.hanging import dripping
from tests.unit.cli.tree import ALL, ASKING

NAMES = {"topic", "topics", "group", "groups"}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    with FakeBroker({}) as fake:
        node = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=fake.port)
        topics = [MetadataResponseTopic(name=name) for name in ("orders", "orders-old", "payments")]
        groups = [ListedGroup(group_id=name) for name in ("readers", "writers")]
        fake.answers = {
            3: lambda _: MetadataResponse(brokers=[node], topics=topics),
            16: lambda _: ListGroupsResponse(groups=groups),
        }
        monkeypatch.setenv("FIRNLINE_BOOTSTRAP", fake.address)
        yield fake


def completed(*words: str) -> list[str]:
    """Return what click offers for the last word."""
    *before, last = words
    found = ShellComplete(cli, {}, "firnline", VARIABLE).get_completions(before, last)
    return [each.value for each in found]


def test_commands_options_topics_and_groups_are_completed(broker: FakeBroker) -> None:
    assert completed("top") == ["topic"]
    assert completed("topic", "describe", "--und") == ["--under-replicated"]
    assert completed("topic", "describe", "ord") == ["orders", "orders-old"]
    assert completed("topic", "describe", "orders", "ord") == ["orders-old"], "it is there already"
    assert completed("group", "describe", "") == ["readers", "writers"]
    assert completed("tier", "flush", "pay") == ["payments"]
    assert completed("doctor", "--topic", "pay") == ["payments"]


def test_the_cluster_of_the_line_is_asked(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FIRNLINE_BOOTSTRAP")
    assert completed("topic", "describe", "-b", broker.address, "pay") == ["payments"]


def test_a_cluster_that_does_not_answer_completes_nothing_in_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with dripping() as address:
        monkeypatch.setenv("FIRNLINE_BOOTSTRAP", address)
        began_s = time.monotonic()
        assert completed("topic", "describe", "") == []
        assert time.monotonic() - began_s < ANSWER_S + 10, "30 s is the default"
    monkeypatch.setenv("FIRNLINE_BOOTSTRAP", "no address")
    assert completed("topic", "describe", "") == []


def test_every_name_that_a_cluster_knows_is_completed() -> None:
    """A new command that fails here lacks shell_complete=complete_topics or complete_groups."""
    missing = [
        f"{path} {each.name}"
        for path, command in ALL.items()
        if path in ASKING and path != "topic create"
        for each in command.params
        if each.name in NAMES or (path.startswith("topic ") and each.name in ("name", "names"))
        if isinstance(each.type, click.types.StringParamType) and not each._custom_shell_complete
    ]
    assert missing == []


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_accepts_its_script(shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    command = [sys.executable, "-m", "firnline", "completion", shell]
    script.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert VARIABLE in script.read_text()
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    checked = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, timeout=30)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.slow
def test_bash_completes(broker: FakeBroker, tmp_path: Path) -> None:
    """Its own function is called, as readline does when somebody presses Tab."""
    program = tmp_path / "firnline"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m firnline "$@"\n')
    program.chmod(0o755)
    script = """
    eval "$(firnline completion bash)"
    complete -p firnline
    press_tab() {
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        _firnline_completion firnline "${COMP_WORDS[COMP_CWORD]}" ""
        echo "${COMPREPLY[@]}"
    }
    press_tab firnline qu
    press_tab firnline topic describe ord
    press_tab firnline group delete wri
    """
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": path},
    )
    first, *offered = done.stdout.splitlines()
    assert "-F _firnline_completion firnline" in first
    assert offered == ["quorum", "orders orders-old", "writers"]
    assert not done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_install_writes_it_where_the_shell_looks_also_on_a_fresh_machine(
    shell: str, tmp_path: Path
) -> None:
    """None of these folders is there in a new home."""
    command = [sys.executable, "-m", "firnline", "completion", shell]
    environment = {**os.environ, "HOME": str(tmp_path)}

    def printed(*more: str) -> str:
        return subprocess.run(
            [*command, *more], env=environment, capture_output=True, text=True, check=True
        ).stdout

    path = tmp_path / SHELLS[shell].removeprefix("~/")
    for _ in range(2):  # the second time it is there
        assert printed("--install") == f"wrote {path}: new shells complete\n"
    assert path.read_text() == printed()
