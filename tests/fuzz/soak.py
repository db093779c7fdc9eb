"""The long form of tests/fuzz/test_requests.py, in pieces that add up. WORLD.

    python -m tests.fuzz.soak [--requests 1000000] [--minutes 60] [--first-seed 1000000]

Each piece is a node of its own in four rounds, with a seed of its own, and one line in ledger/soak.jsonl:
commit, form, seed, bursts, requests, answered, violations. A run begins where the ledger says this commit
stands, so it may be stopped at any time and resumed. The exit code is 1 when a violation was ever found at
this commit.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.soak import LEDGER, ROOT, append, commit, read_ledger
from tests.fuzz.play import Outcome, command, play, shrink

FORM = "requests"
ROUNDS = 4
BURSTS = 40_000  # some 360,000 requests, and a restart after each quarter of them
FIRST_SEED = 1_000_000  # below it are those of the test
_SAID_CHARS_MAX = 1500
Play = Callable[[Path, int, range], Outcome]


def _play(directory: Path, seed: int, numbers: range) -> Outcome:
    return play(directory, seed, numbers, rounds=ROUNDS)


def soak(
    requests: int,
    *,
    ledger: Path,
    at: str,
    until_s: float,
    first_seed: int = FIRST_SEED,
    one: Play = _play,
    fewer: Callable[..., list[int]] = shrink,
) -> list[str]:
    """Run pieces until `requests` are in the ledger or time is up; return what was violated, ever."""
    while time.monotonic() < until_s:
        rows = _rows(ledger, at)
        done = sum(row["requests"] for row in rows)
        if done >= requests:
            break
        seed = max([first_seed, *(row["seed"] + 1 for row in rows)])
        numbers = range(BURSTS)
        with tempfile.TemporaryDirectory(prefix="firnline-fuzz-") as directory:
            outcome = one(Path(directory), seed, numbers)
        if outcome.is_slow:  # held against the node where it is so again
            with tempfile.TemporaryDirectory(prefix="firnline-fuzz-") as directory:
                outcome = one(Path(directory), seed, numbers)
        violations = []
        if outcome.found:
            again = command(seed, fewer(seed, numbers, outcome.recent))
            violations = [f"{outcome.found[-_SAID_CHARS_MAX:]} [{again}]"]
        row: dict[str, Any] = {
            "commit": at,
            "form": FORM,
            "seed": seed,
            "bursts": len(numbers),
            "requests": outcome.tally.requests,
            "answered": outcome.tally.answered,
            "slowest_ms": round(outcome.tally.slowest_s * 1000),
            "violations": violations,
        }
        append(ledger, row)
        print(f"{FORM} {done + row['requests']}/{requests}: seed {seed}", flush=True)
        for violation in violations:
            print(f"  {violation}", flush=True)
    return [violation for row in _rows(ledger, at) for violation in row["violations"]]


def _rows(ledger: Path, at: str) -> list[dict[str, Any]]:
    return [row for row in read_ledger(ledger, at) if row["form"] == FORM]


def total(ledger: Path, unchanged: Callable[[str], bool]) -> tuple[int, int]:
    """Requests of all lines, and of those commits since which the fuzzed code has not changed."""
    by_commit: dict[str, int] = {}
    for row in read_ledger(ledger, None):
        if row["form"] == FORM:
            by_commit[row["commit"]] = by_commit.get(row["commit"], 0) + row["requests"]
    same = sum(count for at, count in by_commit.items() if unchanged(at))
    return sum(by_commit.values()), same


def _is_unchanged(at: str) -> bool:
    """Whether the source is what it was at a commit; of one that had changes of its own it is not."""
    asked = ["git", "diff", "--quiet", at, "--", "src"]
    return not at.endswith("+") and subprocess.run(asked, cwd=ROOT, check=False).returncode == 0


def main() -> int:
    """Run the command line; 1 when something was violated at this commit."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.soak")
    parser.add_argument("--requests", type=int, default=1_000_000, help="of this commit")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    given = parser.parse_args()
    # Leave through `finally`: no broker stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    until_s = time.monotonic() + given.minutes * 60
    found = soak(
        given.requests,
        ledger=LEDGER,
        at=commit(),
        until_s=until_s,
        first_seed=given.first_seed,
    )
    every, same = total(LEDGER, _is_unchanged)
    print(f"{every} requests in all, {same} at commits since which the source has not changed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
