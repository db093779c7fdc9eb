"""Take the guard of a row of docs/kips out, and see that a test of that row fails. WORLD.

    python -m tests.mutants.rows --all           every row that has a guard whose test can be run alone
    python -m tests.mutants.rows --turn 20000    the three rows whose turn that is, one guard of each

One line per row: `caught` or `missed`, seconds, row, guard. The exit code is 0 when all were caught.
"""

import argparse
import random
import sys
from collections.abc import Iterator

from tests.kips import Row, all_rows
from tests.mutants.patch import Mutant
from tests.mutants.table import MUTANTS

ROWS_A_TURN = 3
# Rows named here say that seeds of the simulator notice: test_mutants.py takes those guards out.
BY_SEEDS = "test_the_simulator_notices"


def guards_by_tests(row: Row) -> Iterator[Mutant]:
    """The guards that a test of this row has to miss, each with those of its tests that the row names."""
    for mutant in MUTANTS:
        both = tuple(node for node in mutant.tests if _names(row, node))
        if both:
            yield mutant._replace(tests=both)


def guards_by_seeds(row: Row) -> Iterator[Mutant]:
    """The guards that the simulator has to miss, of a row that says so or is about a trap."""
    if BY_SEEDS in row.tests or "mutant `" in row.text or row.text.startswith("| X"):
        for mutant in MUTANTS:
            ids = mutant.name.partition(":")[0].replace(",", " ").split()
            if mutant.seeds and any(each in ids for each in row.ids):
                yield mutant


def _names(row: Row, node: str) -> bool:
    path, _, test = node.partition("::")
    return test.partition("[")[0] in row.tests or path in row.test_files


def is_guarded(row: Row) -> bool:
    """Whether a guard of this row is taken out by some test, to see that it is missed."""
    return any(guards_by_tests(row)) or any(guards_by_seeds(row))


def guarded_rows() -> list[Row]:
    """Rows with a guard of which a test can be run alone, in an order that is always the same and mixed."""
    rows = [row for row in all_rows() if any(guards_by_tests(row))]
    random.Random(405).shuffle(rows)
    return rows


def rows_of_turn(turn: int) -> list[Row]:
    """Three rows; so many turns later that all have been there, the same ones."""
    rows = guarded_rows()
    return [rows[(turn * ROWS_A_TURN + each) % len(rows)] for each in range(ROWS_A_TURN)]


def main(arguments: list[str]) -> int:
    """Run the command line."""
    from tests.mutants.catch import catch_by_tests, rows_only

    parser = argparse.ArgumentParser(prog="python -m tests.mutants.rows")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true")
    which.add_argument("--turn", type=int)
    chosen = parser.parse_args(arguments)
    rows = guarded_rows() if chosen.all else rows_of_turn(chosen.turn)
    guards = [[*guards_by_tests(row)] for row in rows]
    if not chosen.all:
        guards = [[some[chosen.turn % len(some)]] for some in guards]
    # In the order in which they are reported.
    reported = iter([row.name for row, some in zip(rows, guards, strict=True) for _ in some])
    printed = rows_only()
    all_caught = True

    def report(guard: Mutant, is_caught: bool, seconds: float) -> None:
        nonlocal all_caught
        all_caught = all_caught and is_caught
        word = "caught" if is_caught else "missed"
        print(f"{word}\t{seconds:.1f}\t{next(reported)}\t{guard.name}", file=printed)

    catch_by_tests([guard for some in guards for guard in some], report)
    return 0 if all_caught else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
