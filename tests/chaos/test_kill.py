"""Kill -9 in mid-produce: every acknowledged record is there afterwards, once and in order."""

import os
import statistics
from pathlib import Path

import pytest

from tests.chaos.kill import run_kills
from tests.chaos.workload import Positions, violations

CYCLES = int(os.environ.get("FIRNLINE_KILL_CYCLES", "6"))
SOAK_CYCLES = 50
# A record is accepted within this time from the start of the process (I34): a tenth of the session that the
# broker would wait for otherwise. `bench.startup` has the time on an idle machine.
BACK_MS = 60_000


def test_kills_lose_double_and_reorder_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The session of the killed broker lasts ten minutes here: only a broker that knows its own earlier
    incarnation dead is back before that."""
    _check(tmp_path, CYCLES, 1, capsys)


@pytest.mark.soak
def test_fifty_kills_lose_double_and_reorder_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _check(tmp_path, SOAK_CYCLES, 2, capsys)


def _check(tmp_path: Path, cycles: int, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    report = run_kills(tmp_path / "data", cycles, seed)
    with capsys.disabled():
        print(f"\nkill -9: {report}")
    assert report.violations == []
    assert report.faults == cycles
    assert report.acked > cycles * 100
    assert statistics.median(report.back_ms) < BACK_MS


# ---- the judge finds what it is for

GOOD: Positions = {0: [(0, 0), (1, 1), (2, 2), (3, 3)]}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([(0, 0), (1, 1), (2, 2)], "1 acknowledged records lost, first 3"),
        ([(0, 0), (1, 1), (3, 2), (4, 3)], "2 records not at their offset, first 2"),
        ([(0, 0), (1, 1), (2, 2), (3, 3), (4, 3)], "1 records twice"),
        ([(0, 0), (1, 2), (2, 1), (3, 3)], "out of order"),
        ([(0, 0), (1, 1), (2, 2), (3, 3), (5, 5)], "1 records missing in between"),
        ([(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)], "5 of 4 records sent"),
    ],
)
def test_the_checker_sees(found: list[tuple[int, int]], said: str) -> None:
    assert violations(GOOD, GOOD, {0: 4}) == []
    assert any(said in fault for fault in violations(GOOD, {0: found}, {0: 4}))
