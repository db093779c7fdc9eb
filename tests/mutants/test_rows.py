"""Rows of docs/kips are what they say: without the guard of a row, a test that the row names fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.rows import ROWS_A_TURN, guarded_rows, guards_by_tests, rows_of_turn
from tests.mutants.table import MUTANTS
from tests.turns import number_of_commit

ROOT = Path(__file__).parents[2]
WITHIN_S = 300.0  # three rows, on a machine that does other things as well


def test_every_guard_that_a_test_notices_belongs_to_a_row() -> None:
    tied = {guard.name for row in guarded_rows() for guard in guards_by_tests(row)}
    missing = [mutant.name for mutant in MUTANTS if mutant.tests and mutant.name not in tied]
    assert not missing, "name its test in a row of docs/kips"


def test_every_row_has_its_turn() -> None:
    rows = guarded_rows()
    turns = -(-len(rows) // ROWS_A_TURN)
    seen = {row for turn in range(turns) for row in rows_of_turn(turn)}
    assert seen == set(rows)


@pytest.mark.timeout(WITHIN_S * 2)
def test_a_test_of_the_row_fails_without_its_guard() -> None:
    """Goal: rows are true. Method: three for each commit; FIRNLINE_ROWS_TURN=N asks for others."""
    turn = int(os.environ.get("FIRNLINE_ROWS_TURN") or number_of_commit())
    print(f"FIRNLINE_ROWS_TURN={turn}: {', '.join(row.name for row in rows_of_turn(turn))}")
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants.rows", "--turn", str(turn)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    print(done.stdout)
    words = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert words == ["caught"] * ROWS_A_TURN, done.stdout + done.stderr[-2000:]
