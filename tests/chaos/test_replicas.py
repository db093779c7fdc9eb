"""Nodes die or leave while records are written: what was acknowledged is there, once, on each replica."""

from pathlib import Path

import pytest

from tests.chaos.clients import KINDS
from tests.chaos.image import CannotMount, why_not
from tests.chaos.replicas import (
    APART,
    TOGETHER,
    run_broker_power_cuts,
    run_clean_restarts,
    run_cluster_kills,
)

KILLS, CUTS = 3, 2


def test_kills_of_brokers_and_controllers_lose_no_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run_cluster_kills(tmp_path, KILLS, 1, APART)
    with capsys.disabled():
        print(f"\nnodes killed: {report}")
    assert report.violations == []
    assert report.faults == KILLS
    assert report.acked > 1000 * KILLS


def test_kills_of_combined_nodes_are_no_error_to_a_real_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """librdkafka, aiokafka and kafka-python write and read all the while."""
    report = run_cluster_kills(tmp_path, KILLS - 1, 1, TOGETHER, KINDS)
    with capsys.disabled():
        print(f"\ncombined nodes killed: {report}")
    assert report.violations == []
    assert report.faults == KILLS - 1


def test_a_clean_restart_of_each_broker_in_turn_is_no_error_and_hands_over_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run_clean_restarts(tmp_path, TOGETHER, KINDS)
    [gap_ms] = report.back_ms
    with capsys.disabled():
        print(f"\nrestarted in turn: {report.acked} records, longest gap {gap_ms:.0f} ms")
    assert report.violations == []
    assert gap_ms < 30_000, "half a session: somebody waited for one to end"


def test_power_cuts_of_one_broker_at_a_time_lose_nothing_that_two_others_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    try:
        report = run_broker_power_cuts(tmp_path, CUTS, 1)
    except CannotMount as problem:
        pytest.skip(str(problem))
    with capsys.disabled():
        print(f"\npower of brokers cut: {report}")
    assert report.violations == []
    assert report.faults == CUTS
