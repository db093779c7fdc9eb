"""The command itself: exit codes, errors in one line, and no work before it is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from firnline import __version__
from firnline.cli.main import COMMANDS

pytestmark = pytest.mark.slow

HEAVY = (
    *("rich", "asyncio", "firnline.protocol", "firnline.config", "firnline.server", "numpy"),
    "confluent_kafka",
)


def firnline(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "firnline", *arguments], capture_output=True, text=True, timeout=60
    )


def test_the_version_is_reported_without_loading_the_house() -> None:
    code = (
        "import sys; sys.argv = ['firnline', '--version']\n"
        "import atexit; atexit.register(lambda: print(sorted(sys.modules), file=sys.stderr))\n"
        "from firnline.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"firnline, version {__version__}\n"
    loaded = [name for name in HEAVY if f"'{name}'" in done.stderr]
    assert not loaded


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_can_say_what_it_does(command: str) -> None:
    done = firnline(command, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: firnline " + command in done.stdout


def test_a_wrong_command_is_wrong_usage_and_lists_the_right_ones() -> None:
    done = firnline("xyz")
    assert done.returncode == 2
    assert "topic, group" in done.stderr
    assert "No such command 'topcis'. Did you mean 'topic'?" in firnline("topcis").stderr
    assert "Did you mean 'list'?" in firnline("topic", "lsit").stderr
    assert "Did you mean '--internal'?" in firnline("topic", "list", "--intrenal").stderr
    assert firnline("topic", "create").returncode == 2


def test_an_error_is_one_line_and_exit_code_1() -> None:
    done = firnline("topic", "list", "--bootstrap-server", "127.0.0.1:x")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "firnline: '127.0.0.1:x' is not an address: expected host:port\n"


def test_a_bad_setting_is_one_line_that_names_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\nlog.retention.hour=1\n")
    done = firnline("server", "--config", str(path))
    assert done.returncode == 1
    assert done.stderr == (
        "firnline: log.retention.hour is not a known setting: is it log.retention.hours?\n"
    )


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    done = firnline("server", "--config", str(tmp_path / "nope"))
    assert done.returncode == 1
    assert "cannot read" in done.stderr
    assert "Traceback" not in done.stderr


def test_dev_lists_what_it_sets_otherwise_than_kafka() -> None:
    said = firnline("dev", "--help").stdout
    assert "group.initial.rebalance.delay.ms=0 (Kafka: 3000)" in said
    assert "remote.log.storage.system.enable=true (Kafka: false)" in said
