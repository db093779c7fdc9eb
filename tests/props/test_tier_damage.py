"""A tier with damaged bytes, read by Spark's path and by the broker's: an error, or the same rows.

`make soak` goes on with other seeds (tests/tier_damage_soak.py).
"""

import pytest

from tests.tier_damage_world import OLD_SUFFIXES, SUFFIXES, Outcomes, World

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
