"""Mutants by machine: what is made of a source, who is run for it, and what the ledger says of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutate import run as mutate
from tests.mutate.points import DROP, NEGATE, Point, mutated, points
from tests.mutate.touch import Touched

SOURCE = '''
"""A module. PURE."""

LIMIT = 3

def guarded(value, seen):
    """Says what."""
    if value is None or value > LIMIT:
        return "refused"
    seen.append(value)
    total = 0
    total = total + value
    assert total
    return total

class Ledger:
    def keep(self, rows):
        self.rows = [row for row in rows if row]
        return not self.rows
'''


def test_conditions_are_negated_and_statements_dropped_and_nothing_else_is_touched() -> None:
    made = [(each.function, each.kind, each.text) for each in points("log/rows.py", SOURCE)]
    assert made == [
        ("guarded", NEGATE, "value is None or value > LIMIT"),
        ("guarded", NEGATE, "value is None"),
        ("guarded", NEGATE, "value > LIMIT"),
        ("guarded", DROP, 'return "refused"'),
        ("guarded", DROP, "seen.append(value)"),
        ("guarded", DROP, "total = total + value"),
        ("Ledger.keep", DROP, "self.rows = [row for row in rows if row]"),
        ("Ledger.keep", NEGATE, "row"),
        ("Ledger.keep", NEGATE, "not self.rows"),
    ]


def test_a_mutant_is_the_function_with_one_thing_changed() -> None:
    said: dict[str, object] = {}
    for point in points("log/rows.py", SOURCE)[:6]:
        space: dict[str, object] = {}
        exec(compile(SOURCE, "rows.py", "exec"), space)  # noqa: S102 - the source is the one above
        guarded = space["guarded"]
        guarded.__code__ = mutated(SOURCE, "rows.py", point)  # type: ignore[attr-defined]
        seen: list[int] = []
        try:
            said[point.text] = (guarded(2, seen), seen, guarded(5, []))  # type: ignore[operator]
        except (AssertionError, TypeError) as problem:
            said[point.text] = type(problem)
    assert said == {
        "value is None or value > LIMIT": ("refused", [], 5),
        "value is None": ("refused", [], "refused"),
        "value > LIMIT": ("refused", [], 5),
        'return "refused"': (2, [2], 5),
        "seen.append(value)": (2, [], "refused"),
        "total = total + value": AssertionError,
    }


def test_a_result_counts_while_the_function_is_the_same(tmp_path: Path) -> None:
    ledger = tmp_path / "mutants.jsonl"
    before = points("log/rows.py", SOURCE)
    for point in before:
        mutate.note(ledger, "abc", point, mutate.KILLED)
    after = points("log/rows.py", SOURCE.replace("> LIMIT", ">= LIMIT"))
    kept = mutate.read_ledger(ledger, {point.key: point for point in after})
    assert {key.partition("#")[0] for key in kept} == {"log/rows.py:Ledger.keep"}


def test_a_result_counts_whatever_becomes_of_docstrings_comments_and_layout() -> None:
    plain = "def late(a):\n    if a > 1:\n        return 0\n    return a\n"
    reported = """def late(a):
    'Say it.'
    # Why.
    if (a
            > 1):
        return 0
    return a
"""
    keys = [[point.key for point in points("log/rows.py", each)] for each in (plain, reported)]
    assert keys[0] == keys[1]
    assert keys[0] != [point.key for point in points("log/rows.py", plain.replace("> 1", "> 2"))]


def test_more_than_two_in_a_hundred_without_a_reason_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tmp_path / "survivors.txt"
    monkeypatch.setattr(mutate, "reasons", lambda: _reasons(listed))
    known = {f"p#{n}": Point("p", "f", DROP, n, 1, 1, "x", "h") for n in range(100)}
    rows = {key: {"key": key, "result": mutate.KILLED} for key in known}
    for n in range(3):
        rows[f"p#{n}"]["result"] = mutate.SURVIVED
    listed.write_text("")
    assert mutate.report(known, rows) == 1
    listed.write_text("# why\np#1  nobody reads it any more\n")
    assert mutate.report(known, rows) == 0


_reasons = mutate.reasons


def test_an_expression_of_several_lines_is_touched_by_who_runs_any_of_them() -> None:
    touched = Touched({"p": {2: ["a"], 3: ["b"], 9: ["c"]}}, {"a": 1.0, "b": 2.0, "c": 1.0})
    assert touched.by("p", 1, 3) == ["a", "b"]
    assert touched.by("p", 4, 8) == []


TEST_THAT_SEES_IT = (
    "tests/unit/raft/test_snapshot_rules.py::test_what_is_not_committed_is_never_made_a_snapshot"
)
TEST_THAT_DOES_NOT = "tests/unit/raft/test_snapshot_rules.py::test_no_limit_keeps_everything"


RUN = """
import json, sys
from pathlib import Path
import firnline.raft.snapshot_rules
from tests.mutate import run as mutate
from tests.mutate.points import points
from tests.mutate.touch import Touched
tests, path = json.loads(sys.argv[1]), "raft/snapshot_rules.py"
all_of_it = points(path, (mutate.SOURCE / path).read_text())
(point,) = (each for each in all_of_it if each.text == "snapshot_id.offset > high_watermark")
touched = Touched({path: {point.line: tests}}, dict.fromkeys(tests, 5.0))
ledger = Path(sys.argv[2])
assert mutate.run(iter([point]), touched, ledger=ledger, at="", jobs=1, until_s=1e18) == 1
"""


@pytest.mark.parametrize(
    ("tests", "result"),
    [
        ([TEST_THAT_SEES_IT], mutate.KILLED),
        ([TEST_THAT_DOES_NOT], mutate.SURVIVED),
        ([], mutate.UNTOUCHED),
    ],
)
def test_a_mutant_lives_until_a_test_fails(tmp_path: Path, tests: list[str], result: str) -> None:
    """In a process of its own: whoever forks must not have threads, as one that ran Spark has."""
    ledger = tmp_path / "mutants.jsonl"
    command = [sys.executable, "-c", RUN, json.dumps(tests), str(ledger)]
    subprocess.run(command, cwd=mutate.ROOT, check=True)
    assert json.loads(ledger.read_text())["result"] == result
