"""Controllers die and lose their power while topics are made: what was acknowledged is in the metadata."""

from pathlib import Path

import pytest

from tests.chaos.controllers import run_controller_kills, run_controller_power_cuts
from tests.chaos.image import CannotMount, why_not

KILLS, CUTS = 10, 10


def test_ten_kills_of_controllers_lose_no_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run_controller_kills(tmp_path, KILLS, 1)
    with capsys.disabled():
        print(f"\ncontrollers killed: {report}")
    assert report.violations == []
    assert report.faults == KILLS
    assert report.acked > 2 * KILLS


def test_ten_power_cuts_of_all_controllers_lose_no_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    try:
        report = run_controller_power_cuts(tmp_path, CUTS, 1)
    except CannotMount as problem:
        pytest.skip(str(problem))
    with capsys.disabled():
        print(f"\npower of controllers cut: {report}")
    assert report.violations == []
    assert report.faults == CUTS
    assert report.acked > 2 * CUTS
