"""The plugin's broker process: started once it answers, its errors shown, gone after the test."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from firnline.testing.plugin import Broker

pytestmark = pytest.mark.slow

# Stands in for `python -m firnline`, so that these tests are about the plugin alone.
PRETENDER = """#!{python}
import signal, sys, time
arguments = sys.argv[sys.argv.index("dev") + 1:]
port = int(arguments[arguments.index("--port") + 1]) or 4711
print(*arguments, file=sys.stderr, flush=True)
if "-X" in arguments:
    sys.exit("firnline: " + arguments[arguments.index("-X") + 1] + " is not a known setting")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print(f"firnline dev: ready at 127.0.0.1:{{port}} (data x, tier none)", flush=True)
time.sleep(60)
"""


@pytest.fixture
def pretender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "python"
    path.write_text(PRETENDER.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(path))
    return tmp_path


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_broker_is_ready_when_start_returns_and_gone_after_stop(pretender: Path) -> None:
    broker = Broker(pretender / "data", tier=pretender / "tier")
    broker.start()
    pid = broker.pid
    assert broker.bootstrap == "127.0.0.1:4711"
    assert f"--dir {pretender}/data --tier {pretender}/tier" in broker.log_text()
    assert broker.stop() == 0
    assert not is_alive(pid)


def test_a_restart_keeps_the_port(pretender: Path) -> None:
    broker = Broker(pretender / "data")
    broker.start()
    broker.restart()
    assert "--port 4711" in broker.log_text()
    broker.kill()


def test_a_broker_that_does_not_start_shows_what_it_said(pretender: Path) -> None:
    broker = Broker(pretender / "data", options=["-X", "nonsense=1"])
    with pytest.raises(RuntimeError, match="nonsense=1 is not a known setting"):
        broker.start()
    assert broker.process is None


def test_the_plugin_costs_a_test_run_nothing_until_it_is_used() -> None:
    code = "import sys, pytest; before = set(sys.modules); import firnline.testing.plugin; "
    code += "print(*sorted(m for m in set(sys.modules) - before if m.startswith('firnline')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["firnline", "firnline.testing", "firnline.testing.plugin"]
