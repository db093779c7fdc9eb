"""The long form of tests/fuzz/test_stored.py, in pieces that add up. WORLD.

    python -m tests.fuzz.stored_soak [--cases 1000] [--minutes 60]

Each piece is a node of its own that is damaged again and again by seed, and one line in ledger/soak.jsonl. A
run begins where the ledger says this commit stands. The exit code is 1 when a violation was ever found at
this commit.
"""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.chaos.soak import LEDGER, append, commit, read_ledger
from tests.fuzz.stored import Wrong, build, run

FORM = "stored"
PIECE = 50
FIRST_SEED = 1_000_000  # below it are those of the test


def soak(cases: int, *, ledger: Path, at: str, until_s: float, piece: int = PIECE) -> list[str]:
    """Run pieces until `cases` are in the ledger or time is up; return what was violated, ever."""
    while time.monotonic() < until_s:
        rows = _rows(ledger, at)
        done = sum(row["cases"] for row in rows)
        if done >= cases:
            break
        first = max([FIRST_SEED, *(row["seeds"][1] + 1 for row in rows)])
        # In turn: a node that was stopped, and one that was killed, whose logs are looked over.
        row = run_piece(range(first, first + piece), until_s, is_clean=len(rows) % 2 == 0)
        append(ledger, {"commit": at} | row)
        print(f"{FORM} {done + row['cases']}/{cases}: seeds {row['seeds']}", flush=True)
        for violation in row["violations"]:
            print(f"  {violation}", flush=True)
    return [violation for row in _rows(ledger, at) for violation in row["violations"]]


def _rows(ledger: Path, at: str) -> list[dict[str, Any]]:
    return [row for row in read_ledger(ledger, at) if row["form"] == FORM]


def run_piece(seeds: range, until_s: float, *, is_clean: bool) -> dict[str, Any]:
    """Damage and start, seed by seed, at least one; return a row of the ledger without its commit."""
    outcomes = {"whole": 0, "some lost": 0, "refused": 0}
    violations: list[str] = []
    last = seeds[0]
    with tempfile.TemporaryDirectory(prefix="firnline-stored-") as directory:
        intact = build(Path(directory) / "whole", is_clean=is_clean)
        for seed in seeds:
            last = seed
            with tempfile.TemporaryDirectory(dir=directory) as copy:
                try:
                    outcomes[run(intact, Path(copy) / "copy", seed).outcome] += 1
                except Wrong as problem:
                    again = f"--seed {seed}" + ("" if is_clean else " --killed")
                    violations.append(f"{str(problem)[:1500]} [tests.fuzz.stored {again}]")
            if time.monotonic() >= until_s:
                break
    cases = last - seeds[0] + 1
    return {
        "form": FORM,
        "seeds": [seeds[0], last],
        "clean": is_clean,
        "cases": cases,
        "whole": outcomes["whole"],
        "some_lost": outcomes["some lost"],
        "refused": outcomes["refused"],
        "violations": violations,
    }


def main() -> int:
    """Run as the command says."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.stored_soak")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=60)
    given = parser.parse_args()
    # Leave through `finally`: no broker stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    until_s = time.monotonic() + given.minutes * 60
    return 1 if soak(given.cases, ledger=LEDGER, at=commit(), until_s=until_s) else 0


if __name__ == "__main__":
    sys.exit(main())
