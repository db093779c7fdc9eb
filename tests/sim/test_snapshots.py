"""Snapshots in a cluster that suffers: fetched in small pieces (X12), and damaged by their disks."""

import pytest

from firnline.sim.options import draw_options
from firnline.sim.run import run


@pytest.mark.parametrize(("seed", "start_offset_lag_ms"), [(1, 0), (2, 0), (3, 5_000)])
def test_a_wiped_node_comes_to_rest_on_snapshots_that_follow_one_another(
    seed: int, start_offset_lag_ms: int
) -> None:
    """Every 2 s one, which takes longer to fetch in pieces of 64 bytes; retention leaves the newest alone."""
    options = draw_options(seed)._replace(
        voters=3,
        observers=1,
        fault_kinds=("wipe",),
        fault_gap_us=(3_000_000, 6_000_000),
        delay_us=8_000,
        jitter_us=4_000,
        is_encoded=False,
        snapshot_bytes=20_000,
        snapshot_interval_ms=2_000,
        fetch_snapshot_max_bytes=64,
        fetch_max_bytes=4_096,
        retention_bytes=8_000,
        cleaning_interval_ms=500,
        start_offset_lag_ms=start_offset_lag_ms,
        min_changed_percent=0,
        operations_per_s=25,
        topics_max=60,
    )
    outcome = run(seed, seconds=25, options=options)
    assert outcome.first is None
    assert [fault for fault in outcome.faults if fault.kind == "wipe"]


# Seed 2 is nothing but damage, the others have all else, too.
@pytest.mark.parametrize(("seed", "is_barred"), [(1, True), (2, True), (3, False)])
def test_bits_that_flip_in_snapshots_cost_no_record_and_elect_nobody_who_forgot(
    seed: int, *, is_barred: bool
) -> None:
    """One voter at a time; retention leaves the newest snapshot alone, so nothing else stands in for it."""
    others = ("kill", "power", "power-all", "isolate", "storm", "wipe")
    drawn = draw_options(seed)
    options = drawn._replace(
        voters=max(drawn.voters, 3),
        fault_kinds=("rot",) if seed == 2 else ("rot", "rot", *others),
        fault_gap_us=(500_000, 2_500_000),
        snapshot_bytes=5_000,
        retention_bytes=9_000 if is_barred else 100_000,
        cleaning_interval_ms=500,
        delete_delay_ms=0,
        start_offset_lag_ms=0,
        min_changed_percent=0,
    )
    outcome = run(seed, seconds=25, options=options, keep_story=True)
    assert outcome.first is None
    story = "\n".join(map(str, outcome.story))
    assert "metadata snapshot is damaged" in story
    assert ("neither votes nor stands" in story) == is_barred
    assert ("takes part in elections again" in story) == is_barred


@pytest.mark.parametrize("seed", [17, 18, 22])
def test_a_voter_that_begins_at_0_again_distinguishes_histories(seed: int) -> None:
    """Its segment was still there when its snapshot was damaged; 17 elects who forgot, without the guard."""
    options = draw_options(seed)._replace(
        voters=3,
        observers=0,
        fault_kinds=("rot", "isolate", "isolate", "kill", "pause"),
        fault_gap_us=(150_000, 900_000),
        snapshot_bytes=4_000,
        retention_bytes=8_000,
        cleaning_interval_ms=300,
        delete_delay_ms=0,
        start_offset_lag_ms=0,
        min_changed_percent=0,
        election_timeout_ms=300,
        fetch_timeout_ms=800,
    )
    assert run(seed, seconds=25, options=options).first is None
