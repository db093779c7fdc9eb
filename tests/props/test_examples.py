"""The same commit has the same answer: which examples a property is tried with (decision 0056)."""

import importlib.util
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chaos.soak import append, read_ledger
from tests.explore_soak import FORM, files, run_piece, soak

needs_fixed_examples = pytest.mark.skipif(
    "not __import__('hypothesis').settings.default.derandomize", reason="a run that explores"
)


def examples() -> list[tuple[int, bytes]]:
    found = []

    @given(st.integers(), st.binary())
    def of_a_property(number: int, data: bytes) -> None:
        found.append((number, data))

    of_a_property()
    return found


@needs_fixed_examples
def test_examples_do_not_depend_on_what_is_loaded(tmp_path: Path) -> None:
    """Fears a failure in one worker that is none alone. Method: constants are loaded meanwhile."""
    before = examples()
    assert len(set(before)) > 50
    path = tmp_path / "just_loaded.py"
    path.write_text(f"NUMBERS = {list(range(10**6, 10**6 + 500))}\n")
    spec = importlib.util.spec_from_file_location("just_loaded", path)
    assert spec is not None
    sys.modules["just_loaded"] = module = importlib.util.module_from_spec(spec)
    try:
        assert spec.loader is not None
        spec.loader.exec_module(module)
        assert examples() == before
    finally:
        del sys.modules["just_loaded"]


def test_who_explores_has_other_examples_and_nobody_else() -> None:
    assert settings.get_profile("firnline").derandomize
    explore = settings.get_profile(FORM)
    assert not explore.derandomize
    assert explore.deadline is None
    assert explore.print_blob


def test_the_files_with_properties_are_found() -> None:
    found = files()
    assert len(found) > 40
    assert "tests/props/test_log_model.py" in found
    assert Path(__file__).name in {Path(name).name for name in found}


CONFTEST = """
from hypothesis import settings
settings.register_profile("explore", settings(database=None))
"""
FAILING = """
from hypothesis import given, strategies as st

@given(st.integers())
def test_numbers_are_small(number):
    assert number < 1000

@given(st.integers())
def test_numbers_are_numbers(number):
    assert number == number

def test_of_one_example():
    assert 0
"""


def test_what_a_piece_finds_is_told_with_its_example_and_the_command(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    path = tmp_path / "test_some.py"
    path.write_text(FAILING)
    row = run_piece(7, [str(path)], until_s=0)
    assert (row["seed"], row["native"], row["files"], row["tests"]) == (7, False, 1, 1)
    (violation,) = row["violations"]
    assert "number=1000" in violation
    assert violation.endswith(
        "[FIRNLINE_NATIVE=0 python -m pytest --hypothesis-profile=explore --hypothesis-seed=7"
        f" -m 'hypothesis and not spark and not soak' {path}]"
    )


def test_pieces_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = tmp_path / "soak.jsonl"
    append(ledger, {"commit": "a", "form": "stored", "seeds": [1, 2], "violations": ["another's"]})
    monkeypatch.setattr("tests.explore_soak.files", list)
    assert soak(2, ledger=ledger, at="a", until_s=0) == []
    until_s = time.monotonic() + 60
    for seeds in (1, 2):
        assert soak(seeds, ledger=ledger, at="a", until_s=until_s) == []
    rows = read_ledger(ledger, "a")[1:]
    assert [(row["seed"], row["native"]) for row in rows] == [(1000, True), (1001, False)]
    append(ledger, rows[0] | {"seed": 1002, "violations": ["found"], "commit": "a"})
    assert soak(3, ledger=ledger, at="a", until_s=until_s) == ["found"]
