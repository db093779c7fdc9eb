"""What the benchmarks share: processes, their CPU time, C programs, and how figures are printed."""

import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"


def c_program(name: str, *libraries: str) -> Path:
    """Compile bench/NAME.c unless it is compiled already; return the program."""
    source, program = ROOT / "bench" / f"{name}.c", BUILD / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        BUILD.mkdir(parents=True, exist_ok=True)
        flags = [f"-l{library}" for library in libraries]
        subprocess.run(["cc", "-O2", "-o", program, source, *flags, "-lpthread"], check=True)
    return program


def free_port() -> int:
    """Return a loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cpu_s(pid: int) -> float:
    """Return user and system CPU seconds of a process, ended threads included."""
    # clock_getcpuclockid of glibc: the process clock of another process, in nanoseconds.
    return time.clock_gettime(~pid << 3 | 2)


@contextmanager
def process(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a child for the time of a block; terminate it by pid afterwards."""
    child = subprocess.Popen(command, text=True, **options)
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextmanager
def broker(*options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run `firnline dev` on a free port; yields the process and the port once it answers.

    Its data is in a temporary directory: with a tier `dev` would keep it.
    """
    port = free_port()
    command = [sys.executable, "-m", "firnline", "dev", "--port", str(port), *options]
    with (
        tempfile.TemporaryDirectory(prefix="firnline-bench-") as data,
        process(
            [*command, "--dir", data] if "--dir" not in options else command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as child,
    ):
        assert child.stdout is not None
        line = child.stdout.readline()
        if "ready at" not in line:
            raise SystemExit(f"the broker did not start: {line!r}")
        yield child, port


@contextmanager
def echo(answer_bytes: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the floor, bench/echo.py."""
    port = free_port()
    command = [sys.executable, str(ROOT / "bench" / "echo.py"), str(port), str(answer_bytes)]
    with process(command) as child:
        wait_for_port(port)
        yield child, port


def wait_for_port(port: int) -> None:
    """Wait until something listens there; SystemExit after 30 seconds."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"nothing listens on port {port}")


def median_and_min(values: Sequence[float]) -> tuple[float, float]:
    """Return (median, minimum)."""
    return statistics.median(values), min(values)


def report(question: str, rows: list[dict[str, Any]]) -> None:
    """Print one table for people, then one JSON line for programs."""
    print(question)
    names = list(dict.fromkeys(name for row in rows for name in row))
    widths = [max(len(n), *(len(str(r.get(n, ""))) for r in rows)) for n in names]
    print("  ".join(n.ljust(w) for n, w in zip(names, widths, strict=True)))
    for row in rows:
        print("  ".join(str(row.get(n, "")).ljust(w) for n, w in zip(names, widths, strict=True)))
    machine = {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }
    print(json.dumps({"question": question, "machine": machine, "rows": rows}))
