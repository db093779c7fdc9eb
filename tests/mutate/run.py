"""Make mutants, run the tests that touch them, and keep a ledger. WORLD.

    python -m tests.mutate.run [--count 1500] [--minutes 60] [--jobs 2] [--only raft/leader.py] [--measure]
    python -m tests.mutate.run --report

Each mutant lives in a process of its own, forked from one that has loaded everything. It is killed when a
test fails, or when the tests take ten times as long as they do without it. `ledger/mutants.jsonl` has a line
for each; a line counts while the source of its function is the same, so a run goes on where the last one
stopped. tests/mutate/survivors.txt says of those that survive why the program is the same with them; every
other one lacks a test. The exit code is 1 when more than 2 % of those that count survive without a reason.
"""

import argparse
import gc
import hashlib
import importlib
import inspect
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import hypothesis
import pytest

from tests.chaos.soak import append, commit
from tests.mutate.points import Point, mutated, points
from tests.mutate.touch import ROOT, SUITES, Touched, load, measure

SOURCE = ROOT / "src" / "firnline"
PACKAGES = ("raft", "metadata", "controller", "replica", "log", "tiered")
LEDGER = ROOT / "ledger" / "mutants.jsonl"
SURVIVORS = Path(__file__).with_name("survivors.txt")
KILLED, TIMED_OUT, SURVIVED, UNTOUCHED = "killed", "timed out", "survived", "untouched"
# The code of some functions cannot be exchanged: a decorator took their place, or the mutant drops the
# only `super()`. Such a mutant counts for nothing.
UNMADE, _UNMADE_CODE = "unmade", 77
_RESULTS = {0: SURVIVED, _UNMADE_CODE: UNMADE}
UNEXPLAINED_MAX = 0.02
# The tests of a mutant: the nearest first, then as many more as take no longer than TESTS_S.
FIRST_TESTS = 25
TESTS_S = 40.0
SLOWER, GRACE_S = 10, 15.0


def all_points(packages: Iterable[str] = PACKAGES) -> list[Point]:
    """Return every mutant of the packages, shuffled the same way each time."""
    found: list[Point] = []
    for package in packages:
        for path in sorted((SOURCE / package).rglob("*.py")):
            found += points(path.relative_to(SOURCE).as_posix(), path.read_text())
    return sorted(found, key=lambda point: hashlib.sha256(point.key.encode()).digest())


def read_ledger(ledger: Path, known: dict[str, Point]) -> dict[str, dict[str, Any]]:
    """Return the newest line of each mutant whose function is still the same."""
    if not ledger.exists():
        return {}
    rows = [json.loads(line) for line in ledger.read_text().splitlines()]
    return {row["key"]: row for row in rows if row["key"] in known}


def reasons(path: Path = SURVIVORS) -> dict[str, str]:
    """Return mutant -> why the program is the same with it. A line: `key  reason`; # begins a comment."""
    found: dict[str, str] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.strip() and not line.startswith("#"):
            key, _, reason = line.partition("  ")
            found[key] = reason.strip()
    return found


class Run(NamedTuple):
    """A mutant at work."""

    point: Point
    waves: list[list[str]]
    until_s: float


def run(
    todo: Iterator[Point],
    touched: Touched,
    *,
    ledger: Path,
    at: str,
    jobs: int,
    until_s: float,
    tests_s: float = TESTS_S,
) -> int:
    """Run mutants until none is left or time is up; return how many were run."""
    gc.freeze()  # what is loaded stays; the processes of the mutants share it
    running: dict[int, Run] = {}
    done = 0
    is_over = False
    while running or not is_over:
        while len(running) < jobs and not is_over:
            point = next(todo, None)
            if point is None or time.monotonic() >= until_s:
                is_over = True
                break
            tests = touched.by(point.path, point.line, point.end_line)
            waves = waves_of(tests, touched.seconds, tests_s)
            if not waves:
                note(ledger, at, point, UNTOUCHED)
                done += 1
                continue
            running[_start(point, waves)] = Run(
                point, waves, time.monotonic() + _limit_s(waves, touched.seconds)
            )
        for pid, result in _ended(running):
            note(ledger, at, running.pop(pid).point, result)
            done += 1
        time.sleep(0.02)
    return done


def waves_of(
    tests: list[str], seconds: dict[str, float], tests_s: float = TESTS_S
) -> list[list[str]]:
    """Return the tests to run: the nearest first, and then what else there is time for."""
    nearest, rest = tests[:FIRST_TESTS], tests[FIRST_TESTS:]
    left_s = tests_s - sum(seconds[test] for test in nearest)
    more: list[str] = []
    for test in sorted(rest, key=lambda test: seconds[test]):
        left_s -= seconds[test]
        if left_s < 0:
            break
        more.append(test)
    return [wave for wave in (nearest, more) if wave]


def _limit_s(waves: list[list[str]], seconds: dict[str, float]) -> float:
    return GRACE_S + SLOWER * sum(seconds[test] for wave in waves for test in wave)


def note(ledger: Path, at: str, point: Point, result: str) -> None:
    """Write a line of the ledger; say who survives."""
    row = {
        "key": point.key,
        "commit": at,
        "line": point.line,
        "kind": point.kind,
        "text": point.text,
        "result": result,
    }
    append(ledger, row)
    if result in (SURVIVED, UNTOUCHED):
        print(f"{result}: {point.kind} {point.path}:{point.line} {point.text}", flush=True)


def _start(point: Point, waves: list[list[str]]) -> int:
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        _apply(point)
        code = 0
        for wave in waves:
            ended = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *wave])
            if ended != pytest.ExitCode.OK:
                code = 1
                break
    except BaseException:  # noqa: BLE001 - whatever the mutant does to pytest itself, it was noticed
        code = 1
    finally:
        os._exit(code)


def _apply(point: Point) -> None:
    path = SOURCE / point.path
    code = mutated(path.read_text(), str(path), point)
    function = function_of(point)
    if function is None or function.__code__.co_freevars != code.co_freevars:
        os._exit(_UNMADE_CODE)
    if function.__code__.co_firstlineno != code.co_firstlineno:
        os._exit(_UNMADE_CODE)  # the setter of a property
    function.__code__ = code


def function_of(point: Point) -> FunctionType | None:
    """Return the loaded function that a mutant is of; None where a decorator took its place."""
    name = Path(point.path).with_suffix("").as_posix().replace("/", ".")
    owner: Any = importlib.import_module(f"firnline.{name.removesuffix('.__init__')}")
    *classes, attribute = point.function.split(".")
    for each in classes:
        owner = getattr(owner, each)
    found = inspect.getattr_static(owner, attribute, None)
    for inner in ("__func__", "fget", "func", "__wrapped__"):
        found = getattr(found, inner, found)
    return found if isinstance(found, FunctionType) else None


def _ended(running: dict[int, Run]) -> Iterator[tuple[int, str]]:
    for pid, each in list(running.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            _end_group(pid)
            yield pid, _RESULTS.get(os.waitstatus_to_exitcode(status), KILLED)
        elif time.monotonic() >= each.until_s:
            _end_group(pid)
            os.waitpid(pid, 0)
            yield pid, TIMED_OUT


def _end_group(pid: int) -> None:
    """End the mutant and what its tests started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def report(known: dict[str, Point], rows: dict[str, dict[str, Any]]) -> int:
    """Print what the ledger says of the source as it is; return the exit code."""
    explained = reasons()
    by_result: dict[str, list[str]] = {}
    for key, row in rows.items():
        by_result.setdefault(row["result"], []).append(key)
    made = len(rows) - len(by_result.get(UNMADE, []))
    alive = by_result.get(SURVIVED, []) + by_result.get(UNTOUCHED, [])
    without = sorted(key for key in alive if key not in explained)
    for key in without:
        point = known[key]
        print(
            f"{rows[key]['result']}: {point.kind} {point.path}:{point.line} {point.text}  [{key}]"
        )
    counts = ", ".join(f"{len(keys)} {result}" for result, keys in sorted(by_result.items()))
    share = len(without) / max(made, 1)
    print(f"{made} of {len(known)} mutants: {counts}")
    print(f"{len(alive) - len(without)} explained, {len(without)} not: {share:.1%} of all")
    return 1 if share > UNEXPLAINED_MAX else 0


def _warm() -> None:
    """Load what the tests load, so that no mutant has to."""
    for package in PACKAGES:
        for path in sorted((SOURCE / package).rglob("*.py")):
            name = path.relative_to(SOURCE.parent).with_suffix("").as_posix().replace("/", ".")
            importlib.import_module(name.removesuffix(".__init__"))
    hypothesis.settings.register_profile("mutate", derandomize=True, deadline=None, database=None)
    hypothesis.settings.load_profile("mutate")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    out = os.dup(1)
    os.dup2(nowhere, 1)
    try:
        pytest.main(["-q", "--collect-only", "-p", "no:cacheprovider", *SUITES])
    finally:
        os.dup2(out, 1)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutate.run")
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--tests-s", type=float, default=TESTS_S, help="seconds of tests a mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--measure", action="store_true", help="find out anew what tests touch")
    parser.add_argument("--again", action="store_true", help="those that survived, once more")
    parser.add_argument("--report", action="store_true", help="only say what the ledger says")
    options = parser.parse_args()
    chosen = [point for point in all_points() if options.only in point.path]
    known = {point.key: point for point in chosen}
    rows = read_ledger(LEDGER, known)
    if options.report:
        return report(known, rows)
    if options.measure:
        measure()
    if options.again:
        rows = {k: row for k, row in rows.items() if row["result"] in (KILLED, TIMED_OUT)}
    touched = load()
    _warm()
    todo = [point for point in chosen if point.key not in rows][: max(options.count - len(rows), 0)]
    until_s = time.monotonic() + options.minutes * 60
    run(
        iter(todo),
        touched,
        ledger=LEDGER,
        at=commit(),
        jobs=options.jobs,
        until_s=until_s,
        tests_s=options.tests_s,
    )
    return report(known, read_ledger(LEDGER, known))


if __name__ == "__main__":
    sys.exit(main())
