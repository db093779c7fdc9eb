"""The power goes in mid-produce: what was acknowledged is on the disk. Reliability (f) P1-P13, test 2."""

import os
from pathlib import Path

import pytest

from tests.chaos.image import CannotMount, why_not
from tests.chaos.kill import Report
from tests.chaos.power_cut import losses_without_sync, run_power_cuts

CUTS = int(os.environ.get("FIRNLINE_POWER_CUTS", "12"))
SOAK_CUTS = 100


@pytest.fixture(autouse=True)
def disks() -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)


def run(directory: Path, cuts: int, seed: int) -> Report:
    try:
        return run_power_cuts(directory, cuts, seed)
    except CannotMount as reason:
        pytest.skip(str(reason))


def test_a_dozen_power_cuts_lose_nothing_acknowledged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records, topics and committed offsets; each cut begins on the disk the last one left.

    As many as let the judge read all of the log twice; `make soak` goes on with more.
    """
    report = run(tmp_path, CUTS, 1)
    with capsys.disabled():
        print(f"\npower cuts: {report}")
    assert report.violations == []
    assert report.faults == CUTS


@pytest.mark.soak
def test_a_hundred_power_cuts_lose_nothing_acknowledged(tmp_path: Path) -> None:
    report = run(tmp_path, SOAK_CUTS, 2)
    assert report.violations == []


def test_without_sync_a_power_cut_may_lose_and_the_checker_would_see_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """firnline.acks.fsync=never is Kafka's promise: a copy on another broker. Here there is none, so a loss
    is allowed; it is told, not required. Whatever is there is in order and without holes."""
    try:
        acked, faults = losses_without_sync(tmp_path)
    except CannotMount as reason:
        pytest.skip(str(reason))
    with capsys.disabled():
        print(f"\nwithout sync, of {acked} records acknowledged: {faults or 'nothing lost'}")
    assert [fault for fault in faults if "lost" not in fault] == []
