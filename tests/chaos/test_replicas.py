"""Brokers die while records are written to all of them: what was acknowledged is there, once, on each."""

from pathlib import Path

import pytest

from tests.chaos.replicas import run_broker_kills

KILLS = 4


def test_four_kills_of_brokers_lose_no_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run_broker_kills(tmp_path, KILLS, 1)
    with capsys.disabled():
        print(f"\nbrokers killed: {report}")
    assert report.violations == []
    assert report.faults == KILLS
    assert report.acked > 1000 * KILLS
