"""The long form of tests/props/test_tier_damage.py, in pieces that add up. WORLD.

    python -m tests.tier_damage_soak [--cases 10000] [--minutes 60]

Each piece has seeds of its own and is one line in ledger/soak.jsonl. A run begins where the ledger says this
commit stands. The exit code is 1 when a violation was ever found at this commit.
"""

import argparse
import logging
import sys
import time
from pathlib import Path

from tests.chaos.soak import LEDGER, append, commit, read_ledger
from tests.worlds.tier_damage import OLD_SUFFIXES, SUFFIXES, Outcomes, World

FORM = "tier-damage"
PIECE = 1000
FIRST_SEED = 1_000_000  # below it are those of the test
OLD_SHARE = 10  # one piece in so many is of tiers from before there were checksums


def soak(cases: int, *, ledger: Path, at: str, until_s: float, piece: int = PIECE) -> list[str]:
    """Run pieces until `cases` are in the ledger or time is up; return what was violated, ever."""
    while time.monotonic() < until_s:
        rows = [row for row in read_ledger(ledger, at) if row["form"] == FORM]
        if sum(row["cases"] for row in rows) >= cases:
            break
        first = max((row["seeds"][1] + 1 for row in rows), default=FIRST_SEED)
        is_old = len(rows) % OLD_SHARE == OLD_SHARE - 1
        outcomes, violations = run_piece(range(first, first + piece), is_old=is_old)
        append(
            ledger,
            {
                "commit": at,
                "form": FORM,
                "seeds": [first, first + piece - 1],
                "old": is_old,
                "cases": outcomes.cases,
                "refused": outcomes.refused,
                "same": outcomes.same,
                "violations": violations,
            },
        )
        print(f"{FORM} {first}: {outcomes.cases} cases, {len(violations)} violations", flush=True)
    found = [row for row in read_ledger(ledger, at) if row["form"] == FORM]
    return [violation for row in found for violation in row["violations"]]


def run_piece(seeds: range, *, is_old: bool) -> tuple[Outcomes, list[str]]:
    """Damage and read, seed by seed."""
    world, outcomes, violations = World(is_old=is_old), Outcomes(), []
    suffixes = OLD_SUFFIXES if is_old else SUFFIXES
    for seed in seeds:
        try:
            world.run(seed, suffixes[seed % len(suffixes)], outcomes)
        except AssertionError as problem:
            violations.append(str(problem).partition("\n")[0])
        except Exception as problem:  # noqa: BLE001 - a traceback at a user is a violation, too
            violations.append(f"seed {seed}: {type(problem).__name__}: {problem}")
    return outcomes, violations


def main() -> int:
    """Run as the command says."""
    parser = argparse.ArgumentParser(prog="python -m tests.tier_damage_soak")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=60)
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # each index that is done without
    until_s = time.monotonic() + given.minutes * 60
    violations = soak(given.cases, ledger=LEDGER, at=commit(), until_s=until_s)
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
