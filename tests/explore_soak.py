"""The long form of the property tests: examples that `make test` does not try, in pieces that add up. WORLD.

    python -m tests.explore_soak [--seeds 20] [--minutes 60]

Each piece is all properties with one seed of Hypothesis, a process for each file, and one line in
ledger/soak.jsonl: commit, form, seed, whether the code in C ran, files, tests, and violations, each with the
example and the command that finds it again. Even seeds run the code in C, odd ones that in Python. A run
begins where the ledger says this commit stands. The exit code is 1 when a violation was ever found at this
commit. Decision 0056.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.soak import LEDGER, ROOT, append, commit, read_ledger

FORM = "explore"
FIRST_SEED = 1000
# A property takes minutes at most; without this a loop that never ends would be found by nobody.
TEST_S = 1800
# Those of tests/oracle need Kafka's classes and have examples of their own; those of Spark start a JVM.
ELSEWHERE = "tests/oracle/"
WHICH = "hypothesis and not spark and not soak"


def files() -> list[str]:
    """Return the files with properties, in the order of their names."""
    found = sorted((ROOT / "tests").rglob("test_*.py"))
    names = [
        path.relative_to(ROOT).as_posix()
        for path in found
        if re.search(r"^from hypothesis", path.read_text(), re.MULTILINE)
    ]
    return [name for name in names if not name.startswith(ELSEWHERE)]


def soak(seeds: int, *, ledger: Path, at: str, until_s: float) -> list[str]:
    """Run pieces until `seeds` are in the ledger or time is up; return what was violated, ever."""
    while time.monotonic() < until_s and len(rows := _rows(ledger, at)) < seeds:
        seed = max([FIRST_SEED - 1, *(row["seed"] for row in rows)]) + 1
        row = run_piece(seed, files(), until_s)
        append(ledger, {"commit": at} | row)
        print(f"{FORM} {len(rows) + 1}/{seeds}: {row['tests']} tests, seed {seed}", flush=True)
        for violation in row["violations"]:
            print(f"  {violation}", flush=True)
    return [violation for row in _rows(ledger, at) for violation in row["violations"]]


def _rows(ledger: Path, at: str) -> list[dict[str, Any]]:
    return [row for row in read_ledger(ledger, at) if row["form"] == FORM]


def run_piece(seed: int, paths: list[str], until_s: float) -> dict[str, Any]:
    """Run the properties of the files, at least of one; return a row of the ledger without its commit.

    Another order for each seed: a piece that is cut off leaves out other files than the last one did.
    """
    ran = tests = 0
    violations = []
    for path in random.Random(seed).sample(paths, len(paths)):
        done, again = _run(path, seed)
        ran += 1
        found = re.search(r"(\d+) passed", done.stdout)
        tests += int(found[1]) if found else 0
        if done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            said = done.stdout + done.stderr
            place = max(said.find("Falsifying example"), 0)
            violations.append(f"{said[place : place + 1500]} [{again}]")
        if time.monotonic() >= until_s:
            break
    return {
        "form": FORM,
        "seed": seed,
        "native": seed % 2 == 0,
        "files": ran,
        "tests": tests,
        "violations": violations,
    }


def _run(path: str, seed: int) -> tuple[subprocess.CompletedProcess[str], str]:
    options = [
        f"--hypothesis-profile={FORM}",
        f"--hypothesis-seed={seed}",
        "-m",
        f"'{WHICH}'",
        path,
    ]
    native = {} if seed % 2 == 0 else {"FIRNLINE_NATIVE": "0"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout"]
    done = subprocess.run(
        [*command, str(TEST_S), *(word.strip("'") for word in options)],
        cwd=ROOT,
        env=os.environ | native,
        capture_output=True,
        text=True,
        check=False,
    )
    return done, " ".join(["FIRNLINE_NATIVE=0"] * bool(native) + ["python -m pytest", *options])


def main() -> int:
    """Run as the command says."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore_soak")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=60)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    until_s = time.monotonic() + given.minutes * 60
    return 1 if soak(given.seeds, ledger=LEDGER, at=commit(), until_s=until_s) else 0


if __name__ == "__main__":
    sys.exit(main())
