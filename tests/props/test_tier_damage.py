"""A tier with damaged bytes, read by Spark's path and by the broker's: an error, or the same rows.

`make soak` goes on with other seeds (tests/tier_damage_soak.py).
"""

import time
from pathlib import Path

import pytest

from tests.chaos.soak import read_ledger
from tests.tier_damage_soak import soak
from tests.worlds.tier_damage import OLD_SUFFIXES, SUFFIXES, Outcomes, World

CASES = 1300  # all kinds of objects, in turn; some draws change nothing


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.mark.parametrize("part", range(3))
def test_what_is_damaged_is_an_error_or_the_same_rows(world: World, part: int) -> None:
    outcomes = Outcomes()
    for seed in range(part, CASES, 3):
        world.run(seed, SUFFIXES[seed // 3 % len(SUFFIXES)], outcomes)
    assert outcomes.cases > 1000 // 3
    assert outcomes.refused > 100, "most damage is seen"
    assert outcomes.same > 50, "indexes can be done without, and not all is read"


def test_what_was_tiered_before_there_were_checksums_is_held_to_its_neighbours() -> None:
    """Flips, cuts and zeros of what can be known without a checksum."""
    world, outcomes = World(is_old=True), Outcomes()
    for seed in range(150):
        world.run(seed, OLD_SUFFIXES[seed % len(OLD_SUFFIXES)], outcomes)
    assert outcomes.refused > 20


def test_the_long_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    ledger, later = tmp_path / "soak.jsonl", time.monotonic() + 600
    for wanted in (10, 30):
        assert soak(wanted, ledger=ledger, at="abc", until_s=later, piece=15) == []
    rows = read_ledger(ledger, "abc")
    assert sum(row["cases"] for row in rows) >= 30
    assert [row["seeds"][0] - rows[0]["seeds"][0] for row in rows] == [
        15 * number for number in range(len(rows))
    ]
