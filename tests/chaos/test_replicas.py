"""Brokers and controllers die while records are written: what was acknowledged is there, once, on each."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.chaos.replicas import APART, TOGETHER, run_cluster_kills

KILLS = 4


@pytest.mark.parametrize("members", [APART, TOGETHER], ids=["three-and-three", "combined"])
def test_kills_of_brokers_and_controllers_lose_no_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], members: Sequence[tuple[str, str]]
) -> None:
    report = run_cluster_kills(tmp_path, KILLS, 1, members)
    with capsys.disabled():
        print(f"\nnodes killed: {report}")
    assert report.violations == []
    assert report.faults == KILLS
    assert report.acked > 1000 * KILLS
