"""How a command ends: by Ctrl-C at any moment, without a reader, without room, by an error of any kind."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.cli.client.stopping import DeadlineMissed
from firnline.cli.terminal.exits import (
    DEBUG,
    EXIT_CODES,
    FAILED,
    INTERRUPTED,
    NOBODY_READS,
    show_failure,
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
MOMENTS_MS = (0, 1, 5, 20, 50, 100, 200)


def start(
    *arguments: str, code: str = "", hup: Any = signal.SIG_DFL, **environment: str
) -> subprocess.Popen[str]:
    """Start a command, or another program that uses ours."""

    def set_signals() -> None:
        # A shell starts what is to run in the background with Ctrl-C ignored, and so all that it starts.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, hup)

    program = ["-c", code] if code else ["-m", "firnline"]
    return subprocess.Popen(
        [sys.executable, *program, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        preexec_fn=set_signals,
    )


def interrupt(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Press Ctrl-C; return the exit code and what stderr says, but the empty line after `^C`."""
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    return process.returncode, said.strip()


@pytest.mark.parametrize("after_ms", MOMENTS_MS)
@pytest.mark.parametrize("command", ["topic", "dev"])
def test_ctrl_c_at_any_moment_shows_no_traceback_of_ours(
    command: str, after_ms: int, tmp_path: Path
) -> None:
    """Before the first line of ours Python itself may show one, or die of the signal."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {
            "topic": ("list", "-b", f"127.0.0.1:{silent.getsockname()[1]}"),
            "dev": ("--port", "0"),
        }
        process = start(command, *options[command], TMPDIR=str(tmp_path))
        time.sleep(after_ms / 1000)
        code, said = interrupt(process)
    assert "firnline/cli" not in said
    assert "click" not in said
    assert "Traceback" in said or (code, said) in ((INTERRUPTED, ""), (-signal.SIGINT, ""))
    assert not list(tmp_path.glob("firnline-dev-*")), "its directory is removed"


def test_ctrl_c_while_modules_are_imported_is_silent(tmp_path: Path) -> None:
    """Goal: also then no traceback. Method: a module takes for ever, and takes no interrupt either."""
    (tmp_path / "click.py").write_text(
        "import time\ntry:\n    print('imports', flush=True)\n    time.sleep(60)\n"
        "except BaseException:\n    time.sleep(60)\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    process = start("topic", "list", PYTHONPATH=path)
    assert process.stdout is not None
    assert process.stdout.readline() == "imports\n"
    assert interrupt(process) == (INTERRUPTED, "")


def test_ctrl_c_while_a_broker_is_silent_is_silent_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = start("topic", "list", "-b", f"127.0.0.1:{silent.getsockname()[1]}")
        assert select.select([silent], [], [], 60)[0]
        assert interrupt(process) == (INTERRUPTED, "")


@pytest.mark.parametrize("nodes", [1, 3])
def test_dev_ends_as_by_ctrl_c_when_its_terminal_closes(nodes: int, tmp_path: Path) -> None:
    """It died without closing its log, and left its temporary directory."""
    process = start("dev", "--port", "0", "--nodes", str(nodes), TMPDIR=str(tmp_path))
    assert process.stdout is not None
    assert any("ready at" in line for line in process.stdout)
    assert list(tmp_path.glob("firnline-dev-*"))
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=60) == 0
    assert not list(tmp_path.glob("firnline-dev-*"))


def test_nohup_lets_dev_outlive_its_terminal(tmp_path: Path) -> None:
    process = start("dev", "--port", "0", hup=signal.SIG_IGN, TMPDIR=str(tmp_path))
    assert process.stdout is not None
    assert any("ready at" in line for line in process.stdout)
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    assert interrupt(process) == (0, "")


COMMAND = """
import sys, time, click
from firnline.cli.terminal.exits import run
@click.command()
def command():
    {body}
run(command)
"""


def test_ctrl_c_where_python_ignores_exceptions_comes_again() -> None:
    """As in a callback of an import: there it would print a traceback, and the command would go on."""
    body = "type('It', (), {'__del__': lambda _: signal.raise_signal(2)})(); time.sleep(60)"
    process = start(code="import signal\n" + COMMAND.format(body=body))
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.strip()) == (INTERRUPTED, "")


def test_ctrl_c_while_python_ends_is_silent() -> None:
    body = "import atexit; atexit.register(lambda: (print('ends', flush=True), time.sleep(60)))"
    process = start(code=COMMAND.format(body=body))
    assert process.stdout is not None
    assert process.stdout.readline() == "ends\n"
    _, said = interrupt(process)
    assert said == ""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise OSError(28, 'No space left on device', '/data')", "/data: No space left on device"),
        (
            "{}['key']",
            "this is a bug: KeyError: 'key'. Please report it with what FIRNLINE_DEBUG=1",
        ),
        ("'t\\udcff'.encode()", r"'t\udcff' is not text in UTF-8"),
        ("raise RecursionError('deep')", "this is a bug: RecursionError: deep"),
        ("sys.stdout.close(); print(1)", "this is a bug: ValueError"),
    ],
)
def test_an_error_of_any_kind_is_one_line(body: str, said: str) -> None:
    process = start(code=COMMAND.format(body=body))
    _, lines = process.communicate(timeout=60)
    assert process.returncode == FAILED
    assert lines.startswith(f"firnline: {said}")
    assert len(lines.splitlines()) == 1
    shown = start(code=COMMAND.format(body=body), **{DEBUG: "1"}).communicate(timeout=60)[1]
    assert "Traceback" in shown


SLOW_LOG = """import logging, os
    from firnline.base.errors import ConfigError
    from firnline.cli.server import log_to_stderr
    write = os.write
    os.write = lambda fd, data: time.sleep(0.2) or write(fd, data)
    log_to_stderr('info')
    logging.getLogger('firnline').info('first')
    logging.getLogger('firnline').critical('the node stops')
    raise ConfigError('no tier')"""


def test_what_was_logged_comes_before_the_line_of_the_error() -> None:
    """Goal: the last line says what to do. Method: a log that is slow to be written, by its own thread."""
    process = start(code=COMMAND.format(body=SLOW_LOG))
    _, said = process.communicate(timeout=60)
    first, stops, last = said.splitlines()
    assert first.endswith("INFO firnline: first")
    assert stops.endswith("CRITICAL firnline: the node stops")
    assert (process.returncode, last) == (FAILED, "firnline: no tier")


INTERRUPTED_LOG = """import logging
    from firnline.base.errors import ConfigError
    class Slow(logging.Handler):
        def flush(self): print('writes', flush=True), time.sleep(60)
    logging.root.addHandler(Slow())
    raise ConfigError('no tier')"""


def test_ctrl_c_while_the_log_is_written_does_not_hide_the_error() -> None:
    """Without the guard the process ended as if the command had been interrupted, and did not say why."""
    process = start(code=COMMAND.format(body=INTERRUPTED_LOG))
    assert process.stdout is not None
    assert process.stdout.readline() == "writes\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "writes\n", "Python ends its logging, too"
    assert interrupt(process) == (FAILED, "firnline: no tier")


UNREAD_LOG = """import logging
    from firnline.base.errors import ConfigError
    from firnline.cli.server import log_to_stderr
    log_to_stderr('info')
    for _ in range(1_000): logging.getLogger('firnline').info('x' * 200)
    raise ConfigError('no tier')"""


def test_a_node_that_fails_ends_although_nobody_reads_its_log() -> None:
    """Goal: whoever supervises it starts it again. Without the guard its last line waited for ever."""
    process = start(code=COMMAND.format(body=UNREAD_LOG))
    try:
        assert process.wait(timeout=30) == FAILED
    finally:
        process.kill()
        process.communicate()


def test_what_is_not_written_at_the_end_is_an_error() -> None:
    code = COMMAND.format(body="print('x')")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    said = "firnline: cannot write: No space left on device\n"
    assert (done.returncode, done.stderr) == (FAILED, said)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_nothing_gets_the_number_of_a_closed_standard_stream(closed: str) -> None:
    """A server had its connections and segments there, for everyone who complains on stderr to write into."""
    body = (
        "import os, sys; a = os.open('/etc/hostname', 0);"
        " sys.exit(40 + (a > 2) + all(os.get_inheritable(n) for n in range(3)))"
    )
    done = subprocess.run(
        ["bash", "-c", f'"$0" -c "$1" {closed}', sys.executable, COMMAND.format(body=body)],
        timeout=60,
        check=False,
    )
    assert done.returncode == 42


def test_an_output_larger_than_a_buffer_ends_likewise_when_nobody_reads() -> None:
    """Click ends such a command itself, with 1, which says that the command could not do it."""
    code = COMMAND.format(body="[click.echo('x' * 1000) for _ in range(1000)]")
    done = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$0" -c "$1" | head -1 >/dev/null', sys.executable, code],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (NOBODY_READS, "")


@pytest.mark.parametrize("code", Code)
def test_an_error_of_kafka_of_any_kind_is_one_line(code: Code, capsys: Any) -> None:
    assert show_failure(KafkaError(code, "topic t")) == FAILED
    assert capsys.readouterr().err == f"firnline: {code.name}: topic t\n"


@pytest.mark.parametrize("problem", [DeadlineMissed(), TimeoutError()])
def test_what_took_too_long_is_no_bug(problem: Exception, capsys: Any) -> None:
    assert show_failure(problem) == FAILED
    said = capsys.readouterr().err
    assert said in ("firnline: no answer in time\n", "firnline: TimeoutError\n")


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `$F` is the command."""
    variables = {**os.environ, "F": f"{sys.executable} -m firnline"}
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=60, env=variables
    )


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("$F --help >/dev/full", 1, "firnline: cannot write: No space left on device\n"),
        ("$F --help >&-", 0, ""),
        ("$F --help <&-", 0, ""),
        ("$F nothing 2>&-", 2, ""),
        ("$F topic list -b x 2>&- | grep .", 1, ""),
        ("$F topic list -b 127.0.0.1:1 2>/dev/full", 1, ""),
        ("set -o pipefail; $F dev --help | true", 141, ""),
        ("set -o pipefail; $F completion bash | true", 141, ""),
    ],
)  # fmt: skip
def test_whoever_reads_may_have_gone(line: str, code: int, said: str) -> None:
    done = shell(line)
    assert (done.returncode, done.stderr) == (code, said)


def test_exit_codes_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert all(f"| {code} | {meaning} |" in page for code, meaning in EXIT_CODES.items())
    assert list(EXIT_CODES) == [0, 1, 2, 3, 130, 141]
