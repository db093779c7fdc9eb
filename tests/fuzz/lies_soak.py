"""The long form of tests/fuzz/test_lies.py, seed by seed. WORLD.

    python -m tests.fuzz.lies_soak [--seeds 100] [--minutes 60]

Each seed is a cluster of its own, and one line in ledger/soak.jsonl. A run begins where the ledger says this
commit stands. The exit code is 1 when a violation was ever found at this commit.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.soak import LEDGER, append, commit, read_ledger
from tests.fuzz.lies import SECONDS, play

FORM = "lies"
FIRST_SEED = 1_000_000  # below it are those of the test's own seconds and of whoever plays by hand
Play = Callable[[Path, int, float], tuple[str, Counter[int], int]]


def soak(seeds: int, *, ledger: Path, at: str, until_s: float, one: Play = play) -> list[str]:
    """Play until `seeds` are in the ledger or time is up; return what was violated, ever."""
    while time.monotonic() < until_s and len(_rows(ledger, at)) < seeds:
        seed = max([FIRST_SEED, *(row["seed"] + 1 for row in _rows(ledger, at))])
        with tempfile.TemporaryDirectory(prefix="firnline-lies-") as directory:
            found, reported, kept = one(Path(directory), seed, SECONDS)
        again = f"python -m tests.fuzz.lies --seed {seed} --seconds {SECONDS:.0f}"
        violations = [f"{found[:1500]} [{again}]"] if found else []
        row = {
            "commit": at,
            "form": FORM,
            "seed": seed,
            "altered": sum(reported.values()),
            "batches": kept,
        }
        append(ledger, row | {"violations": violations})
        print(f"{FORM}: seed {seed}", *violations, sep="\n  ", flush=True)
    return [violation for row in _rows(ledger, at) for violation in row["violations"]]


def _rows(ledger: Path, at: str) -> list[dict[str, Any]]:
    return [row for row in read_ledger(ledger, at) if row["form"] == FORM]


def main() -> int:
    """Run as the command says."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.lies_soak")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60)
    given = parser.parse_args()
    # Leave through `finally`: no node stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    until_s = time.monotonic() + given.minutes * 60
    return 1 if soak(given.seeds, ledger=LEDGER, at=commit(), until_s=until_s) else 0


if __name__ == "__main__":
    sys.exit(main())
