"""The short form of tests/chaos/store_outage.py: a store is gone for seconds, in three ways."""

from pathlib import Path

import pytest

from tests.chaos.store_outage import BUSY_FLOOR_MS, run_outage

pytestmark = pytest.mark.peer


def test_an_outage_costs_what_was_due_and_everything_is_caught_up_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = run_outage(tmp_path, partitions=20, minutes=0.15, rounds=3, floor_ms=BUSY_FLOOR_MS)
    with capsys.disabled():
        print(f"\n{outcome}")
    assert outcome.violations == []
    assert outcome.segments >= 60
    assert outcome.empty_answers <= 1
    assert outcome.tier_answers >= 3
