"""Brokers and the store of their tier die under load: nothing acknowledged is lost, nothing is left over."""

import os
from pathlib import Path

import pytest

from tests.chaos.tier_kills import OF_BROKER, OF_STORE, run_tier_kills

CYCLES = int(os.environ.get("FIRNLINE_TIER_KILL_CYCLES", "5"))
pytestmark = pytest.mark.peer


def test_kills_of_brokers_and_of_the_store_lose_nothing_and_leave_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run_tier_kills(tmp_path, CYCLES, 1)
    with capsys.disabled():
        print(f"\ntier kills: {report}")
    assert report.violations == []
    assert report.faults == CYCLES == report.kinds.total()
    assert set(report.kinds) <= {OF_BROKER, OF_STORE}
    assert report.acked > CYCLES * 1000
