"""A guard that is gone is noticed: by its named test, or by the simulator within the seeds of its row.

In turns: each commit has a sixth of the guards removed, `-m soak` the others.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from firnline.sim.run import QUORUM, run
from firnline.sim.tier.kinds import cluster_kind
from tests.mutants.catch import caught_by_seeds
from tests.mutants.patch import Mutant
from tests.mutants.table import MUTANTS
from tests.turns import in_turns

ROOT = Path(__file__).parents[2]
HANGS_AFTER_S = 60.0  # for each mutant, on average; no bound on a slow machine
REQUIRED = (
    *("rel-Q2", "rel-Q6", "rel-Q7", "rel-Q10", "rel-Q12", "rel-P1", "rel-P2", "rel-P3"),
    *("rel-R1", "rel-R3", "rel-R4", "rel-R6", "rel-R7", "rel-R8", "rel-R13", "rel-R19"),
    *(f"X{number}" for number in range(1, 30) if number != 18),  # voters do not change yet
)


BY_SEEDS = [mutant for mutant in MUTANTS if mutant.seeds]
BY_TESTS = [mutant for mutant in MUTANTS if mutant.tests]


@pytest.mark.parametrize("mutant", in_turns(BY_SEEDS), ids=lambda mutant: mutant.name)
def test_the_simulator_notices(mutant: Mutant, capsys: pytest.CaptureFixture[str]) -> None:
    assert caught_by_seeds(mutant) is not None, f"nobody noticed: {capsys.readouterr().out}"


@pytest.fixture(scope="module")
def found_by_tests(request: pytest.FixtureRequest) -> dict[str, str]:
    """Every mutant of this run that a test is to notice: what came of it."""
    items = (item for item in request.session.items if isinstance(item, pytest.Function))
    chosen: list[Any] = [
        item.callspec.params["mutant"] for item in items if item.function is test_its_test_notices
    ]
    names = [mutant.name for mutant in chosen]
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants.catch", *names],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S * len(names),
        check=False,
    )
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(rows) == len(names), done.stdout[-2000:] + done.stderr[-2000:]
    return {name: word for word, _, name in rows}


@pytest.mark.timeout(HANGS_AFTER_S * 10)
@pytest.mark.parametrize("mutant", in_turns(BY_TESTS), ids=lambda mutant: mutant.name)
def test_its_test_notices(mutant: Mutant, found_by_tests: dict[str, str]) -> None:
    word = found_by_tests[mutant.name]
    assert word == "caught", f"{mutant.tests} pass without the guard"


def test_tests_that_pass_notice_nothing_also_after_a_mutant_that_they_noticed() -> None:
    """Goal: `caught` means that guard. Method: the same tests without it, and with a change of nothing."""
    code = (
        "from tests.mutants.catch import *\n"
        "guard = next(each for each in MUTANTS if each.tests)\n"
        "none = guard._replace(replace=guard.find, also=())\n"
        "rows = rows_only()\n"
        "catch_by_tests([none, guard, none], lambda _, is_caught, s: print(is_caught, file=rows))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"src{os.pathsep}."},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["False", "True", "False"], done.stderr[-2000:]


def test_the_simulator_is_quiet_with_every_guard_in_place() -> None:
    """Goal: what notices a mutant is the mutant. Method: the same clusters as they ship."""
    tried = []
    for mutant in BY_SEEDS:
        if (mutant.profile, mutant.options) not in tried:
            tried.append((mutant.profile, mutant.options))
            seed = mutant.seeds[0]
            form = cluster_kind(mutant.profile) if mutant.profile else QUORUM
            options = form.draw(seed)._replace(**mutant.options)
            assert run(seed, seconds=8, options=options, form=form).first is None, mutant.name
    assert len(tried) > 3


def test_every_guard_that_must_have_a_mutant_has_one() -> None:
    named = " ".join(mutant.name.partition(": ")[0] for mutant in MUTANTS)
    found = re.findall(r"rel-[QPR][0-9]+|X[0-9]+", named)
    assert [guard for guard in REQUIRED if guard not in found] == []


def test_names_are_unique_and_each_mutant_has_somebody_to_notice_it() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        assert bool(mutant.tests) != bool(mutant.seeds), mutant.name
        assert bool(mutant.invariants) == bool(mutant.seeds), mutant.name
