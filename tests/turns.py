"""Tests that take long and seldom find something run in turns: the commit decides which of them it is asked.

So a commit has one answer (decision 0056), and another one is asked others. All of them run with `-m soak`
beside what `make test` runs.
"""

import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SHARES = 6


@cache
def number_of_commit() -> int:
    """Return 32 bits, the same ones for the same commit; 0 where there is none, as in what was unpacked."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return 0
    return int(done.stdout[:8].strip() or "0", 16)


def in_turns(cases: Sequence[Any], newest: int = 0, turn: int | None = None) -> list[Any]:
    """Return the cases of a parametrized test, with the mark `soak` at all but one in `SHARES` of them.

    The `newest` ones, which are the last, have a turn in each commit. Without `turn` it is the commit's.
    """
    if turn is None:
        turn = number_of_commit()
    always = len(cases) - newest
    return [
        case if number >= always or number % SHARES == turn % SHARES else _for_soak(case)
        for number, case in enumerate(cases)
    ]


def _for_soak(case: Any) -> Any:
    values = case if type(case) is tuple else (case,)
    return pytest.param(*values, marks=pytest.mark.soak)
