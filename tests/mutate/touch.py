"""Which tests touch which line of the source, and how long each takes. WORLD.

Measured by running the tests once under coverage.py with a context for each test. What is measured is kept in
`.mutate/` until it is asked for anew (`python -m tests.mutate.run --measure`).
"""

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".mutate"
# Those that run the code in their own process: a mutant lives in no other.
SUITES = ("tests/unit", "tests/golden", "tests/props")


class Touched:
    """What was measured.

    lines    file below src/firnline -> line -> the tests that run it
    seconds  test -> how long it takes; a test is a function, with all of its parameters
    """

    def __init__(self, lines: dict[str, dict[int, list[str]]], seconds: dict[str, float]) -> None:
        self._lines = lines
        self.seconds = seconds
        self._breadth = Counter(
            test for of_file in lines.values() for tests in of_file.values() for test in tests
        )

    def by(self, path: str, line: int, end_line: int) -> list[str]:
        """Return the tests that run one of the lines: those that run the least besides first.

        Of an expression on several lines the first may be run by nobody: a bracket alone, say.
        """
        of_file = self._lines.get(path, {})
        found = {test for each in range(line, end_line + 1) for test in of_file.get(each, [])}
        return sorted(found, key=lambda test: (self._breadth[test] * self.seconds[test], test))


def measure(suites: tuple[str, ...] = SUITES) -> None:
    """Run the tests, a process for each suite, and keep what each touched."""
    KEPT.mkdir(exist_ok=True)
    (KEPT / ".gitignore").write_text("*\n")
    for suite in suites:
        command = [sys.executable, "-m", "tests.mutate.touch", suite]
        subprocess.run(command, cwd=ROOT, check=True)
    merged: dict[str, dict[int, list[str]]] = {}
    seconds: dict[str, float] = {}
    for suite in suites:
        kept = json.loads(_file_of(suite).read_text())
        seconds.update(kept["seconds"])
        for path, of_file in kept["lines"].items():
            mine = merged.setdefault(path, {})
            for line, tests in of_file.items():
                mine.setdefault(int(line), []).extend(tests)
    (KEPT / "touched.json").write_text(json.dumps({"lines": merged, "seconds": seconds}))


def load() -> Touched:
    """Return what was measured last; it is measured now if it never was."""
    if not (KEPT / "touched.json").exists():
        measure()
    kept = json.loads((KEPT / "touched.json").read_text())
    lines = {p: {int(n): t for n, t in of.items()} for p, of in kept["lines"].items()}
    return Touched(lines, kept["seconds"])


class _Contexts:
    """A pytest plugin that tells coverage.py which test runs, and takes its time."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        test = item.nodeid.partition("[")[0]
        self._measured.switch_context(test)
        began = time.perf_counter()
        yield
        self.seconds[test] = self.seconds.get(test, 0.0) + time.perf_counter() - began
        self._measured.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid.partition("[")[0])


def _file_of(suite: str) -> Path:
    return KEPT / f"{suite.replace('/', '-')}.json"


def _measure_one(suite: str) -> None:
    source = ROOT / "src" / "firnline"
    measured = coverage.Coverage(data_file=None, source=[str(source)], config_file=False)
    plugin = _Contexts(measured)
    measured.start()
    pytest.main(["-q", "-p", "no:cacheprovider", suite], plugins=[plugin])
    measured.stop()
    data = measured.get_data()
    lines: dict[str, dict[int, list[str]]] = {}
    for name in data.measured_files():
        of_file = {
            line: sorted({test for test in tests if test and test not in plugin.failed})
            for line, tests in data.contexts_by_lineno(name).items()
        }
        lines[Path(name).relative_to(source).as_posix()] = of_file
    seconds = {test: round(s, 3) for test, s in plugin.seconds.items()}
    for test in sorted(plugin.failed):
        print(f"left out, because it fails without a mutant: {test}")
    _file_of(suite).write_text(json.dumps({"lines": lines, "seconds": seconds}))


if __name__ == "__main__":
    _measure_one(sys.argv[1])
