"""Simulated hours add up in the ledger, go on where they stopped, and keep what went wrong."""

import json
import time
from pathlib import Path

import pytest

from tests.sim import soak as soaking


def rows(ledger: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in ledger.read_text().splitlines()]


def test_a_run_goes_on_after_the_last_seed_of_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "soak.jsonl"
    played: list[int] = []

    def piece(at: str, seed: int, until_s: float) -> dict[str, object]:
        played.append(seed)
        return {
            "commit": at,
            "form": soaking.FORM,
            "seeds": [seed, seed + 9],
            "hours": 0.5,
            "cpu_s": 90.0,
            "faults": 400,
            "committed": 50_000,
            "violations": ["rel-Q4 violated"] if seed == 11 else [],
        }

    monkeypatch.setattr(soaking, "_piece", piece)
    later = time.monotonic() + 60
    assert soaking.soak(hours=0.5, ledger=ledger, at="a", until_s=later, first_seed=1) == []
    found = soaking.soak(hours=1.5, ledger=ledger, at="a", until_s=later, first_seed=1)
    assert played == [1, 11, 21]
    assert found == ["rel-Q4 violated"]
    assert soaking.soak(hours=0.5, ledger=ledger, at="b", until_s=later, first_seed=5) == []
    assert played[3:] == [5], "another commit begins anew"
    assert len(rows(ledger)) == 4


def test_hours_without_enough_faults_or_records_do_not_count() -> None:
    row = {"hours": 1.0, "cpu_s": 360.0, "faults": 360, "committed": 72_000}
    assert soaking.totals([row])[1].endswith("the hours count")
    assert soaking.totals([{**row, "faults": 359}])[1].endswith("do not count")
    assert soaking.totals([{**row, "committed": 71_999}])[1].endswith("do not count")
    assert soaking.totals([row])[0] == "1.00 simulated hours at 10.0 times real time a core"
