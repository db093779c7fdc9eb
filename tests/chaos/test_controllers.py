"""Controllers die and lose their power while topics are made: what was acknowledged is in the metadata."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.chaos.controllers import (
    losses_without_sync,
    run_controller_kills,
    run_controller_power_cuts,
)
from tests.chaos.image import CannotMount, why_not

KILLS, CUTS = 5, 5  # `make soak` goes on with more
T = TypeVar("T")


def test_kills_of_controllers_lose_no_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run_controller_kills(tmp_path, KILLS, 1)
    with capsys.disabled():
        print(f"\ncontrollers killed: {report}")
    assert report.violations == []
    assert report.faults == KILLS
    assert report.acked > 2 * KILLS


def test_power_cuts_of_all_controllers_lose_no_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = _on_an_image(lambda: run_controller_power_cuts(tmp_path, CUTS, 1))
    with capsys.disabled():
        print(f"\npower of controllers cut: {report}")
    assert report.violations == []
    assert report.faults == CUTS
    assert report.acked > 2 * CUTS


def test_a_power_cut_of_controllers_that_sync_nothing_is_seen(tmp_path: Path) -> None:
    """Goal: the judge can find a loss. Method: the same cut, with fsync and fdatasync made to do nothing."""
    acked, found = _on_an_image(lambda: losses_without_sync(tmp_path))
    assert acked >= 5
    assert found


def _on_an_image(run: Callable[[], T]) -> T:
    if reason := why_not():
        pytest.skip(reason)
    try:
        return run()
    except CannotMount as problem:
        pytest.skip(str(problem))
