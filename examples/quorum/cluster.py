"""Three controllers and two brokers on this machine, to kill and to wipe.

    python cluster.py start [NODE]...    format what is new, start what is down (all of them)
    python cluster.py kill NODE...       kill -9
    python cluster.py wipe NODE...       take the disk of a node that is down away
    python cluster.py stop               stop all in order; their files stay in data/

Each node has its settings in NODE.properties beside this file, its files in data/NODE, its log in
data/NODE.log. They were formatted with one cluster id, which is kept in data/cluster.id.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
FIRNLINE = [sys.executable, "-m", "firnline"]
NODES = {path.stem: path for path in sorted(HERE.glob("*.properties"))}
STOP_S = 40.0


def cluster_id() -> str:
    """Return the id that all nodes are formatted with, made at the first call."""
    path = DATA / "cluster.id"
    if not path.exists():
        DATA.mkdir(exist_ok=True)
        made = subprocess.run(
            [*FIRNLINE, "storage", "random-uuid"], check=True, capture_output=True, text=True
        )
        path.write_text(made.stdout)
    return path.read_text().strip()


def pid_of(name: str) -> int | None:
    """Return the process of a node, None when it does not run."""
    path = DATA / f"{name}.pid"
    if not path.exists():
        return None
    pid = int(path.read_text())
    line = Path(f"/proc/{pid}/cmdline")
    # The number may be another program's by now.
    if line.exists() and f"{name}.properties" in line.read_text():
        return pid
    return None


def start(name: str) -> None:
    """Format the node's directory if it is new, and start it."""
    if pid_of(name) is not None:
        return
    settings = NODES[name].name
    subprocess.run(
        [*FIRNLINE, "storage", "format", "-g", "-t", cluster_id(), "-c", settings],
        check=True,
        cwd=HERE,
        stdout=subprocess.DEVNULL,
    )
    with (DATA / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [*FIRNLINE, "server", "-c", settings],
            cwd=HERE,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (DATA / f"{name}.pid").write_text(str(process.pid))
    print(f"{name} started, log in {(DATA / f'{name}.log').relative_to(HERE)}")


def end(name: str, number: int) -> None:
    """Send a signal and wait until the process is gone."""
    pid = pid_of(name)
    if pid is None:
        return
    os.kill(pid, number)
    deadline = time.monotonic() + STOP_S
    while Path(f"/proc/{pid}").exists() and _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    (DATA / f"{name}.pid").unlink()
    print(f"{name} {'killed' if number == signal.SIGKILL else 'stopped'}")


def _is_alive(pid: int) -> bool:
    """A process that ended and that nobody waited for is not."""
    return ") Z" not in Path(f"/proc/{pid}/stat").read_text()


def wipe(name: str) -> None:
    """Remove a node's disk."""
    if pid_of(name) is not None:
        sys.exit(f"{name} runs: kill it first")
    shutil.rmtree(DATA / name, ignore_errors=True)
    print(f"{name} has no files any more")


def main() -> None:
    """Do what the command line says."""
    verb, *names = sys.argv[1:] or ["help"]
    unknown = [name for name in names if name not in NODES]
    if verb not in ("start", "kill", "wipe", "stop") or unknown:
        sys.exit(f"{__doc__}\nNODE is one of {', '.join(NODES)}")
    if verb == "stop":
        # Brokers first: they tell the controllers that they go.
        for name in sorted(NODES):
            end(name, signal.SIGTERM)
    for name in names or (NODES if verb == "start" else ()):
        if verb == "start":
            start(name)
        elif verb == "kill":
            end(name, signal.SIGKILL)
        elif verb == "wipe":
            wipe(name)


if __name__ == "__main__":
    main()
