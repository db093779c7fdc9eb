"""The ledger of the long runs adds up, survives being cut off, and keeps what went wrong."""

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.kill import Report
from tests.chaos.soak import OUTSIDE, PIECE, ROOT, append, read_ledger, soak

Calls = list[tuple[int, int]]


def forms(calls: Calls, violations: list[str]) -> dict[str, object]:
    def run(directory: Path, cycles: int, seed: int) -> Report:
        assert directory.is_dir()
        calls.append((cycles, seed))
        return Report(faults=cycles, acked=10 * cycles, violations=list(violations))

    return {"kill": run}


def run(
    ledger: Path, goal: int, calls: Calls, violations: list[str], *, at: str = "abc"
) -> list[str]:
    later = time.monotonic() + 60
    wanted = {"kill": goal}
    return soak(wanted, ledger=ledger, at=at, until_s=later, forms=forms(calls, violations))


def test_a_run_goes_on_where_the_last_one_of_the_commit_stopped(tmp_path: Path) -> None:
    ledger = tmp_path / "soak.jsonl"
    calls: Calls = []
    run(ledger, PIECE + 5, calls, [])
    assert calls == [(PIECE, 1), (5, 2)]
    run(ledger, PIECE + 5, calls, [])
    assert len(calls) == 2
    run(ledger, 2 * PIECE, calls, [])
    assert calls[2:] == [(PIECE - 5, 3)]
    run(ledger, 3, calls, [], at="another")
    assert calls[3:] == [(3, 1)]
    assert sum(row["faults"] for row in read_ledger(ledger, "abc")) == 2 * PIECE


def test_faults_of_several_kinds_are_counted_apart(tmp_path: Path) -> None:
    def mixed(directory: Path, cycles: int, seed: int) -> Report:
        return Report(
            faults=cycles, kinds=Counter({"of a broker": cycles - seed, "of the store": seed})
        )

    wanted, later = {"kill": PIECE + 5}, time.monotonic() + 60
    ledger = tmp_path / "soak.jsonl"
    soak(wanted, ledger=ledger, at="abc", until_s=later, forms={"kill": mixed})
    run(ledger, PIECE + 6, [], [])
    assert [row.get("kinds") for row in read_ledger(ledger, "abc")] == [
        {"of a broker": PIECE - 1, "of the store": 1},
        {"of a broker": 3, "of the store": 2},
        None,
    ]
    assert "2 faults (2 of the store), 0 records" in str(
        Report(2, kinds=Counter({"of the store": 2}))
    )


def test_a_violation_stays_known_until_the_commit_changes(tmp_path: Path) -> None:
    ledger = tmp_path / "soak.jsonl"
    assert run(ledger, 3, [], ["partition 0: lost"]) == ["partition 0: lost"]
    assert run(ledger, 3, [], []) == ["partition 0: lost"]
    assert run(ledger, 3, [], [], at="mended") == []


def test_a_run_that_does_not_come_to_its_end_is_a_violation(tmp_path: Path) -> None:
    def stuck(directory: Path, cycles: int, seed: int) -> Report:
        raise AssertionError("nobody leads")

    wanted, later = {"kill": 1}, time.monotonic() + 60
    ledger = tmp_path / "soak.jsonl"
    found = soak(wanted, ledger=ledger, at="abc", until_s=later, forms={"kill": stuck})
    assert found == ["it did not come to its end: nobody leads"]


def test_a_line_that_was_cut_short_is_left_out_and_written_behind(tmp_path: Path) -> None:
    ledger = tmp_path / "soak.jsonl"
    ledger.write_text('{"commit": "abc", "form": "kill", "cyc')
    run(ledger, 3, [], [])
    assert [row["cycles"] for row in read_ledger(ledger, "abc")] == [3]


def test_a_longer_chain_is_one_piece(tmp_path: Path) -> None:
    """Each cut is one after a recovery, so a hundred in a row ask more than four times 25."""
    calls: Calls = []
    later = time.monotonic() + 60
    soak(
        {"kill": 100},
        ledger=tmp_path / "l",
        at="abc",
        until_s=later,
        forms=forms(calls, []),
        piece=100,
    )
    assert calls == [(100, 1)]


def test_no_piece_is_begun_when_time_is_up(tmp_path: Path) -> None:
    calls: Calls = []
    soak({"kill": 3}, ledger=tmp_path / "l", at="abc", until_s=0.0, forms=forms(calls, []))
    assert calls == []


def test_a_ledger_reports_nothing_of_the_machine(tmp_path: Path) -> None:
    """A violation brought the traceback of a node with it."""
    ledger = tmp_path / "soak.jsonl"
    files = [ROOT / "src/loop.py", Path(sys.prefix) / "json.py", Path("/else/where.py")]
    reported = [f'  File "{file}", line 3, in f\n' for file in files]
    append(
        ledger, {"commit": "abc", "violations": [*reported, f"{tempfile.gettempdir()}/run-3/log"]}
    )
    [row] = read_ledger(ledger, "abc")
    names = ["src/loop.py", "json.py", "where.py"]
    assert row["violations"] == [
        *(f'  File "{name}", line 3, in f\n' for name in names),
        "run-3/log",
    ]


@pytest.mark.parametrize("ledger", sorted(ROOT.glob("ledger/*.jsonl")), ids=lambda path: path.name)
def test_no_line_of_a_ledger_names_a_place(ledger: Path) -> None:
    places = (f"{ROOT}/", f"{tempfile.gettempdir()}/", f"{Path.home()}/")
    for number, line in enumerate(ledger.read_text().splitlines(), 1):
        assert not OUTSIDE.search(line), number
        assert not any(place in line for place in places), number
