"""Who was wiped gets a snapshot before the next one takes its place, however small the pieces are (X12)."""

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
