"""The heap runs in order, chance is split by name, and a machine's clocks do what bad clocks do."""

from firnline.runtime.clock import FOLLOW_S, SteadyClock
from firnline.sim.world import SECOND, Chance, MachineClock, World


def test_events_of_one_moment_happen_in_the_order_they_were_planned() -> None:
    world = World(1)
    seen: list[int] = []
    world.at(10, seen.append, 2)
    world.at(5, seen.append, 1)
    world.at(10, seen.append, 3)
    dropped = world.at(10, seen.append, 99)
    dropped.cancel()
    world.run_until(10)
    assert seen == [1, 2, 3]
    assert (world.now_us, world.events) == (10, 3)


def test_a_draw_of_one_subsystem_shifts_no_other() -> None:
    one, other = Chance(1, "net"), Chance(1, "disk")
    expected = [other.below(1000) for _ in range(5)]
    one.below(10)
    again = Chance(1, "disk")
    assert [again.below(1000) for _ in range(5)] == expected
    assert [Chance(2, "disk").below(1000) for _ in range(1)] != expected[:1]


def test_ids_have_the_shape_of_version_4_and_no_dash_in_front() -> None:
    chance = Chance(3, "ids")
    for _ in range(500):
        value = chance.uuid()
        assert value[6] >> 4 == 4
        assert value[8] >> 6 == 2
        assert value[0] >> 2 != 62


def test_the_digest_says_where_two_runs_part() -> None:
    first, second = World(1), World(1)
    for world in (first, second):
        world.note(1, "a")
    assert first.digest() == second.digest()
    first.note(1, "b")
    second.note(2, "b")
    assert first.digest() != second.digest()


def test_a_wall_clock_that_jumps_moves_the_time_line_by_a_tenth_at_most() -> None:
    world = World(1)
    clock = MachineClock(world)
    steady = SteadyClock(clock.monotonic, clock.wall)
    before_ms = steady.now_ms()
    clock.offset_s += 3600
    assert steady.now_ms() == before_ms
    world.run_until(int(FOLLOW_S * SECOND))
    steady.follow()
    assert steady.now_ms() == before_ms + int(FOLLOW_S * 1100)


def test_a_clock_that_drifts_keeps_its_place_when_its_rate_changes() -> None:
    world = World(1)
    clock = MachineClock(world, rate_ppm=10_000)
    world.run_until(100 * SECOND)
    assert round(clock.monotonic(), 6) == 101.0
    clock.drift(-10_000)
    assert round(clock.monotonic(), 6) == 101.0
    world.run_until(200 * SECOND)
    assert round(clock.monotonic(), 6) == 200.0
    assert clock.virtual_us(99) == 100_001
