"""Simulated hours add up in the ledger, go on where they stopped, and keep what went wrong."""

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from firnline.sim.run import run
from tests.sim import soak as soaking


def rows(ledger: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ledger.read_text().splitlines()]


def test_a_run_goes_on_after_the_last_seed_of_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: hours of runs that were stopped add up. Method: a little more each time, at two commits."""
    ledger = tmp_path / "soak.jsonl"
    monkeypatch.setattr(soaking, "run", partial(run, seconds=4))
    monkeypatch.setattr(soaking, "PIECE", 1)

    def soak(at: str, hours: float, first_seed: int) -> list[str]:
        later = time.monotonic() + 600
        return soaking.soak(hours=hours, ledger=ledger, at=at, until_s=later, first_seed=first_seed)

    assert soak("a", 1e-6, 1) == []
    assert soak("a", rows(ledger)[0]["hours"] + 1e-6, 1) == []
    assert soak("b", 1e-6, 7) == []
    found = rows(ledger)
    assert [row["seeds"] for row in found] == [[1, 1], [2, 2], [7, 7]]
    assert all(row["hours"] * 3600 > 4 and row["committed"] > 20 for row in found)


def test_a_run_that_is_out_of_time_begins_nothing(tmp_path: Path) -> None:
    ledger = tmp_path / "soak.jsonl"
    assert soaking.soak(hours=1, ledger=ledger, at="a", until_s=0.0, first_seed=1) == []
    assert not ledger.exists()


def test_enough_hours_are_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = tmp_path / "soak.jsonl"
    row = {
        "commit": "a",
        "form": soaking.QUORUM_HOURS.name,
        "seeds": [1, 20],
        "hours": 1.5,
        "cpu_s": 540.0,
        "faults": 2000,
        "committed": 200_000,
        "violations": ["rel-Q4 violated"],
    }
    ledger.write_text(json.dumps(row) + "\n")
    later = time.monotonic() + 60
    found = soaking.soak(hours=1.0, ledger=ledger, at="a", until_s=later, first_seed=1)
    assert found == ["rel-Q4 violated"], "what went wrong at this commit stays known"
    assert len(rows(ledger)) == 1
    assert "1.50 simulated hours at 10.0 times real time a core" in capsys.readouterr().out


def test_hours_of_full_clusters_are_a_form_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: hours of clusters count by what producers were promised, and apart from those of the quorum."""
    ledger = tmp_path / "soak.jsonl"
    monkeypatch.setattr(soaking, "run", partial(run, seconds=6))
    monkeypatch.setattr(soaking, "PIECE", 1)
    kind, later = soaking.CLUSTER_HOURS, time.monotonic() + 600
    for _ in range(2):
        soaking.soak(hours=1e-6, ledger=ledger, at="a", until_s=later, first_seed=5, kind=kind)
    (row,) = rows(ledger)
    assert (row["form"], row["seeds"], row["violations"]) == ("cluster", [5, 5], [])
    assert row["acked"] > 100
    assert row["exempt"] == 0
    full = {"hours": 1.0, "cpu_s": 360.0, "faults": 360, "acked": 360_000}
    assert soaking.totals([full], kind)[1].endswith("the hours count")
    assert soaking.totals([{**full, "acked": 359_999}], kind)[1].endswith("do not count")


def test_hours_in_which_nothing_was_acknowledged_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of twelve seeds with a tier was such a one, and its hours were counted."""
    real = run(5, seconds=6, form=soaking.CLUSTER_HOURS.form)
    outcomes = iter((real, real._replace(acknowledged=0)))
    monkeypatch.setattr(soaking, "run", lambda seed, form: next(outcomes))
    monkeypatch.setattr(soaking, "PIECE", 2)
    row = soaking.piece("a", 5, time.monotonic() + 600, "cluster")
    assert (row["seeds"], row["empty"]) == ([5, 6], [6])
    assert row["hours"] == pytest.approx(real.simulated_s / 3600, abs=1e-5)


def test_hours_without_enough_faults_or_records_do_not_count() -> None:
    row = {"hours": 1.0, "cpu_s": 360.0, "faults": 360, "committed": 72_000}
    assert soaking.totals([row])[1].endswith("the hours count")
    assert soaking.totals([{**row, "faults": 359}])[1].endswith("do not count")
    assert soaking.totals([{**row, "committed": 71_999}])[1].endswith("do not count")
