"""A process that hangs from one moment on, until SIGCONT. WORLD."""

import contextlib
import os
import signal
import time
from pathlib import Path

_PATIENCE_S = 60.0


def stop_at_once(pid: int) -> None:
    """SIGSTOP a process and wait until each of its threads has stopped: until then one may still answer."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _PATIENCE_S
    while any(state not in "Tt" for state in _states(pid)):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.001)


def _states(pid: int) -> list[str]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found.append((task / "stat").read_text().rpartition(")")[2].split()[0])
    return found
