"""Bits flip in clusters with a tier: in local files, and in objects of the store."""

from firnline.sim import report
from firnline.sim.run import run
from firnline.sim.tier.draw import ROT
from firnline.sim.tier.kinds import cluster_kind

SEEDS, SECONDS = (1, 2, 3), 30


def test_bits_that_flip_here_and_in_the_tier_change_no_record() -> None:
    """Goal: nothing damaged is copied, served, or a reason to delete; at the end everything is repaired."""
    form = cluster_kind("tiered-rot")
    flipped = []
    for seed in SEEDS:
        outcome = run(seed, seconds=SECONDS, form=form)
        assert not outcome.violations, "\n".join(report.summary(outcome))
        flipped += [fault.text for fault in outcome.faults if fault.kind in ROT]
    assert any(".log on" in text for text in flipped), "no batch of a local log was damaged"
    assert any(".log in the store" in text for text in flipped), "no batch in the tier was damaged"
